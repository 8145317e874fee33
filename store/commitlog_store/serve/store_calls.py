"""The answers to those of ``remote.calls.CALLS`` that only look, by a ``StoreReader`` of the store's directory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.columns import arrow_schema
from commitlog_store.errors import CommitLogError
from commitlog_store.metadata import table_of
from commitlog_store.reader import OnDamage, QueueInfo, StoreReader
from commitlog_store.remote.calls import CALLS
from commitlog_store.remote.wire import (
    MOST_TIMERS,
    MOST_UNITS,
    ListedBounds,
    encode_error,
    names_digest,
)
from commitlog_store.serve.call_limits import Parts, each


def _bounds(reader: StoreReader, topics: Sequence[tuple[str, list[int]]]) -> list[tuple[int, int]]:
    """Of all queues in one moment. Without their names, which the client has."""
    wanted = _each_queue(topics)
    return [(info.min_offset, info.max_offset) for info in reader.queue_infos(lambda: each(wanted))]


def _listed_bounds(
    reader: StoreReader,
    known: bytes,
    names: bytes | None,
    listed: Sequence[tuple[str, list[int] | None]],
    wanted: Sequence[tuple[str, list[int]]] | None,
) -> ListedBounds:
    """The bounds of listed queues and whether they are still all, of one moment. See ``wire.ListedBounds``."""
    settled = reader.settled_state()
    state = b"" if settled is None else hashlib.blake2b(repr(settled).encode(), digest_size=16).digest()
    if state and state == known:
        return ListedBounds(state, same=True)
    topics: list[str] | None = None
    changed: list[tuple[int, list[int] | None]] = []

    def queues() -> Iterator[tuple[str, int]]:
        nonlocal topics
        now = None if names is None else reader.topics()
        topics = None if now is None or names_digest(now) == names else now
        changed[:] = _changed_ids(reader, listed)
        asked = listed if wanted is None else wanted
        return each([] if changed or topics is not None else _each_queue(asked))

    infos = reader.queue_infos(queues)
    return ListedBounds(state, False, topics, changed, [(info.min_offset, info.max_offset) for info in infos])


def _changed_ids(
    reader: StoreReader, listed: Sequence[tuple[str, list[int] | None]]
) -> list[tuple[int, list[int] | None]]:
    found = reader.queue_ids_of([topic for topic, _ in listed])
    now = [None if isinstance(one, CommitLogError) else one for one in found]
    return [(place, ids) for place, (ids, (_, known)) in enumerate(zip(now, listed, strict=True)) if ids != known]


def _each_queue(topics: Sequence[tuple[str, list[int] | None]]) -> list[tuple[str, int]]:
    return [(topic, queue_id) for topic, queue_ids in topics for queue_id in queue_ids or ()]


def _with_errors(answers: Sequence[Any]) -> list[Any]:
    return [encode_error(one) if isinstance(one, CommitLogError) else one for one in answers]


def _offsets_by_time(
    reader: StoreReader, wanted: Sequence[tuple[str, int, int, QueueInfo | None]], boundary: Any, on_damage: OnDamage
) -> list[Any]:
    def answer(topic: str, queue_id: int, time_ms: int, bounds: QueueInfo | None) -> Any:
        try:
            return reader.offset_by_time(
                topic, queue_id, time_ms, boundary=boundary, bounds=bounds, on_damage=on_damage
            )
        except CommitLogError as error:
            return error

    return _with_errors([answer(*one) for one in each(wanted)])


def _units(reader: StoreReader, ranges: Sequence[tuple[str, int, int, int]]) -> tuple[list[int], bytes]:
    """How many units of each range, and the units; up to what cannot be read, or to the most that an answer has.

    The question for what cannot be read is answered by its error.
    """
    counts = [0] * len(ranges)
    parts: list[bytes] = []
    left = MOST_UNITS
    cut = []
    for topic, queue_id, start, stop in ranges:
        cut.append((topic, queue_id, start, min(stop, start + left)))
        left -= max(0, cut[-1][3] - start)
        if left <= 0:
            break
    try:
        for number, units in reader.units_of(cut):
            counts[number] += len(units)
            parts.append(units.tobytes())
    except CommitLogError:
        if not parts:
            raise
    return counts, b"".join(parts)


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


def _waiting_timers(reader: StoreReader, after: int) -> bytes:
    """Those that lie after a place in the log, at most so many as an answer has, as an Arrow IPC stream."""
    found = reader.waiting_timers()
    first = np.searchsorted(found["physicalOffset"].to_numpy(), after, side="right")
    return _as_stream(found.slice(int(first), MOST_TIMERS))


def _as_stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


ANSWERS: Mapping[str, Callable[..., Any]] = {
    "topics": StoreReader.topics,
    "queue_ids": lambda reader, topics: _with_errors(reader.queue_ids_of(topics)),
    "bounds": _bounds,
    "listed_bounds": _listed_bounds,
    "queues_of": lambda reader, topics: reader.queue_infos(
        lambda: [(topic, one) for topic in each(topics) for one in reader.queue_ids(topic)]
    ),
    "groups": lambda reader, group, now_ms: reader.groups(group, now_ms=now_ms),
    "group_offsets": lambda reader, group: [(*queue, offset) for queue, offset in reader.group_offsets(group).items()],
    "dead_letters": StoreReader.dead_letters,
    "topic_settings": StoreReader.topic_settings,
    "group_settings": StoreReader.group_settings,
    "group_filters": StoreReader.group_filters,
    "lost_ends": StoreReader.lost_ends,
    "physical_bounds": StoreReader.physical_bounds,
    "aborted": lambda reader: reader.aborted,
    "facts": lambda reader, assessed: reader.facts(assessed=assessed),
    # ``InvalidValue`` for the findings: reading the whole store has no bound.
    "metadata": lambda reader, table: _as_stream(table_of(reader, table)),
    "checkpoint": StoreReader.checkpoint,
    "index_files": StoreReader.index_files,
    "get_message": lambda reader, topic, queue_id, offset, count, size, wanted: reader.get_message(
        topic, queue_id, offset, count, max_bytes=size, filter=wanted.parsed()
    ),
    "wait_for_any": lambda reader, positions, seconds: reader.wait_for_any(
        {(topic, queue_id): offset for topic, queue_id, offset in positions}, seconds
    ),
    "first_offsets_from": lambda reader, wanted: reader.first_offsets_from(Parts(wanted)),
    "fences": lambda reader, positions: reader.fences(Parts(positions)),
    "store_timestamps": lambda reader, positions: _with_errors(reader.store_timestamps(positions)),
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
    "waiting_timers": _waiting_timers,
    "pending_half_messages": StoreReader.pending_half_messages,
}

# Answered by ``Verification``: of a reader they need only where its store lies.
VERIFICATION_CALLS = frozenset({"verify", "cancel_verification"})

assert ANSWERS.keys() | VERIFICATION_CALLS == {name for name, call in CALLS.items() if not call.writes}
