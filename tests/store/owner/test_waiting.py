"""``wait_for_messages``: a consumer in the owner's process sleeps until messages can be read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import Message
from commitlog_store.errors import InvalidValue, StoreClosed, StoreIOError
from commitlog_store.testing import parts_of, waiting_calls
from tests.store.owner.owned_store import SYNC, Gate, open_store, put_ok
from tests.support.waiting import WAIT_LIMIT_S, wait_for


def test_waiting_ends_when_the_message_can_be_read(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, ThreadPoolExecutor() as threads, store.reader() as reader:
        for offset in range(50):
            waiting = threads.submit(store.wait_for_messages, "orders", 1, offset)
            put_ok(store, queue_id=1)
            assert waiting.result(WAIT_LIMIT_S) is True
            assert reader.queue_info("orders", 1).max_offset == offset + 1


def test_a_wait_for_stored_messages_ends_at_once(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
        put_ok(store)
        store.dispatch()
        assert store.wait_for_messages("orders", 0, 0, timeout_s=0)
        assert store.wait_for_messages("orders", 0, 1, timeout_s=0)
        assert not store.wait_for_messages("orders", 0, 2, timeout_s=0)


def test_messages_of_other_queues_do_not_end_the_wait(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, queue_id=1)
        put_ok(store, topic="bills")
        store.dispatch()
        assert not store.wait_for_messages("orders", 0, 0, timeout_s=0.02)


def test_a_reopened_store_knows_what_its_queues_hold(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
    with open_store(tmp_path) as store:
        assert store.wait_for_messages("orders", 0, 0, timeout_s=0)
        assert not store.wait_for_messages("orders", 0, 1, timeout_s=0)


def test_closing_the_store_ends_every_wait(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as threads:
        store = open_store(tmp_path)
        waiting = [threads.submit(store.wait_for_messages, "orders", queue_id, 0, 20) for queue_id in range(4)]
        store.close()
        for one in waiting:
            with pytest.raises(StoreClosed):
                one.result(WAIT_LIMIT_S)
    with pytest.raises(StoreClosed):
        store.wait_for_messages("orders", 0, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"topic": "../x"},
        {"topic": ""},
        {"topic": None},
        {"topic": b"orders"},
        {"queue_id": -1},
        {"queue_id": 2**31},
        {"queue_id": "0"},
        {"queue_id": True},
        {"offset": -1},
        {"offset": 2**63},
        {"offset": 0.0},
        {"offset": None},
        {"timeout_s": "1"},
        {"timeout_s": float("nan")},
    ],
    ids=str,
)
def test_a_wait_for_an_impossible_place_in_a_queue_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"topic": "orders", "queue_id": 0, "offset": 0, "timeout_s": 0}
    with open_store(tmp_path) as store, pytest.raises(InvalidValue, match=next(iter(wrong))):
        store.wait_for_messages(**arguments | wrong)


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, 10**400, None], ids=["inf", "1e300", "10**400", "None"])
def test_a_wait_with_an_enormous_timeout_never_times_out(tmp_path: Path, timeout: float | None) -> None:
    with open_store(tmp_path) as store, ThreadPoolExecutor() as threads:
        waiting = threads.submit(store.wait_for_messages, "orders", 0, 0, timeout)
        wait_for(lambda: waiting_calls(store) > 0)
        put_ok(store)
        assert waiting.result(WAIT_LIMIT_S) is True


def test_a_wait_ends_when_the_store_can_no_longer_be_read(tmp_path: Path) -> None:
    with open_store(tmp_path) as store, ThreadPoolExecutor() as threads:
        put_ok(store)
        waiting = threads.submit(store.wait_for_messages, "orders", 0, 1)
        wait_for(lambda: waiting_calls(store) > 0)
        store.set_readable(False)
        with pytest.raises(StoreClosed, match="not readable"):
            waiting.result(WAIT_LIMIT_S)
        with pytest.raises(StoreClosed, match="not readable"):
            store.wait_for_messages("orders", 0, 0)
        store.set_readable(True)
        assert store.wait_for_messages("orders", 0, 0, timeout_s=WAIT_LIMIT_S)
        assert waiting_calls(store) == 0, "ended waits are forgotten"


def test_a_store_that_fails_ends_every_wait(tmp_path: Path, sync_gate: Gate) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store, ThreadPoolExecutor() as threads:
        put_ok(store)
        assert store.wait_for_messages("orders", 0, 0, timeout_s=WAIT_LIMIT_S)
        waiting = threads.submit(store.wait_for_messages, "orders", 0, 1)
        sync_gate.fail()
        assert not store.put_message(Message(queue_id=0, topic="orders", body=b"x")).ok
        with pytest.raises(StoreIOError, match="commitlog"):
            waiting.result(WAIT_LIMIT_S)
        assert store.wait_for_messages("orders", 0, 0), "stored messages are still reported"
        with pytest.raises(StoreIOError):
            store.wait_for_messages("orders", 0, 1)


def test_waiting_for_missing_queues_leaves_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for number in range(20):
            assert not store.wait_for_messages(f"topic{number}", number, 0, timeout_s=0)
        assert parts_of(store).engine.log.queues._writers == {}
