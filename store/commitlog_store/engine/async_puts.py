"""AsyncPutService: puts of asyncio tasks, made together by one thread, so that one sync serves all that wait.

A task gives its message and awaits the result, while the thread appends what has been given by then and syncs once.
While nothing waits here, a small message of a store with ASYNC_FLUSH does not come here: the loop's thread appends it
itself, which takes less than the two hand-overs (``PutMessageService.put_at_once``).
Cancelled in time, a message is skipped; once the thread has begun its round, it is appended and its result is dropped.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.errors import StoreClosed
from commitlog_store.put_status import PutMessageStatus
from commitlog_store.threads.wakeup import Wakeup

if TYPE_CHECKING:  # programs without asyncio do not import it
    from asyncio import AbstractEventLoop, Future


_LOG = logging.getLogger(__name__)
# A put wakes the service; there is nothing to look for in between.
_IDLE_S = 3600.0
# As many messages of one round are appended before their tasks get results.
_ROUND = 1024

# A message, in a form that the putter takes.
_MessageT = TypeVar("_MessageT")
_MessageT_contra = TypeVar("_MessageT_contra", contravariant=True)
Outcome: TypeAlias = PutMessageResult | Exception


class _Waiting(NamedTuple, Generic[_MessageT]):
    """A message to be put; ``receive`` is called in the loop with its outcome."""

    message: _MessageT
    loop: AbstractEventLoop
    receive: Callable[[Outcome], None]
    is_cancelled: Callable[[], bool]


class PutsTogether(Protocol[_MessageT_contra]):
    """Puts the messages of a round: ``PutMessageService``, which has the contract, or a client of a served store."""

    def put_together(self, messages: Sequence[_MessageT_contra]) -> list[PutMessageResult | Exception]: ...
    def status_of(self, error: Exception) -> tuple[PutMessageStatus, str]: ...


class AsyncPutService(Generic[_MessageT]):
    """Puts messages for tasks of any number of event loops. ``wakeup`` starts the next round."""

    def __init__(self, putter: PutsTogether[_MessageT], wakeup: Wakeup) -> None:
        self._putter = putter
        self._wakeup = wakeup
        # Tasks add messages, the service takes them.
        self._waiting: deque[_Waiting[_MessageT]] = deque()
        self._is_putting = False

    def put(self, message: _MessageT, loop: AbstractEventLoop) -> Future[PutMessageResult]:
        """Have a message put; the future of this loop gets its result. Called by the loop's thread."""
        future: Future[PutMessageResult] = loop.create_future()
        self._add(_Waiting(message, loop, partial(_settle, future), future.cancelled))
        return future

    def put_for(self, message: _MessageT, loop: AbstractEventLoop, receive: Callable[[Outcome], None]) -> None:
        """Have a message put; the loop calls ``receive``, which does not raise, with the result or an error.

        For servers of many clients: a future would take one more round of the loop.
        """
        self._add(_Waiting(message, loop, receive, _is_never_cancelled))

    @property
    def is_idle(self) -> bool:
        """Whether no message waits or is being put: one that is put now comes after all that were given before."""
        return not self._waiting and not self._is_putting

    @property
    def waiting_count(self) -> int:
        """How many messages wait for the service's next round."""
        return len(self._waiting)

    def _add(self, waiting: _Waiting[_MessageT]) -> None:
        self._waiting.append(waiting)
        self._wakeup.set()

    def run_once(self) -> float:
        """Put what waits by now, at most ``_ROUND`` messages."""
        self._is_putting = True
        taken = self._take(_ROUND)
        try:
            results = self._putter.put_together([one.message for one in taken])
            _deliver(zip(taken, results, strict=True))
        except Exception as error:  # noqa: BLE001 - the tasks must not block indefinitely, and the next ones be served
            _LOG.exception("A round of %d puts of asyncio tasks failed", len(taken))
            # Each task raises an error of its own from it: one for all would gather the tracebacks of all.
            status, reason = self._putter.status_of(error)
            _deliver((one, PutMessageResult(status, reason=reason)) for one in taken)
        self._is_putting = False
        return 0 if self._waiting else _IDLE_S

    def refuse_rest(self, store_path: str) -> None:
        """After the last round: what still waits was not put, since the store is closed."""
        reason = f"The store at {store_path} is closed. The message was not put."
        _deliver((one, StoreClosed(reason)) for one in self._take(len(self._waiting)))

    def _take(self, count: int) -> list[_Waiting[_MessageT]]:
        taken: list[_Waiting[_MessageT]] = []
        while self._waiting and len(taken) < count:
            one = self._waiting.popleft()
            if not one.is_cancelled():
                taken.append(one)
        return taken


def _is_never_cancelled() -> bool:
    return False


def _deliver(outcomes: Iterable[tuple[_Waiting[_MessageT], Outcome]]) -> None:
    """Give each loop the outcomes of its own messages, in one call."""
    by_loop: dict[AbstractEventLoop, list[tuple[Callable[[Outcome], None], Outcome]]] = {}
    for waiting, outcome in outcomes:
        by_loop.setdefault(waiting.loop, []).append((waiting.receive, outcome))
    for loop, its_own in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(_receive, its_own)


def _receive(outcomes: Sequence[tuple[Callable[[Outcome], None], Outcome]]) -> None:
    for receive, outcome in outcomes:
        receive(outcome)


def _settle(future: Future[PutMessageResult], outcome: Outcome) -> None:
    if future.done():
        return  # its task was cancelled
    if isinstance(outcome, Exception):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
