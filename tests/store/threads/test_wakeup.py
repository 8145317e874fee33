"""Waits that others end, or the clock, whatever interrupts them."""

from __future__ import annotations

import os
import signal
import threading
import time

from commitlog_store.threads.wakeup import Wakeup


def test_a_wait_ends_when_it_is_woken_before_or_during_it() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.set()
    wakeup.wait(60)
    timer = threading.Timer(0.05, wakeup.set)
    timer.start()
    started = time.monotonic()
    wakeup.wait(60)
    assert time.monotonic() - started < 30
    timer.join()


def test_a_wait_ends_in_time_and_is_not_woken_by_what_another_wait_has_had() -> None:
    wakeup = Wakeup()
    wakeup.set()
    wakeup.wait(0)
    started = time.monotonic()
    wakeup.wait(0.05)
    assert time.monotonic() - started >= 0.05
    wakeup.wait(-1)


def test_a_handler_that_takes_longer_than_the_wait_does_not_make_it_endless() -> None:
    """As it does for ``queue.SimpleQueue.get`` before Python 3.13."""
    wakeup = Wakeup()
    before = signal.signal(signal.SIGUSR1, lambda *_: time.sleep(0.4))
    interrupting = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    late = threading.Timer(20, wakeup.set)
    try:
        interrupting.start()
        late.start()
        started = time.monotonic()
        wakeup.wait(0.2)
        assert time.monotonic() - started < 10
    finally:
        late.cancel()
        interrupting.join()
        signal.signal(signal.SIGUSR1, before)
