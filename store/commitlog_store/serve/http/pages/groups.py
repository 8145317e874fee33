"""Consumer groups: the list, the largest lag first; and one group, its positions and its open consumers."""

from __future__ import annotations

from collections.abc import Iterable

from commitlog_store.errors import CommitLogError, NotFoundError
from commitlog_store.queries.group_summary import GroupSummary, group_summaries
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.pages.open_consumers import open_consumers
from commitlog_store.serve.http.pages.views import Asked, Paging, Values, View

_ROWS = 50
_QUEUE_ROWS = 200
_SORTS = ("behind", "lag", "name")


def most_behind(summaries: Iterable[GroupSummary]) -> list[GroupSummary]:
    """Those whose oldest waiting message has waited longest first; by messages where none waits."""
    return sorted(summaries, key=lambda one: (-(one.lag_ms or 0), -(one.lag or 0), one.group))


def _list(reader: StoreReader, asked: Asked) -> Values:
    wanted, sort = asked.text("q").lower(), asked.text("sort")
    sort = sort if sort in _SORTS else "behind"
    shows_system = asked.text("system") == "1"
    found = [
        one
        for one in group_summaries(asked.shared.groups.of(reader))
        if (shows_system or not one.is_system) and wanted in one.group.lower()
    ]
    if sort == "behind":
        found = most_behind(found)
    elif sort == "lag":
        found.sort(key=lambda one: (-(one.lag or 0), one.group))
    paging = Paging.of(asked, len(found), _ROWS)
    return {
        "rows": found[paging.start : paging.stop], "paging": paging, "q": asked.text("q"), "sort": sort,
        "shows_system": shows_system,
    }  # fmt: skip


def _one(reader: StoreReader, asked: Asked) -> Values:
    group = asked.names["name"]
    rows = reader.groups(group)
    if not rows:
        raise NotFoundError(f"The store of {reader.path} has no positions of a group {group!r}.")
    settings, problem = None, ""
    try:
        settings = next(iter(reader.group_settings(group)), None)
    except CommitLogError as error:
        problem = str(error)
    paging = Paging.of(asked, len(rows), _QUEUE_ROWS)
    rows.sort(key=lambda one: (one.topic, one.queue_id))
    (summary,) = group_summaries(rows)
    shown = rows[paging.start : paging.stop]
    return {
        "group": group, "summary": summary, "rows": shown, "paging": paging, "settings": settings, "problem": problem,
        **open_consumers(asked, group, [(one.topic, one.queue_id) for one in shown]),
    }  # fmt: skip


LIST = View(name="groups", path="/groups", look=_list)
ONE = View(name="group", path="/groups/{name}", look=_one)
