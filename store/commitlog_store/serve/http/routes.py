"""HttpRoute: a path, and what answers it. Each room of ``serve/http/`` gives its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response


@dataclass(frozen=True, kw_only=True)
class HttpRoute:
    """``is_open``: answered without a token, also where there is a token file, for probes and the sign-in.

    ``answer`` runs on the event loop. What may wait for a disk or takes time it does in
    ``ServedStores.in_thread``. Errors of this package that it raises become answers by ``errors.py``.
    ``path`` is one of starlette's patterns, ``/topics/{name}``.
    """

    path: str
    answer: Callable[[Request], Awaitable[Response]]
    methods: tuple[str, ...] = ("GET",)
    is_open: bool = False
