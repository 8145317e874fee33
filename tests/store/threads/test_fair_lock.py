"""FairLock: other threads get a lock that one thread takes again and again."""

from __future__ import annotations

import statistics
import threading
import time

from commitlog_store.threads.fair_lock import FairLock


def test_others_get_a_lock_that_one_thread_takes_again_at_once() -> None:
    lock, rounds, done = FairLock(), 0, threading.Event()

    def dispatch() -> None:
        nonlocal rounds
        while not done.is_set() and rounds < 10_000:
            with lock:
                rounds += 1
                time.sleep(0.001)  # as a write to a file, it lets others run, but not those that wait for the lock

    thread = threading.Thread(target=dispatch)
    thread.start()
    waited = []
    for _ in range(50):
        before = rounds
        with lock:
            waited.append(rounds - before)
    done.set()
    thread.join()
    assert rounds < 10_000, "a turn came only when the other thread had ended"
    assert statistics.median(waited) < 20, "each turn came after a few rounds"


def test_an_error_within_releases_it() -> None:
    lock = FairLock()
    for _ in range(2):
        try:
            with lock:
                raise ValueError
        except ValueError:
            pass
    with lock:
        assert True
