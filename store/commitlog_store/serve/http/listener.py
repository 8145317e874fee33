"""HttpListener: uvicorn on an event loop in a thread of its own, with bounded connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from commitlog_store.errors import ListenFailed
from commitlog_store.serve.connection_counts import ConnectionCount
from commitlog_store.serve.listen import ListenSettings, bound_socket
from commitlog_store.serve.listener_loop import accept, logged
from commitlog_store.threads.wakeup import Wakeup

_LOG = logging.getLogger(__name__)
_BACKLOG = 128
# Bytes of a request's line and headers.
_LARGEST_HEAD = 32 << 10
# Until the new thread runs, the system queues connections: a slower start than this loses none.
_START_S = 10.0
# How long the loop has to end after the time for its requests.
_LAST_S = 5.0
# From one warning of refused connections to the next.
_WARNING_S = 60.0


@dataclass(frozen=True, kw_only=True)
class HttpLimits:
    """How many connections at once; seconds until a request is whole, and until its answer is taken."""

    max_connections: int = 256
    request_s: float = 20.0
    answer_s: float = 330.0
    idle_s: float = 15.0


def bind(listen: ListenSettings) -> socket.socket:
    """A socket that listens; port 0 takes a free one. ``ListenFailed``."""
    try:
        return bound_socket(listen.host, listen.port, _BACKLOG)
    except OSError as error:
        raise ListenFailed("listen on", path=str(listen), cause=error) from error


class HttpListener:
    """Answers with an application from ``start`` to ``stop``. One use. Both are called by one thread."""

    def __init__(
        self,
        bound: socket.socket,
        app: ASGIApp,
        *,
        tls: ssl.SSLContext | None = None,
        limits: HttpLimits | None = None,
        on_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """``bound`` is a socket of ``bind``, closed by ``stop``.

        ``on_stop`` is called on the loop when no more requests are taken: streams are to end then.
        """
        self._socket = bound
        self.port: int = bound.getsockname()[1]
        self._on_stop = on_stop
        # What clients send wrongly is no line in this server's log.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._tls = tls
        self._limits = chosen = limits or HttpLimits()
        # Connections whose TLS handshake is under way, and how many were closed since there were too many.
        self._beginning: set[asyncio.Task[None]] = set()
        self._refused = 0
        self._warn_again_at = 0.0
        self._accepting: asyncio.Task[None] | None = None
        self._config = uvicorn.Config(
            app,
            loop="asyncio",
            http=_bounded(chosen, self._has_room),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=math.ceil(chosen.idle_s),
            h11_max_incomplete_event_size=_LARGEST_HEAD,
        )
        self._server = uvicorn.Server(self._config)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="commitlog-http", daemon=True)

    def start(self) -> None:
        begun = Wakeup()
        self._loop.call_soon(begun.set)
        self._thread.start()
        begun.wait(_START_S)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Have the loop do this until it ends, or the listener stops. An error that ends it is logged."""
        asyncio.run_coroutine_threadsafe(logged(work, "the listener for HTTP"), self._loop)

    def stop(self, drain_s: float) -> None:
        """Take no more requests, let those under way end within ``drain_s``, and close. A second call does nothing."""
        if not self._thread.is_alive():
            self._socket.close()
            if not self._loop.is_closed():  # of a listener that never began
                self._loop.close()
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._stop_soon, drain_s)
        self._thread.join(drain_s + _LAST_S)

    def _stop_soon(self, drain_s: float) -> None:
        # uvicorn counts it in whole seconds.
        self._config.timeout_graceful_shutdown = math.ceil(drain_s)
        self._on_stop()
        for task in (self._accepting, *self._beginning):
            if task is not None:
                task.cancel()
        self._server.should_exit = True

    def connections(self) -> ConnectionCount:
        """In any thread."""
        found = [one for one in list(self._server.server_state.connections) if isinstance(one, H11Protocol)]
        asked = [one.cycle for one in found if getattr(one, "cycle", None) is not None]
        active = sum(not cycle.response_complete for cycle in asked)
        begun = len(found) - len(asked)
        return ConnectionCount(begun + len(self._beginning), active, len(asked) - active, self._refused)

    def _has_room(self, connections: int) -> bool:
        """Whether so many connections may be. If not, one more is refused."""
        has_room = connections <= self._limits.max_connections
        if not has_room:
            self._refused += 1
            self._warn_of_refused()
        return has_room

    def _warn_of_refused(self) -> None:
        """Not for each: clients that are closed come again at once."""
        now = self._loop.time()
        if now >= self._warn_again_at:
            self._warn_again_at = now + _WARNING_S
            most = self._limits.max_connections
            _LOG.warning("%d connections are open, as many as may be: more are closed, %d so far", most, self._refused)

    async def _serve(self) -> None:
        if self._tls is None:
            await self._server.serve(sockets=[self._socket])
            return
        # uvicorn sees a connection when its handshake is over, and does not bound those before.
        self._accepting = self._loop.create_task(
            accept(self._socket, self._has_room_to_begin, partial(self._begin, self._tls), self._beginning)
        )
        await self._server.serve(sockets=[])

    def _has_room_to_begin(self) -> bool:
        return self._has_room(len(self._server.server_state.connections) + len(self._beginning) + 1)

    async def _begin(self, tls: ssl.SSLContext, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self._protocol, connection, ssl=tls, ssl_handshake_timeout=self._limits.request_s
            )
        except OSError as error:  # an ssl.SSLError and a TimeoutError are such
            _LOG.info("A connection did not begin: %s", str(error) or type(error).__name__)

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self._config.http_protocol_class(  # type: ignore[call-arg]
            config=self._config, server_state=self._server.server_state, app_state=self._server.lifespan.state
        )
        return made

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except Exception:  # noqa: BLE001 - the store is served on by the other listeners
            _LOG.exception("The listener for HTTP ended")
        finally:
            self._socket.close()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


def _bounded(limits: HttpLimits, has_room: Callable[[int], bool]) -> type[H11Protocol]:
    """Connections that end when a request does not become whole in time, or its answer is not taken in time.

    uvicorn itself waits for both without a limit. ``has_room`` says whether so many connections may be.
    """

    class BoundedConnection(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if not has_room(len(self.connections)):
                transport.abort()
                return
            self._end_after(limits.request_s)

        def data_received(self, data: bytes) -> None:
            was_answering = self._is_answering()
            if self._timer is None:
                self._end_after(limits.request_s)
            super().data_received(data)
            if self._is_answering() and not was_answering:
                self._end_after(limits.answer_s)

        def on_response_complete(self) -> None:
            self._stop_timer()
            super().on_response_complete()
            if self._is_answering():  # a request that came together with the last one
                self._end_after(limits.answer_s)

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def _is_answering(self) -> bool:
            cycle = getattr(self, "cycle", None)  # before the first request it is None, whatever its type says
            return cycle is not None and not cycle.response_complete

        def _end_after(self, seconds: float) -> None:
            self._stop_timer()
            self._timer = self.loop.call_later(seconds, self.transport.abort)

        def _stop_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return BoundedConnection
