"""for_each: work on many items by several threads at once, for calls that wait for the device."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def for_each(work: Callable[[_T], None], items: Sequence[_T], *, most_threads: int) -> None:
    """Do ``work`` for every item, on this thread and up to ``most_threads - 1`` more.

    Every item is tried; then the first exception is raised. While the interpreter is shutting down no thread can be
    started, and this one does everything.
    """
    left: queue.SimpleQueue[_T] = queue.SimpleQueue()
    errors: list[BaseException] = []
    for item in items:
        left.put(item)

    def work_off() -> None:
        while True:
            try:
                item = left.get_nowait()
            except queue.Empty:
                return
            try:
                work(item)
            except BaseException as error:  # noqa: BLE001 - it is raised below
                errors.append(error)

    helpers: list[threading.Thread] = []
    for _ in range(min(most_threads, len(items)) - 1):
        helper = threading.Thread(target=work_off, daemon=True)
        try:
            helper.start()
        except RuntimeError:
            break
        helpers.append(helper)
    work_off()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]
