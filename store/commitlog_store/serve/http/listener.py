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
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from commitlog_store.errors import ListenFailed
from commitlog_store.serve.listen import ListenSettings, bound_socket
from commitlog_store.threads.wakeup import Wakeup

_LOG = logging.getLogger(__name__)
_BACKLOG = 128
# Bytes of a request's line and headers.
_LARGEST_HEAD = 32 << 10
# Until the new thread runs, the system queues connections: a slower start than this loses none.
_START_S = 10.0
# How long the loop has to end after the time for its requests.
_LAST_S = 5.0


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
        chosen = limits or HttpLimits()
        self._config = uvicorn.Config(
            app,
            loop="asyncio",
            http=_bounded(chosen),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=math.ceil(chosen.idle_s),
            h11_max_incomplete_event_size=_LARGEST_HEAD,
            ssl_context_factory=None if tls is None else lambda *_: tls,
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
        """Have the loop do this, until it ends or the listener stops."""
        asyncio.run_coroutine_threadsafe(work, self._loop)

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
        self._server.should_exit = True

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._server.serve(sockets=[self._socket]))
        except Exception:  # noqa: BLE001 - the store is served on by the other listeners
            _LOG.exception("The listener for HTTP ended")
        finally:
            self._socket.close()
            for task in asyncio.all_tasks(self._loop):
                task.cancel()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


def _bounded(limits: HttpLimits) -> type[H11Protocol]:
    """Connections that end when a request does not become whole in time, or its answer is not taken in time.

    uvicorn itself waits for both without a limit.
    """

    class BoundedConnection(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > limits.max_connections:
                _LOG.warning("%d connections are open, as many as may be: one more is closed", limits.max_connections)
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
