"""How far behind consumer groups are: positions of config/ beside the bounds of queues."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from commitlog_store import GroupPosition, StoreReader, commit_group_offsets, store_metadata
from commitlog_store.errors import CorruptConfig, InvalidValue, StoreLocked, StoreNotFound
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder

NOW = FIRST_STORE_TIME + 1_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """orders: queue 0 with 20 messages, queue 1 with 20; billing's retry topic with 3, its dead letters with 2."""
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", [0, 1], [b"x"] * 40)
    builder.append("%RETRY%billing", 0, [b"x"] * 3)
    builder.append("%DLQ%billing", 0, [b"x"] * 2)
    return builder.path


def test_a_row_says_how_many_messages_wait_and_for_how_long(store: Path) -> None:
    commit_group_offsets(store, "billing", {("orders", 0): 15, ("orders", 1): 20, ("%RETRY%billing", 0): 1})
    with StoreReader.open(store) as reader:
        retry, first, second = reader.groups(now_ms=NOW)
        stored = {offset: reader.store_timestamp("orders", 0, offset) for offset in (14, 15)}
    assert first == GroupPosition(
        group="billing", topic="orders", queue_id=0, committed_offset=15, min_offset=0, max_offset=20, lag=5, lost=0,
        lag_ms=NOW - stored[15], oldest_waiting_timestamp=stored[15], last_consumed_timestamp=stored[14],
        retry_messages=2, dead_letters=2,
    )  # fmt: skip
    assert (second.lag, second.lag_ms, second.oldest_waiting_timestamp) == (0, 0, None)
    assert second.last_consumed_timestamp is not None
    assert (retry.topic, retry.lag, retry.retry_messages, retry.dead_letters) == ("%RETRY%billing", 2, 2, 2)


def test_a_queue_without_a_position_waits_with_all_its_messages(store: Path) -> None:
    commit_group_offsets(store, "audit", {("orders", 0): 0})
    with StoreReader.open(store) as reader:
        first, second = reader.groups("audit")
        assert reader.groups("nobody") == []
    assert (first.committed_offset, first.lag, first.last_consumed_timestamp) == (0, 20, None)
    assert (second.committed_offset, second.lag, second.lost) == (None, 20, 0)


def test_messages_that_retention_took_are_lost_and_not_waiting(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=4096)
    builder.append("orders", 0, [b"x" * 100] * 40)
    min(builder.path.glob("commitlog/*")).unlink()
    commit_group_offsets(builder.path, "billing", {("orders", 0): 7})
    with StoreReader.open(builder.path) as reader:
        (row,) = reader.groups()
        low = reader.queue_info("orders", 0).min_offset
    assert 7 < low == row.min_offset
    assert (row.lag, row.lost, row.last_consumed_timestamp) == (40 - low, low - 7, None)


def test_a_position_after_the_queues_end_has_no_lag_and_says_so(store: Path) -> None:
    commit_group_offsets(store, "billing", {("orders", 0): 99})
    with StoreReader.open(store) as reader:
        row = reader.groups()[0]
    assert (row.committed_offset, row.lag, row.lag_ms, row.last_consumed_timestamp) == (99, 0, 0, None)
    assert row.error.startswith("The position is 79 after the queue's end: the store has lost messages")


def test_a_topic_or_queue_that_does_not_exist_is_a_row_that_says_so(store: Path) -> None:
    commit_group_offsets(store, "billing", {("gone", 3): 7, ("orders", 9): 7})
    with StoreReader.open(store) as reader:
        rows = {(row.topic, row.queue_id): row for row in reader.groups()}
    gone, queue = rows["gone", 3], rows["orders", 9]
    assert (gone.committed_offset, gone.max_offset, gone.lag, gone.lag_ms) == (7, None, None, None)
    assert "gone" in gone.error
    assert queue.error == "Topic 'orders' has no queue 9."
    assert rows["orders", 0].lag == 20


def test_positions_are_read_from_bak_and_damage_of_both_is_named(store: Path) -> None:
    commit_group_offsets(store, "billing", {("orders", 0): 15})
    path = store / "config" / "consumerOffset.json"
    path.rename(path.with_name("consumerOffset.json.bak"))
    with StoreReader.open(store) as reader:
        assert reader.groups()[0].committed_offset == 15
        assert reader.group_offsets("billing") == {("orders", 0): 15}
        path.write_text("{")
        assert reader.groups()[0].committed_offset == 15
        path.with_name("consumerOffset.json.bak").write_text("{")
        with pytest.raises(CorruptConfig, match=r"consumerOffset\.json"):
            reader.groups()


def test_groups_are_read_beside_an_owner(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
        store.dispatch()
        offsets = ConsumerOffsets(str(tmp_path))
        with StoreReader.open(tmp_path) as reader:
            for position in (0, 1):
                offsets.commit("billing", {("orders", 0): position})
                offsets.flush()
                assert [(row.committed_offset, row.lag) for row in reader.groups()] == [(position, 1 - position)]


def test_the_table_has_the_rows_of_the_reader(store: Path) -> None:
    commit_group_offsets(store, "billing", {("orders", 0): 15, ("gone", 0): 1})
    with StoreReader.open(store) as reader:
        rows = reader.groups()
    table = store_metadata(store, "groups").to_pylist()
    assert [(one["topic"], one["queueId"], one["committedOffset"], one["lag"]) for one in table] == [
        (row.topic, row.queue_id, row.committed_offset, row.lag) for row in rows
    ]
    assert len(table[0]) == len(dataclasses.fields(GroupPosition))
    waiting = next(one["oldestWaitingTimestamp"] for one in table if one["committedOffset"] == 15)
    assert round(waiting.timestamp() * 1000) == rows[-2].oldest_waiting_timestamp


def test_positions_are_committed_only_by_an_owner_into_a_store(tmp_path: Path) -> None:
    with open_store(tmp_path / "store"), pytest.raises(StoreLocked):
        commit_group_offsets(tmp_path / "store", "billing", {("orders", 0): 1})
    assert "consumerOffset.json" not in os.listdir(tmp_path / "store" / "config")
    with pytest.raises(StoreNotFound):
        commit_group_offsets(tmp_path / "none", "billing", {})
    with pytest.raises(InvalidValue):
        commit_group_offsets(tmp_path / "store", "billing", {("orders", 0): -1})
    commit_group_offsets(tmp_path / "store", "billing", {("orders", 0): 1})
    with open_store(tmp_path / "store") as store:
        put_ok(store)


def test_committing_leaves_a_crashed_store_to_its_next_owner(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", 0, [b"x"])
    builder.write_abort()
    commit_group_offsets(builder.path, "billing", {("orders", 0): 1})
    assert (builder.path / "abort").exists()
