"""How far consumers have pulled: what is in flight, what is ready, and that the table is bounded."""

from __future__ import annotations

from pathlib import Path

from commitlog_store import MessageStore, StoreReader
from commitlog_store.groups.lag import GroupLag, group_lags
from commitlog_store.groups.pulled_offsets import PulledOffsets
from commitlog_store.testing import parts_of


def _lag(store: MessageStore, pulled: dict[tuple[str, str], dict[int, int]]) -> GroupLag:
    with StoreReader.open(store.path) as reader:
        (found,) = group_lags(reader, parts_of(store).groups.offsets, pulled)
    return found


def test_what_was_pulled_is_not_ready_and_a_queue_without_pulls_is_ready_from_its_position_on(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        for queue_id in (0, 1):
            for _ in range(5):
                store.put("orders", b"x", queue_id=queue_id)
        store.dispatch()
        store.commit_group_offsets("billing", {("orders", 0): 1, ("orders", 1): 2})
        found = _lag(store, {("billing", "orders"): {0: 3}})
        assert (found.messages, found.ready) == (4 + 3, 2 + 3)
        assert found.first_waiting == (("orders", 0, 1), ("orders", 1, 2))
        assert found.first_ready == (("orders", 0, 3), ("orders", 1, 2))
        assert _lag(store, {}).ready == 7
        # Pulls of a position that was moved forward, and beyond the end of a queue that a crash has cut.
        assert _lag(store, {("billing", "orders"): {0: 0, 1: 99}}).ready == 4


def test_a_position_that_is_set_and_a_topic_that_is_deleted_have_no_pulls(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        pulled = parts_of(store).groups.pulled
        for topic in ("orders", "bills"):
            store.put(topic, b"x", queue_id=0)
            pulled.note("billing", topic, 0, 1)
            pulled.note("billing", topic, 1, 1)
        store.dispatch()
        store.commit_group_offsets("billing", {("orders", 0): 0})
        assert pulled.all() == {("billing", "orders"): {1: 1}, ("billing", "bills"): {0: 1, 1: 1}}
        store.delete_topic("bills", with_messages=True)
        assert pulled.all() == {("billing", "orders"): {1: 1}}


def test_no_client_makes_the_table_larger_than_its_bound() -> None:
    pulled = PulledOffsets(most=2)
    for number in range(4):
        pulled.note(f"g{number}", "orders", 0, 1)
    pulled.note("g0", "orders", 0, 7)
    assert pulled.all() == {("g0", "orders"): {0: 7}, ("g1", "orders"): {0: 1}}
    pulled.forget_all(group="g0")
    pulled.note("g3", "orders", 0, 5)
    assert pulled.all() == {("g1", "orders"): {0: 1}, ("g3", "orders"): {0: 5}}
