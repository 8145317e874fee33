"""RemotingServer: listens for RocketMQ's clients, on an event loop in a thread of its own.

Source: RocketMQ ``remoting/netty/NettyRemotingServer.java``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from commitlog_store.errors import CommitLogError
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.serve.connection_counts import ConnectionCount
from commitlog_store.serve.listen import bound_socket
from commitlog_store.serve.listener_loop import accept, logged
from commitlog_store.serve.rocketmq.connection import ConnectionLimits, RemotingConnection
from commitlog_store.serve.rocketmq.processor import Connection, Handler, Processor
from commitlog_store.serve.rocketmq.request_times import RequestLatencies
from commitlog_store.threads.wakeup import Wakeup

_LOG = logging.getLogger(__name__)
_BACKLOG = 1024
# asyncio reads as much by default, but allocates new memory for each read, which took 13 of 66 us of a send.
RECEIVED_AT_ONCE = 256 << 10
# How often connections that are idle are looked for, in parts of the time after which one is.
_LOOKS = 12
# How often all connections are looked at for answers that are not read, in parts of the most bytes of these: with
# thousands of connections that takes as long as many answers.
_UNREAD_PARTS = 64
# How long the last answers have to go out.
_LAST_ANSWERS_S = 1.0
# Until the new thread runs, the system queues connections: a slower start than this loses none.
_START_S = 10.0
# The first byte of a TLS connection: a record of type handshake. No frame of RocketMQ's begins so.
_HANDSHAKE = b"\x16"


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one. ``OSError``."""
    return bound_socket(host, port, _BACKLOG)


