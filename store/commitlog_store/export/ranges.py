"""Ranges of an export: the queue offsets of each topic that are to be read, from where it has come to."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from commitlog_store.errors import TopicNotFound, UnsupportedStore, raised
from commitlog_store.export.positions import ExportPositions
from commitlog_store.export.targets import ExportTarget
from commitlog_store.queue.catalog import matching_topics
from commitlog_store.reader import QueueInfo, StoreReader

_LOG = logging.getLogger(__name__)


class ExportRange(NamedTuple):
    """Queue offsets ``[start, stop)``."""

    topic: str
    queue_id: int
    start: int
    stop: int


def readable_topics(reader: StoreReader, topics: Sequence[str]) -> list[str]:
    """The names of the topics to export, in order. ``TopicNotFound``."""
    known = reader.topics()
    if not known:
        _refuse_without_queues(reader)
    return _readable(reader, matching_topics(known, topics, reader.path), topics)


def _refuse_without_queues(reader: StoreReader) -> None:
    """``TopicNotFound`` for a log with messages whose queues are all gone: nothing would look exported."""
    low, high = reader.physical_bounds()
    if low < high:
        raise TopicNotFound(
            f"{reader.path} has a log of {high - low} bytes and no consume queues: export it from the log alone, with "
            "from_log (--from-log). Nothing was written."
        )


def _readable(reader: StoreReader, names: list[str], given: Sequence[str]) -> list[str]:
    """The topics without those that cannot be read (compacted ones, say) and that no name asks for."""
    found = []
    for topic in names:
        try:
            reader.queue_ids(topic)
        except UnsupportedStore as error:
            if topic not in given:
                _LOG.warning("%s It matches a pattern of the export and is skipped.", error)
                continue
        found.append(topic)
    return found


def ranges_to_read(
    reader: StoreReader,
    topics: Sequence[str],
    positions: ExportPositions,
    target: ExportTarget,
    *,
    since_ms: int | None,
    until_ms: int | None,
) -> list[ExportRange]:
    """What is to be read of each queue: from its position, or from the given time, or from its start. ``TailLost``."""

    def queues() -> Iterator[tuple[str, int]]:
        for topic in topics:
            try:
                yield from [(topic, queue_id) for queue_id in reader.queue_ids(topic)]
            except UnsupportedStore:
                if not positions.has_topic(topic):
                    raise

    def look() -> list[ExportRange]:
        infos = reader.queue_infos(queues)
        positions.refuse_lost_tails(infos, target)
        starts = {one: at for one in infos if (at := positions.get(one.topic, one.queue_id)) is not None}
        starts |= _by_time(reader, [one for one in infos if one not in starts], since_ms, "min_offset")
        stops = _by_time(reader, infos, until_ms, "max_offset")
        return [ExportRange(one.topic, one.queue_id, starts[one], max(starts[one], stops[one])) for one in infos]

    return reader.consistently(look, one_moment=False)


def _by_time(
    reader: StoreReader, infos: Sequence[QueueInfo], time_ms: int | None, otherwise: str
) -> dict[QueueInfo, int]:
    """The first offset of each queue stored at or after a time; without one, the bound of that name."""
    if time_ms is None:
        return {one: getattr(one, otherwise) for one in infos}
    found = reader.offsets_by_time([(one, time_ms) for one in infos])
    return {one: raised(offset) for one, offset in zip(infos, found, strict=True)}
