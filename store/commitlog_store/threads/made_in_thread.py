"""Making something in another thread for a task of asyncio, which may be cancelled while it is made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


async def made_in_thread(make: Callable[[], _T], undo: Callable[[_T], None]) -> _T:
    """What ``make`` returns in another thread. Of a cancelled task, it is undone as soon as it is made."""
    import asyncio  # programs without it do not import it

    made: list[_T] = []
    is_wanted = True

    def make_here() -> None:
        made.append(make())
        if not is_wanted:
            undo_if_made()

    def undo_if_made() -> None:
        with contextlib.suppress(IndexError):  # the other thread took it, or it is not made yet
            undo(made.pop())

    try:
        await asyncio.to_thread(make_here)
    except asyncio.CancelledError:
        # The thread continues, and perhaps the loop does not: the second of the two undoes it.
        is_wanted = False
        undo_if_made()
        raise
    return made.pop()
