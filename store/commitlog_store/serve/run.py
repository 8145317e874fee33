"""Runs a server until a signal stops it: opens the stores, listens, drains, closes."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from commitlog_store.config import MessageStoreConfig
from commitlog_store.decoders.topic_decoders import TopicDecoders
from commitlog_store.errors import InvalidValue
from commitlog_store.files.limits import allow_most_open_files
from commitlog_store.paths import ARCHIVE_SCHEMES, REMOTE_SCHEMES
from commitlog_store.reader import OnDamage, StoreReader
from commitlog_store.serve.call_limits import DEFAULT_CALL_TIMEOUT_S, DEFAULT_MAX_CALLS, CallLimits
from commitlog_store.serve.connection_counts import ConnectionCounts
from commitlog_store.serve.figures.figures_service import FiguresService
from commitlog_store.serve.flight_server import StoreServer
from commitlog_store.serve.listen import HTTP_PORT, ListenSettings
from commitlog_store.serve.verification import Verification
from commitlog_store.store import MessageStore, owned_by

if TYPE_CHECKING:
    from commitlog_store.serve.archive_service import ArchiveService
    from commitlog_store.serve.http.front import HttpFront
    from commitlog_store.serve.rocketmq.broker import RocketMQBroker, RocketMQSettings

_LOG = logging.getLogger(__name__)
# How long calls have to end that were cut off.
_CUT_SECONDS = 5.0
_STOP = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, kw_only=True)
class ServeRequest:
    """``stores`` are ``PATH`` or ``NAME=PATH``; several, or ``read_only``, are shown without their locks.

    ``config`` is that of the store which this process owns, ``max_staged`` as in ``StagingSpace``. ``commit_log`` is
    the directory of the log of a store that it only shows; of one that it owns, ``config`` has that.
    ``commit_log_from`` is what named that directory, in words.
    ``broker_properties`` are brokerName, brokerClusterName, autoCreateTopicEnable, autoCreateSubscriptionGroup and
    brokerIP2 of a broker's file, as far as it has them. ``archive`` is the URL at which the store is archived, with
    ``archive_max_rate`` bytes a second at most (0: no limit). ``decode`` has the rules of ``TopicDecoders`` for pages.
    ``trusted_proxies`` are those of ``serve.http.trusted_proxies``.
    ``is_new``: the owned store does not exist yet.
    """

    stores: Sequence[str]
    listen: ListenSettings
    read_only: bool = False
    is_new: bool = False
    commit_log: str | None = None
    commit_log_from: str = "--commit-log"
    config: MessageStoreConfig | None = None
    drain_timeout_s: float = 10.0
    max_calls: int = DEFAULT_MAX_CALLS
    call_timeout_s: float = DEFAULT_CALL_TIMEOUT_S
    access_log: bool = False
    max_staged: int | None = None
    rocketmq: str | None = None
    advertise: str | None = None
    name_servers: str | None = None
    broker_properties: Mapping[str, str] = field(default_factory=dict)
    acl: str | None = None
    http: str | None = None
    http_downloads: bool = True
    trusted_proxies: str | None = None
    decode: Sequence[str] = ()
    archive: str | None = None
    archive_max_rate: int = 0

    def named_paths(self) -> dict[str, str]:
        """``InvalidValue`` for a name given twice, for several stores that are not read only, and for addresses."""
        found: dict[str, str] = {}
        for text in self.stores:
            name, separator, path = text.partition("=")
            if not separator or "/" in name:
                name, path = "", text
            if name in found or (not name and len(self.stores) > 1):
                raise InvalidValue(f"Several stores are given as NAME=PATH, each with its own name, not as {text!r}.")
            if path.startswith((*REMOTE_SCHEMES, *ARCHIVE_SCHEMES)):
                what = "an archive" if path.startswith(ARCHIVE_SCHEMES) else "a server"
                raise InvalidValue(f"A server shows directories of its host, and {path!r} is the address of {what}.")
            found[name] = path
        if len(found) > 1 and not self.read_only:
            raise InvalidValue("A server owns one store; several are shown with --read-only.")
        if len(found) > 1 and self.commit_log is not None:
            raise InvalidValue(
                f"One log belongs to one store, and {self.commit_log_from} names one for {len(found)} stores: serve "
                "the store of that log by a server of its own, and leave it out for the others."
            )
        if len(found) > 1 and self.archive is not None:
            raise InvalidValue("--archive goes with one store; run 'commitlog archive' for each of several.")
        if self.read_only and self.rocketmq is not None:
            raise InvalidValue("Clients of RocketMQ put into the store: --rocketmq and --read-only exclude each other.")
        return found

    def store_config(self, broker: ListenSettings | None = None) -> MessageStoreConfig:
        """That of the store. Message ids name the broker's address, where clients ask for messages by them.

        ``broker`` is that address, of an ip or a name; a brokerIP1 of another host is in the ids unless an address is
        advertised. This process is the broker then: it delivers delayed messages, also in a store that RocketMQ's
        broker had. Retention waits for the archive, unless for another one.
        """
        config = self.config or MessageStoreConfig()
        if self.archive is not None and not config.retention_archive:
            config = replace(config, retention_archive=self.archive)
        if self.rocketmq is None:
            return config
        if config.schedule_enable is None:
            config = replace(config, schedule_enable=True)
        if broker is None or broker.address is None or broker.is_unspecified or not broker.port:
            return config
        if self.advertise is None and config.broker_ip not in ("", broker.host):
            return config
        return replace(config, broker_ip=broker.host, listen_port=broker.port)


def serve_until_stopped(request: ServeRequest, say: Callable[[str], None]) -> None:
    """Serve until SIGTERM or Ctrl-C. The errors of opening the stores, and of ``StoreServer``.

    ``say`` gets a line when the server has begun, and one when it stops.
    """
    paths = request.named_paths()
    allow_most_open_files()
    with ExitStack() as stack:
        stop = stack.enter_context(_StopSignals())
        served = _start(request, paths, stack)
        say(served.describe(request, paths))
        if served.archive is not None:
            served.archive.start()
        if served.http is not None:
            served.http.warm()
        stop.wait()
        say(f"stopping: calls under way have {request.drain_timeout_s:g} s to end")
        drained = served.stop(request.drain_timeout_s)
    if not drained:
        # Arrow Flight waits for its calls at exit, and a request to object storage may still be under way. The store is
        # closed, and nothing else is left to do.
        logging.shutdown()
        sys.stderr.flush()
        os._exit(0)


def _start(request: ServeRequest, paths: Mapping[str, str], stack: ExitStack) -> _Served:
    """Open the stores and answer. ``stack`` closes what was opened, the last first."""
    decoders = stack.enter_context(TopicDecoders.parse(request.decode))
    settings, bound = None, None
    if request.rocketmq is not None:
        settings, bound = _bind_rocketmq(request)
        stack.enter_context(bound)
    owned = None
    if not request.read_only:
        (path,) = paths.values()
        owned = stack.enter_context(MessageStore.open(path, _store_config(request, settings, bound)))
    openers = {name: partial(_open, path, _commit_log(request, owned)) for name, path in paths.items()}
    for open_reader in openers.values():
        open_reader("raise").close()  # a store that cannot be read is an error now, not at the first question
    if owned is not None:
        figures = FiguresService(owned, *openers.values())
        figures.start()
        stack.callback(figures.stop)
    connections = ConnectionCounts()
    broker = None
    if owned is not None and settings is not None:
        from commitlog_store.serve.rocketmq.broker import RocketMQBroker

        broker = RocketMQBroker(owned, settings, bound=bound)
        broker.start()
        broker.count_in(connections)
        stack.callback(broker.stop, 0.0)
    archive = None if request.archive is None else _archive(request, next(iter(paths.values())), owned)
    if archive is not None:
        stack.callback(archive.stop, 0.0)
    verifications = {name: Verification() for name in openers}
    http = None
    if request.http is not None:
        http = _http(request, openers, owned, archive, decoders, verifications, connections)
        stack.callback(http.stop, 0.0)
    server = StoreServer(
        openers,
        request.listen,
        owned=owned,
        limits=CallLimits(request.max_calls, request.call_timeout_s),
        access_log=request.access_log,
        most_staged=request.max_staged,
        verifications=verifications,
    )
    connections.add("grpc", server.connections)
    return _Served(server, broker, http, archive)


class _Served(NamedTuple):
    """What answers, and the service that archives."""

    server: StoreServer
    broker: RocketMQBroker | None
    http: HttpFront | None
    archive: ArchiveService | None

    def describe(self, request: ServeRequest, paths: Mapping[str, str]) -> str:
        """What is served at which addresses, and to whom, as a sentence."""
        listen = request.listen
        stores = ", ".join(f"{name}={path}" if name else path for name, path in paths.items())
        who = "clients with a token" if listen.tokens else "every client of this host"
        how = "read only" if request.read_only else "its owner; a new store" if request.is_new else "its owner"
        place = listen.location.removesuffix(f":{listen.port}") + f":{self.server.port}"
        whose = "of this host" if request.acl is None else "with an account"
        rocketmq = "" if self.broker is None else f", and at {self.broker.address} to RocketMQ's clients {whose}"
        pages = "" if self.http is None else f", and at {self.http.url} to browsers"
        archive = "" if request.archive is None else f", and archives it at {request.archive}"
        return f"serving {stores} ({how}) at {place} to {who}{rocketmq}{pages}{archive}"

    def stop(self, seconds: float) -> bool:
        """Whether all calls, and the requests to object storage, ended in time."""
        deadline = time.monotonic() + seconds

        def left() -> float:
            return max(deadline - time.monotonic(), 0.0)

        self.server.end_waits()
        if self.archive is not None:
            self.archive.begin_stop()
        if self.broker is not None:
            self.broker.stop(seconds)
        if self.http is not None:
            self.http.stop(left())
        drained = _drain(self.server, left())
        return self.archive.stop(left()) and drained if self.archive is not None else drained


def _bind_rocketmq(request: ServeRequest) -> tuple[RocketMQSettings, socket.socket]:
    """The broker's settings and its socket, which is bound before the store is opened: its messages' ids have the port.

    ``InvalidValue``, ``ListenFailed``.
    """
    from commitlog_store.serve.rocketmq.broker import RocketMQSettings  # servers without it are lighter

    assert request.rocketmq is not None
    settings = RocketMQSettings.parse(
        *(request.rocketmq, request.advertise, request.name_servers), tls=request.listen.tls, acl=request.acl
    )
    given = request.broker_properties
    settings = replace(
        settings,
        name=given.get("brokerName", settings.name),
        cluster=given.get("brokerClusterName", settings.cluster),
        # As Java reads a boolean.
        auto_create_topic_enable=given.get("autoCreateTopicEnable", "true").lower() == "true",
        auto_create_subscription_group=given.get("autoCreateSubscriptionGroup", "true").lower() == "true",
        slaves_ip=given.get("brokerIP2", ""),
    )
    return settings, settings.bind()


def _store_config(
    request: ServeRequest, settings: RocketMQSettings | None, bound: socket.socket | None
) -> MessageStoreConfig:
    """That of the store, with the broker's address as its clients find it, an ip for a name that it listens on."""
    if settings is None or bound is None:
        return request.store_config()
    host, port = bound.getsockname()[:2]
    found = settings.address(port, request.config.broker_ip if request.config is not None else "")
    if settings.advertise is None and not settings.listen.is_unspecified:
        found = replace(found, host=host)
    return request.store_config(found)


