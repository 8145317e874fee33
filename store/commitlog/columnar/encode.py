"""Messages in columns to whole records, many at once: what a bulk put appends, and what a writer elsewhere stages.

It needs no store. What only its owner knows comes later: the three late fields (``record_encode.patch_late_fields``).
Chunks of 16,384 to 32,768 rows of up to 1 KiB are the fastest, since their bytes stay in the processor's cache from one
step to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog.columnar.body_compression import BodyCompression, compress_bodies
from commitlog.columnar.dispatch_keys import PropertyHints
from commitlog.columnar.input import MessageColumns, Refusals, Rows, message_columns
from commitlog.columnar.input_properties import join_properties
from commitlog.columnar.queue_choice import sharding_hashes
from commitlog.columnar.records import (
    EncodedRecords,
    QueuedRecords,
    TopicRows,
    binary_parts,
    encode_records,
    new_headers,
)
from commitlog.columnar.unique_key import unique_keys_to_write
from commitlog.errors import InvalidValue
from commitlog.format.arrays import BoolArray, Int64Array
from commitlog.format.message_rules import SCHEDULE_TOPIC, MessageLimits, Refusal, RefusalKind
from commitlog.format.properties import (
    DELAY,
    KEYS,
    MAX_PROPERTIES_SIZE,
    REAL_QID,
    REAL_TOPIC,
    SHARDING_KEY,
    TAGS,
    UNIQ_KEY,
)
from commitlog.format.sys_flag import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG

__all__ = ["EncodedMessages", "encode_messages"]

_MAX_PORT = 65_535
# Up to so many topics times queues, those that occur are counted.
_MOST_COUNTED = 1 << 16
_V6_FLAGS = {"born": BORNHOST_V6_FLAG, "store": STOREHOSTADDRESS_V6_FLAG}


@dataclass(frozen=True, kw_only=True)
class EncodedMessages:
    """The records of the rows that a store takes, in the rows' order, and the rows that it does not take.

    ``rows``: each record's row in the input. ``topics`` and ``topic_codes``: the distinct topics, and each record's
    place among them. ``queue_ids``: -1 where none was given or chosen; the record holds the same. These are the
    record's own topic and queue: those of the schedule for a delayed message. ``properties``: as the records hold them.
    ``sharding_hashes``: see ``message_queues.sharding_hashes``. ``refusals`` are in the rows' order.
    """

    records: EncodedRecords
    rows: Int64Array
    host_flags: int
    topics: list[str]
    topic_codes: npt.NDArray[np.int32]
    queue_ids: npt.NDArray[np.int32]
    sharding_hashes: Int64Array
    refusals: list[Refusal]
    properties: pa.LargeBinaryArray

    def queued(self) -> QueuedRecords:
        """The records as they are appended. All of them have a queue."""
        codes, queues = _queues_of(self)
        # A delayed message's tags code is a time that only the store knows.
        hints = None
        if SCHEDULE_TOPIC not in self.topics:
            hints = PropertyHints(self.properties, self.topics, self.topic_codes)
        return QueuedRecords(self.records, self.host_flags, queues, codes, hints)


def encode_messages(
    table: Rows,
    *,
    topic: str | None,
    born_timestamp_ms: int,
    born_host: tuple[bytes, int],
    store_host: tuple[bytes, int],
    limits: MessageLimits | None = None,
    trailing_separator: bool = True,
    queue_ids: npt.NDArray[np.int32] | None = None,
    unique_keys: pa.Array | None = None,
    compression: BodyCompression | None = None,
) -> EncodedMessages:
    """The rows as records whose late fields are zero. See ``message_columns`` for the columns.

    ``topic`` and ``born_timestamp_ms`` are those of rows without their own; hosts are an ip of 4 or 16 bytes and a
    port; ``queue_ids``, when given, are those that ``message_queues.resolve_queue_ids`` chose for all rows.
    ``unique_keys`` gives a UNIQ_KEY to each row that has none among its properties, stored before KEYS; null for none.
    ``compression`` packs the large bodies; the limit of a body's size is that of the body as given.
    ``InvalidValue`` for columns, hosts or keys that cannot be, and for a delayed message without a queue: the queue is
    stored among its properties, so it must be chosen before.
    """
    limits = limits or MessageLimits()
    if queue_ids is not None and len(queue_ids) != table.num_rows:
        raise InvalidValue(f"There are {table.num_rows} messages and {len(queue_ids)} queue ids for them.")
    columns = message_columns(
        table, topic=topic, born_timestamp_ms=born_timestamp_ms, limits=limits, queue_ids=queue_ids
    )
    delayed = columns.delay_levels > 0
    properties = _properties(columns, delayed, unique_keys, trailing_separator)
    refusals = columns.refusals
    _refuse_properties(properties, refusals)
    topics, codes, queues = _destinations(columns, delayed)
    bodies, hashes = columns.bodies, sharding_hashes(columns.sharding_keys, table.num_rows)
    flags, times = columns.flags, columns.born_timestamps
    rows = np.arange(table.num_rows)
    if refusals.found:
        rows = np.flatnonzero(refusals.kept)
        bodies, properties = (array.filter(pa.array(refusals.kept)) for array in (bodies, properties))
        codes, queues, flags = codes[rows], queues[rows], flags[rows]
        hashes, times = hashes[rows], times[rows]
    topics, codes = _used_topics(topics, codes)
    headers, host_flags = _new_headers(len(rows), born_host, store_host)
    headers["queue_id"], headers["flag"], headers["born_timestamp"] = queues, flags, times
    if compression is not None:
        bodies, packed_flags = compress_bodies(bodies, compression)
        headers["sys_flag"] |= packed_flags
    return EncodedMessages(
        records=encode_records(headers, bodies, TopicRows(topics, codes), properties),
        rows=rows,
        host_flags=host_flags,
        topics=topics,
        topic_codes=codes,
        queue_ids=queues,
        sharding_hashes=hashes,
        refusals=sorted(refusals.found, key=lambda refusal: refusal.row),
        properties=properties,
    )


def _destinations(
    columns: MessageColumns, delayed: BoolArray
) -> tuple[list[str], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The topics, and each row's place among them and queue id; delayed ones go to the schedule."""
    topics, codes, queues = list(columns.topics), columns.topic_codes, columns.queue_ids
    if delayed.any():
        if SCHEDULE_TOPIC not in topics:
            topics.append(SCHEDULE_TOPIC)
        codes = np.where(delayed, topics.index(SCHEDULE_TOPIC), codes).astype(np.int32)
        queues = np.where(delayed, columns.delay_levels - 1, queues).astype(np.int32)
    return topics, codes, queues


