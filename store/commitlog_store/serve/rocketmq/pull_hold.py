"""PullRequestHoldService: pulls that found nothing wait here until messages arrive, without a thread each.

Dispatch, in its own thread, notes the pulls that its messages may concern, and wakes the event loop once for all of
them. A pull is woken by its tags codes alone; it looks, and waits on if no message matches.

Source: RocketMQ ``broker/longpolling/PullRequestHoldService.java``, ``NotifyMessageArrivingListener.java``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator

from commitlog_store.engine.arrivals import Arrivals, Interest

# RocketMQ has no bound; more than these are answered at once, and clients come again.
MOST_HELD = 100_000


class HeldPull:
    """One wait for messages. ``set`` may be called by any thread, the rest by the loop's."""

    def __init__(self, service: PullRequestHoldService) -> None:
        self._service = service
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        self._service.note(self)

    def wake(self) -> None:
        """End the wait, or the next one."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self, seconds: float) -> None:
        """Return when it is woken, or after ``seconds``."""
        loop = asyncio.get_running_loop()
        if not self._is_set:
            self._waiter = loop.create_future()
            timer = loop.call_later(seconds, self.wake)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        self._is_set = False


class PullRequestHoldService:
    """The waits of one listener."""

    def __init__(self, arrivals: Arrivals, loop: asyncio.AbstractEventLoop, *, most: int = MOST_HELD) -> None:
        self._arrivals = arrivals
        self._loop = loop
        self._most = most
        self._held: set[HeldPull] = set()
        self._noted: deque[HeldPull] = deque()
        self._is_scheduled = False
        # Whether nothing is held any more: the server stops.
        self.is_released = False

    def __len__(self) -> int:
        """The number of pulls that are held."""
        return len(self._held)

    @property
    def is_full(self) -> bool:
        """Whether no more are held."""
        return self.is_released or len(self._held) >= self._most

    @contextlib.contextmanager
    def holding(self, interest: Interest) -> Iterator[HeldPull]:
        """A pull that is woken for these messages. Look for them after entering: none is missed in between."""
        held = HeldPull(self)
        self._held.add(held)
        try:
            with self._arrivals.waiting_for(held, (interest,)):
                yield held
        finally:
            self._held.discard(held)

    def note(self, held: HeldPull) -> None:
        """Have a pull woken by the loop. Called by any thread."""
        self._noted.append(held)
        if not self._is_scheduled:
            self._is_scheduled = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._wake_noted)

    def _wake_noted(self) -> None:
        self._is_scheduled = False
        while self._noted:
            self._noted.popleft().wake()

    def release(self) -> None:
        """Wake all, and hold no more."""
        self.is_released = True
        for held in list(self._held):
            held.wake()