def _archive(request: ServeRequest, path: str, owned: MessageStore | None) -> ArchiveService:
    """The service that archives the store. ``InvalidValue``, ``StoreOpenError``, ``ArchiveFailed``."""
    from commitlog_store.serve.archive_service import ArchiveService  # servers without it are lighter

    assert request.archive is not None
    hold = None if owned is None else owned_by(owned).archive_hold
    return ArchiveService.open(
        *(path, request.archive),
        commit_log=_commit_log(request, owned),
        on_archived=None if hold is None else hold.look_again,
        max_rate=request.archive_max_rate,
    )


def _http(
    request: ServeRequest,
    openers: Mapping[str, Callable[[OnDamage], StoreReader]],
    owned: MessageStore | None,
    archive: ArchiveService | None,
    decoders: TopicDecoders,
    verifications: Mapping[str, Verification],
    connections: ConnectionCounts,
) -> HttpFront:
    """The listener for HTTP, answering. ``InvalidValue``, ``ListenFailed``."""
    try:
        from commitlog_store.serve.http.front import HttpFront
    except ModuleNotFoundError as error:
        raise InvalidValue(
            f"--http needs the extra web, of which {error.name} is missing: pip install 'pyspark-commitlog[web]'"
        ) from error
    assert request.http is not None
    listen = ListenSettings.parse(
        request.http, tls=request.listen.tls, tokens=request.listen.tokens, default_port=HTTP_PORT
    )
    given = request.broker_properties
    front = HttpFront(
        openers,
        listen,
        owned=owned,
        node=given.get("brokerName", ""),
        cluster=given.get("brokerClusterName", ""),
        downloads=request.http_downloads,
        archive=None if archive is None else lambda: archive.state,
        decoders=decoders,
        verifications=verifications,
        trusted_proxies=request.trusted_proxies,
        connections=connections,
    )
    front.start()
    return front


