"""HttpFront: stores shown by HTTP, from its start to its end: application, listener and readers, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from commitlog_store.decoders.topic_decoders import TopicDecoders
from commitlog_store.errors import InvalidValue
from commitlog_store.reader import OnDamage, StoreReader
from commitlog_store.serve.connection_counts import ConnectionCounts
from commitlog_store.serve.http.access import HttpAccess
from commitlog_store.serve.http.actions.end_half_message import COMMIT_HALF, ROLL_BACK_HALF
from commitlog_store.serve.http.actions.forget_batches import FORGET
from commitlog_store.serve.http.actions.frame import Actions
from commitlog_store.serve.http.actions.produce import PRODUCE
from commitlog_store.serve.http.actions.redrive import REDRIVE
from commitlog_store.serve.http.actions.reset_group import RESET
from commitlog_store.serve.http.actions.verify import verify_actions
from commitlog_store.serve.http.app import make_app
from commitlog_store.serve.http.health import health_routes
from commitlog_store.serve.http.listener import HttpLimits, HttpListener, bind
from commitlog_store.serve.http.metrics import metrics_routes
from commitlog_store.serve.http.pages.pages import Pages
from commitlog_store.serve.http.served_stores import ServedStores
from commitlog_store.serve.http.trusted_proxies import TrustedProxies
from commitlog_store.serve.listen import DEFAULT_HTTP, ListenSettings, tls_context
from commitlog_store.serve.verification import Verification
from commitlog_store.store import MessageStore

if TYPE_CHECKING:
    from commitlog_store.serve.archive_service import ArchiveState


_ACTIONS = (PRODUCE, RESET, REDRIVE, COMMIT_HALF, ROLL_BACK_HALF, FORGET)


class HttpFront:
    """Answers from ``start`` to ``stop``. One use; the owned store is its caller's."""

    def __init__(
        self,
        openers: Mapping[str, Callable[[OnDamage], StoreReader]],
        listen: ListenSettings,
        *,
        owned: MessageStore | None = None,
        node: str = "",
        cluster: str = "",
        limits: HttpLimits | None = None,
        downloads: bool = True,
        archive: Callable[[], ArchiveState] | None = None,
        decoders: TopicDecoders | None = None,
        verifications: Mapping[str, Verification] | None = None,
        trusted_proxies: str | None = None,
        connections: ConnectionCounts | None = None,
    ) -> None:
        """Bind to the address. ``ListenFailed``; ``InvalidValue`` for one that others reach without TLS and tokens.

        ``openers``, ``node``, ``cluster`` and ``verifications`` are those of ``ServedStores``. ``downloads``: found
        messages may be downloaded from the pages. ``archive`` returns the state of the service that archives the store.
        ``decoders`` are the caller's to close. ``trusted_proxies`` is a text for ``TrustedProxies.parse``.
        ``connections`` are those of the server's other listeners; the front's are added.
        """
        listen.refuse_open(instead=f"--http {DEFAULT_HTTP}")
        proxies = TrustedProxies.parse(trusted_proxies)
        if proxies.networks and listen.tokens is None:
            raise InvalidValue(
                "Other hosts reach the pages through a proxy: --trusted-proxies needs --tokens. `commitlog token new` "
                "makes tokens."
            )
        access = HttpAccess(listen)
        tls = None if listen.tls is None else tls_context(listen.tls)
        self.stores = ServedStores(
            openers,
            owned=owned,
            node=node,
            cluster=cluster,
            archive=archive,
            verifications=verifications,
            connections=connections,
        )
        pages = Pages(self.stores, access, downloads=downloads, decoders=decoders or TopicDecoders())
        self._pages = pages
        actions = Actions(self.stores, access, pages.frame, (*_ACTIONS, *verify_actions(self.stores)))
        routes = [*metrics_routes(self.stores), *health_routes(self.stores), *pages.routes(), *actions.routes()]
        app = make_app(routes, access, proxies, pages.error)
        self._listener = HttpListener(bind(listen), app, tls=tls, limits=limits, on_stop=pages.streams.stop)
        self.stores.connections.add("http", self._listener.connections)
        scheme = "http" if listen.tls is None else "https"
        self.url = f"{scheme}://{replace(listen, port=self._listener.port)}"

    def start(self) -> None:
        self._listener.start()

    def warm(self) -> None:
        """Prepare, in the background, what the first visitors would wait for. After ``start``."""
        self._listener.run(self._pages.warm())

    def stop(self, drain_s: float) -> None:
        """Take no more requests, let those under way end within ``drain_s``, and close. A second call does nothing."""
        self._listener.stop(drain_s)
        self.stores.close()
