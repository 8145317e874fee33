"""Consumer groups: the list, the largest lag first; and one group, its positions and its open consumers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from commitlog_store.consumers.group import GroupMember, Queue
from commitlog_store.errors import CommitLogError, NotFoundError
from commitlog_store.groups.positions import GroupPosition
from commitlog_store.paths import is_system_group
from commitlog_store.queries.group_summary import GroupSummary, group_summaries
from commitlog_store.reader import StoreReader
from commitlog_store.serve.connection_counts import GroupClient
from commitlog_store.serve.http.groups_now import positions_now, settings_now, settings_of_group
from commitlog_store.serve.http.pages.views import Asked, Paging, Values, View
from commitlog_store.store import consumers_of, open_groups

_ROWS = 50
_QUEUE_ROWS = 200
_MOST_WITHOUT = 50
_SORTS = ("behind", "lag", "name")


def most_behind(summaries: Iterable[GroupSummary]) -> list[GroupSummary]:
    """Those whose oldest waiting message has waited longest first; by messages where none waits."""
    return sorted(summaries, key=lambda one: (-(one.lag_ms or 0), -(one.lag or 0), one.group))


def _list(reader: StoreReader, asked: Asked) -> Values:
    wanted, sort = asked.text("q").lower(), asked.text("sort")
    sort = sort if sort in _SORTS else "behind"
    shows_system = asked.text("system") == "1"
    positions = asked.shared.groups.of(reader)
    found = [
        one for one in group_summaries(positions) if (shows_system or not one.is_system) and wanted in one.group.lower()
    ]
    if sort == "behind":
        found = most_behind(found)
    elif sort == "lag":
        found.sort(key=lambda one: (-(one.lag or 0), one.group))
    paging = Paging.of(asked, len(found), _ROWS)
    # Once, where the groups with a position begin, and not on each of their pages.
    names, problem = _without_positions(reader, positions, asked) if paging.page == 1 else ([], "")
    without = [one for one in names if (shows_system or not is_system_group(one)) and wanted in one.lower()]
    return {
        "rows": found[paging.start : paging.stop], "paging": paging, "q": asked.text("q"), "sort": sort,
        "shows_system": shows_system, "without": without[:_MOST_WITHOUT],
        "more_without": max(len(without) - _MOST_WITHOUT, 0), "problem": problem,
    }  # fmt: skip


def _without_positions(reader: StoreReader, positions: Sequence[GroupPosition], asked: Asked) -> tuple[list[str], str]:
    """The groups that have settings or open consumers, and no position; and why those with settings are not known.

    ``positions`` may be older: a group that has committed since is in neither list until they are asked for again.
    """
    names, problem = set() if asked.owned is None else set(open_groups(asked.owned)), ""
    try:
        names |= {one.group_name for one in settings_now(reader, asked.owned)}
    except CommitLogError as error:
        problem = str(error)
    names -= {one.group for one in positions}
    return sorted(names.difference(positions_now(reader, asked.owned).groups()) if names else names), problem


def _one(reader: StoreReader, asked: Asked) -> Values:
    """A group with positions, settings or open consumers."""
    group = asked.names["name"]
    rows = reader.groups(group)
    paging = Paging.of(asked, len(rows), _QUEUE_ROWS)
    rows.sort(key=lambda one: (one.topic, one.queue_id))
    shown = rows[paging.start : paging.stop]
    consumers = open_consumers(asked, group, [(one.topic, one.queue_id) for one in shown])
    settings, problem = None, ""
    try:
        settings = settings_of_group(reader, asked.owned, group)
    except CommitLogError as error:
        if not rows and not consumers["consumers"]:
            raise
        problem = str(error)
    if not (rows or settings or consumers["consumers"]):
        raise NotFoundError(
            f"The store at {reader.path} has no group {group!r}: no position, no settings and no open consumer of it."
        )
    return {
        "group": group, "summary": next(iter(group_summaries(rows)), None), "rows": shown, "paging": paging,
        "settings": settings, "problem": problem, **consumers,
    }  # fmt: skip


LIST = View(name="groups", path="/groups", look=_list)
ONE = View(name="group", path="/groups/{name}", look=_one)


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
