"""Who may ask by HTTP: the host that a request names, tokens, and sign-in sessions of browsers.

A browser shows its token once, at sign-in, and has a cookie from then on. What the cookie names stays in memory here;
each request looks the token up again, so that a token which was removed or has expired ends its sessions, too.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

from starlette.requests import HTTPConnection
from starlette.responses import Response

from commitlog_store.errors import RemoteAccessRefused
from commitlog_store.serve.listen import ListenSettings
from commitlog_store.serve.tokens import Role, TokenFile

COOKIE = "commitlog_session"
_BEARER = "bearer "
_SESSION_S = 12 * 3600
_MOST_SESSIONS = 1000


@dataclass(frozen=True)
class Visitor:
    """The maker of a request. Without a token file its name is empty, and it may read."""

    name: str
    role: Role
    has_session: bool = False

    @property
    def may_act(self) -> bool:
        """Whether it may change the store from the pages: an admin that has signed in with a browser."""
        return self.role >= Role.ADMIN and self.has_session


class Sessions:
    """Tokens of browsers that have signed in, by what their cookie holds. The oldest ones end when there are many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def begin(self, token: str) -> str:
        """What the cookie is to hold."""
        session = secrets.token_urlsafe(32)
        with self._lock:
            self._tokens[session] = token, time.monotonic() + _SESSION_S
            while len(self._tokens) > _MOST_SESSIONS:
                self._tokens.popitem(last=False)
        return session

    def token(self, session: str) -> str | None:
        with self._lock:
            token, ends = self._tokens.get(session, (None, 0.0))
            if token is not None and time.monotonic() >= ends:
                del self._tokens[session]
                return None
            return token

    def end(self, session: str) -> None:
        with self._lock:
            self._tokens.pop(session, None)


class HttpAccess:
    """Decides for each request. Used by the loop's thread."""

    def __init__(self, listen: ListenSettings) -> None:
        """``InvalidValue`` for an address that others reach, without TLS and tokens; the errors of ``TokenFile``."""
        self._listen = listen
        self._tokens = None if listen.tokens is None else TokenFile(listen.tokens)
        self._sessions = Sessions()
        self._secret = secrets.token_bytes(32)

    @property
    def wants_token(self) -> bool:
        return self._tokens is not None

    def is_own_host(self, connection: HTTPConnection) -> bool:
        """Whether the request names this server.

        A page of another site whose name was made to resolve to this host (DNS rebinding) names that site. With TLS,
        here or at a trusted proxy, the browser has found such a name not to be that of the certificate.
        """
        host = _host_of(connection.headers.get("host", ""))
        if connection.url.scheme == "https" or host in ("localhost", self._listen.host.lower()):
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True

    def is_own_origin(self, connection: HTTPConnection) -> bool:
        """Whether a request that changes something comes from a page of this server.

        A proxy that is not a trusted one may have ended TLS before: then the page is of https, and this connection is
        not. Never the other way round: a page of http is anybody's on the way.
        """
        origin = connection.headers.get("origin")
        if origin is not None:
            host = connection.headers.get("host", "")
            return origin in (f"{connection.url.scheme}://{host}", f"https://{host}")
        return connection.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")

    def visitor(self, connection: HTTPConnection) -> Visitor:
        """``RemoteAccessRefused`` without a right token, where there is a token file."""
        if self._tokens is None:
            return Visitor("", Role.READ)
        given = connection.headers.get("authorization", "")
        if given[: len(_BEARER)].lower() == _BEARER:
            return Visitor(*self._tokens.role_of(given[len(_BEARER) :].strip()))
        session = self.session_of(connection)
        token = self._sessions.token(session)
        if token is None:
            raise RemoteAccessRefused("The server wants a token: sign in, or send it as `Authorization: Bearer TOKEN`.")
        try:
            return Visitor(*self._tokens.role_of(token), has_session=True)
        except RemoteAccessRefused:
            self._sessions.end(session)
            raise

    @staticmethod
    def session_of(connection: HTTPConnection) -> str:
        """What the cookie names; empty without one."""
        return connection.cookies.get(COOKIE, "")

    def form_token(self, connection: HTTPConnection) -> str:
        """What a form of this visitor's pages has, so that no other site can have made it."""
        return hmac.new(self._secret, self.session_of(connection).encode(), hashlib.sha256).hexdigest()

    def is_own_form(self, connection: HTTPConnection, token: str) -> bool:
        """Whether a form has the token of this session."""
        return hmac.compare_digest(self.form_token(connection).encode(), token.encode())

    def sign_in(self, token: str, connection: HTTPConnection, response: Response) -> None:
        """Give the browser its cookie. ``RemoteAccessRefused`` for a wrong token."""
        if self._tokens is not None:
            self._tokens.role_of(token)
            response.set_cookie(
                COOKIE,
                self._sessions.begin(token),
                max_age=_SESSION_S,
                path="/",
                secure=connection.url.scheme == "https",
                httponly=True,
                samesite="strict",
            )

    def sign_out(self, connection: HTTPConnection, response: Response) -> None:
        self._sessions.end(self.session_of(connection))
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")


def _host_of(header: str) -> str:
    """Without the port and the brackets of an IPv6 address."""
    host = header.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
