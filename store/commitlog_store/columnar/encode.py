"""Encodes columns of messages into whole records, for bulk puts and staging.

The last of the three steps of ``message_table.py``. The store's owner patches in the three late fields later
(``records.patch_late_fields``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.body_compression import BodyCompression, compress_bodies
from commitlog_store.columnar.byte_parts import Part, new_bytes, part_sizes
from commitlog_store.columnar.dispatch_keys import ColumnHints
from commitlog_store.columnar.input import MessageColumns
from commitlog_store.columnar.input_properties import property_parts
from commitlog_store.columnar.records import (
    EncodedRecords,
    QueuedRecords,
    TopicRows,
    encode_records,
    new_headers,
    record_sizes,
)
from commitlog_store.columnar.unique_key import unique_keys_to_write
from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import InvalidValue, PutRefused
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.message_id import MAX_PORT, parse_host
from commitlog_store.format.message_rules import SCHEDULE_TOPIC, MessageLimits
from commitlog_store.format.properties import (
    DELAY,
    KEYS,
    MAX_PROPERTIES_SIZE,
    REAL_QID,
    REAL_TOPIC,
    SHARDING_KEY,
    TAGS,
    TIMER_OUT_MS,
    UNIQ_KEY,
)
from commitlog_store.format.record import FILLER_SIZE, HEADER_DTYPES
from commitlog_store.format.single_record import host_flags
from commitlog_store.format.timer_messages import TIMER_QUEUE_ID, TIMER_TOPIC
from commitlog_store.put_status import PutMessageStatus

_BINARY = pa.large_binary()
# Up to this product of topics and queues, the used ones are found by counting.
_MOST_COUNTED = 1 << 16
_Number = TypeVar("_Number", bound=np.generic)


@dataclass(frozen=True, kw_only=True)
class RecordSettings:
    """The settings of a store that decide its records. Hosts are an ip of 4 or 16 bytes and a port; sizes are bytes.

    ``compression`` packs the large bodies; the limit of a body's size applies to the body as given.
    """

    born_host: tuple[bytes, int]
    store_host: tuple[bytes, int]
    largest_record: int
    limits: MessageLimits = field(default_factory=MessageLimits)
    trailing_separator: bool = True
    compression: BodyCompression | None = None

    @classmethod
    def of(
        cls,
        config: MessageStoreConfig,
        *,
        largest_record: int | None = None,
        compression: BodyCompression | None = None,
    ) -> RecordSettings:
        """The settings of a store opened with ``config``. ``largest_record``: where its files have another size."""
        host = parse_host(config.store_host)
        return cls(
            born_host=host,
            store_host=host,
            largest_record=largest_record or config.mapped_file_size_commit_log - FILLER_SIZE,
            limits=MessageLimits(
                max_message_size=config.max_message_size,
                message_delay_level=config.message_delay_level,
                timer_max_delay_sec=config.timer_max_delay_sec,
            ),
            trailing_separator=config.properties_trailing_separator,
            compression=compression,
        )


@dataclass(frozen=True, kw_only=True)
class EncodedMessages:
    """The records of the rows that a store accepts, in the rows' order, and the rows that it refuses.

    ``rows``: each record's row in the chunk. ``topics`` and ``topic_codes``: the distinct topics, and each record's
    place among them. ``queue_ids``: -1 where none was given or chosen; the record holds the same. These are the
    record's own topic and queue: those of the schedule for a delayed message. ``tags``, ``unique_keys`` and ``keys``:
    as the records hold them, None where no record has one. ``refusals`` are in the rows' order.
    """

    records: EncodedRecords
    rows: Int64Array
    host_flags: int
    topics: list[str]
    topic_codes: npt.NDArray[np.int32]
    queue_ids: npt.NDArray[np.int32]
    tags: pa.LargeBinaryArray | None
    unique_keys: pa.LargeBinaryArray | None
    keys: pa.LargeBinaryArray | None
    refusals: list[PutRefused]

    def queued(self) -> QueuedRecords:
        """The records, ready to be appended. All of them have a queue."""
        codes, queues = _queues_of(self)
        # A delayed message's tags code is a time that only the store knows.
        hints = None
        if SCHEDULE_TOPIC not in self.topics:
            hints = ColumnHints.of(
                self.topics, self.topic_codes, tags=self.tags, unique_keys=self.unique_keys, keys=self.keys
            )
        return QueuedRecords(self.records, self.host_flags, queues, codes, hints)


def encode_messages(
    columns: MessageColumns,
    queue_ids: npt.NDArray[np.int32],
    settings: RecordSettings,
    *,
    unique_keys: pa.Array | None = None,
) -> EncodedMessages:
    """The rows as records whose late fields are zero. ``queue_ids`` are those of ``choose_queues``, for all rows.

    ``unique_keys`` gives a UNIQ_KEY to each row that has none among its properties, stored before KEYS; null for none.
    Rows that no record or no file has room for are added to the columns' refusals, before anything is laid out.
    ``InvalidValue`` for impossible hosts or keys, and for a delayed message without a queue: the queue is stored
    among its properties, so it must be chosen before.
    """
    if len(queue_ids) != columns.count:
        raise InvalidValue(f"{len(queue_ids)} queue ids for {columns.count} messages: give one for each.")
    new_keys = None if unique_keys is None else unique_keys_to_write(unique_keys, columns.unique_keys, columns.count)
    properties = _properties(columns, queue_ids, new_keys, settings.trailing_separator)
    topics, codes, queues = _destinations(columns, queue_ids)
    bodies, packed_flags = columns.bodies, None
    if settings.compression is not None:
        bodies, packed_flags = compress_bodies(bodies, settings.compression)
    v6_flags = _host_flags(settings)
    _refuse_sizes(columns, queue_ids, bodies, TopicRows(topics, codes), properties, settings, v6_flags)
    taken = _Taken(columns)
    topics, codes = _used_topics(topics, taken.numbers(codes))
    headers = _new_headers(taken.count, settings, v6_flags)
    headers["queue_id"] = queues = taken.numbers(queues)
    for name, values in (("flag", columns.flags), ("born_timestamp", columns.born_timestamps)):
        headers[name] = taken.numbers(values) if isinstance(values, np.ndarray) else values
    if packed_flags is not None:
        headers["sys_flag"] |= taken.numbers(packed_flags)
    written_keys = new_keys if columns.unique_keys is None else columns.unique_keys
    if written_keys is columns.unique_keys and new_keys is not None:
        written_keys = pc.coalesce(new_keys, columns.unique_keys)
    return EncodedMessages(
        records=encode_records(
            headers, taken.values(bodies), TopicRows(topics, codes), [taken.part(part) for part in properties]
        ),
        rows=taken.rows,
        host_flags=v6_flags,
        topics=topics,
        topic_codes=codes,
        queue_ids=queues,
        tags=taken.values(columns.tags),
        unique_keys=taken.values(written_keys),
        keys=taken.values(columns.keys),
        refusals=columns.refusals.in_order(),
    )


class _Taken:
    """Selects the rows that are not refused from columns."""

    def __init__(self, columns: MessageColumns) -> None:
        kept = columns.refusals.kept
        self._mask = pa.array(kept) if columns.refusals else None
        self.rows = np.flatnonzero(kept) if columns.refusals else np.arange(columns.count)
        self.count = len(self.rows)

    def numbers(self, values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        return values if self._mask is None else values[self.rows]

    def values(self, values: pa.Array | None) -> pa.Array | None:
        return values if self._mask is None or values is None else values.filter(self._mask)

    def part(self, part: Part) -> Part:
        return part if isinstance(part, bytes) else self.values(part)


def _refuse_sizes(
    columns: MessageColumns,
    queue_ids: npt.NDArray[np.int32],
    bodies: pa.LargeBinaryArray,
    topics: TopicRows,
    properties: list[Part],
    settings: RecordSettings,
    host_flags: int,
) -> None:
    """Refuse properties that a record has no room for, and records that no file has room for."""
    of_properties = sum(map(part_sizes, properties))
    if np.max(of_properties, initial=0) > MAX_PROPERTIES_SIZE:
        of_rows = np.broadcast_to(of_properties, columns.count)
        columns.refusals.add(
            of_rows > MAX_PROPERTIES_SIZE,
            lambda row: f"its properties take {int(of_rows[row])} bytes, the limit is {MAX_PROPERTIES_SIZE}",
            PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
            queue_ids,
        )
    largest = settings.largest_record
    sizes = record_sizes(HEADER_DTYPES[host_flags].itemsize, bodies, topics, of_properties)
    columns.refusals.add(
        sizes > largest,
        lambda row: (
            f"its record takes {int(sizes[row])} bytes, a CommitLog file of the store has room for {largest}: "
            "compress the bodies, or begin a store with larger files (mappedFileSizeCommitLog)"
        ),
        queue_ids=queue_ids,
    )


def _destinations(
    columns: MessageColumns, queue_ids: npt.NDArray[np.int32]
) -> tuple[list[str], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The topics, and each row's place among them and queue id; delayed ones go to where they wait."""
    topics, codes = columns.topics, columns.topic_codes
    if columns.delay_levels is not None:
        delayed = columns.delay_levels > 0
        topics, codes = _moved(topics, codes, SCHEDULE_TOPIC, delayed)
        queue_ids = np.where(delayed, columns.delay_levels - 1, queue_ids).astype(np.int32)
    if columns.timer_outs is not None:
        timed = columns.timer_outs >= 0
        topics, codes = _moved(topics, codes, TIMER_TOPIC, timed)
        queue_ids = np.where(timed, TIMER_QUEUE_ID, queue_ids).astype(np.int32)
    return topics, codes, queue_ids


