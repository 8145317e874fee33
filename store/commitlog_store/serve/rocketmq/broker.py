"""RocketMQBroker: a store served to RocketMQ's own clients: its processors, put together, and their listener.

docs/decisions/0036-rocketmq-clients.md has the reasons.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.errors import InvalidValue, ListenFailed
from commitlog_store.files.local_address import address_to_reach
from commitlog_store.queue.topic_config import read_topic_settings
from commitlog_store.serve.connection_counts import ConnectionCounts, GroupClients, RequestTimes
from commitlog_store.serve.listen import ROCKETMQ_PORT, ListenSettings, TlsFiles, tls_context
from commitlog_store.serve.rocketmq.access.access_control import AccessControl
from commitlog_store.serve.rocketmq.answering import ThreadsOf, WaitingRequests
from commitlog_store.serve.rocketmq.broker_identity import DEFAULT_CLUSTER, DEFAULT_NAME, BrokerIdentity
from commitlog_store.serve.rocketmq.client_calls import ClientCalls
from commitlog_store.serve.rocketmq.clients import ClientRegistry
from commitlog_store.serve.rocketmq.connection import ConnectionLimits
from commitlog_store.serve.rocketmq.consumer_groups import ConsumerGroups
from commitlog_store.serve.rocketmq.listener import RemotingServer, bind
from commitlog_store.serve.rocketmq.name_server import DEFAULT_PORT as NAME_SERVER_PORT
from commitlog_store.serve.rocketmq.name_server import NameServerRegistration, ha_server_address
from commitlog_store.serve.rocketmq.processor import Processor
from commitlog_store.serve.rocketmq.processors.broker_admin import BrokerAdminProcessor
from commitlog_store.serve.rocketmq.processors.client_manage import ClientManageProcessor
from commitlog_store.serve.rocketmq.processors.consumer_admin import ConsumerAdminProcessor
from commitlog_store.serve.rocketmq.processors.consumer_manage import ConsumerManageProcessor
from commitlog_store.serve.rocketmq.processors.end_transaction import EndTransactionProcessor
from commitlog_store.serve.rocketmq.processors.group_admin import GroupAdminProcessor
from commitlog_store.serve.rocketmq.processors.kv_config import KVConfigProcessor
from commitlog_store.serve.rocketmq.processors.pull_message import PullMessageProcessor
from commitlog_store.serve.rocketmq.processors.query_message import QueryMessageProcessor
from commitlog_store.serve.rocketmq.processors.rebalance_lock import RebalanceLockProcessor
from commitlog_store.serve.rocketmq.processors.route import RouteInfoProcessor, own_topics
from commitlog_store.serve.rocketmq.processors.send_back import SendBackProcessor
from commitlog_store.serve.rocketmq.processors.send_message import SendMessageProcessor
from commitlog_store.serve.rocketmq.processors.topic_admin import TopicAdminProcessor
from commitlog_store.serve.rocketmq.pull_hold import PullRequestHoldService
from commitlog_store.serve.rocketmq.request_times import CreationTimes
from commitlog_store.serve.rocketmq.store_puts import StorePuts
from commitlog_store.store import MessageStore, owned_by, pulls_from

_T = TypeVar("_T")
# RocketMQ's name of what answers sends.
_SEND = "send"


@dataclass(frozen=True, kw_only=True)
class RocketMQSettings:
    """``listen`` is where clients connect; ``advertise`` is the HOST:PORT in routes: see ``address``.

    ``name`` and ``cluster`` are those of the broker, as a broker's file has them (brokerName, brokerClusterName).
    """

    listen: ListenSettings
    advertise: str | None = None
    name_servers: tuple[ListenSettings, ...] = ()
    name: str = DEFAULT_NAME
    cluster: str = DEFAULT_CLUSTER
    auto_create_topic_enable: bool = True
    """Whether the first message of a topic creates it."""
    auto_create_subscription_group: bool = True
    """Whether the first consumer of a group creates it."""
    limits: ConnectionLimits | None = None
    acl: str | None = None
    """The path of a ``plain_acl.yml``: each request then needs a signature."""
    slaves_ip: str = ""
    """The host that is registered for slaves (brokerIP2); without it, see ``ha_server_address``."""

    @classmethod
    def parse(
        cls,
        listen: str,
        advertise: str | None = None,
        name_servers: str | None = None,
        *,
        tls: TlsFiles | None = None,
        acl: str | None = None,
    ) -> RocketMQSettings:
        """From texts, each HOST:PORT; those of name servers are separated by semicolons. ``InvalidValue``."""
        servers = [text for text in (name_servers or "").split(";") if text]
        if advertise is not None:
            advertise = str(ListenSettings.parse(advertise, default_port=ROCKETMQ_PORT))
        return cls(
            listen=ListenSettings.parse(listen, tls=tls, default_port=ROCKETMQ_PORT),
            advertise=advertise,
            name_servers=tuple(ListenSettings.parse(text, default_port=NAME_SERVER_PORT) for text in servers),
            acl=acl,
        )

    def refuse_open(self) -> None:
        """``InvalidValue`` for an address that other hosts reach, without accounts."""
        if not self.listen.is_loopback and self.acl is None:
            raise InvalidValue(
                f"Other hosts reach {self.listen}: say with --acl plain_acl.yml which clients of RocketMQ may do what, "
                "or listen on a loopback address, such as --rocketmq 127.0.0.1:10911."
            )

    def address(self, port: int, broker_ip: str) -> ListenSettings:
        """The broker's address for its clients, when it listens on ``port``.

        It is ``advertise``, or where it listens; for all addresses, ``broker_ip`` (brokerIP1) or this machine's own.
        """
        if self.advertise is not None:
            return ListenSettings.parse(self.advertise, default_port=ROCKETMQ_PORT)
        host = self.listen.host
        if self.listen.is_unspecified:
            host = broker_ip or address_to_reach(host)
        return ListenSettings(host=host, port=port)

    def bind(self) -> socket.socket:
        """A socket that listens at the address; clients that connect wait for ``RocketMQBroker.start``.

        ``InvalidValue`` for an address that other hosts reach, without accounts; ``ListenFailed``.
        """
        self.refuse_open()
        try:
            return bind(self.listen.host, self.listen.port)
        except OSError as error:
            raise ListenFailed("listen on", path=str(self.listen), cause=error) from error


class RocketMQBroker:
    """Serves an open store from ``start`` to ``stop``; the store is its caller's. One use."""

    def __init__(self, store: MessageStore, settings: RocketMQSettings, *, bound: socket.socket | None = None) -> None:
        """Bind to the address. ``ListenFailed``; ``InvalidValue`` for one that other hosts reach without accounts,
        and the errors of ``AccessControl``.

        ``bound`` is a socket that listens there already, for a caller who needs its port to open the store.
        """
        settings.refuse_open()
        self._access = None if settings.acl is None else AccessControl(settings.acl)
        listen = settings.listen
        tls = None if listen.tls is None else tls_context(listen.tls)
        self._server = RemotingServer(settings.bind() if bound is None else bound, limits=settings.limits, tls=tls)
        self.address = str(settings.address(self._server.port, store.config.broker_ip))
        loop = self._server.loop

        def in_thread(work: Callable[[], _T]) -> Awaitable[_T]:
            return loop.run_in_executor(None, work)

        identity = BrokerIdentity(
            self.address,
            settings.name,
            settings.cluster,
            creates_topics=settings.auto_create_topic_enable,
            creates_groups=settings.auto_create_subscription_group,
        )
        self._registration: NameServerRegistration | None = None
        if settings.name_servers:
            self._registration = NameServerRegistration(
                settings.name_servers,
                identity,
                ha_server_address(self.address, store.ha_address, settings.slaves_ip),
                lambda: read_topic_settings(store.path),
                in_thread,
            )
        self._hold = PullRequestHoldService(owned_by(store).engine.waiters, loop)
        self._waiting = WaitingRequests(loop)
        self._async_puts = owned_by(store).engine.async_puts
        self._groups = GroupProcessors(store, identity, self._waiting.threads_of)
        self._in_thread = in_thread
        self._processors: list[Processor] = [
            *self._groups.processors,
            *_processors(store, identity, self._groups, self._hold, self._server, self._waiting.threads_of),
        ]
        if self._access is not None:
            self._processors = [self._access.guarded(processor) for processor in self._processors]

    def count_in(self, counts: ConnectionCounts) -> None:
        """Have the connections and the clients counted there, and the clients of a group shown."""
        counts.add("rocketmq", self._server.connections)
        counts.clients = self._groups.clients.count
        counts.group_clients = self._groups.group_clients
        counts.waiting_requests = self._waiting_requests
        counts.request_times = self._request_times

    def _waiting_requests(self) -> Mapping[str, int]:
        counts = self._waiting.counts()
        return {**counts, _SEND: counts[_SEND] + self._async_puts.waiting_count}

    def _request_times(self) -> RequestTimes:
        creations = self._groups.creation_times
        return RequestTimes(self._server.latencies.by_labels(), creations.topics(), creations.groups())

    def start(self) -> None:
        """Answer clients from now on, and ask producers for the outcome of their half messages."""
        self._server.start(self._processors, on_answer=self._groups.calls.answered, on_stop=self._hold.release)
        self._groups.transactions.start_checks(self._server.loop)
        if self._registration is not None:
            self._server.run_on_loop(self._registration.run())
        if self._access is not None:
            self._server.run_on_loop(self._access.watch(self._in_thread))

    def stop(self, drain_s: float) -> None:
        """Take no more requests, and let those under way end within ``drain_s`` seconds."""
        self._server.stop(drain_s)
        self._groups.close()


