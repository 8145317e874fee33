"""ConnectionCounts: connections of each listener, RocketMQ's clients and their groups, and how long requests take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from commitlog_store.consumers.group import Queue
from commitlog_store.engine.stats import Histogram

# The label of RocketMQ's clients: all speak its remoting protocol (``RemotingMetricsConstant``).
PROTOCOL_TYPE = "remoting"


class ConnectionCount(NamedTuple):
    """Of one listener, now. A connection is in one of the first three.

    ``beginning``: it has asked nothing yet; its TLS handshake may be under way. ``active``: something is asked that is
    not answered. ``idle``: it has been answered. ``refused``: connections that were closed since the start, because
    there were too many.
    """

    beginning: int
    active: int
    idle: int
    refused: int


class ClientCount(NamedTuple):
    """RocketMQ's clients, as their heartbeats say. A client counts once for each group.

    ``producers`` has how many there are by language and version, ``consumers`` by group, language, version and mode.
    """

    producers: Mapping[tuple[str, str], int]
    consumers: Mapping[tuple[str, str, str, str], int]


class RequestTimes(NamedTuple):
    """How long requests of RocketMQ's clients took, in milliseconds, by the labels of RocketMQ's metrics.

    ``requests`` has all of them, ``topics`` and ``groups`` what was done to create or change a topic or a group.
    """

    requests: Mapping[tuple[str, ...], Histogram]
    topics: Mapping[tuple[str, ...], Histogram]
    groups: Mapping[tuple[str, ...], Histogram]


class GroupClient(NamedTuple):
    """A client, as its heartbeats describe it: what it says of itself may be any text.

    ``since_ms`` is the time of its first heartbeat, ``seen_ms`` that of its last one, in milliseconds since 1970.
    """

    client_id: str
    address: str
    language: str
    version: str
    since_ms: int
    seen_ms: int


@dataclass(frozen=True)
class GroupClients:
    """Called by any thread.

    ``members`` gives how many clients a group has, and at most so many of them; ``locked_by`` the ids of the clients
    that have locked some of these queues, to read them in order. The others share queues without the server.
    """

    members: Callable[[str, int], tuple[int, list[GroupClient]]] = lambda *_: (0, [])
    locked_by: Callable[[str, Iterable[Queue]], Mapping[Queue, str]] = lambda *_: {}


class ConnectionCounts:
    """The listeners by name, and RocketMQ's clients, counted and by group. Any number of threads."""

    def __init__(self) -> None:
        self._listeners: dict[str, Callable[[], ConnectionCount]] = {}
        self.clients: Callable[[], ClientCount] = lambda: ClientCount({}, {})
        self.group_clients = GroupClients()
        # Requests of RocketMQ's clients that wait for a thread, by processor.
        self.waiting_requests: Callable[[], Mapping[str, int]] = dict
        self.request_times: Callable[[], RequestTimes] = lambda: RequestTimes({}, {}, {})

    def add(self, listener: str, count: Callable[[], ConnectionCount]) -> None:
        """``count`` is called by any thread."""
        self._listeners[listener] = count

    def now(self) -> Mapping[str, ConnectionCount]:
        return {listener: count() for listener, count in list(self._listeners.items())}