def _moved(
    topics: list[str], codes: npt.NDArray[np.int32], topic: str, rows: BoolArray
) -> tuple[list[str], npt.NDArray[np.int32]]:
    """Topics and codes with ``rows`` in ``topic``."""
    topics = topics if topic in topics else [*topics, topic]
    return topics, np.where(rows, topics.index(topic), codes).astype(np.int32)


def _host_flags(settings: RecordSettings) -> int:
    """The bits of the system flag for the kind of the hosts."""
    for side, (ip, port) in (("born", settings.born_host), ("store", settings.store_host)):
        if len(ip) not in (4, 16) or not 0 <= port <= MAX_PORT:
            raise InvalidValue(
                f"The {side} host is an ip of 4 or 16 bytes and a port of 0 to {MAX_PORT}, not {ip!r} and {port}."
            )
    return host_flags(settings.born_host[0], settings.store_host[0])


def _new_headers(count: int, settings: RecordSettings, host_flags: int) -> npt.NDArray[np.void]:
    """Headers with their hosts."""
    one = new_headers(1, host_flags)
    for side, (ip, port) in (("born", settings.born_host), ("store", settings.store_host)):
        one[f"{side}_ip"], one[f"{side}_port"] = np.void(ip), port
    width = one.dtype.itemsize
    # Plain bytes are copied at once, fields one after the other.
    headers = new_bytes(count * width).view(f"V{width}")
    headers[...] = one.view(f"V{width}")[0]
    return headers.view(one.dtype)


