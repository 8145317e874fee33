"""AsyncPutService: puts of asyncio tasks, made together by one thread, so that one sync serves all that wait.

A task gives its message and awaits the result, while the thread appends what has been given by then and syncs once.
Cancelled in time, a message is skipped; once the thread has begun its round, it is appended and its result is dropped.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

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
_Outcome: TypeAlias = "tuple[Future[PutMessageResult], PutMessageResult | Exception]"


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
        self._waiting: deque[tuple[_MessageT, Future[PutMessageResult]]] = deque()

    def put(self, message: _MessageT, loop: AbstractEventLoop) -> Future[PutMessageResult]:
        """Have a message put; the future of this loop gets its result. Called by the loop's thread."""
        future: Future[PutMessageResult] = loop.create_future()
        self._waiting.append((message, future))
        self._wakeup.set()
        return future

    def run_once(self) -> float:
        """Put what waits by now, at most ``_ROUND`` messages."""
        taken = self._take(_ROUND)
        try:
            results = self._putter.put_together([message for message, _ in taken])
            _deliver([(future, result) for (_, future), result in zip(taken, results, strict=True)])
        except Exception as error:  # noqa: BLE001 - the tasks must not block indefinitely, and the next ones be served
            _LOG.exception("A round of %d puts of asyncio tasks failed", len(taken))
            # Each task raises an error of its own from it: one for all would gather the tracebacks of all.
            status, reason = self._putter.status_of(error)
            _deliver([(future, PutMessageResult(status, reason=reason)) for _, future in taken])
        return 0 if self._waiting else _IDLE_S

    def refuse_rest(self, store_path: str) -> None:
        """After the last round: what still waits was not put, since the store is closed."""
        reason = f"The store of {store_path} is closed. The message was not put."
        _deliver([(future, StoreClosed(reason)) for _, future in self._take(len(self._waiting))])

    def _take(self, count: int) -> list[tuple[_MessageT, Future[PutMessageResult]]]:
        taken: list[tuple[_MessageT, Future[PutMessageResult]]] = []
        while self._waiting and len(taken) < count:
            one = self._waiting.popleft()
            if not one[1].cancelled():
                taken.append(one)
        return taken


def _deliver(outcomes: Sequence[_Outcome]) -> None:
    """Give each loop the outcomes of its own futures, in one call."""
    by_loop: dict[AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome[0].get_loop(), []).append(outcome)
    for loop, its_own in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits any more
            loop.call_soon_threadsafe(_settle, its_own)


def _settle(outcomes: Sequence[_Outcome]) -> None:
    for future, outcome in outcomes:
        if future.done():
            continue  # its task was cancelled
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)
