"""Consumer groups: the list, the largest lag first; and one group, its positions and its open consumers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from commitlog_store.errors import CommitLogError, NotFoundError
from commitlog_store.groups.positions import GroupPosition
from commitlog_store.paths import is_system_group
from commitlog_store.queries.group_summary import GroupSummary, group_summaries
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.pages.groups_now import positions_now, settings_now, settings_of_group
from commitlog_store.serve.http.pages.open_consumers import open_consumers
from commitlog_store.serve.http.pages.views import Asked, Paging, Values, View
from commitlog_store.store import open_groups

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
        names |= {one.group_name for one in settings_now(reader, asked)}
    except CommitLogError as error:
        problem = str(error)
    names -= {one.group for one in positions}
    return sorted(names.difference(positions_now(reader, asked).groups()) if names else names), problem


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
        settings = settings_of_group(reader, asked, group)
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