def _properties(
    columns: MessageColumns,
    queue_ids: npt.NDArray[np.int32],
    unique_keys: pa.LargeBinaryArray | None,
    trailing_separator: bool,
) -> list[Part]:
    own = [(UNIQ_KEY, unique_keys), (KEYS, columns.keys), (SHARDING_KEY, columns.sharding_keys), (TAGS, columns.tags)]
    if columns.delay_levels is not None or columns.timer_outs is not None:
        levels = np.zeros(columns.count, np.int32) if columns.delay_levels is None else columns.delay_levels
        outs = np.full(columns.count, -1, np.int64) if columns.timer_outs is None else columns.timer_outs
        delayed = (levels > 0) | (outs >= 0)
        open_rows = np.flatnonzero(delayed & (queue_ids < 0) & columns.refusals.kept)
        if len(open_rows):
            raise InvalidValue(
                f"Message in row {open_rows[0]} is delayed and has no queue, which would be stored with it: "
                "resolve the queue ids before."
            )
        names = pa.array([name.encode("utf-8") for name in columns.topics], _BINARY)
        own += [
            (DELAY, _digits(levels, levels > 0)),
            (TIMER_OUT_MS, _digits(outs, outs >= 0)),
            (REAL_TOPIC, names.take(pa.array(columns.topic_codes, mask=~delayed | (columns.topic_codes < 0)))),
            (REAL_QID, _digits(queue_ids, delayed)),
        ]
    return property_parts(columns.others, own, columns.count, trailing_separator)


def _digits(values: npt.NDArray[np.int32] | Int64Array, given: BoolArray) -> pa.LargeBinaryArray:
    return pa.array(values, mask=~given).cast(pa.large_string()).cast(_BINARY)


def _used_topics(names: list[str], codes: npt.NDArray[np.int32]) -> tuple[list[str], npt.NDArray[np.int32]]:
    """The topics that records have, without those of refused rows, which may be invalid."""
    if len(names) == 1 and len(codes):
        return names, codes
    used = np.flatnonzero(np.bincount(codes, minlength=len(names)))
    places = np.zeros(len(names), np.int32)
    places[used] = np.arange(len(used))
    return [names[code] for code in used.tolist()], places[codes]


def _queues_of(encoded: EncodedMessages) -> tuple[Int64Array, list[tuple[str, int]]]:
    """Each record's place among the distinct queues, and these: topic and queue id."""
    if not len(encoded.rows):
        return np.zeros(0, np.int64), []
    span = int(encoded.queue_ids.max()) + 1
    keys = encoded.topic_codes.astype(np.int64) * span + encoded.queue_ids
    most = len(encoded.topics) * span
    if most > _MOST_COUNTED:
        distinct, places = np.unique(keys, return_inverse=True)
    else:
        # Several times faster than the sort in np.unique.
        distinct = np.flatnonzero(np.bincount(keys, minlength=most))
        place_of = np.zeros(most, np.int64)
        place_of[distinct] = np.arange(len(distinct))
        places = place_of[keys]
    return places, [(encoded.topics[key // span], key % span) for key in distinct.tolist()]
