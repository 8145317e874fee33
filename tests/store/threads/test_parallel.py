"""Work on many items at once: all of them are tried, and an error is raised when all have ended."""

from __future__ import annotations

import threading

import pytest

from commitlog_store.threads.parallel import for_each
from tests.support.waiting import WAIT_LIMIT_S


@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_every_item_is_worked_on_once(count: int) -> None:
    done: list[int] = []
    for_each(done.append, range(count), most_threads=4)
    assert sorted(done) == list(range(count))


def test_several_items_are_worked_on_at_once() -> None:
    together = threading.Barrier(4)

    def work(_: int) -> None:
        together.wait(WAIT_LIMIT_S)

    for_each(work, range(4), most_threads=4)


def test_an_error_is_raised_when_every_item_was_tried() -> None:
    done: list[int] = []

    def work(item: int) -> None:
        done.append(item)
        if item % 2:
            raise KeyError(item)

    with pytest.raises(KeyError):
        for_each(work, range(20), most_threads=4)
    assert sorted(done) == list(range(20))
