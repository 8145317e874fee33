"""How far consumers have pulled: what is in flight, what is ready, and that the table is bounded."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.groups.lag import GroupLag, group_lags
from commitlog_store.groups.pulled_offsets import PulledOffsets, PulledQueue
from commitlog_store.testing import parts_of


def _lag(store: MessageStore, pulled: Mapping[PulledQueue, int] | None) -> GroupLag:
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
        found = _lag(store, {("billing", "orders", 0): 3, ("audit", "orders", 1): 5})
        assert (found.messages, found.ready) == (4 + 3, 2 + 3)
        assert found.first_waiting() == [("orders", 0, 1), ("orders", 1, 2)]
        assert found.first_ready() == [("orders", 0, 3), ("orders", 1, 2)]
        found = _lag(store, None)
        assert (found.messages, found.ready, found.first_ready()) == (7, 7, found.first_waiting())
        # Pulls of a position that was moved forward, and beyond the end of a queue that a crash has cut.
        found = _lag(store, {("billing", "orders", 0): 0, ("billing", "orders", 1): 99})
        assert (found.ready, found.first_ready()) == (4, [("orders", 0, 1)])
        found = _lag(store, {("billing", "orders", 0): 5, ("billing", "orders", 1): 5})
        assert (found.messages, found.ready, found.first_ready()) == (7, 0, [])


def test_a_position_that_is_set_and_a_topic_that_is_deleted_have_no_pulls(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        pulled = parts_of(store).groups.pulled
        for topic in ("orders", "bills"):
            store.put(topic, b"x", queue_id=0)
            pulled.note("billing", topic, 0, 1)
            pulled.note("billing", topic, 1, 1)
        store.dispatch()
        store.commit_group_offsets("billing", {("orders", 0): 0})
        bills = {("billing", "bills", 0): 1, ("billing", "bills", 1): 1}
        assert pulled.all() == {("billing", "orders", 1): 1, **bills}
        store.delete_topic("bills", with_messages=True)
        assert pulled.all() == {("billing", "orders", 1): 1}


def test_no_client_makes_the_table_larger_than_its_bound_which_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pulled = PulledOffsets(most=2)
    with caplog.at_level(logging.WARNING):
        for number in range(4):
            pulled.note(f"g{number}", "orders", 0, 1)
        pulled.note("g0", "orders", 0, 7)
        assert pulled.all() == {("g0", "orders", 0): 7, ("g1", "orders", 0): 1}
        pulled.forget_all(group="g0")
        pulled.note("g3", "orders", 0, 5)
        pulled.note("g4", "orders", 0, 5)
    assert pulled.all() == {("g1", "orders", 0): 1, ("g3", "orders", 0): 5}
    (warning,) = caplog.messages
    assert warning.startswith("Consumers have pulled 2 queues of groups since the store was opened.")


def test_threads_that_add_and_forget_the_same_queues_leave_the_bound_as_it_is() -> None:
    pulled = PulledOffsets(most=100)

    def change(number: int) -> None:
        for step in range(300):
            queue_id = step % 10
            pulled.note("billing", "orders", queue_id, step)
            if (step + number) % 3:
                pulled.forget("billing", [("orders", queue_id)])
            else:
                pulled.forget_all(topic="orders")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(change, range(4)))
    finally:
        sys.setswitchinterval(interval)
    pulled.forget_all(topic="orders")
    for queue_id in range(200):
        pulled.note("billing", "orders", queue_id, 1)
    assert len(pulled.all()) == 100