class RemotingServer:
    """Answers with the processors' handlers, from ``start`` to ``stop``. One use.

    ``start`` and ``stop`` are called by one thread, which is not the loop's; everything else runs on the loop's.
    """

    def __init__(
        self,
        bound: socket.socket,
        *,
        limits: ConnectionLimits | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``bound`` is a socket of ``bind``, closed by ``stop``. With ``tls``, clients may use TLS, or not."""
        self._tls = tls
        self.limits = limits or ConnectionLimits()
        self.buffer = memoryview(bytearray(RECEIVED_AT_ONCE))
        self.bytes_in_flight = 0
        self.half_bytes = 0
        # The bytes of answers to clients that do not read since these were last looked at.
        self._unread_since = 0
        self.is_draining = False
        self.latencies = RequestLatencies()
        self._processors: Sequence[Processor] = ()
        self._handlers: dict[int, Handler] = {}
        self.on_answer: Callable[[RemotingCommand, Connection], None] = lambda *_: None
        self._on_stop: Callable[[], None] = lambda: None
        self._connections: set[RemotingConnection] = set()
        self._beginning: set[asyncio.Task[None]] = set()
        self._waiting: list[RemotingConnection] = []
        self._socket = bound
        self.port: int = self._socket.getsockname()[1]
        self._turns = _TurnSelector()
        self.loop: asyncio.AbstractEventLoop = asyncio.SelectorEventLoop(self._turns)
        self._thread = threading.Thread(target=self._run, name="RocketMQListener", daemon=True)
        self._stopping: asyncio.Event | None = None
        self._drain_s = 0.0
        self._refused = 0

    def start(
        self,
        processors: Sequence[Processor],
        *,
        on_answer: Callable[[RemotingCommand, Connection], None] = lambda *_: None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Answer requests from now on. Of processors with the same request code, the last one has it.

        ``on_answer`` is called on the loop with what clients answer to requests of the server; ``on_stop`` when no more
        requests are taken: what waits for messages answers then.
        """
        self._processors, self.on_answer, self._on_stop = processors, on_answer, on_stop
        for processor in processors:
            self._handlers.update(processor.handlers())
        begun = Wakeup()
        self.loop.call_soon(begun.set)
        self._thread.start()
        begun.wait(_START_S)

    def stop(self, drain_s: float) -> None:
        """Take no more requests, let those under way end within ``drain_s``, and close. A second call does nothing."""
        if not self._thread.is_alive():
            self._socket.close()
            self.loop.close()  # of a server that never began
            return
        self._drain_s = drain_s
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self.loop.call_soon_threadsafe(self._stop_soon)
        self._thread.join()

    def connections(self) -> ConnectionCount:
        """In any thread."""
        found = list(self._connections)
        asked = [one for one in found if one.has_asked]
        active = sum(one.requests > 0 for one in asked)
        beginning = len(found) - len(asked) + len(self._beginning)
        return ConnectionCount(beginning, active, len(asked) - active, self._refused)

    def run_on_loop(self, work: Coroutine[Any, Any, None]) -> None:
        """Have the loop do this until it ends, or the server stops. An error that ends it is logged."""
        asyncio.run_coroutine_threadsafe(logged(work, "the listener of RocketMQ's clients"), self.loop)

    def is_alone(self) -> bool:
        """Whether a single socket was ready in this turn of the loop."""
        return self._turns.ready <= 1

    # What connections need.

    def handler(self, code: int) -> Handler | None:
        return self._handlers.get(code)

    def made(self, connection: RemotingConnection) -> None:
        has_room = len(self._connections) < self.limits.max_connections
        if not has_room or self.is_draining:
            self._refused += not has_room
            connection.abort()
            return
        self._connections.add(connection)

    def lost(self, connection: RemotingConnection) -> None:
        self._connections.discard(connection)
        for processor in self._processors:
            try:
                processor.connection_lost(connection)
            except Exception:  # noqa: BLE001 - the others are to know it, too
                _LOG.exception("A processor failed when the connection of %s:%d was lost", *connection.address)

    def wait_for_room(self, connection: RemotingConnection) -> None:
        if connection not in self._waiting:
            self._waiting.append(connection)

    def took_less(self) -> None:
        if self._waiting and self.bytes_in_flight <= self.limits.all_bytes_in_flight:
            waiting, self._waiting = self._waiting, []
            for connection in waiting:
                self.loop.call_soon(connection.set_reading)

    def sent_unread(self, size: int) -> None:
        self._unread_since += size
        if self._unread_since > self.limits.all_unsent_bytes // _UNREAD_PARTS:
            self._unread_since = 0
            self._bound_unsent()

    def _bound_unsent(self) -> None:
        """Close clients that do not read their answers, while these take too much memory."""
        unsent = {one: one.unsent for one in self._connections}
        most_first = sorted(unsent, key=unsent.__getitem__, reverse=True)
        left = sum(unsent.values())
        for connection in most_first:
            if left <= self.limits.all_unsent_bytes:
                return
            left -= unsent[connection]
            connection.close_unread()

    # The loop.

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        except (CommitLogError, OSError):
            _LOG.exception("The listener of RocketMQ's clients ended")
        finally:
            self._socket.close()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    def _stop_soon(self) -> None:
        if self._stopping is not None:
            self._stopping.set()

    async def _serve(self) -> None:
        self._stopping = asyncio.Event()
        tasks = [self.loop.create_task(self._close_idle())]
        server = None
        if self._tls is None:
            make = partial(RemotingConnection, self)
            server = await self.loop.create_server(make, sock=self._socket, backlog=_BACKLOG)
        else:
            tasks.append(self.loop.create_task(accept(self._socket, self._has_room, self._begin, self._beginning)))
        await self._stopping.wait()
        if server is not None:
            server.close()
        for task in tasks[1:]:
            task.cancel()
        await self._drain()
        others = asyncio.all_tasks(self.loop) - {asyncio.current_task(self.loop)}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _has_room(self) -> bool:
        has_room = len(self._connections) + len(self._beginning) < self.limits.max_connections
        self._refused += not has_room
        return has_room

    async def _begin(self, connection: socket.socket) -> None:
        """Begin a connection, as TLS if its first byte is a handshake's. Without one it ends as an idle one does."""
        idle_s, has_begun = self.limits.idle_s, False
        try:
            async with asyncio.timeout(idle_s):
                await _readable(self.loop, connection)
            tls = self._tls if connection.recv(1, socket.MSG_PEEK) == _HANDSHAKE else None
            timeout = None if tls is None else idle_s
            await self.loop.connect_accepted_socket(
                partial(RemotingConnection, self), connection, ssl=tls, ssl_handshake_timeout=timeout
            )
            has_begun = True
        except (OSError, TimeoutError) as error:  # an ssl.SSLError is an OSError
            _LOG.info("A client's connection did not begin: %s", str(error) or type(error).__name__)
        finally:
            if not has_begun:
                connection.close()

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(self.limits.idle_s / _LOOKS)
            now = self.loop.time()
            for connection in list(self._connections):
                connection.close_if_idle(now)
            self._bound_unsent()

    async def _drain(self) -> None:
        """Let requests end, and send their answers; then close all connections."""
        self.is_draining = True
        for connection in list(self._connections):
            connection.stop_reading()
        self._on_stop()
        deadline = self.loop.time() + self._drain_s
        while any(connection.requests for connection in self._connections) and self.loop.time() < deadline:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)  # the answers of this round are written
        for connection in list(self._connections):
            connection.close()
        deadline = self.loop.time() + _LAST_ANSWERS_S
        while self._connections and self.loop.time() < deadline:
            await asyncio.sleep(0.005)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)


class _TurnSelector(selectors.DefaultSelector):
    """Knows how many sockets were ready in this turn of its loop."""

    ready = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(timeout)
        self.ready = len(found)
        return found


async def _readable(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    found: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, lambda: None if found.done() else found.set_result(None))
    try:
        await found
    finally:
        loop.remove_reader(connection)
