"""The job thread: one job after the other, a last one, and callers that may be interrupted while they wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from commitlog_store.threads.jobs import JobThread, JobThreadEnded
from tests.support.interrupter import interrupt_main_thread
from tests.support.waiting import WAIT_LIMIT_S


@pytest.fixture
def jobs() -> Iterator[JobThread]:
    thread = JobThread("jobs of a test", lambda: True)
    thread.start()
    yield thread
    thread.finish(lambda: None).wait()


def test_a_job_gives_its_result_or_raises_what_it_raised(jobs: JobThread) -> None:
    assert jobs.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        jobs.run(lambda: 1 / 0)
    assert jobs.run(threading.get_ident) != threading.get_ident()


def test_jobs_run_one_after_the_other(jobs: JobThread) -> None:
    running, most = 0, 0

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        running -= 1

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(jobs.run, work) for _ in range(200)]:
            done.result(WAIT_LIMIT_S)
    assert most == 1


def test_an_interrupt_ends_the_wait_and_not_the_job(jobs: JobThread) -> None:
    begun, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        assert go_on.wait(WAIT_LIMIT_S)
        done.set()

    with interrupt_main_thread(begun.wait), pytest.raises(KeyboardInterrupt):
        jobs.run(work)
    assert not done.is_set()
    go_on.set()
    assert done.wait(WAIT_LIMIT_S)


def test_after_the_last_job_none_is_accepted_and_none_is_waited_for() -> None:
    jobs = JobThread("jobs of a test", lambda: True)
    jobs.start()
    done: list[str] = []
    last = jobs.finish(lambda: done.append("last"))
    assert jobs.finish(lambda: done.append("another")) is last
    last.wait()
    last.wait()
    assert done == ["last"]
    with pytest.raises(JobThreadEnded):
        jobs.run(lambda: done.append("late"))


def test_a_job_that_was_given_before_the_last_one_is_done_before_it() -> None:
    jobs = JobThread("jobs of a test", lambda: True)
    done: list[int] = []
    with ThreadPoolExecutor() as threads:
        jobs.start()
        begun, go_on = threading.Event(), threading.Event()

        def first() -> None:
            begun.set()
            assert go_on.wait(WAIT_LIMIT_S)
            done.append(1)

        running = threads.submit(jobs.run, first)
        assert begun.wait(WAIT_LIMIT_S)
        last = jobs.finish(lambda: done.append(2))
        go_on.set()
        last.wait()
        running.result(WAIT_LIMIT_S)
    assert done == [1, 2]


def test_a_call_that_began_before_the_last_job_may_still_give_one() -> None:
    """A signal handler closes the store in the middle of a call, which then gives its job and waits for it."""
    done: list[str] = []
    ended = threading.Event()
    jobs = JobThread("jobs of a test", ended.is_set)
    jobs.start()
    last = jobs.finish(lambda: done.append("last"))
    jobs.run(lambda: done.append("of the call"))
    assert done == ["of the call"]
    ended.set()
    last.wait()
    assert done == ["of the call", "last"]
