"""Numbers of a streaming query, from its progress events and the reports of its tasks: lag, and what a batch read.

Spark does not pass on the metrics of Python sources. The offsets of a progress event say what was planned, and the ends
of the queues; the tasks' reports say what became of it (``source/task_reports.py``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pyspark_commitlog.errors import OffsetFormatError
from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.source.progress_report import ProgressReport
from pyspark_commitlog.source.stores_offset import offset_by_queue, planned_by_queue
from pyspark_commitlog.source.task_reports import Tally

SEVERAL_TOPICS = "*"
"""Stands for the topics of a batch that read several, where no number is known for each."""

_NONE: Mapping[Any, Any] = MappingProxyType({})


class Lag(dict[QueueKey, int]):
    """Messages not yet read, by topic and queue id, of the ``source`` of a query.

    ``seconds`` has how long the oldest of them has waited, for the 32 queues in which most wait.
    """

    def __init__(self, messages: Mapping[QueueKey, int], *, source: str, seconds: Mapping[QueueKey, float]) -> None:
        super().__init__(messages)
        self.source = source
        self.seconds = dict(seconds)


def lag_by_queue(end_offset: str | None, latest_offset: str | None) -> dict[QueueKey, int] | None:
    """Messages not yet read, by topic and queue id, from the offsets of one source of a progress event.

    None if they are not this source's, and before PySpark 4.2. In a queue that was not read yet, or whose unread head
    has expired, the messages that still exist count. The topics of named stores are ``store/topic``, as in all numbers
    of this module.
    """
    report = ProgressReport.from_text(latest_offset)
    lag = None if report is None else lag_of(end_offset, report, source="", now_s=0.0)
    return None if lag is None else dict(lag)


def lag_of(end_offset: str | None, report: ProgressReport, *, source: str, now_s: float) -> Lag | None:
    """The lag by a report; None if the queues were not looked at yet. ``now_s`` is the time in seconds."""
    if report.ends is None:
        return None
    try:
        end = offset_by_queue(json.loads(end_offset)).offsets if end_offset else {}
    except (OffsetFormatError, ValueError):
        return None
    firsts = report.ends.batch_starts
    messages = {
        key: max(0, there - max(end.get(key, 0), firsts.get(key, 0)))
        for key, there in sorted(report.ends.offsets.items())
    }
    seconds = {key: 0.0 for key, count in messages.items() if not count}
    seconds |= {key: max(0.0, now_s - stored / 1000) for key, stored in report.oldest.items() if messages.get(key)}
    return Lag(messages, source=source, seconds=seconds)


class BatchNumbers(NamedTuple):
    """What became of the messages of a batch, in one ``source`` of a query.

    ``read`` are messages that were delivered to the query, by topic, and ``filtered`` those that did not match the
    options tags, filter and keys. ``skipped`` are offsets, half-open, of messages that planning the batch found lost,
    with failOnDataLoss=false; ``lost`` counts those that were planned, and gone when a task came to read them.
    ``damaged`` messages were skipped with corruptRecordMode=skip.

    ``unaccounted`` messages were planned, and not delivered for a reason that is not known: see docs/source.md.
    """

    read: Mapping[str, int]
    skipped: Mapping[QueueKey, tuple[int, int]]
    filtered: Mapping[str, int] = _NONE
    lost: Mapping[QueueKey, int] = _NONE
    damaged: Mapping[str, int] = _NONE
    unaccounted: int = 0
    source: str = ""


def batch_numbers(start_offset: str | None, end_offset: str | None) -> BatchNumbers | None:
    """What was planned, from the offsets of one source of a progress event, as if all of it were read.

    None if they are not this source's. A queue that was deleted, or lost its end, skips no offsets.
    """
    planned = _planned(start_offset, end_offset)
    if planned is None:
        return None
    ranges, skipped = planned
    read: Counter[str] = Counter()
    for (topic, _), (begin, stop) in ranges.items():
        read[topic] += stop - begin
    return BatchNumbers(dict(read), skipped)


def delivered_numbers(
    start_offset: str | None, end_offset: str | None, rows: int, reports: Tally | None, *, source: str
) -> BatchNumbers | None:
    """What became of the messages of a batch; None if the offsets are not this source's.

    ``rows`` are those that Spark has counted, which is all that is known without the ``reports`` of the tasks.
    """
    planned = _planned(start_offset, end_offset)
    if planned is None:
        return None
    ranges, skipped = planned
    wanted = Counter({key: stop - begin for key, (begin, stop) in ranges.items()})
    if reports is None:
        read, unaccounted = _counted_by_spark(wanted, rows)
        return BatchNumbers(read, skipped, unaccounted=unaccounted, source=source)
    # What no task was given was lost while the batch was cut into partitions.
    lost = +((wanted - reports.wanted) + reports.lost)
    filtered = _by_topic(reports.wanted)
    for part in (reports.rows, _by_topic(reports.lost), reports.damaged):
        filtered -= part
    return BatchNumbers(
        dict(+reports.rows),
        skipped,
        filtered=dict(filtered),
        lost=dict(lost),
        damaged=dict(reports.damaged),
        source=source,
    )


def _planned(
    start_offset: str | None, end_offset: str | None
) -> tuple[dict[QueueKey, tuple[int, int]], dict[QueueKey, tuple[int, int]]] | None:
    """The ranges that a batch reads, and those that it skips."""
    try:
        end = json.loads(end_offset or "null")
        begins = offset_by_queue(end).batch_starts
    except (OffsetFormatError, ValueError):
        return None
    try:
        start = json.loads(start_offset or "null")
        positions = offset_by_queue(start).offsets
    except (OffsetFormatError, ValueError):
        start, positions = None, {}  # before the first batch; its end says where it began
    skipped = {
        key: (was_at, begins[key])
        for key, was_at in sorted(positions.items())
        if start != end and key in begins and was_at < begins[key]
    }
    return planned_by_queue(start, end), skipped


def _counted_by_spark(wanted: Counter[QueueKey], rows: int) -> tuple[dict[str, int], int]:
    """Messages read by topic, and those that were not read; Spark counts rows again that a query reads again."""
    topics = _by_topic(wanted)
    left = topics.total() - rows
    if left <= 0:
        return dict(topics), 0
    name = next(iter(topics)) if len(topics) == 1 else SEVERAL_TOPICS
    return ({name: rows} if rows else {}), left


def _by_topic(by_queue: Counter[QueueKey]) -> Counter[str]:
    topics: Counter[str] = Counter()
    for (topic, _), number in by_queue.items():
        topics[topic] += number
    return topics
