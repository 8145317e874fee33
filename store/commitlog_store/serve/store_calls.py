"""The answers to those of ``remote.wire.CALLS`` that only look, by a ``StoreReader`` of the store's directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from commitlog_store.columnar.columns import arrow_schema
from commitlog_store.errors import CommitLogError
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.queue.fence import Fence
from commitlog_store.queue.get_message import GetMessageResult
from commitlog_store.reader import OnDamage, QueueInfo, StoreReader
from commitlog_store.remote.wire import CALLS, MOST_UNITS, FilterTexts
from commitlog_store.serve.call_limits import each

_Position = tuple[str, int, int]


def _queues_of(reader: StoreReader, topics: Sequence[str]) -> list[QueueInfo]:
    return reader.queue_infos(lambda: [(topic, one) for topic in each(topics) for one in reader.queue_ids(topic)])


def _group_offsets(reader: StoreReader, group: str) -> list[_Position]:
    return [(topic, queue_id, offset) for (topic, queue_id), offset in reader.group_offsets(group).items()]


def _get_message(
    reader: StoreReader,
    topic: str,
    queue_id: int,
    offset: int,
    count: int,
    size: int,
    wanted: FilterTexts,
) -> GetMessageResult:
    chosen = MessageFilter.parse_quietly(wanted.tags, wanted.expression, wanted.keys)
    return reader.get_message(topic, queue_id, offset, count, max_bytes=size, filter=chosen)


def _wait_for_any(reader: StoreReader, positions: Sequence[_Position], seconds: float) -> bool:
    return reader.wait_for_any({(topic, queue_id): offset for topic, queue_id, offset in positions}, seconds)


def _first_offsets_from(reader: StoreReader, wanted: Sequence[tuple[str, int, int, int, int]]) -> list[int]:
    return [reader.first_offset_from(*one) for one in each(wanted)]


def _fences(reader: StoreReader, positions: Sequence[_Position]) -> list[Fence | None]:
    return [reader.fence(*one) for one in each(positions)]


def _store_timestamps(reader: StoreReader, positions: Sequence[_Position]) -> list[int]:
    return [reader.store_timestamp(*one) for one in each(positions)]


def _offsets_by_time(
    reader: StoreReader,
    wanted: Sequence[tuple[str, int, int, QueueInfo | None]],
    boundary: Any,
    on_damage: OnDamage,
) -> list[int]:
    return [
        reader.offset_by_time(topic, queue_id, time_ms, boundary=boundary, bounds=bounds, on_damage=on_damage)
        for topic, queue_id, time_ms, bounds in each(wanted)
    ]


def _units(reader: StoreReader, topic: str, queue_id: int, start: int, stop: int) -> bytes:
    """Units up to what cannot be read; the question for those is answered by its error."""
    parts: list[bytes] = []
    try:
        parts += (chunk.tobytes() for chunk in reader.units(topic, queue_id, start, min(stop, start + MOST_UNITS)))
    except CommitLogError:
        if not parts:
            raise
    return b"".join(parts)


def _query_keys(
    reader: StoreReader,
    topic: str,
    keys: Sequence[str | None],
    columns: Sequence[str],
    rows: int,
    size: int,
    verify_crc: bool,
) -> bytes:
    """The batches as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    batches = reader.query_keys(
        topic, keys, columns=columns, max_batch_rows=rows, max_batch_bytes=size, verify_crc=verify_crc
    )
    with pa.ipc.new_stream(sink, arrow_schema(columns)) as writer:
        for batch in each(batches):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


ANSWERS: Mapping[str, Callable[..., Any]] = {
    "topics": StoreReader.topics,
    "queue_ids": StoreReader.queue_ids,
    "queue_infos": StoreReader.queue_infos,
    "queues_of": _queues_of,
    "groups": lambda reader, group, now_ms: reader.groups(group, now_ms=now_ms),
    "group_offsets": _group_offsets,
    "dead_letters": StoreReader.dead_letters,
    "group_settings": StoreReader.group_settings,
    "group_filters": StoreReader.group_filters,
    "lost_ends": StoreReader.lost_ends,
    "physical_bounds": StoreReader.physical_bounds,
    "aborted": lambda reader: reader.aborted,
    "checkpoint": StoreReader.checkpoint,
    "index_files": StoreReader.index_files,
    "get_message": _get_message,
    "wait_for_any": _wait_for_any,
    "first_offsets_from": _first_offsets_from,
    "fences": _fences,
    "store_timestamps": _store_timestamps,
    "offsets_by_time": _offsets_by_time,
    "message_at": lambda reader, place, verify_crc: reader.message_at(place, verify_crc=verify_crc),
    "message_by_id": lambda reader, text, verify_crc: reader.message_by_id(text, verify_crc=verify_crc),
    "query": lambda reader, topic, key, begin, end, limit, verify_crc: reader.query(
        topic, key, begin=begin, end=end, limit=limit, verify_crc=verify_crc
    ),
    "units": _units,
    "query_keys": _query_keys,
    "batches": StoreReader.batches,
    "delay_levels": StoreReader.delay_levels,
    "pending_half_messages": StoreReader.pending_half_messages,
}

assert ANSWERS.keys() == {name for name, call in CALLS.items() if not call.writes}
