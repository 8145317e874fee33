"""Items made one step ahead: all of them, in order, or an error; and no thread outlives the end."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator

import pytest

from commitlog_store.threads.prefetch import prefetch


class Items:
    """Numbers, made on any thread; ``open`` while the generator is in use."""

    def __init__(self, count: int, failing: int | None = None) -> None:
        self.open = False
        self.made: list[int] = []
        self.threads: set[int] = set()
        self._count = count
        self._failing = failing

    def make(self) -> Generator[int, None, None]:
        self.open = True
        try:
            for number in range(self._count):
                self.threads.add(threading.get_ident())
                if number == self._failing:
                    raise KeyError(number)
                self.made.append(number)
                yield number
        finally:
            self.open = False


@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_all_items_come_in_order_from_another_thread(count: int) -> None:
    items = Items(count)
    assert list(prefetch(items.make())) == list(range(count))
    assert threading.get_ident() not in items.threads
    assert not items.open


@pytest.mark.parametrize("failing", [0, 3])
def test_an_error_of_making_an_item_is_raised_in_its_place(failing: int) -> None:
    items, found = Items(9, failing), list[int]()
    with pytest.raises(KeyError):
        found.extend(prefetch(items.make()))
    assert found == list(range(failing))
    assert not items.open


@pytest.mark.parametrize("taken", [0, 1, 4])
def test_closed_early_it_is_at_most_one_ahead_and_releases_the_items(taken: int) -> None:
    items = Items(9)
    ahead = prefetch(items.make())
    assert list(itertools.islice(ahead, taken)) == list(range(taken))
    ahead.close()
    assert not items.open
    assert "Prefetch" not in {thread.name for thread in threading.enumerate()}
    assert items.made in ([*range(taken)], [*range(taken + 1)])
