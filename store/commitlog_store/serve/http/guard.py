"""Guard: what holds for every request and answer: the host it names, headers for browsers, time."""

from __future__ import annotations

import asyncio
import logging

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from commitlog_store.serve.http.access import HttpAccess
from commitlog_store.serve.http.trusted_proxies import TrustedProxies

_LOG = logging.getLogger(__name__)
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
    """An ASGI application around another one. A request ends after ``answer_s`` seconds, streams included."""

    def __init__(self, app: ASGIApp, access: HttpAccess, proxies: TrustedProxies, *, answer_s: float) -> None:
        self._app = app
        self._access = access
        self._proxies = proxies
        self._answer_s = answer_s

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
            async with asyncio.timeout(self._answer_s):
                await self._app(scope, receive, send_guarded)
        except TimeoutError:
            _LOG.info("An answer to %s took longer than %g s", scope["path"], self._answer_s)
            if not has_begun:
                await PlainTextResponse("The answer took too long.\n", 503)(scope, receive, send_guarded)
            else:
                raise
