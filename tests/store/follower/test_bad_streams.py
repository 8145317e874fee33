"""A network that cuts, delays, doubles and changes bytes: the mirror stores nothing wrong, and ends with everything."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog import MessageStore
from commitlog.errors import PeerRefused
from tests.store.follower.mirrors import assert_identical, follow, log_bytes, master_of
from tests.support.clean_store import assert_clean
from tests.support.cutting_proxy import CuttingProxy, body_of_high_bytes

__all__: list[str] = []


def _put_some(master: MessageStore, chance: random.Random, version: int) -> None:
    for number in range(12):
        master.put("orders", body_of_high_bytes(chance, chance.choice([600, 2_000, 6_000])), queue_id=number % 2)
    rows = [body_of_high_bytes(chance, 1_000) for _ in range(chance.choice([3, 40]))]
    with master.transaction("app", version) as transaction:
        transaction.put_messages(pa.table({"body": rows}), topic="batches")


def follow_through(root: Path, turns: int, seed: int) -> dict[str, int]:
    """Follow through a bad network, then through a good one; returns what was done to the streams."""
    chance = random.Random(seed)
    mirror = root / "mirror"
    with master_of(root / "master") as master, CuttingProxy(str(master.ha_address), seed) as proxy:
        for turn in range(turns):
            _put_some(master, chance, turn + 1)
            # A follower gives up a master from which it got wrong bytes several times in a row.
            with follow(proxy.address, mirror) as follower, contextlib.suppress(PeerRefused):
                _put_some(master, chance, turns + turn + 1)
                follower.wait_for(master.physical_bounds()[1], timeout_s=0.5)
            end = follower.status.end
            assert log_bytes(mirror, 0, end) == log_bytes(root / "master", 0, end)
            assert_clean(mirror)
        proxy.honest = True
        with follow(proxy.address, mirror) as follower:
            assert_identical(master, follower)
    assert_clean(mirror)
    return proxy.done


def test_a_bad_network_leaves_nothing_wrong_in_the_mirror(tmp_path: Path) -> None:
    done = follow_through(tmp_path, 12, seed=1)
    assert min(done.values()) >= 1, done


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 120))
def test_bad_networks_leave_nothing_wrong_in_the_mirror(tmp_path: Path, seed: int) -> None:
    done = follow_through(tmp_path, 60, seed)
    assert min(done.values()) >= 3, done
