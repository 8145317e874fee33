"""LiveStreams: parts of pages sent again as they change, by server-sent events, bounded in number and time.

Source of the format: the HTML standard, "Server-sent events".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.responses import Response, StreamingResponse

from commitlog_store.errors import CommitLogError, RemoteAccessRefused, ServerBusy

_LOG = logging.getLogger(__name__)
_MOST_STREAMS = 64
# What is sent is made again after so long; what it costs to know it is bounded by LiveLooks.
_PAUSE_S = 2.0
# For nginx, which else gathers an answer before it passes it on.
_AT_ONCE = {"x-accel-buffering": "no"}
# Less than an answer may take (app.py): a browser connects again.
_LONGEST_S = 240.0


class LiveStreams:
    """For one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    def stream(self, make: Callable[[], Awaitable[str]]) -> Response:
        """What ``make`` gives, again and again, when it is not what was sent last. ``ServerBusy``.

        It ends when ``make`` raises ``RemoteAccessRefused``.
        """
        if self._count >= _MOST_STREAMS:
            raise ServerBusy(f"{_MOST_STREAMS} pages are looked at live, as many as the server lets be.")
        return StreamingResponse(self._events(make), media_type="text/event-stream", headers=_AT_ONCE)

    async def _events(self, make: Callable[[], Awaitable[str]]) -> AsyncIterator[bytes]:
        if self._count >= _MOST_STREAMS:  # others that came at the same time have begun since ``stream``
            return
        self._count += 1
        try:
            ends = time.monotonic() + _LONGEST_S
            yield b"retry: 5000\n\n"
            last: str | None = None
            while not self._stopping.is_set() and time.monotonic() < ends:
                try:
                    found = await self._made(make)
                except RemoteAccessRefused:
                    return
                yield b": \n\n" if found in (None, last) else _event(found or "")
                last = found or last
                await self._pause()
        finally:
            self._count -= 1

    @staticmethod
    async def _made(make: Callable[[], Awaitable[str]]) -> str | None:
        """None for what cannot be shown now: the page that is there stays. ``RemoteAccessRefused``."""
        try:
            return await make()
        except RemoteAccessRefused:
            raise
        except CommitLogError as error:
            _LOG.debug("A page is not sent again now: %s", error)
            return None

    async def _pause(self) -> None:
        """Until the time is over, or the streams are to end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), _PAUSE_S)


def _event(text: str) -> bytes:
    return b"".join(b"data: " + line.encode() + b"\n" for line in text.splitlines()) + b"\n"