def _new_headers(
    count: int, born_host: tuple[bytes, int], store_host: tuple[bytes, int]
) -> tuple[npt.NDArray[np.void], int]:
    """Headers with their hosts, and the bits of the system flag that say of which kind these are."""
    hosts = {"born": born_host, "store": store_host}
    for side, (ip, port) in hosts.items():
        if len(ip) not in (4, 16) or not 0 <= port <= _MAX_PORT:
            raise InvalidValue(
                f"The {side} host is an ip of 4 or 16 bytes and a port of 0 to {_MAX_PORT}, not {ip!r} and {port}."
            )
    host_flags = sum(_V6_FLAGS[side] for side, (ip, _) in hosts.items() if len(ip) == 16)
    headers = new_headers(count, host_flags)
    for side, (ip, port) in hosts.items():
        headers[f"{side}_ip"], headers[f"{side}_port"] = np.void(ip), port
    return headers, host_flags


def _properties(
    columns: MessageColumns, delayed: BoolArray, unique_keys: pa.Array | None, trailing_separator: bool
) -> pa.LargeBinaryArray:
    if unique_keys is not None:
        unique_keys = unique_keys_to_write(unique_keys, columns.others, len(delayed))
    own = [(UNIQ_KEY, unique_keys), (KEYS, columns.keys), (SHARDING_KEY, columns.sharding_keys), (TAGS, columns.tags)]
    if delayed.any():
        open_rows = np.flatnonzero(delayed & (columns.queue_ids < 0) & columns.refusals.kept)
        if len(open_rows):
            raise InvalidValue(
                f"Message in row {open_rows[0]} is delayed and has no queue, which would be stored with it: "
                "resolve the queue ids before."
            )
        names = pa.array([name.encode("utf-8") for name in columns.topics], pa.large_binary())
        own += [
            (DELAY, _digits(columns.delay_levels, delayed)),
            (REAL_TOPIC, names.take(pa.array(columns.topic_codes, mask=~delayed | (columns.topic_codes < 0)))),
            (REAL_QID, _digits(columns.queue_ids, delayed)),
        ]
    return join_properties(columns.others, own, len(delayed), trailing_separator)


def _digits(values: npt.NDArray[np.int32], given: BoolArray) -> pa.LargeBinaryArray:
    return pa.array(values, mask=~given).cast(pa.large_string()).cast(pa.large_binary())


def _refuse_properties(properties: pa.LargeBinaryArray, refusals: Refusals) -> None:
    sizes = np.diff(binary_parts(properties)[0])
    refusals.add(
        sizes > MAX_PROPERTIES_SIZE,
        lambda row: f"its properties take {int(sizes[row])} bytes, the limit is {MAX_PROPERTIES_SIZE}",
        RefusalKind.PROPERTIES_SIZE_EXCEEDED,
    )


def _used_topics(names: list[str], codes: npt.NDArray[np.int32]) -> tuple[list[str], npt.NDArray[np.int32]]:
    """The topics that records have: those of refused rows, which may be no topics at all, are left out."""
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
        # Several times faster than the sort behind np.unique.
        distinct = np.flatnonzero(np.bincount(keys, minlength=most))
        place_of = np.zeros(most, np.int64)
        place_of[distinct] = np.arange(len(distinct))
        places = place_of[keys]
    return places, [(encoded.topics[key // span], key % span) for key in distinct.tolist()]