def _processors(
    store: MessageStore,
    identity: BrokerIdentity,
    groups: GroupProcessors,
    hold: PullRequestHoldService,
    server: RemotingServer,
    threads_of: ThreadsOf,
) -> Sequence[Processor]:
    """The processors of routes, sends and pulls."""
    owned = owned_by(store)
    topics = owned.engine.topics
    return (
        RouteInfoProcessor(identity, topics),
        SendMessageProcessor(
            StorePuts(owned, server.loop, server.is_alone),
            topics,
            lambda group: groups.groups.settings(group).retry_max_times,
            threads_of(_SEND),
            models=own_topics(identity),
            has_locks=groups.locks.has_locks,
        ),
        PullMessageProcessor(pulls_from(store), topics, groups.groups, groups.clients, hold, threads_of),
    )


class GroupProcessors:
    """The processors of clients, groups, transactions, look-ups and administration.

    ``processors`` answer requests; the rest is what other parts of a server share with them.

    ``calls`` is to be given the answers that clients send, and ``transactions.start_checks`` the event loop.
    """

    def __init__(self, store: MessageStore, identity: BrokerIdentity, threads_of: ThreadsOf) -> None:
        owned = owned_by(store)
        self.clients = clients = ClientRegistry()
        self.calls = calls = ClientCalls()
        self.readers = readers = LentReaders(owned.engine, store.reader)
        self.groups = groups = ConsumerGroups(owned, readers, creates=identity.creates_groups)
        self.locks = locks = RebalanceLockProcessor()
        self.group_clients = GroupClients(
            clients.members, lambda group, queues: locks.locked_by(group, identity.name, queues)
        )
        admin = threads_of("admin")
        self.creation_times = times = CreationTimes()
        self.transactions = EndTransactionProcessor(store, clients, readers, threads_of("transaction"))
        self.processors: tuple[Processor, ...] = (
            ClientManageProcessor(clients, groups, threads_of),
            ConsumerManageProcessor(clients, groups, readers, lambda: store.physical_bounds()[1], threads_of),
            locks,
            SendBackProcessor(owned, groups, readers, threads_of("send")),
            self.transactions,
            QueryMessageProcessor(readers, threads_of("query_message")),
            TopicAdminProcessor(store, identity, groups, readers, admin, times),
            GroupAdminProcessor(store, identity, clients, groups, readers, admin, times),
            ConsumerAdminProcessor(store, identity, clients, calls, groups, readers, admin),
            BrokerAdminProcessor(store, identity, readers, admin),
            KVConfigProcessor(owned, admin),
        )

    def close(self) -> None:
        self.readers.close()
