"""Pages: the routes of the dashboard, and what answers each of them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response

from commitlog_store.decoders.topic_decoders import TopicDecoders
from commitlog_store.errors import CommitLogError, InvalidValue, RemoteAccessRefused
from commitlog_store.reader import OnDamage, StoreReader
from commitlog_store.serve.http.access import HttpAccess
from commitlog_store.serve.http.app import HttpRoute
from commitlog_store.serve.http.forms import read_form
from commitlog_store.serve.http.pages import (
    dead_letters,
    disk_use,
    groups,
    messages,
    overview,
    past,
    replication,
    settings,
    topics,
    verify,
    waiting,
)
from commitlog_store.serve.http.pages.live_looks import LiveLooks
from commitlog_store.serve.http.pages.live_streams import LiveStreams
from commitlog_store.serve.http.pages.static_files import ROUTES as STATIC_ROUTES
from commitlog_store.serve.http.pages.templates import FIRST, compile_template, render
from commitlog_store.serve.http.pages.views import Asked, SharedAnswers, Values, View
from commitlog_store.serve.http.served_stores import ServedStores

_T = TypeVar("_T")
_BETWEEN_STEPS_S = 0.02

VIEWS = (
    *(overview.VIEW, topics.LIST, topics.ONE, messages.SEARCH, messages.ONE, groups.LIST, groups.ONE),
    *(dead_letters.LIST, dead_letters.ONE, waiting.DELAYED, waiting.HALF, waiting.BATCHES),
    *(disk_use.VIEW, verify.VIEW, replication.VIEW, settings.VIEW, past.VIEW),
)


class Pages:
    """Answers requests for pages of the served stores. ``downloads``: found messages may be downloaded."""

    def __init__(
        self, stores: ServedStores, access: HttpAccess, *, downloads: bool = True, decoders: TopicDecoders
    ) -> None:
        self._stores = stores
        self._access = access
        self._downloads = downloads
        self._decoders = decoders
        self._shared = {name: SharedAnswers() for name in stores.names}
        self._looks = LiveLooks()
        self.streams = LiveStreams()

    def routes(self) -> Iterable[HttpRoute]:
        yield from STATIC_ROUTES
        yield HttpRoute(path="/sign-in", answer=self._sign_in_page, is_open=True)
        yield HttpRoute(path="/sign-in", answer=self._sign_in, methods=("POST",), is_open=True)
        yield HttpRoute(path="/sign-out", answer=self._sign_out, methods=("POST",), is_open=True)
        yield HttpRoute(path="/topics/{name}/stored.json", answer=self._stored)
        yield HttpRoute(path="/figures.json", answer=self._figures)
        if self._downloads:
            yield HttpRoute(path="/messages/download", answer=self._download)
            yield HttpRoute(path="/messages/{id}/body", answer=self._body)
        for view in VIEWS:
            yield HttpRoute(path=view.path, answer=partial(self._page, view))
            if view.is_live:
                yield HttpRoute(path="/live" + view.path, answer=partial(self._live, view))

    async def warm(self) -> None:
        """Do what the first visitor of each page would wait for: templates compiled, readers open, topics listed.

        In small steps, so that puts take their turns between them.
        """
        steps: list[Callable[[], object]] = [partial(compile_template, name) for name in FIRST]
        steps += [partial(self._list_topics, name) for name in self._stores.names]
        for step in steps:
            with contextlib.suppress(CommitLogError, OSError):  # the first visitor gets it
                await self._stores.in_thread(step)
            await asyncio.sleep(_BETWEEN_STEPS_S)

    def _list_topics(self, name: str) -> None:
        with self._stores.lent(name) as reader:
            reader.topics()

    def error(self, request: Request, status: int, reason: str) -> Response:
        """An answer in place of a page: a page for a browser, a line for others."""
        if status == 401 and request.method == "GET" and _wants_page(request) and "hx-request" not in request.headers:
            return RedirectResponse(f"/sign-in?{urlencode({'next': _address(request)})}", 303)
        headers = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "1"}}.get(status)
        if not _wants_page(request):
            return PlainTextResponse(reason + "\n", status, headers=headers)
        values = {**self.frame(request), "status": status, "reason": reason}
        return HTMLResponse(render("error.html", values), status, headers=headers)

    async def _page(self, view: View, request: Request) -> Response:
        frame = self.frame(request)

        def work(reader: StoreReader) -> str:
            values = view.look(reader, self._asked(request))
            frame["live"] = f"/live{_address(request)}" if view.is_live else None
            # A search as one types replaces the changing part alone.
            is_part = request.headers.get("hx-target") == "live"
            template = f"parts/{view.name}.html" if is_part else f"{view.name}.html"
            return render(template, {**frame, **values})

        return HTMLResponse(await self._read(request, work, view.on_damage))

    async def _live(self, view: View, request: Request) -> Response:
        frame = self.frame(request)
        asked = self._asked(request)
        page = (view.name, frame["store"], *sorted(asked.names.items()), *sorted(asked.query.items()))

        def work(reader: StoreReader) -> str:
            found = self._looks.of(page, lambda before: view.look(reader, self._asked(request, before)))
            return render(f"parts/{view.name}.html", {**frame, **found})

        async def make() -> str:
            self._access.visitor(request)  # its token may have ended since
            return await self._read(request, work, view.on_damage)

        return self.streams.stream(make)

    async def _read(self, request: Request, work: Callable[[StoreReader], _T], on_damage: OnDamage = "raise") -> _T:
        store = request.query_params.get("store", "")

        def answer() -> _T:
            with self._stores.lent(store, on_damage) as reader:
                return work(reader)

        return await self._stores.in_thread(answer)

    def _asked(self, request: Request, before: Values | None = None) -> Asked:
        store = self._stores.known(request.query_params.get("store", ""))
        return Asked(
            names=request.path_params,
            query=dict(request.query_params),
            shared=self._shared[store],
            owned=self._stores.owned,
            group_clients=self._stores.connections.group_clients,
            decoders=self._decoders,
            verification=self._stores.verification(store),
            now=time.monotonic(),
            before=before,
        )

    def frame(self, request: Request) -> Values:
        """What each page has around it."""
        visitor = request.state.visitor if hasattr(request.state, "visitor") else None
        return {
            "stores": self._stores.names,
            "store": request.query_params.get("store", ""),
            "query": dict(request.query_params),
            "here": _address(request).partition("?")[0],
            "is_owner": self._stores.is_owner,
            "visitor": visitor,
            "wants_token": self._access.wants_token,
            "downloads": self._downloads,
            "may_act": self._stores.is_owner and visitor is not None and visitor.may_act,
            "may_verify": visitor is not None and visitor.may_act,
            "form_token": self._access.form_token(request),
            "live": None,
        }

    async def _stored(self, request: Request) -> Response:
        span = request.query_params.get("span", "1h")
        if span not in topics.SPANS_S:
            raise InvalidValue(f"span is one of {', '.join(topics.SPANS_S)}, not {span!r}.")
        name = request.path_params["name"]
        return JSONResponse(await self._read(request, lambda reader: topics.stored(reader, name, span)))

    async def _figures(self, request: Request) -> Response:
        found = await self._read(request, lambda reader: past.past_figures(reader, self._asked(request)))
        return JSONResponse(past.as_json(found))

    async def _download(self, request: Request) -> Response:
        form = request.query_params.get("format", "ndjson")
        data = await self._read(request, lambda reader: messages.download(reader, self._asked(request), form))
        return _attachment(data, messages.DOWNLOADS[form], f"messages.{form}")

    async def _body(self, request: Request) -> Response:
        data = await self._read(request, lambda reader: messages.body_of(reader, self._asked(request)))
        return _attachment(data, "application/octet-stream", "body.bin")

    async def _sign_in_page(self, request: Request) -> Response:
        if not self._access.wants_token:
            return RedirectResponse("/", 303)
        values = {**self.frame(request), "next": request.query_params.get("next", "/"), "problem": ""}
        return HTMLResponse(render("sign_in.html", values))

    async def _sign_in(self, request: Request) -> Response:
        form = await read_form(request)
        answer: Response = RedirectResponse(_own_path(form.get("next", "/")), 303)
        try:
            self._access.sign_in(form.get("token", "").strip(), request, answer)
        except RemoteAccessRefused as error:
            values = {**self.frame(request), "next": form.get("next", "/"), "problem": str(error)}
            answer = HTMLResponse(render("sign_in.html", values), 401)
        return answer

    async def _sign_out(self, request: Request) -> Response:
        answer = RedirectResponse("/sign-in", 303)
        self._access.sign_out(request, answer)
        return answer


def _wants_page(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def _attachment(data: bytes, kind: str, name: str) -> Response:
    """Never shown in the server's own pages, whatever the bytes are."""
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "content-security-policy": "default-src 'none'; sandbox",
    }
    return Response(data, media_type=kind, headers=headers)


def _address(request: Request) -> str:
    """Path and query as the browser sent them."""
    path: str = request.scope["raw_path"].decode("ascii")
    return f"{path}?{request.url.query}" if request.url.query else path


def _own_path(text: str) -> str:
    """A path of this server, and never another one's address."""
    is_own = text.startswith("/") and not text.startswith(("//", "/\\")) and text.isprintable()
    return text if is_own else "/"
