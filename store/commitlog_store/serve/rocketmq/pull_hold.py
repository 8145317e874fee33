"""PullRequestHoldService: pulls that found nothing wait here until messages arrive, without a thread each.

Dispatch, in its own thread, notes the pulls that its messages may concern, and wakes the event loop once for all of
them. A pull is woken by its tags codes alone; it looks, and waits on if no message matches. It is a callback, not a
task: those would take three more rounds of the loop until the answer goes out.

Source: RocketMQ ``broker/longpolling/PullRequestHoldService.java``, ``NotifyMessageArrivingListener.java``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from commitlog_store.engine.arrivals import Arrivals, Interest

# RocketMQ has no bound; more than these are answered at once, and clients come again.
MOST_HELD = 100_000


class HeldPull:
    """One wait for messages. ``set`` may be called by any thread, the rest by the loop's."""

    __slots__ = ("_registered", "_service", "wake")

    def __init__(self, service: PullRequestHoldService, wake: Callable[[], None]) -> None:
        """``wake`` is called by the loop when messages come that may match, and when all are released."""
        self._service = service
        self.wake = wake
        self._registered = contextlib.ExitStack()

    def set(self) -> None:
        self._service.note(self)

    def begin(self, registration: contextlib.AbstractContextManager[object]) -> None:
        """Be set at arrivals, until ``end``."""
        self._registered.enter_context(registration)

    def end(self) -> None:
        """Wait no longer. ``wake`` is not called any more."""
        self.wake = lambda: None
        self._registered.close()


class PullRequestHoldService:
    """The waits of one listener."""

    def __init__(self, arrivals: Arrivals, loop: asyncio.AbstractEventLoop) -> None:
        self._arrivals = arrivals
        self._loop = loop
        self._held: set[HeldPull] = set()
        self._noted: deque[HeldPull] = deque()
        self._is_scheduled = False
        # Whether nothing is held any more: the server stops.
        self.is_released = False

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_full(self) -> bool:
        return self.is_released or len(self._held) >= MOST_HELD

    def hold(self, interest: Interest, wake: Callable[[], None]) -> HeldPull:
        """A pull that is woken for these messages, until ``end``. Look for them after this: none is missed in between.

        ``wake`` is called on the loop.
        """
        held = HeldPull(self, wake)
        held.begin(self._arrivals.waiting_for(held, (interest,)))
        self._held.add(held)
        return held

    def end(self, held: HeldPull) -> None:
        """A pull is answered, or its client is gone."""
        self._held.discard(held)
        held.end()

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