def _commit_log(request: ServeRequest, owned: MessageStore | None) -> str | None:
    """The directory of the log, if it is not in the store: an owner's settings say so."""
    return request.commit_log if owned is None else owned.config.store_path_commit_log


def _open(path: str, commit_log: str | None, on_damage: OnDamage) -> StoreReader:
    return StoreReader.open(path, store_path_commit_log=commit_log, on_damage=on_damage)


class _StopSignals:
    """The first SIGTERM or SIGINT ends ``wait``; the second one ends the process, as a crash would.

    The system gives a signal to any thread, and Arrow Flight has some of its own: a wait for a lock would not end.
    """

    def __init__(self) -> None:
        self._ear, self._mouth = socket.socketpair()
        self._mouth.setblocking(False)

    def __enter__(self) -> _StopSignals:
        self._before = {number: signal.signal(number, _ignore) for number in _STOP}
        self._fd = signal.set_wakeup_fd(self._mouth.fileno())
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._fd)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._ear.close()
        self._mouth.close()

    def wait(self) -> None:
        while self._ear.recv(1)[0] not in _STOP:
            pass
        for number in _STOP:
            signal.signal(number, signal.SIG_DFL)


def _ignore(*_: object) -> None:
    """What Python does at a signal, beside waking ``_StopSignals``."""


def _drain(server: StoreServer, seconds: float) -> bool:
    """Whether all calls ended in time: ``shutdown`` waits for them, and has no deadline of its own."""
    closing = threading.Thread(target=server.shutdown, daemon=True)
    closing.start()
    closing.join(seconds)
    if closing.is_alive():
        _LOG.warning("Calls did not end in time (--drain-timeout): they are cut off.")
        server.cut_off()
        closing.join(_CUT_SECONDS)
    if closing.is_alive():
        return False
    server.close()
    return True
