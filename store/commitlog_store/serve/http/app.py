"""The HTTP application: routes, each after the same checks, and errors as answers.

``Guard`` is around all of it: the host that a request names, headers for browsers, and time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commitlog_store.errors import (
    CommitLogError,
    FileChanged,
    HalfMessageEnded,
    InvalidValue,
    NotFoundError,
    NotServed,
    OffsetOutOfRange,
    PutRefused,
    RemoteAccessRefused,
    RemoteFailed,
    ServerBusy,
    StoreBusy,
    StoreClosed,
)
from commitlog_store.serve.http.access import HttpAccess
from commitlog_store.serve.http.trusted_proxies import TrustedProxies

_LOG = logging.getLogger(__name__)
# Longer than a question to a store may take, and shorter than the listener lets an answer take.
_ANSWER_S = 300.0
# The status of each error.
_STATUS: tuple[tuple[type[CommitLogError], int], ...] = (
    (RemoteAccessRefused, 401),
    (ServerBusy, 503),
    (StoreBusy, 503),
    (StoreClosed, 503),
    (RemoteFailed, 503),
    (NotServed, 404),
    (InvalidValue, 400),
    (NotFoundError, 404),
    (OffsetOutOfRange, 404),
    (FileChanged, 503),
    (HalfMessageEnded, 409),
    (PutRefused, 409),
)


@dataclass(frozen=True, kw_only=True)
class HttpRoute:
    """``is_open``: answered without a token, also where there is a token file, for probes and the sign-in.

    ``answer`` runs on the event loop. What may wait for a disk or takes time it does in
    ``ServedStores.in_thread``. Errors of this package that it raises become answers by ``_STATUS``.
    ``path`` is one of starlette's patterns, ``/topics/{name}``.
    """

    path: str
    answer: Callable[[Request], Awaitable[Response]]
    methods: tuple[str, ...] = ("GET",)
    is_open: bool = False


def make_app(
    routes: Iterable[HttpRoute],
    access: HttpAccess,
    proxies: TrustedProxies,
    answer_error: Callable[[Request, int, str], Response],
) -> ASGIApp:
    """An application with these routes. ``answer_error`` answers a request with a status and the reason."""

    async def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return answer_error(request, error.status_code, error.detail)

    async def store_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, CommitLogError)
        status = _status_of(error)
        if status >= 500 and status != 503:
            _LOG.warning("%s: %s", request.url.path, error)
        return answer_error(request, status, str(error))

    async def failure(request: Request, error: Exception) -> Response:
        return answer_error(request, 500, f"{type(error).__name__} at the server; its log says more.")

    app = Starlette(
        routes=[Route(one.path, _checked(one, access), methods=list(one.methods)) for one in routes],
        exception_handlers={HTTPException: http_error, CommitLogError: store_error, Exception: failure},
    )
    # Around all of it: starlette answers unexpected errors outside of its middleware.
    return Guard(app, access, proxies)


def _checked(route: HttpRoute, access: HttpAccess) -> Callable[[Request], Awaitable[Response]]:
    """The route's answer to requests that may be made. They have ``request.state.visitor``."""

    async def answer(request: Request) -> Response:
        request.state.visitor = None
        if request.method not in ("GET", "HEAD") and not access.is_own_origin(request):
            raise HTTPException(403, "The request comes from a page of another site.")
        try:
            request.state.visitor = access.visitor(request)
        except RemoteAccessRefused:
            if not route.is_open:
                raise
        return await route.answer(request)

    return answer


def _status_of(error: CommitLogError) -> int:
    """500 for what no request has brought about, such as damage of the store."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


# Scripts, styles, images and streams come from this server, and none from a page's own text.
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not "no-referrer": browsers name no origin then in forms that are sent, and these would be refused.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """An ASGI application around another one. A request ends after ``_ANSWER_S`` seconds, streams included."""

    def __init__(self, app: ASGIApp, access: HttpAccess, proxies: TrustedProxies) -> None:
        self._app = app
        self._access = access
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope = self._proxies.as_asked(scope)
        has_begun = False

        async def send_guarded(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        if not self._access.is_own_host(HTTPConnection(scope)):
            refusal = PlainTextResponse(
                "This server does not answer to the host that the request names: use its address, or localhost. A "
                "proxy with TLS is named by --trusted-proxies, and sends X-Forwarded-Host and X-Forwarded-Proto.\n",
                421,
            )
            await refusal(scope, receive, send_guarded)
            return
        try:
            async with asyncio.timeout(_ANSWER_S):
                await self._app(scope, receive, send_guarded)
        except TimeoutError:
            _LOG.info("An answer to %s took longer than %g s", scope["path"], _ANSWER_S)
            if not has_begun:
                await PlainTextResponse("The answer took too long.\n", 503)(scope, receive, send_guarded)
            else:
                raise
