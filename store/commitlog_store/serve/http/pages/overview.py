"""The overview: the store, its disk, what comes in, the groups that lag most."""

from __future__ import annotations

from commitlog_store.errors import CommitLogError
from commitlog_store.files.limits import disk_size, free_bytes, fullest_disk
from commitlog_store.paths import is_system_group, is_system_topic
from commitlog_store.queries.group_summary import group_summaries
from commitlog_store.reader import StoreReader
from commitlog_store.serve.http.pages import past
from commitlog_store.serve.http.pages.groups import most_behind
from commitlog_store.serve.http.pages.views import Asked, Values, View

_MOST_GROUPS = 8


def _look(reader: StoreReader, asked: Asked) -> Values:
    values: Values = {
        "path": reader.path,
        "topics": sum(not is_system_topic(topic) for topic in reader.topics()),
        "aborted": reader.aborted,
        "log_start": reader.log_start(),
        "disk": _disk_of(reader),
        "stats": None if asked.owned is None else asked.owned.stats(),
        "messages": _messages(asked),
        **past.charts_of(reader, past.STORE_CHARTS),
        "problem": "",
        "verdict": _verdict(asked),
        "groups": [],
        "count_of_groups": None,
        "dead_letters": None,
    }
    try:
        summaries = [one for one in group_summaries(asked.shared.groups.of(reader)) if not is_system_group(one.group)]
        values["groups"] = most_behind(summaries)[:_MOST_GROUPS]
        values["count_of_groups"] = len(summaries)
        values["dead_letters"] = sum(one.dead_letters for one in summaries)
    except CommitLogError as error:
        values["problem"] = str(error)
    return values


def _disk_of(reader: StoreReader) -> Values:
    log = reader.paths.commit_log
    return {
        "total": disk_size(log),
        "free": free_bytes(log),
        "used_percent": round(100 * fullest_disk([log]).used, 1),
    }


def _verdict(asked: Asked) -> str:
    """That of the quick assessment, if the page that verifies has asked for it: it takes every queue."""
    found = asked.shared.assessment.peek()
    return "" if found is None else found.verdict.value


def _messages(asked: Asked) -> int | None:
    """All messages of topics that are not the store's own, if that was asked for lately: it takes every queue."""
    bounds = asked.shared.bounds.peek()
    if bounds is None:
        return None
    return sum(
        one.max_offset - one.min_offset for (topic, _), one in bounds.infos.items() if not is_system_topic(topic)
    )


VIEW = View(name="overview", path="/", look=_look)
