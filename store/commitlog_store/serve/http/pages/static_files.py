"""Scripts, styles and pictures of the pages, from the package."""

from __future__ import annotations

import hashlib
import pkgutil
from functools import cache

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from commitlog_store.serve.http.app import HttpRoute

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_NAMES = frozenset(
    {"commitlog.css", "commitlog.js", "commitlog.svg", "htmx.min.js", "pico.min.css", "uPlot.iife.min.js"}
    | {"uPlot.min.css"}
)


@cache
def _file(name: str) -> tuple[bytes, str]:
    """The bytes, and what changes with them."""
    data = pkgutil.get_data("commitlog_store.serve.http", f"static/{name}") or b""
    return data, f'"{hashlib.sha256(data).hexdigest()[:32]}"'


async def _answer(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _NAMES:
        raise HTTPException(404, "The server has no such file.")
    data, tag = _file(name)
    headers = {"etag": tag, "cache-control": "max-age=3600"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type=_TYPES[name.rpartition(".")[2]], headers=headers)


ROUTES = (HttpRoute(path="/static/{name}", answer=_answer, is_open=True),)
