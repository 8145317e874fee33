"""GroupClients: the clients of RocketMQ that consume for a group, and the queues that they have locked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from commitlog_store.consumers.group import Queue


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
