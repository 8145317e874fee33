"""Figures of the past: series for the charts of other pages, and the same numbers as a table."""

from __future__ import annotations

import time
from collections.abc import Mapping

from commitlog_store.errors import InvalidValue
from commitlog_store.paths import is_system_group
from commitlog_store.queries.texts import printable_text
from commitlog_store.reader import StoreReader
from commitlog_store.serve.figures.figure_ring import FigureRing
from commitlog_store.serve.figures.series import SPANS_S, PastFigures, of_store, of_topic
from commitlog_store.serve.http.groups_now import positions_now
from commitlog_store.serve.http.pages.views import Asked, Values, View

# The charts of a page: title, and the series that each shows. A star: all with that begin.
STORE_CHARTS: Mapping[str, str] = {
    "Messages a second": "stored read failedPuts",
    "Bytes stored a second": "storedBytes",
    "Lag of groups in messages": "lag:*",
}
TOPIC_CHARTS: Mapping[str, str] = {"Messages a second": "stored read", "Bytes stored a second": "storedBytes"}
DISK_CHARTS: Mapping[str, str] = {"Disk": "diskUsed diskSize", "Begin and end of the log": "logBegin logEnd"}


def charts_of(reader: StoreReader, charts: Mapping[str, str]) -> Values:
    """What the templates of a page with charts need; no charts of a store without figures.

    ``figures_at`` is when the newest figures began: charts are drawn again when it changes.
    """
    ring = FigureRing(reader.path)
    if not ring.is_kept:
        return {"charts": {}, "figures_at": 0}
    return {"charts": charts, "figures_at": ring.newest_minute(int(time.time()))}


def past_figures(reader: StoreReader, asked: Asked) -> PastFigures:
    """The figures of the span asked for, of one topic if that is asked for. ``InvalidValue``, ``NotFoundError``."""
    span, topic = asked.text("span") or "1h", asked.text("topic")
    if span not in SPANS_S:
        raise InvalidValue(f"span is one of {', '.join(SPANS_S)}, not {span!r}.")
    ring = FigureRing(reader.path)
    if topic:
        reader.queue_ids(topic)
        return of_topic(ring, span, time.time(), topic)
    groups = [group for group in positions_now(reader, asked.owned).groups() if not is_system_group(group)]
    return of_store(ring, span, time.time(), groups)


def as_json(found: PastFigures) -> Values:
    """``times`` in seconds since 1970; each series has a value or null for each of them."""
    series = [
        {"name": printable_text(one.name), "label": printable_text(one.label), "unit": one.unit, "values": one.values}
        for one in found.series
    ]
    return {"span": found.span, "stepSeconds": found.step, "times": found.times, "series": series}


def _look(reader: StoreReader, asked: Asked) -> Values:
    found = past_figures(reader, asked)
    rows = [
        (begin * 1000, [one.values[place] for one in found.series])
        for place, begin in reversed(list(enumerate(found.times)))
        if any(one.values[place] is not None for one in found.series)
    ]
    return {"found": found, "rows": rows, "spans": list(SPANS_S), "topic": asked.text("topic")}


VIEW = View(name="figures", path="/figures", look=_look, is_live=False)
