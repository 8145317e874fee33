"""What processors have in common: header fields with their types, work in another thread, and errors as answers.

Source: RocketMQ ``remoting/protocol/RemotingCommand.java`` (``decodeCommandCustomHeader``),
``broker/metrics/BrokerMetricsManager.java`` (``rocketmq_processor_watermark``).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias, TypeVar

from commitlog_store.errors import (
    CommitLogError,
    DiskFull,
    InvalidValue,
    PutNotConfirmed,
    PutRefused,
    ReaderClosed,
    StoreClosed,
    TopicNotFound,
)
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.java_numbers import MAX_INT, MAX_LONG
from commitlog_store.put_status import PutMessageStatus
from commitlog_store.serve.rocketmq.codes import ResponseCode
from commitlog_store.serve.rocketmq.processor import Connection, Handler
from commitlog_store.threads.jobs import JobThreadEnded

Work: TypeAlias = Callable[[], RemotingCommand]
_T = TypeVar("_T")


class InThread(Protocol):
    """Does work that may wait for a disk or a lock, in another thread than the event loop's."""

    def __call__(self, work: Callable[[], _T], /) -> Awaitable[_T]: ...


# The threads for a kind of requests, by a broker's name for it.
ThreadsOf: TypeAlias = Callable[[str], InThread]

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
# A number with at most this many digits always fits.
_SURE_DIGITS = {MAX_INT: 9, MAX_LONG: 18}
_LONGEST_REMARK = 1_000
# As SendMessageProcessor answers; the others are SYSTEM_ERROR.
_STATUS_CODES = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.OS_PAGECACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}


class RequestFault(Exception):
    """A request that cannot be answered as it is: the code and the remark of the answer."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code


def system_error(remark: str) -> RequestFault:
    """The fault of a request that no other code fits."""
    return RequestFault(ResponseCode.SYSTEM_ERROR, remark)


def text_field(request: RemotingCommand, name: str, default: str | None = None) -> str:
    """A field of the header. ``RequestFault`` names one that is missing, if there is no default."""
    value = request.fields.get(name, default)
    if value is None:
        raise system_error(f"the custom field <{name}> is null")
    return value


def int_field(request: RemotingCommand, name: str, default: int | None = None, *, most: int = MAX_INT) -> int:
    """A field that is an int of Java, or with ``most`` another number. ``RequestFault`` names it and its value."""
    value = request.fields.get(name)
    if value is None and default is not None:
        return default
    if value is not None and len(value) <= _SURE_DIGITS[most] and value.isascii() and value.isdigit():
        return int(value)
    text = text_field(request, name)
    if not _NUMBER.fullmatch(text) or not -most - 1 <= int(text) <= most:
        raise system_error(f"the custom field <{name}> is a number from {-most - 1} to {most}, not {text[:100]!r}")
    return int(text)


def long_field(request: RemotingCommand, name: str, default: int | None = None) -> int:
    """A field that is a long of Java."""
    return int_field(request, name, default, most=MAX_LONG)


def flag_field(request: RemotingCommand, name: str, *, default: bool = False) -> bool:
    """A field that is a boolean, as Java reads it: every other text than ``true`` is false."""
    value = request.fields.get(name)
    return default if value is None else value.lower() == "true"


def status_code(status: PutMessageStatus) -> ResponseCode:
    return _STATUS_CODES.get(status, ResponseCode.SYSTEM_ERROR)


def response_code(error: CommitLogError) -> ResponseCode:
    """The code that a broker answers with where the store has raised this."""
    if isinstance(error, PutRefused | PutNotConfirmed):
        return status_code(error.status)
    if isinstance(error, StoreClosed | ReaderClosed | DiskFull):
        return ResponseCode.SERVICE_NOT_AVAILABLE
    if isinstance(error, TopicNotFound):
        return ResponseCode.TOPIC_NOT_EXIST
    return ResponseCode.INVALID_PARAMETER if isinstance(error, InvalidValue) else ResponseCode.SYSTEM_ERROR


def shown(text: str) -> str:
    """A remark of bounded length: errors repeat what a client has sent."""
    return text if len(text) <= _LONGEST_REMARK else f"{text[:_LONGEST_REMARK]}..."


def answer_of(request: RemotingCommand, work: Work) -> RemotingCommand:
    """What the work answers; the store's errors, and those of the request, are answers too."""
    try:
        return work()
    except RequestFault as fault:
        return request.answer(fault.code, shown(str(fault)))
    except CommitLogError as error:
        return request.answer(response_code(error), shown(str(error)))
    except JobThreadEnded:
        return request.answer(ResponseCode.SERVICE_NOT_AVAILABLE, "the store is being closed")


def answered_here(answer: Callable[[RemotingCommand, Connection], RemotingCommand]) -> Handler:
    return lambda request, connection: answer_of(request, lambda: answer(request, connection))


def answered_in_thread(
    in_thread: InThread, answer: Callable[[RemotingCommand, Connection], RemotingCommand]
) -> Handler:
    def handle(request: RemotingCommand, connection: Connection) -> Awaitable[RemotingCommand]:
        return in_thread(lambda: answer_of(request, lambda: answer(request, connection)))

    return handle


class WaitingRequests:
    """How many requests of clients wait for a thread, by a broker's names of the threads for them.

    ``threads_of`` is called by the event loop's thread, ``counts`` by any.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Adding to a set and discarding from it are atomic; a number that two threads change is not.
        self._waiting: dict[str, set[object]] = {}

    def threads_of(self, processor: str) -> InThread:
        """Does work in one of the loop's threads; until one begins with it, it counts for this processor."""
        waiting = self._waiting.setdefault(processor, set())

        def do(work: Callable[[], _T]) -> asyncio.Future[_T]:
            request = object()
            waiting.add(request)

            def begin() -> _T:
                waiting.discard(request)
                return work()

            try:
                future = self._loop.run_in_executor(None, begin)
            except BaseException:  # the executor is shut down: the server stops
                waiting.discard(request)
                raise
            # The pull of a client that disconnects is cancelled, perhaps before a thread has begun with it.
            future.add_done_callback(lambda _: waiting.discard(request))
            return future

        return do

    def counts(self) -> Mapping[str, int]:
        """By processor, 0 where none waits."""
        return {processor: len(waiting) for processor, waiting in self._waiting.items()}
