"""RocketMQ and MessageStore take turns on one store: neither loses, doubles or changes what the other wrote."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.conftest import OpenMessageStore
from tests.interop.rocketmq import RocketMq
from tests.interop.turns import Turns

TURNS = 12


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_both_programs_see_every_acknowledged_message_after_every_turn(
    rocketmq: RocketMq, open_message_store: OpenMessageStore, tmp_path: Path, seed: int
) -> None:
    turns = Turns(tmp_path / "store", rocketmq, open_message_store, seed)
    for _ in range(TURNS):
        turns.take(turns.random_turn())
    assert len(turns.acknowledged) > 100
