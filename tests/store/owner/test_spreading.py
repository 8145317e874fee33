"""Spreading: the number of queues for messages that name none, when others have named queues."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.store.owner.owned_store import open_store, put_ok


@pytest.mark.parametrize(
    ("highest", "spread"), [(3, 4), (9, 10), (65_535, 65_536), (65_536, 4), (1_000_000, 4), (2**31 - 1, 4)]
)
def test_a_far_queue_id_does_not_spread_a_topic_over_a_million_queues(
    tmp_path: Path, highest: int, spread: int
) -> None:
    """Each queue is a directory. No topic has more than 65,536, so a higher id says nothing about their number."""
    with open_store(tmp_path) as store:
        put_ok(store, queue_id=highest)
    with open_store(tmp_path) as store:
        table = pa.table({"body": [b"x"] * 12})
        result = store.put_messages(table, topic="orders").raise_for_status()
    assert result.rows["queueId"].to_pylist() == [number % spread for number in range(12)]
