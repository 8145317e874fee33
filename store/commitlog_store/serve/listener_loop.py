"""Work on the event loop of a listener: taking connections, and what runs until the listener stops."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

_LOG = logging.getLogger(__name__)
# After a connection could not be taken.
_PAUSE_S = 1.0


async def accept(
    bound: socket.socket,
    has_room: Callable[[], bool],
    begin: Callable[[socket.socket], Coroutine[Any, Any, None]],
    beginning: set[asyncio.Task[None]],
) -> None:
    """Take connections, and close those that there is no room for. When this ends, new ones are refused.

    Each begins in a task of its own, which is in ``beginning`` until then.
    """
    loop = asyncio.get_running_loop()
    bound.setblocking(False)
    with bound:
        while True:
            try:
                connection, _ = await loop.sock_accept(bound)
            except OSError as error:  # too many open files
                _LOG.warning("A connection cannot be taken: %s", error)
                await asyncio.sleep(_PAUSE_S)
                continue
            if has_room():
                task = loop.create_task(begin(connection))
                beginning.add(task)
                task.add_done_callback(beginning.discard)
            else:
                connection.close()
            # ``sock_accept`` returns at once while connections wait: the loop has others to serve in between.
            await asyncio.sleep(0)


async def logged(work: Coroutine[Any, Any, None], listener: str) -> None:
    """Do work of a listener whose outcome nothing waits for: an error that ends it is logged."""
    try:
        await work
    except Exception:  # noqa: BLE001 - whatever it is, the listener serves on
        _LOG.exception("%s of %s has ended", getattr(work, "__qualname__", work), listener)
