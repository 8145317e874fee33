"""A server does each call of a session once, and forgets sessions in time."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from commitlog_store.errors import PutNotConfirmed, PutRefused, RemoteFailed, SessionLost
from commitlog_store.message import PutMessageStatus
from commitlog_store.remote.put_wire import CallId
from commitlog_store.serve.call_limits import CallLimits, answering
from commitlog_store.serve.sessions import AnswerNotWaitedFor, Session, Sessions
from commitlog_store.transaction import Transaction
from tests.support.waiting import WAIT_LIMIT_S


class _Work:
    """Counts how often it is done."""

    def __init__(self, answer: bytes = b"answer") -> None:
        self.done = 0
        self._answer = answer

    def __call__(self, _: Session) -> bytes:
        self.done += 1
        return self._answer


class _Kept(Transaction):
    def __init__(self) -> None:
        self.discarded: list[bool] = []

    def __repr__(self) -> str:
        return "<a transaction>"

    def __exit__(self, *_: object) -> None:
        self.discarded.append(True)


def test_a_repeated_call_gets_the_answer_of_the_first() -> None:
    sessions = Sessions()
    work, call = _Work(), CallId(sessions.open(), 1)
    assert [sessions.once(call, work) for _ in range(3)] == [b"answer"] * 3
    assert work.done == 1
    assert sessions.once(CallId(call.session, 2), work) == b"answer"
    assert work.done == 2


def test_a_repeated_call_that_is_not_wanted_any_more_waits_no_longer() -> None:
    """Its client left, or its time is over: it would hold its thread as long as the call that hangs."""
    sessions = Sessions()
    call = CallId(sessions.open(), 1)
    begun, may_end = threading.Event(), threading.Event()

    def hangs(_: Session) -> bytes:
        begun.set()
        may_end.wait(WAIT_LIMIT_S)
        return b"late"

    first = threading.Thread(target=sessions.once, args=(call, hangs))
    first.start()
    begun.wait(WAIT_LIMIT_S)
    for seconds, has_left in ((0.2, False), (300.0, True)):
        is_wanted = CallLimits(call_timeout_s=seconds).enter("").begin("h:1", partial(bool, has_left))
        with answering(is_wanted), pytest.raises(AnswerNotWaitedFor):
            sessions.once(call, _Work())
    may_end.set()
    first.join(WAIT_LIMIT_S)
    assert sessions.once(call, _Work()) == b"late", "the call was done once, and its answer is kept"


def test_a_call_that_comes_after_the_next_one_is_not_done() -> None:
    sessions = Sessions()
    work, name = _Work(), sessions.open()
    sessions.once(CallId(name, 2), work)
    with pytest.raises(RemoteFailed, match="came late"):
        sessions.once(CallId(name, 1), work)
    assert work.done == 1


def test_a_call_that_is_repeated_while_it_is_under_way_waits_for_it() -> None:
    sessions = Sessions()
    call = CallId(sessions.open(), 1)
    begun, may_end = threading.Event(), threading.Event()
    answers: list[bytes] = []

    def slow(_: Session) -> bytes:
        begun.set()
        assert may_end.wait(WAIT_LIMIT_S)
        return b"slow"

    def ask() -> None:
        answers.append(sessions.once(call, slow))

    first = threading.Thread(target=ask)
    first.start()
    assert begun.wait(WAIT_LIMIT_S)
    begun.clear()
    second = threading.Thread(target=ask)
    second.start()
    may_end.set()
    for thread in (first, second):
        thread.join()
    assert answers == [b"slow"] * 2
    assert not begun.is_set(), "the repeated call was done"


def test_errors_are_answers_too() -> None:
    sessions = Sessions()
    name, done = sessions.open(), 0

    def refused(_: Session) -> bytes:
        nonlocal done
        done += 1
        raise PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, "no")

    def broken(_: Session) -> bytes:
        raise KeyError("x")

    for _ in range(2):
        with pytest.raises(PutRefused, match="no"):
            sessions.once(CallId(name, 1), refused)
    assert done == 1
    with pytest.raises(PutNotConfirmed, match="failed with KeyError"):
        sessions.once(CallId(name, 2), broken)


def test_sessions_end_when_they_are_not_used() -> None:
    now = 0.0
    sessions = Sessions(clock=lambda: now, idle_s=600)
    old, used, kept = sessions.open(), sessions.open(), _Kept()

    def keep(session: Session) -> bytes:
        session.kept = kept
        return b""

    sessions.once(CallId(old, 1), keep)
    now = 500.0
    sessions.once(CallId(used, 1), _Work())
    assert not kept.discarded
    now = 601.0
    sessions.once(CallId(used, 2), _Work())
    assert len(kept.discarded) == 1
    with pytest.raises(SessionLost):
        sessions.once(CallId(old, 1), keep)
    sessions.close(used)
    with pytest.raises(SessionLost):
        sessions.once(CallId(used, 2), _Work())


def test_memory_is_bounded_by_sessions_and_by_bytes() -> None:
    sessions = Sessions(most=3, most_bytes=100)
    names = [sessions.open() for _ in range(5)]
    known = []
    for name in names:
        try:
            sessions.once(CallId(name, 1), _Work(b"x" * 40))
            known.append(name)
        except SessionLost:
            pass
    assert known == names[2:]
    for number in range(2, 9):
        sessions.once(CallId(sessions.open(), number), _Work(b"x" * 60))
    with pytest.raises(SessionLost):
        sessions.once(CallId(names[2], 2), _Work())
