"""ClientRegistry: the producers and consumers that are connected, by group, as their heartbeats say.

A client sends a heartbeat every 30 seconds. One that sent none for two minutes, or whose connection is lost, is
forgotten. When the consumers of a group change, or the topics that it subscribes to, each consumer of it gets a notice
(NOTIFY_CONSUMER_IDS_CHANGED), asks for the list of them, and takes its share of the queues.

Source: RocketMQ ``broker/client/ConsumerManager.java``, ``ConsumerGroupInfo.java``, ``ProducerManager.java``,
``DefaultConsumerIdsChangeListener.java``, ``ClientHousekeepingService.java``,
``remoting/protocol/heartbeat/HeartbeatData.java``, ``SubscriptionData.java``, ``common/MQVersion.java``.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import msgspec

from commitlog_store.addresses import address_text
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.filter.tags import parse_subscription
from commitlog_store.format.java_hash import string_hash_code
from commitlog_store.paths import validate_group
from commitlog_store.serve.connection_counts import ClientCount, GroupClient
from commitlog_store.serve.rocketmq.answering import RequestFault, system_error
from commitlog_store.serve.rocketmq.client_calls import one_way
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processor import Connection

# RocketMQ's channelExpiredTimeout, and how often it looks for such clients.
CLIENT_EXPIRED_S = 120.0
_LOOK_S = 10.0
# Changes of a group within this time are one notice, so that n consumers that start together get n notices, not n * n.
_NOTICE_DELAY_S = 0.02

# Bounds of what is kept for clients: groups of consumers and of producers; clients, counted in each group; and the
# characters of all subscriptions.
MOST_GROUPS = 20_000
MOST_CLIENTS = 100_000
MOST_SUBSCRIPTION_SIZE = 64 << 20
_LONGEST_NAME = 255

TAG = "TAG"
BROADCASTING = "BROADCASTING"
# In the order of RocketMQ's enums: clients in C++ send their numbers.
_CONSUME_TYPES = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
# RocketMQ's short names (ConsumeType.getTypeCN).
_MODES = dict(zip(_CONSUME_TYPES, ("pull", "push", "pop"), strict=True))
_MESSAGE_MODELS = (BROADCASTING, "CLUSTERING")
_CONSUME_FROM = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


class SubscriptionData(msgspec.Struct, frozen=True, kw_only=True, rename="camel", dict=True):
    """What a group wants of a topic: tags (``A || B``), or an SQL92 expression."""

    topic: str
    sub_string: str | None = None
    sub_version: int = 0
    expression_type: str | None = None

    @property
    def is_tags(self) -> bool:
        """Whether ``sub_string`` is tags, as with clients that say no type."""
        return self.expression_type in (None, "", TAG)

    @cached_property
    def filter(self) -> MessageFilter:
        """The condition. ``FilterError``."""
        text = self.sub_string or ""
        return MessageFilter.parse_quietly(tags=text) if self.is_tags else MessageFilter.parse_quietly(filter=text)

    @property
    def size(self) -> int:
        """Characters."""
        return len(self.topic) + len(self.sub_string or "") + len(self.expression_type or "")

    def as_json(self) -> dict[str, Any]:
        """As brokers show it."""
        wanted = parse_subscription(self.sub_string or "") if self.is_tags else None
        tags = () if wanted is None else wanted.tags
        return {
            "classFilterMode": False,
            "codeSet": [string_hash_code(tag) for tag in tags],
            "expressionType": self.expression_type or TAG,
            "subString": self.sub_string or "*",
            "subVersion": self.sub_version,
            "tagsSet": list(tags),
            "topic": self.topic,
        }


class ProducerData(msgspec.Struct, frozen=True, rename="camel"):
    """A group of producers in a heartbeat."""

    group_name: str


class ConsumerData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A group of consumers in a heartbeat. Clients in Go send null for no subscriptions."""

    group_name: str
    consume_type: int | str = "CONSUME_PASSIVELY"
    message_model: int | str = "CLUSTERING"
    consume_from_where: int | str = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] | None = None
    unit_mode: bool = False


