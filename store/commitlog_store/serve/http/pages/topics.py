"""Topics: the list, searched, sorted and paged here, with sizes and times; and one topic with its queues."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from commitlog_store.errors import CommitLogError
from commitlog_store.metadata import AllBounds
from commitlog_store.paths import is_system_topic
from commitlog_store.queries.topic_rates import stored_over_time, topic_rates
from commitlog_store.reader import QueueInfo, StoreReader
from commitlog_store.serve.http.pages import past
from commitlog_store.serve.http.pages.views import Asked, Paging, SharedAnswers, Values, View

_ROWS = 50
_QUEUE_ROWS = 100
# Rates are found by bisecting each queue's store times.
_MOST_QUEUES_WITH_RATES = 64
_SORTS = ("name", "messages", "size")
# What charts show: the whole time and its parts, in seconds.
SPANS_S: Mapping[str, tuple[int, int]] = {"1h": (3600, 60), "24h": (86_400, 60), "7d": (604_800, 84)}


def _list(reader: StoreReader, asked: Asked) -> Values:
    wanted, sort = asked.text("q").lower(), asked.text("sort")
    sort = sort if sort in _SORTS else "name"
    falls = asked.text("order") == "falling"
    shows_system = asked.text("system") == "1"
    names = [one for one in reader.topics() if (shows_system or not is_system_topic(one)) and wanted in one.lower()]
    if sort == "messages":
        totals = _totals(asked.shared.bounds.of(reader))
        names.sort(key=lambda one: (totals.get(one, -1), one))
    sizes = asked.shared.topic_sizes.of(reader) if sort == "size" else {}
    if sort == "size":
        names.sort(key=lambda one: (sizes.get(one, -1), one))
    if falls:
        names.reverse()
    paging = Paging.of(asked, len(names), _ROWS)
    rows = _rows(reader, names[paging.start : paging.stop], asked)
    for row in rows:
        if not row["error"]:
            row["size"] = sizes.get(row["topic"], row["size"])  # by which it stands where it does
    return {
        "rows": _with_rates(rows, asked), "paging": paging, "q": asked.text("q"), "sort": sort, "falls": falls,
        "shows_system": shows_system, "at": asked.now,
    }  # fmt: skip


def _totals(bounds: AllBounds) -> dict[str, int]:
    found: dict[str, int] = dict.fromkeys(bounds.queues, 0)
    for (topic, _), one in bounds.infos.items():
        found[topic] = found.get(topic, 0) + one.max_offset - one.min_offset
    return found


def _rows(reader: StoreReader, names: Sequence[str], asked: Asked) -> list[Values]:
    """A row for each topic: its queues, messages and ``topic_numbers``, or why it cannot be read.

    The owner's rows also have how many messages readers got since the opening.
    """
    found = _infos_or_errors(reader, names)
    readable = {topic: infos for topic, infos in found.items() if isinstance(infos, list)}
    numbers = topic_numbers(reader, readable, asked.shared)
    read = None if asked.owned is None else asked.owned.stats().topic_get_times
    rows = []
    for topic in names:
        row: Values = {"topic": topic, "is_system": is_system_topic(topic), "error": ""}
        row |= dict.fromkeys(("size", "first", "last", "queues", "messages", "end", "read", "rate", "read_rate"))
        if topic in readable:
            infos = readable[topic]
            row |= numbers[topic] | {
                "queues": len(infos),
                "messages": sum(one.max_offset - one.min_offset for one in infos),
                "end": sum(one.max_offset for one in infos),
                "read": None if read is None else read.get(topic, 0),
            }
        else:
            row["error"] = str(found[topic])
        rows.append(row)
    return rows


def _infos_or_errors(reader: StoreReader, names: Sequence[str]) -> dict[str, list[QueueInfo] | CommitLogError]:
    """The queues of each topic: of one moment if all can be read, else topic by topic."""
    ids = dict(zip(names, reader.queue_ids_of(names), strict=True))
    errors = {topic: found for topic, found in ids.items() if isinstance(found, CommitLogError)}
    keys = [(topic, queue) for topic, found in ids.items() if isinstance(found, list) for queue in found]
    readable: dict[str, list[QueueInfo]] = {topic: [] for topic in names if topic not in errors}
    try:
        for info in reader.queue_infos(keys):
            readable[info.topic].append(info)
    except CommitLogError:
        for topic in readable:
            try:
                readable[topic] = reader.queues(topic)
            except CommitLogError as error:
                errors[topic] = error
    return readable | errors


def _with_rates(rows: list[Values], asked: Asked) -> list[Values]:
    """The rows with messages a second, stored and read, since the stream's last look; none at the first one."""
    if asked.before is not None and (seconds := asked.now - asked.before["at"]) > 0:
        rows_before = {row["topic"]: row for row in asked.before["rows"]}
        for row in rows:
            before = rows_before.get(row["topic"], {})
            for rate, count in (("rate", "end"), ("read_rate", "read")):
                if row[count] is not None and before.get(count) is not None:
                    row[rate] = max(row[count] - before[count], 0) / seconds
    return rows


