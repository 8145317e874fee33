"""CallLimits: how many calls a server has at once, of one client and of all, the bytes they hold, their time."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar, overload

from commitlog_store.errors import RemoteFailed, ServerBusy

DEFAULT_MAX_CALLS = 256
DEFAULT_CALL_TIMEOUT_S = 300.0
# One client has at most this part of the calls, and of the streams, so that it cannot shut the others out.
_PART_OF_ONE = 0.75
# Streams of calls beside them, each with a thread of its own.
_PART_OF_STREAMS = 0.5
# Much longer than a client of this package uses one.
LONGEST_STREAM_SECONDS = 10.0
# What calls hold in memory until the client has it, on average: two blocks of the size that readers ask for.
_BYTES_OF_A_CALL = 8 << 20
# How long a client that was connected is assumed to be.
_ASKED_AGAIN_SECONDS = 0.01

_T = TypeVar("_T")


class CallSlot:
    """The place of one call among those under way. ``leave`` may be called again."""

    def __init__(self, limits: CallLimits, client: str) -> None:
        self.client = client
        self.peer = ""
        self.begun = time.monotonic()
        self.held = 0
        self.waits = False
        self._limits = limits

    def hold(self, size: int, *, may_refuse: bool = True) -> None:
        """Count ``size`` bytes until the call has ended; a call that is alone may hold any size.

        ``ServerBusy``, unless it may not be refused.
        """
        limits = self._limits
        with limits._lock:
            if may_refuse and limits._held > self.held and limits._held + size > limits._max_bytes:
                raise ServerBusy(
                    f"Calls under way hold {limits._held} bytes, and this one needs {size}: more than the "
                    f"{limits._max_bytes} that the server has for them (8 MiB for each of --max-calls)."
                )
            self.held += size
            limits._held += size

    def begin_wait(self) -> None:
        """From now on the call waits for messages: waits have a number of their own. ``ServerBusy``."""
        limits, most, most_of_one = self._limits, self._limits._max_calls, self._limits._max_of_one
        with limits._lock:
            if limits._waits_of.total() >= most:
                raise ServerBusy(f"{most} clients wait for messages, as many as the server lets wait.")
            if self.client and limits._waits_of[self.client] >= most_of_one:
                raise ServerBusy(f"{most_of_one} clients wait with the token {self.client!r}, as many as may.")
            limits._waits_of[self.client] += 1
            limits._calls_of[self.client] -= 1
            self.waits = True

    def leave(self) -> None:
        limits = self._limits
        with limits._lock:
            limits._streams.discard(self)
            if self in limits._slots:
                limits._slots.remove(self)
                limits._held -= self.held
                (limits._waits_of if self.waits else limits._calls_of)[self.client] -= 1

    def begin(self, peer: str, is_cancelled: Callable[[], bool]) -> Callable[[], bool]:
        """The request is whole, and came over this peer's connection. Returns what says whether to go on with it:
        whether the call's time is not over, its client is connected, and the server is not stopping.

        Asked for each of thousands of queues, gRPC would take most of the call's time: some 70 µs each time.
        """
        limits, asked = self._limits, 0.0
        with limits._lock:
            self.peer = peer
            limits._began.add(peer)

        def is_wanted() -> bool:
            nonlocal asked
            now = time.monotonic()
            if limits.is_stopping() or now > self.begun + limits.call_timeout_s:
                return False
            if now >= asked + _ASKED_AGAIN_SECONDS:
                if is_cancelled():
                    return False
                asked = now
            return True

        return is_wanted


class CallLimits:
    """``max_calls`` calls at once, as many waits beside them, and ``call_timeout_s`` for each.

    Besides, half as many streams of calls: a client that gets none makes its calls without.
    """

    def __init__(self, max_calls: int = DEFAULT_MAX_CALLS, call_timeout_s: float = DEFAULT_CALL_TIMEOUT_S) -> None:
        self.call_timeout_s = call_timeout_s
        self._max_calls = max_calls
        self._max_of_one = max(int(max_calls * _PART_OF_ONE), 1)
        self._max_bytes = max_calls * _BYTES_OF_A_CALL
        self._lock = threading.Lock()
        self._slots: set[CallSlot] = set()
        self._max_streams = max(int(max_calls * _PART_OF_STREAMS), 1)
        self._max_streams_of_one = max(int(self._max_streams * _PART_OF_ONE), 1)
        self._streams: set[CallSlot] = set()
        self._calls_of: Counter[str] = Counter()
        self._waits_of: Counter[str] = Counter()
        self._held = 0
        self._began: set[str] = set()
        self._stopping = False

    def enter(self, client: str) -> CallSlot:
        """The slot of a new call; an empty ``client`` is one of many that have no names. ``ServerBusy``."""
        with self._lock:
            if self._calls_of.total() >= self._max_calls:
                raise ServerBusy(f"{self._max_calls} calls are under way, as many as the server takes (--max-calls).")
            if client and self._calls_of[client] >= self._max_of_one:
                raise ServerBusy(
                    f"The token {client!r} has {self._max_of_one} calls under way, as many as one may have (three "
                    "quarters of --max-calls)."
                )
            slot = CallSlot(self, client)
            self._slots.add(slot)
            self._calls_of[client] += 1
            return slot

    def enter_stream(self, client: str) -> CallSlot:
        """The slot of a stream of calls, each of which has one of its own besides. ``ServerBusy``."""
        with self._lock:
            if len(self._streams) >= self._max_streams:
                raise ServerBusy(f"{self._max_streams} streams of calls are open, as many as the server takes.")
            if client and sum(slot.client == client for slot in self._streams) >= self._max_streams_of_one:
                raise ServerBusy(
                    f"The token {client!r} has {self._max_streams_of_one} streams of calls, as many as one may have."
                )
            slot = CallSlot(self, client)
            self._streams.add(slot)
            return slot

    def stop(self) -> None:
        """Let waits, and streams after their next block, end now."""
        self._stopping = True

    def is_stopping(self) -> bool:
        return self._stopping

    def calls_of_peers(self) -> dict[str, int]:
        """The peers that have made a call since this was asked last, or have one under way; how many are under way."""
        with self._lock:
            began, self._began = self._began, set()
            return dict.fromkeys(began, 0) | Counter(slot.peer for slot in self._slots if slot.peer)

    def overdue(self) -> set[str]:
        """The peers of calls and streams of calls that should have ended: their clients do not read on, or leave."""
        now = time.monotonic()
        with self._lock:
            late = [slot for slot in self._slots if slot.begun < now - self.call_timeout_s]
            late += [slot for slot in self._streams if slot.begun < now - LONGEST_STREAM_SECONDS - self.call_timeout_s]
        return {slot.peer for slot in late if slot.peer}


_CURRENT: ContextVar[Callable[[], bool]] = ContextVar("_CURRENT")
# Whether the server stops that answers the call.
_STOPS: ContextVar[Callable[[], bool]] = ContextVar("_STOPS")


@contextmanager
def answering(wanted: Callable[[], bool], stops: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """This thread answers a call, as long as it is wanted: see ``each``. ``stops``: whether the server does."""
    tokens = _CURRENT.set(wanted), _STOPS.set(stops)
    try:
        yield
    finally:
        _CURRENT.reset(tokens[0])
        _STOPS.reset(tokens[1])


def is_wanted_still() -> bool:
    """Whether the call that this thread answers is wanted still; True outside of one."""
    return _CURRENT.get(lambda: True)()


def refuse_unwanted() -> None:
    """``RemoteFailed`` when the call that this thread answers is not wanted any more.

    ``ServerBusy`` when the server stops: the client asks the server that is started next.
    """
    if not is_wanted_still():
        if _STOPS.get(lambda: False)():
            raise ServerBusy("The server stops, and has ended this call. Ask again when it has been started again.")
        raise RemoteFailed(
            "The server has ended this call: its client left, or its time (--call-timeout) was over. Ask for less at "
            "once."
        )


def each(items: Iterable[_T]) -> Iterator[_T]:
    """The parts of a question of many, as long as it is wanted. ``RemoteFailed``."""
    for item in items:
        refuse_unwanted()
        yield item


class Parts(Sequence[_T]):
    """``each`` of a sequence, any number of times."""

    def __init__(self, items: Sequence[_T]) -> None:
        self._items = items

    def __iter__(self) -> Iterator[_T]:
        return each(self._items)

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, place: int) -> _T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[_T]: ...
    def __getitem__(self, place: int | slice) -> _T | Sequence[_T]:
        return self._items[place]
