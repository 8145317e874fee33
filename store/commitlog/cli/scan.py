"""Scan of messages for the CLI: rows of several queues at once, in the order of the log."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import typer

from commitlog.errors import OffsetOutOfRange
from commitlog.format.consume_queue_unit import FILLER_SIZE
from commitlog.message import MessageExt
from commitlog.reader import StoreReader

__all__ = ["Range", "arrived", "as_row", "messages", "newest", "parse_time", "ranges"]

Range = tuple[str, int, int, int]  # topic, queue id, first offset, offset after the last

_COLUMNS = (
    "topic", "queueId", "queueOffset", "physicalOffset", "msgId", "storeTimestamp", "bornTimestamp", "bornHost",
    "tags", "keys", "properties", "body",
)  # fmt: skip

_TIME_COLUMNS = ("storeTimestamp", "bornTimestamp")


def parse_time(text: str) -> int:
    """Milliseconds since the epoch from ISO 8601 (UTC unless it says otherwise) or from milliseconds."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        # Output is in UTC, so input is too: a time copied from the output means the same.
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return round((when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise typer.BadParameter(
            f"{text!r} is not a time: give ISO 8601 (2026-11-21T09:30:00, UTC without a zone) or milliseconds."
        ) from None


def as_row(message: MessageExt) -> dict[str, Any]:
    """A message with the names of the columns."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "msgId": message.message_id,
        "storeTimestamp": _time(message.store_timestamp),
        "bornTimestamp": _time(message.born_timestamp),
        "bornHost": message.born_host,
        "tags": message.tags,
        "keys": " ".join(message.keys) or None,
        "properties": dict(message.properties),
        "body": message.body,
    }


def _time(milliseconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc)
    except (OverflowError, ValueError, OSError):
        return None


def ranges(
    reader: StoreReader, topic: str, queue: int | None, *, offset: int | None, begin: int | None, end: int | None
) -> list[Range]:
    """The range of each queue between two offsets or two times; by default from the first message to the end."""
    found = []
    for queue_id in [queue] if queue is not None else reader.queue_ids(topic):
        bounds = reader.queue_info(topic, queue_id)
        start, stop = bounds.min_offset, bounds.max_offset
        if offset is not None:
            if not start <= offset <= stop:
                raise OffsetOutOfRange(
                    topic=topic,
                    queue_id=queue_id,
                    start=offset,
                    stop=max(stop, offset + 1),
                    min_offset=start,
                    max_offset=stop,
                )
            start = offset
        if begin is not None:
            start = reader.offset_by_time(topic, queue_id, begin)
        if end is not None:
            stop = max(reader.offset_by_time(topic, queue_id, end), start)
        found.append((topic, queue_id, start, stop))
    return found


def messages(reader: StoreReader, wanted: list[Range]) -> Iterator[dict[str, Any]]:
    """The messages of several ranges as rows, merged by physical offset."""
    return heapq.merge(*(_rows(reader, one) for one in wanted), key=lambda row: row["physicalOffset"])


def _rows(reader: StoreReader, wanted: Range) -> Iterator[dict[str, Any]]:
    topic, queue_id, start, stop = wanted
    # Small batches: one of each queue is held at a time.
    for batch in reader.read(
        topic, queue_id, start, stop, columns=_COLUMNS, max_batch_rows=256, max_batch_bytes=1 << 20
    ):
        yield from _batch_rows(batch)


def _batch_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    # Times go through integers: Python's end with the year 9999, and a damaged one must not end the command.
    times = {name: batch[name].cast(pa.int64()).to_pylist() for name in _TIME_COLUMNS}
    for index, row in enumerate(batch.drop_columns(list(_TIME_COLUMNS)).to_pylist()):
        row["properties"] = dict(row["properties"])
        yield row | {name: _time(values[index] // 1000) for name, values in times.items()}


def newest(
    reader: StoreReader, topic: str, queue: int | None, count: int
) -> tuple[Iterator[dict[str, Any]], dict[int, int]]:
    """The newest ``count`` messages over the chosen queues, and the offset each queue was read to.

    The consume queues alone say which messages those are; no other message is read.
    """
    whole = ranges(reader, topic, queue, offset=None, begin=None, end=None)
    position = {queue_id: stop for _, queue_id, _, stop in whole}
    last = [(name, queue_id, max(start, stop - count), stop) for name, queue_id, start, stop in whole]
    place = _nth_newest_place(reader, last, count)
    wanted = [(*one[:2], _first_from(reader, one, place), one[3]) for one in last]
    return messages(reader, [one for one in wanted if one[2] < one[3]]), position


def _nth_newest_place(reader: StoreReader, wanted: list[Range], count: int) -> int:
    """The physical offset of the ``count``-th newest message of several ranges; 0 when they hold fewer."""
    newest_places = np.empty(0, np.int64)
    for one in wanted:
        for units in reader.units(*one):
            real = units["physical_offset"][units["size"] != FILLER_SIZE]
            newest_places = np.concatenate((newest_places, real))
            if len(newest_places) > count:
                newest_places = np.partition(newest_places, -count)[-count:]
    return int(newest_places.min()) if len(newest_places) == count > 0 else 0


def _first_from(reader: StoreReader, wanted: Range, place: int) -> int:
    """The first offset of a range whose message lies at or after a physical offset, or the range's end."""
    *_, at, stop = wanted
    for units in reader.units(*wanted):
        behind = np.flatnonzero((units["physical_offset"] >= place) & (units["size"] != FILLER_SIZE))
        if len(behind):
            return at + int(behind[0])
        at += len(units)
    return stop


def arrived(
    reader: StoreReader, topic: str, queue: int | None, position: dict[int, int]
) -> tuple[list[Range], dict[int, int]]:
    """The messages after ``position``, and the position after them. New queues are read from their start."""
    now = ranges(reader, topic, queue, offset=None, begin=None, end=None)
    fresh = [(name, queue_id, max(position.get(queue_id, start), start), stop) for name, queue_id, start, stop in now]
    return [one for one in fresh if one[2] < one[3]], {queue_id: stop for _, queue_id, _, stop in fresh}
