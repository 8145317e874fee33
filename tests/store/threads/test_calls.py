"""Calls of several threads, and calls within a call of the same thread."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from commitlog_store.errors import NestedCall
from commitlog_store.threads.calls import Calls
from tests.support.waiting import WAIT_LIMIT_S


def test_a_call_within_a_call_of_the_same_thread_is_refused() -> None:
    calls = Calls()
    with calls.enter():
        assert calls.is_within()
        with pytest.raises(NestedCall, match="in the middle of another call"):
            calls.enter()
    assert not calls.is_within()
    with calls.enter():
        pass


def test_calls_of_other_threads_are_seen_until_they_end() -> None:
    calls, ended = Calls(), []
    begun, go_on = threading.Event(), threading.Event()

    def call() -> None:
        with calls.enter():
            begun.set()
            assert go_on.wait(WAIT_LIMIT_S)
            ended.append(True)

    with ThreadPoolExecutor() as threads:
        calling = threads.submit(call)
        assert begun.wait(WAIT_LIMIT_S)
        assert not calls.is_within()
        assert not calls.have_ended()
        go_on.set()
        calling.result(WAIT_LIMIT_S)
        assert ended == [True]
        assert calls.have_ended()


def test_an_exception_within_a_call_ends_it() -> None:
    calls = Calls()
    with pytest.raises(KeyboardInterrupt), calls.enter():
        raise KeyboardInterrupt
    assert calls.have_ended()
    assert not calls.is_within()
