"""RemotingConnection: the connection of one client: frames in, answers out, each within its bounds.

Requests of one connection are in flight at once. Answers go out when they are ready; the opaque number says which
request each is for.

Source: RocketMQ ``remoting/netty/NettyRemotingAbstract.java`` (``processRequestCommand``), ``NettyDecoder.java``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from commitlog_store.format.remoting_command import (
    LENGTH_SIZE,
    MAX_FRAME,
    RemotingCommand,
    RemotingError,
    decode,
)
from commitlog_store.serve.rocketmq.answering import answer_of, shown
from commitlog_store.serve.rocketmq.codes import ResponseCode
from commitlog_store.serve.rocketmq.processor import Connection, Deferred, Handler
from commitlog_store.serve.rocketmq.request_times import RequestLatencies

_LOG = logging.getLogger(__name__)
# What a request in flight takes beside its frame: its command, its future, its place in tables.
_REQUEST_SIZE = 2048


@dataclass(frozen=True, kw_only=True)
class ConnectionLimits:
    """Bounds of connections. Bytes in flight are those of requests without an answer yet, and of half frames."""

    max_frame: int = MAX_FRAME
    idle_s: float = 120.0
    """A connection that sends no whole frame and gets no answer for so long is closed."""
    bytes_in_flight: int = 64 << 20
    """Of one connection; it is not read on until there are fewer."""
    all_bytes_in_flight: int = 512 << 20
    unsent_bytes: int = 64 << 20
    """Answers that a client does not read; with more it is closed."""
    all_unsent_bytes: int = 512 << 20
    """Those of all clients; with more, the client with the most is closed."""
    max_connections: int = 8192


class ConnectionTable(Protocol):
    """What a connection needs of its listener."""

    limits: ConnectionLimits
    loop: asyncio.AbstractEventLoop
    buffer: memoryview
    """What a connection has just received, until it has taken it. One for all: the loop reads one at a time."""
    bytes_in_flight: int
    """Of all connections."""
    half_bytes: int
    """Those of them that are half frames."""
    is_draining: bool
    latencies: RequestLatencies
    on_answer: Callable[[RemotingCommand, Connection], None]

    def handler(self, code: int) -> Handler | None: ...
    def made(self, connection: RemotingConnection) -> None: ...
    def lost(self, connection: RemotingConnection) -> None: ...
    def wait_for_room(self, connection: RemotingConnection) -> None:
        """Call ``set_reading`` when fewer bytes are in flight."""

    def took_less(self) -> None:
        """Fewer bytes are in flight than before."""

    def sent_unread(self, size: int) -> None:
        """So many bytes of answers more wait for a client that does not read."""


class RemotingConnection(asyncio.BufferedProtocol):
    """One client, on the loop's thread. Satisfies ``processor.Connection``."""

    def __init__(self, table: ConnectionTable) -> None:
        self._table = table
        self._limits = table.limits
        self._loop = table.loop
        self._transport: asyncio.Transport | None = None
        self.address = ("", 0)
        # A frame that has not ended, and how many bytes are counted for it.
        self._half = bytearray()
        # Requests without an answer, and their bytes.
        self.requests = 0
        self.has_asked = False
        self._in_flight = 0
        # Answers that go out together at the end of this round of the loop.
        self._answers: list[bytes] = []
        self._is_reading = True
        # Whether frames are being taken from what has just been received.
        self._is_taking = False
        self._is_writable = True
        self.last_used = self._loop.time()

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if peer is not None:
            self.address = (str(peer[0]), int(peer[1]))
        transport.set_write_buffer_limits(high=1 << 20)
        self._table.made(self)

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._drop_half()
        self._table.lost(self)

    def pause_writing(self) -> None:
        """A client that does not read its answers is not asked for more requests."""
        self._is_writable = False
        self.set_reading()

    def resume_writing(self) -> None:
        self._is_writable = True
        self.set_reading()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._table.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._take(self._table.buffer[:nbytes])

    def _take(self, data: memoryview) -> None:
        """Take what has come, before more comes into the same buffer."""
        whole = bytes(data) if not self._half else self._continued_half(data)
        if not whole:
            return
        self._is_taking = True
        self._take_frames(whole)
        self._is_taking = False
        self._flush()

    def _continued_half(self, data: memoryview) -> bytes:
        """The half frame with what follows it, once it is whole; nothing before."""
        self._half += data
        self._count_half(len(data))
        if len(self._half) < LENGTH_SIZE or not self._holds_frame():
            self._bound_half()
            return b""
        whole = bytes(self._half)
        self._drop_half()
        return whole

    def _holds_frame(self) -> bool:
        size = int.from_bytes(self._half[:LENGTH_SIZE], "big")
        return size > self._limits.max_frame or len(self._half) >= LENGTH_SIZE + size

    def _take_frames(self, data: bytes) -> None:
        at, end = 0, len(data)
        while end - at >= LENGTH_SIZE:
            size = int.from_bytes(data[at : at + LENGTH_SIZE], "big")
            if size > self._limits.max_frame:
                self._give_up(f"a frame of {size} bytes; the most are {self._limits.max_frame}")
                return
            after = at + LENGTH_SIZE + size
            if after > end:
                break
            try:
                command = decode(data, at + LENGTH_SIZE, after)
            except RemotingError as error:
                self._give_up(str(error))
                return
            at = after
            self._received(command, size)
            if self._transport is None or self._transport.is_closing():
                return
        if at < end:
            self._half += data[at:]
            self._count_half(len(self._half))
            self._bound_half()

    def _bound_half(self) -> None:
        """Wait for room with half a frame, or give it up when half frames alone take half of the room.

        Answers make room, but half frames none: were they all of it, each connection would wait for the others.
        """
        limits, most = self._limits, self._limits.all_bytes_in_flight // 2
        if self._table.half_bytes > most and len(self._half) > most // limits.max_connections:
            self._drop_half()  # before others are judged by it, not only when the loop reports the loss
            self._give_up("half a frame, while the half frames of all clients together take too much memory")
        elif self._table.bytes_in_flight > limits.all_bytes_in_flight:
            self.set_reading()

    # Requests and answers.

    def _received(self, request: RemotingCommand, size: int) -> None:
        request.received_at = self.last_used = self._loop.time()
        self.has_asked = True
        if request.is_response:
            self._table.on_answer(request, self)
            return
        handler = self._table.handler(request.code)
        if handler is None:
            remark = f" request type {request.code} not supported"
            self._answer(request, request.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
            return
        try:
            outcome = handler(request, self)
        except Exception as error:  # noqa: BLE001 - the other requests and clients are served on
            self._answer(request, _failed(request, error))
            return
        if isinstance(outcome, RemotingCommand):
            self._answer(request, outcome)
        elif isinstance(outcome, Deferred):
            self._defer(request, outcome, size + _REQUEST_SIZE)
        else:
            self._await(request, outcome, size + _REQUEST_SIZE)

    def _defer(self, request: RemotingCommand, outcome: Deferred, size: int) -> None:
        self._begin(size)

        def take(answer: RemotingCommand | Exception) -> None:
            self._end(size)
            self._answer(request, _failed(request, answer) if isinstance(answer, Exception) else answer)

        try:
            outcome.start(take)
        except Exception as error:  # noqa: BLE001 - as of a handler
            take(error)

    def _begin(self, size: int) -> None:
        """Count a request without an answer."""
        self.requests += 1
        self._in_flight += size
        self._count(size)
        if self._in_flight > self._limits.bytes_in_flight or (
            self._table.bytes_in_flight > self._limits.all_bytes_in_flight
        ):
            self.set_reading()

    def _end(self, size: int) -> None:
        self.requests -= 1
        self._in_flight -= size
        self._count(-size)
        if not self._is_reading:
            self.set_reading()

    def _await(self, request: RemotingCommand, outcome: Awaitable[RemotingCommand], size: int) -> None:
        future = asyncio.ensure_future(outcome, loop=self._loop)
        self._begin(size)

        def answered(done: asyncio.Future[RemotingCommand]) -> None:
            self._end(size)
            if done.cancelled():
                return
            error = done.exception()
            self._answer(request, done.result() if error is None else _failed(request, error))

        future.add_done_callback(answered)

    def _answer(self, request: RemotingCommand, answer: RemotingCommand) -> None:
        latencies = self._table.latencies
        if request.is_one_way:
            latencies.answered(request, answer.code, "oneway", self._loop.time() - request.received_at)
        elif self._transport is None:
            latencies.answered(request, answer.code, "write_channel_failed", self._loop.time() - request.received_at)
        else:
            self._send(answer)
            latencies.answered(request, answer.code, "success", self.last_used - request.received_at)

    def send(self, command: RemotingCommand) -> None:
        """Send a request to the client; nothing happens when it is gone."""
        if self._transport is not None:
            self._send(command)

    def _send(self, command: RemotingCommand) -> None:
        self.last_used = self._loop.time()
        self._answers.append(command.encode())
        if self._is_taking:
            return  # those of all frames that have come go out together
        if not self.requests:
            self._flush()  # no other answer can be about to follow
        elif len(self._answers) == 1:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        answers, self._answers = self._answers, []
        if not answers or self._transport is None or self._transport.is_closing():
            return
        self._transport.write(answers[0] if len(answers) == 1 else b"".join(answers))
        if self.unsent > self._limits.unsent_bytes:
            self.close_unread()
        elif not self._is_writable:
            self._table.sent_unread(sum(map(len, answers)))

    # Bounds.

    def _drop_half(self) -> None:
        self._count_half(-len(self._half))
        self._half.clear()

    def _count_half(self, size: int) -> None:
        self._table.half_bytes += size
        self._count(size)

    def _count(self, size: int) -> None:
        self._table.bytes_in_flight += size
        if size < 0:
            self._table.took_less()

    def set_reading(self) -> None:
        """Read on, or pause, as writing and bounds say."""
        too_many = self._table.bytes_in_flight > self._limits.all_bytes_in_flight
        wanted = self._is_writable and self._in_flight <= self._limits.bytes_in_flight and not too_many
        if too_many:
            self._table.wait_for_room(self)
        if wanted == self._is_reading or self._transport is None or self._table.is_draining:
            return
        self._is_reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def close_if_idle(self, now: float) -> None:
        """Close the connection if it was not used for too long; half frames do not count."""
        if now - self.last_used > self._limits.idle_s and not self.requests:
            self._give_up(f"no frame for {self._limits.idle_s:g} s")
        elif now - self.last_used > self._limits.idle_s and not self._is_writable:
            self._give_up(f"it has read no answer for {self._limits.idle_s:g} s")

    @property
    def unsent(self) -> int:
        """The bytes of answers that the client has not read."""
        if self._transport is None or self._transport.is_closing():
            return 0
        return self._transport.get_write_buffer_size()

    def close_unread(self) -> None:
        """Close the connection of a client that does not read its answers."""
        self._give_up("answers that it does not read")

    def stop_reading(self) -> None:
        """Take no more requests: the server is stopping."""
        if self._transport is not None and self._is_reading:
            self._is_reading = False
            self._transport.pause_reading()

    def close(self) -> None:
        """Send what is to be sent, and close."""
        if self._transport is not None:
            if self._answers:
                self._flush()
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _give_up(self, why: str) -> None:
        _LOG.info("The connection of %s:%d is closed: %s", *self.address, why)
        self.abort()


def _failed(request: RemotingCommand, error: BaseException) -> RemotingCommand:
    """The answer to a request whose processor raised."""

    def work() -> RemotingCommand:
        raise error

    try:
        return answer_of(request, work)
    except Exception as other:  # noqa: BLE001 - the client gets an answer in any case
        _LOG.exception("A request of code %d failed", request.code)
        return request.answer(ResponseCode.SYSTEM_ERROR, shown(f"{type(other).__name__}: {other}"))