def _one(reader: StoreReader, asked: Asked) -> Values:
    topic = asked.names["name"]
    infos = reader.queues(topic)
    paging = Paging.of(asked, len(infos), _QUEUE_ROWS)
    rates = topic_rates(reader, [topic])[0].rates if len(infos) <= _MOST_QUEUES_WITH_RATES else None
    settings, problem = None, ""
    consumers: list[Values] = []
    try:
        settings = reader.topic_settings().get(topic)
        consumers = _consumers(topic, asked, reader)
    except CommitLogError as error:
        problem = str(error)
    return {
        "topic": topic, "is_system": is_system_topic(topic), "count_of_queues": len(infos),
        "messages": sum(one.max_offset - one.min_offset for one in infos), "rates": rates,
        **topic_numbers(reader, {topic: infos}, asked.shared)[topic],
        "rows": _queue_rows(reader, infos[paging.start : paging.stop], asked), "paging": paging, "settings": settings,
        "consumers": consumers, "problem": problem, "spans": list(SPANS_S),
        **past.charts_of(reader, past.TOPIC_CHARTS),
    }  # fmt: skip


def _queue_rows(reader: StoreReader, infos: Sequence[QueueInfo], asked: Asked) -> list[Values]:
    filled = [one for one in infos if one.min_offset < one.max_offset]
    places = [(one.topic, one.queue_id, offset) for one in filled for offset in (one.min_offset, one.max_offset - 1)]
    times = dict(zip(places, asked.shared.times.of(reader, places), strict=True))
    rows = []
    for one in infos:
        both = [times.get((one.topic, one.queue_id, at)) for at in (one.min_offset, one.max_offset - 1)]
        first, last = (when if isinstance(when, int) else None for when in both)
        error = next((str(when) for when in both if isinstance(when, CommitLogError)), "")
        rows.append({"info": one, "first": first, "last": last, "error": error})
    return rows


def _consumers(topic: str, asked: Asked, reader: StoreReader) -> list[Values]:
    """The groups with a position in the topic, and what waits for each there."""
    found: dict[str, Values] = {}
    for one in asked.shared.groups.of(reader):
        if one.topic == topic:
            row = found.setdefault(one.group, {"group": one.group, "lag": 0, "lag_ms": 0})
            row["lag"] += one.lag or 0
            row["lag_ms"] = max(row["lag_ms"], one.lag_ms or 0)
    return sorted(found.values(), key=lambda row: -row["lag"])


def stored(reader: StoreReader, topic: str, span: str) -> Values:
    """How many messages were stored in each part of a span up to now: the parts' starts in seconds, and the counts."""
    seconds, parts = SPANS_S[span]
    step = seconds // parts * 1000
    end = (int(time.time() * 1000) // step + 1) * step
    times = [end - (parts - place) * step for place in range(parts + 1)]
    counts = stored_over_time(reader, topic, times)
    return {"times": [one // 1000 for one in times[:-1]], "counts": counts, "stepSeconds": step // 1000}


LIST = View(name="topics", path="/topics", look=_list)
ONE = View(name="topic", path="/topics/{name}", look=_one)


# Of so many queues, a look that remembers nothing takes a tenth of a second of the processor.
_MOST_QUEUES = 2_000
# Of so many queues, the times of their last messages alone take as long.
_MOST_LAST_TIMES = 4_000


def topic_numbers(
    reader: StoreReader, topics: Mapping[str, Sequence[QueueInfo]], shared: SharedAnswers
) -> dict[str, Values]:
    """``size``, ``first`` and ``last`` of each topic, by its queues' bounds: a page's topics, in their order.

    Times are milliseconds since the epoch. None: not known, or a topic without messages has none. Size and first time
    are asked for of 2,000 queues at most, the last time of 4,000; a topic that does not fit has none. A queue that
    cannot be read has no time, and its topic no size.
    """
    filled = {topic: [one for one in infos if one.min_offset < one.max_offset] for topic, infos in topics.items()}
    measured = _fitting(filled, _MOST_QUEUES)
    sizes: dict[str, int | None] = dict.fromkeys(measured, 0)
    infos = [one for queues in measured.values() for one in queues]
    for info, size in zip(infos, shared.sizes.of(reader, infos), strict=True):
        known = sizes[info.topic]
        sizes[info.topic] = None if known is None or size is None else known + size
    timed = _fitting(filled, _MOST_LAST_TIMES)
    places = [(one.topic, one.queue_id, one.max_offset - 1) for queues in timed.values() for one in queues]
    places += [(one.topic, one.queue_id, one.min_offset) for one in infos]
    times: dict[str, list[int]] = {}
    for (topic, _, _), when in zip(places, shared.times.of(reader, places), strict=True):
        if isinstance(when, int):
            times.setdefault(topic, []).append(when)
    return {
        topic: {
            "size": sizes.get(topic),
            "first": min(times.get(topic, ()), default=None) if topic in sizes else None,
            "last": max(times.get(topic, ()), default=None) if topic in timed else None,
        }
        for topic in topics
    }


def _fitting(topics: Mapping[str, Sequence[QueueInfo]], room: int) -> dict[str, Sequence[QueueInfo]]:
    """The first topics whose queues are so many together; one with too many of them leaves room for others."""
    found: dict[str, Sequence[QueueInfo]] = {}
    for topic, queues in topics.items():
        if len(queues) <= room:
            room -= len(queues)
            found[topic] = queues
    return found
