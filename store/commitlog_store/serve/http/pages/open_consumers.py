"""The open consumers of a group, and which of them holds each queue, as the store's owner knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from commitlog_store.consumers.group import GroupMember, Queue
from commitlog_store.serve.group_clients import GroupClient
from commitlog_store.serve.http.pages.views import Asked, Values
from commitlog_store.store import consumers_of

_MOST = 100


class OpenConsumer(NamedTuple):
    """``name`` is what a queue that it holds is held by. ``heard_ms`` is the time of its last call or heartbeat."""

    name: str
    client: str
    address: str | None
    since_ms: int
    heard_ms: int | None


def open_consumers(asked: Asked, group: str, queues: Sequence[Queue]) -> Values:
    """``held_by`` of these queues; None with ``consumers`` where another process owns the store.

    ``unshown`` is how many consumers there are besides ``consumers``, ``share`` whether some are RocketMQ's clients,
    which share the queues without the server.
    """
    if asked.owned is None:
        return {"held_by": None, "consumers": None, "unshown": 0, "share": False}
    members = consumers_of(asked.owned, group)
    of_members = [] if members is None else members.members(_MOST)
    client_count, of_clients = asked.group_clients.members(group, _MOST)
    shown = [_of_member(one) for one in of_members] + [_of_client(one) for one in of_clients]
    total = client_count + (0 if members is None else members.member_count)
    holders = {} if members is None else members.holders(queues)
    names = {queue: [_name(member)] for queue, member in holders.items()}
    for queue, client_id in asked.group_clients.locked_by(group, queues).items():
        names.setdefault(queue, []).append(client_id)
    return {
        "held_by": {queue: ", ".join(found) for queue, found in names.items()}, "consumers": shown[:_MOST],
        "unshown": max(total - _MOST, 0), "share": client_count > 0,
    }  # fmt: skip


def _name(member: GroupMember) -> str:
    if member.client is None:
        return f"consumer {member.number} of this process"
    return f"consumer {member.number} of {member.client.token or member.client.address}"


def _of_member(member: GroupMember) -> OpenConsumer:
    client = member.client
    if client is None:
        return OpenConsumer(_name(member), "this process", None, member.since_ms, None)
    return OpenConsumer(_name(member), "a client of this server", client.address, member.since_ms, client.called_ms)


def _of_client(client: GroupClient) -> OpenConsumer:
    return OpenConsumer(
        client.client_id, f"{client.language} {client.version}", client.address, client.since_ms, client.seen_ms
    )