class HeartbeatData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a client says of itself. ``without_sub``: the subscriptions are those of its last heartbeat."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] | None = None
    consumer_data_set: list[ConsumerData] | None = None
    without_sub: bool = False


@dataclass
class Client:
    """A client in one of its groups. ``seen`` is the time of its last heartbeat, by the registry's clock.

    ``since_ms`` and ``seen_ms`` are those of its first and its last one, in milliseconds since 1970.
    """

    client_id: str
    language: str
    version: int
    seen: float
    since_ms: int
    seen_ms: int


@dataclass
class ConsumerGroupInfo:
    """A group with connected consumers. Its type and model are those of the last heartbeat."""

    consume_type: str
    message_model: str
    consume_from_where: str
    clients: dict[Connection, Client] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)

    @property
    def is_broadcasting(self) -> bool:
        """Whether each consumer gets all messages."""
        return self.message_model == BROADCASTING


class ClientRegistry:
    """The connected clients. Used by the event loop's thread; ``producer_of``, ``count`` and ``members`` by any."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """``clock`` returns seconds, ``now_ms`` milliseconds since 1970."""
        self._clock = clock
        self._now_ms = now_ms
        self._consumers: dict[str, ConsumerGroupInfo] = {}
        self._producers: dict[str, dict[Connection, Client]] = {}
        # The connections of each group of producers, replaced whole, for other threads.
        self._producer_connections: dict[str, tuple[Connection, ...]] = {}
        # The groups of each connection, of consumers and of producers.
        self._groups_of: dict[Connection, tuple[set[str], set[str]]] = {}
        self._clients = 0
        self._subscription_size = 0
        self._turn = 0
        # Groups whose consumers are to get a notice of a change.
        self._changed: set[str] = set()
        self._is_looking = False

    def heartbeat(
        self,
        connection: Connection,
        data: HeartbeatData,
        language: str,
        version: int,
        notifies: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Note a heartbeat. ``notifies`` says whether the consumers of a group get notices of changes.

        ``RequestFault``, ``InvalidValue`` for names that cannot be; ``RequestFault`` when the registry is full: what
        came before it is noted.
        """
        _check_name("clientID", data.client_id)
        self._look_later()
        now_ms = self._now_ms()
        client = Client(data.client_id, language[:_LONGEST_NAME], version, self._clock(), now_ms, now_ms)
        for consumer in data.consumer_data_set or ():
            is_new = self._note_consumer(connection, client, consumer)
            changed = not data.without_sub and self._note_subscriptions(consumer)
            if (is_new or changed) and notifies(consumer.group_name):
                self._notify(consumer.group_name)
        for producer in data.producer_data_set or ():
            self._note_producer(connection, client, producer.group_name)

    def _note_consumer(self, connection: Connection, client: Client, data: ConsumerData) -> bool:
        """Whether the client is new in the group."""
        _check_name("groupName", data.group_name)
        validate_group(data.group_name)
        kinds = (
            _name_in(_CONSUME_TYPES, data.consume_type),
            _name_in(_MESSAGE_MODELS, data.message_model),
            _name_in(_CONSUME_FROM, data.consume_from_where),
        )
        group = self._consumers.get(data.group_name)
        is_new = group is None or connection not in group.clients
        if is_new:
            self._refuse_when_full(is_new_group=group is None)
        if group is None:
            group = self._consumers[data.group_name] = ConsumerGroupInfo(*kinds)
        group.consume_type, group.message_model, group.consume_from_where = kinds
        known = group.clients.get(connection)
        group.clients[connection] = client if known is None else replace(client, since_ms=known.since_ms)
        self._groups_of.setdefault(connection, (set(), set()))[0].add(data.group_name)
        self._clients += is_new
        return is_new

    def _note_subscriptions(self, data: ConsumerData) -> bool:
        """Whether the group subscribes to other topics than before. A newer subscription replaces an older one."""
        old = self._consumers[data.group_name].subscriptions
        new = {one.topic: one for one in data.subscription_data_set or ()}
        for topic, one in old.items():
            if topic in new and one.sub_version >= new[topic].sub_version:
                new[topic] = one
        size = self._subscription_size + _size_of(new.values()) - _size_of(old.values())
        if size > MOST_SUBSCRIPTION_SIZE and size > self._subscription_size:
            raise RequestFault(ResponseCode.SYSTEM_BUSY, "the subscriptions of all groups take too much memory")
        self._subscription_size = size
        self._consumers[data.group_name].subscriptions = new
        return new.keys() != old.keys()

    def _note_producer(self, connection: Connection, client: Client, name: str) -> None:
        _check_name("groupName", name)
        group = self._producers.get(name)
        if group is None or connection not in group:
            self._refuse_when_full(is_new_group=group is None)
            self._clients += 1
        group = self._producers.setdefault(name, {})
        group[connection] = client
        self._producer_connections[name] = tuple(group)
        self._groups_of.setdefault(connection, (set(), set()))[1].add(name)

    def _refuse_when_full(self, *, is_new_group: bool) -> None:
        if is_new_group and len(self._consumers) + len(self._producers) >= MOST_GROUPS:
            raise RequestFault(ResponseCode.SYSTEM_BUSY, f"{MOST_GROUPS} groups are connected, and no more can be")
        if self._clients >= MOST_CLIENTS:
            raise RequestFault(ResponseCode.SYSTEM_BUSY, f"{MOST_CLIENTS} clients are connected, and no more can be")

    def unregister_consumer(self, connection: Connection, group: str, *, notifies: bool = True) -> None:
        info = self._consumers.get(group)
        if info is None or info.clients.pop(connection, None) is None:
            return
        self._clients -= 1
        self._forget_group_of(connection, 0, group)
        if not info.clients:
            del self._consumers[group]
            self._subscription_size -= _size_of(info.subscriptions.values())
        elif notifies:
            self._notify(group)

    def unregister_producer(self, connection: Connection, group: str) -> None:
        clients = self._producers.get(group, {})
        if clients.pop(connection, None) is None:
            return
        self._clients -= 1
        self._forget_group_of(connection, 1, group)
        if clients:
            self._producer_connections[group] = tuple(clients)
        else:
            del self._producers[group], self._producer_connections[group]

    def _forget_group_of(self, connection: Connection, kind: int, group: str) -> None:
        of_connection = self._groups_of[connection]
        of_connection[kind].discard(group)
        if not any(of_connection):
            del self._groups_of[connection]

    def connection_lost(self, connection: Connection) -> None:
        consumers, producers = self._groups_of.get(connection, (set(), set()))
        for group in list(consumers):
            self.unregister_consumer(connection, group)
        for group in list(producers):
            self.unregister_producer(connection, group)

    def expire(self) -> None:
        """Forget the clients whose last heartbeat is two minutes old."""
        oldest = self._clock() - CLIENT_EXPIRED_S
        for group, info in list(self._consumers.items()):
            for connection in [one for one, client in info.clients.items() if client.seen < oldest]:
                self.unregister_consumer(connection, group)
        for group, clients in list(self._producers.items()):
            for connection in [one for one, client in clients.items() if client.seen < oldest]:
                self.unregister_producer(connection, group)

    def _look_later(self) -> None:
        """``expire`` now and then, as long as clients are connected."""
        if not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._is_looking = False
        self.expire()
        if self._groups_of:
            self._look_later()

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the group wants of the topic; None if none of its consumers says so."""
        info = self._consumers.get(group)
        return None if info is None else info.subscriptions.get(topic)

    def consumers(self, group: str) -> ConsumerGroupInfo | None:
        """The group, if consumers of it are connected."""
        return self._consumers.get(group)

    def groups_of_topic(self, topic: str) -> list[str]:
        """The connected groups that subscribe to the topic."""
        return [name for name, info in self._consumers.items() if topic in info.subscriptions]

    def count(self) -> ClientCount:
        """How many there are of each kind. In any thread."""
        producers = Counter(
            (client.language.lower(), version_text(client.version))
            for clients in list(self._producers.values())
            for client in list(clients.values())
        )
        consumers = Counter(
            (group, client.language.lower(), version_text(client.version), _MODES.get(info.consume_type, ""))
            for group, info in list(self._consumers.items())
            for client in list(info.clients.values())
        )
        return ClientCount(producers, consumers)

    def members(self, group: str, most: int) -> tuple[int, list[GroupClient]]:
        """How many consumers of the group are connected, and the first ``most`` of them. In any thread."""
        info = self._consumers.get(group)
        if info is None:
            return 0, []
        connections = list(info.clients)  # at once: the loop's thread may change it
        return len(connections), [
            GroupClient(
                one.client_id,
                address_text(*connection.address),
                one.language,
                version_text(one.version),
                one.since_ms,
                one.seen_ms,
            )
            for connection in connections[:most]
            if (one := info.clients.get(connection)) is not None
        ]

    def consumer(self, group: str, client_id: str) -> tuple[Connection, Client] | None:
        info = self._consumers.get(group)
        found = () if info is None else info.clients.items()
        return next((one for one in found if one[1].client_id == client_id), None)

    def producers(self, group: str) -> Mapping[Connection, Client]:
        return self._producers.get(group, {})

    def producer_of(self, group: str) -> Connection | None:
        """A connected producer of the group, each in its turn; None without any. In any thread."""
        connections = self._producer_connections.get(group)
        if not connections:
            return None
        self._turn += 1
        return connections[self._turn % len(connections)]

    def _notify(self, group: str) -> None:
        """Tell all consumers of a group soon, those too that have just come, as RocketMQ does."""
        if not self._changed:
            asyncio.get_running_loop().call_later(_NOTICE_DELAY_S, self._send_notices)
        self._changed.add(group)

    def _send_notices(self) -> None:
        changed, self._changed = self._changed, set()
        for group in changed:
            info = self._consumers.get(group)
            if info is None or info.is_broadcasting:
                continue
            for connection in list(info.clients):
                connection.send(one_way(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group}))


def _size_of(subscriptions: Iterable[SubscriptionData]) -> int:
    return sum(one.size for one in subscriptions)


def _name_in(names: tuple[str, ...], value: int | str) -> str:
    """The name of an enum's value, given by name or number."""
    if isinstance(value, str) and value in names:
        return value
    if isinstance(value, int) and 0 <= value < len(names):
        return names[value]
    raise system_error(f"a heartbeat has one of {', '.join(names)}, not {str(value)[:100]}")


def _check_name(what: str, name: str) -> None:
    if not 0 < len(name) <= _LONGEST_NAME:
        raise system_error(f"{what} in a heartbeat has 1 to {_LONGEST_NAME} characters, not {len(name)}")


_SNAPSHOT_OF_4_0_0 = 212
_AFTER_5_9_9 = _SNAPSHOT_OF_4_0_0 + 2 * 200


def version_text(ordinal: int) -> str:
    """A client's ordinal of ``MQVersion.Version`` as a broker's metrics show it: ``v5_3_3``; ``v3`` before 4.0.0.

    From 4.0.0 on, each version up to 5.9.9 has two ordinals: that of its snapshots and its own.
    """
    if ordinal < _SNAPSHOT_OF_4_0_0:
        return "v3"
    if ordinal >= _AFTER_5_9_9:
        return "higher_version"
    number, is_release = divmod(ordinal - _SNAPSHOT_OF_4_0_0, 2)
    return f"v{4 + number // 100}_{number // 10 % 10}_{number % 10}{'' if is_release else '_snapshot'}"
