"""Two readers of the same messages give the same: bounds, rows, units, fences, times, places, single messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from commitlog_store import GetMessageStatus, MessageExt, StoreReader
from commitlog_store.columnar.columns import ALL_COLUMNS, arrow_schema
from commitlog_store.queue.views import QueueInfo

_CHOICES: list[dict[str, Any]] = [{}, {"tags": "a || c"}, {"filter": "amount > 5"}, {"keys": ["k1", "k4"]}]


def rows_of(
    reader: StoreReader, info: QueueInfo, chosen: Mapping[str, Any], columns: Sequence[str] = tuple(ALL_COLUMNS)
) -> pa.Table:
    """A queue's messages."""
    batches = reader.read(info.topic, info.queue_id, info.min_offset, info.max_offset, columns=columns, **chosen)
    return pa.Table.from_batches(list(batches), schema=arrow_schema(columns))


def same_answers(one: StoreReader, other: StoreReader) -> int:
    """Assert it; the number of messages."""
    count = 0
    assert one.topics() == other.topics()
    for topic in one.topics():
        infos = one.queues(topic)
        assert other.queues(topic) == infos
        for info in infos:
            for chosen in _CHOICES:
                assert rows_of(other, info, chosen).equals(rows_of(one, info, chosen)), (info, chosen)
            count += info.max_offset - info.min_offset
            _same_places(one, other, info)
        ranges = [(one.topic, one.queue_id, one.min_offset, one.max_offset) for one in infos]
        tables = [
            (pa.Table.from_batches(list(batches), schema=arrow_schema(["queueId", "body"])), batches.positions)
            for reader in (one, other)
            for batches in [reader.read_side_by_side(ranges, columns=["queueId", "body"])]
        ]
        assert tables[0] == tables[1], topic
        assert other.scan(topic).read_all().equals(one.scan(topic).read_all())
    return count


def _same_places(one: StoreReader, other: StoreReader, info: QueueInfo) -> None:
    queue = info.topic, info.queue_id
    low, high = info.min_offset, info.max_offset
    units = [b"".join(part.tobytes() for part in reader.units(*queue, low, high, chunk=7)) for reader in (one, other)]
    assert units[0] == units[1], info
    for offset in sorted({low, (low + high) // 2, high - 1}) if low < high else ():
        assert other.fence(*queue, offset) == one.fence(*queue, offset)
        stored = one.store_timestamp(*queue, offset)
        assert other.store_timestamp(*queue, offset) == stored
        for moment in (stored - 1, stored, stored + 1):
            for boundary in ("lower", "upper"):
                found = one.offset_by_time(*queue, moment, boundary=boundary)
                assert other.offset_by_time(*queue, moment, boundary=boundary) == found, (info, moment, boundary)
        pulled = _three_from(one, *queue, offset)
        assert _three_from(other, *queue, offset) == pulled
        for message in pulled[0]:
            assert other.message_at(message.physical_offset) == message
            assert other.message_by_id(message.message_id) == message
            for place in (message.physical_offset, message.physical_offset + 1):
                found = one.first_offset_from(*queue, place, low, high)
                assert other.first_offset_from(*queue, place, low, high) == found


def _three_from(
    reader: StoreReader, topic: str, queue_id: int, offset: int
) -> tuple[list[MessageExt], GetMessageStatus, int, tuple[int, int]]:
    """Three messages by one pull or several: a pull ends with a file of the queue, and an archive has no such files."""
    messages: list[MessageExt] = []
    while True:
        pulled = reader.get_message(topic, queue_id, offset, 3 - len(messages))
        messages += pulled.messages
        offset = pulled.next_begin_offset
        if len(messages) == 3 or not pulled.messages:
            return messages, pulled.status, offset, (pulled.min_offset, pulled.max_offset)
