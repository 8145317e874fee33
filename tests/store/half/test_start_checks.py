"""Checks on a thread of their own: begun once, at an interval, reported when they fail, ended with the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import HalfMessagesChecked, MessageExt
from commitlog_store.errors import InvalidValue, StoreClosed
from commitlog_store.half.transactional_message import TransactionalMessageCheckService
from commitlog_store.half_message import Answer
from commitlog_store.testing import kill, parts_of
from tests.store.half.test_check import answering, old
from tests.store.half.test_half_messages import prepare, stored
from tests.store.owner.owned_store import open_store
from tests.support.waiting import WAIT_LIMIT_S, wait_for

SOON = {"transaction_check_interval": 5, "transaction_time_out": 0}


def checks_are_running() -> bool:
    return any(thread.name == "TransactionalMessageCheckService" for thread in threading.enumerate())


def test_half_messages_are_asked_for_again_and_again(tmp_path: Path) -> None:
    asked: list[bytes] = []

    def callback(message: MessageExt) -> Answer:
        asked.append(message.body)
        return "commit" if message.body == b"paid" or len(asked) > 5 else "unknown"

    with open_store(tmp_path / "store", **SOON) as store:
        old(store, b"before")
        store.half_messages.start_checks(callback)
        prepare(store, b"paid")
        wait_for(lambda: not store.half_messages.pending())
        assert {one.body for one in stored(store, "orders")} == {b"before", b"paid"}
        assert len(stored(store, "orders")) == 2
        assert checks_are_running()
    assert not checks_are_running(), "closing has ended the thread"


def test_a_callback_that_fails_is_reported_and_the_checks_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    def callback(message: MessageExt) -> Answer:
        calls.append(len(calls))
        if len(calls) == 1:
            raise RuntimeError("the database is away")
        return "done" if len(calls) == 2 else "commit"  # type: ignore[return-value]

    with open_store(tmp_path / "store", **SOON) as store, caplog.at_level(logging.ERROR):
        old(store, b"x")
        store.half_messages.start_checks(callback)
        wait_for(lambda: len(stored(store, "orders")) == 1)
    assert "the database is away" in caplog.text
    assert "the next one begins in" in caplog.text
    assert "'done'" in caplog.text


def test_a_store_has_one_callback(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.half_messages.start_checks(answering("commit"))
        with pytest.raises(InvalidValue, match="started before"):
            store.half_messages.start_checks(answering("commit"))
        with pytest.raises(InvalidValue, match="callback"):
            store.half_messages.start_checks(None)  # type: ignore[arg-type]
    with pytest.raises(StoreClosed):
        store.half_messages.start_checks(answering("commit"))


def test_closing_waits_for_the_callback_under_way_and_none_comes_after(tmp_path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()
    ended: list[bytes] = []

    def callback(message: MessageExt) -> Answer:
        entered.set()
        assert go_on.wait(WAIT_LIMIT_S)
        ended.append(message.body)
        return "commit"

    store = open_store(tmp_path / "store", **SOON)
    old(store, b"1")
    old(store, b"2")
    store.half_messages.start_checks(callback)
    assert entered.wait(WAIT_LIMIT_S)
    closing = threading.Thread(target=store.close)
    closing.start()
    wait_for(lambda: parts_of(store).is_closing)
    assert closing.is_alive()
    go_on.set()
    closing.join(WAIT_LIMIT_S)
    assert ended == [b"1"]
    with open_store(tmp_path / "store") as store:
        assert [one.message.body for one in store.half_messages.pending()] == [b"1", b"2"], "its answer came too late"


def test_a_callback_may_close_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", **SOON)
    closed = threading.Event()

    def callback(_: MessageExt) -> Answer:
        store.close()
        closed.set()
        return "commit"

    old(store, b"x")
    store.half_messages.start_checks(callback)
    assert closed.wait(WAIT_LIMIT_S)
    store.close()  # waits for the close that the callback asked for
    assert not checks_are_running()
    with open_store(tmp_path / "store") as store:
        assert len(store.half_messages.pending()) == 1


def test_a_store_that_is_abandoned_ends_the_checks(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", **SOON)
    store.half_messages.start_checks(answering("unknown"))
    kill(store)
    assert not checks_are_running()


@pytest.mark.parametrize(("error", "logged"), [(OSError("disk"), True), (StoreClosed("closed"), False), (None, False)])
def test_a_round_that_fails_is_followed_by_the_next(
    error: Exception | None, logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def check(_: Callable[[MessageExt], Answer]) -> HalfMessagesChecked:
        if error is not None:
            raise error
        return HalfMessagesChecked(too_young=3)

    service = TransactionalMessageCheckService(check, answering("commit"), 7.0)
    assert service.run_once() == 7.0
    assert bool(caplog.records) is logged


def test_checks_go_on_after_the_store_has_rejected_messages_for_a_while(tmp_path: Path) -> None:
    refused: list[int] = []

    def callback(_: MessageExt) -> Answer:
        refused.append(1)
        return "commit"

    with open_store(tmp_path / "store", **SOON) as store:
        old(store, b"x")
        store.set_writable(False)
        store.half_messages.start_checks(callback)
        wait_for(lambda: len(refused) > 1)
        store.set_writable(True)
        wait_for(lambda: len(stored(store, "orders")) == 1)
