"""Dispatch requests: consume-queue units and index entries of the log's records. RocketMQ's ``DispatchRequest``, for
many records at once.

``dispatch_requests`` reads the records of a scan; ``units_by_queue`` makes the units of every queue from them, and
``index_entries`` the key hashes of the index:

====================  ===================================  =========================================================
record                consume queue                        index
====================  ===================================  =========================================================
plain, commit         a unit in its queue                  UNIQ_KEY, then each of KEYS
prepared              none                                 the same
rolled back           none                                 none
with light queues     also a unit in each of these         as above
====================  ===================================  =========================================================

A unit's tags code is the hash code of TAGS. In ``SCHEDULE_TOPIC_XXXX``, for a message with DELAY, it is the time of
delivery in ms.

Light queues ("LMQ") get further units of a message, which names them and its offset in each of them::

    INNER_MULTI_DISPATCH        %LMQ%one,%LMQ%two
    INNER_MULTI_QUEUE_OFFSET    7,31

Source: RocketMQ ``store/CommitLog.java`` (``checkMessageAndReturnSize``), ``store/DefaultMessageStore.java``
(``CommitLogDispatcherBuildConsumeQueue``), ``store/ConsumeQueue.java`` (``multiDispatchLmqQueue``),
``store/queue/MultiDispatchUtils.java``, ``store/index/IndexService.java`` (``buildIndex``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.dispatch_keys import IndexEntries, key_entries
from commitlog_store.columnar.hash_codes import tags_codes
from commitlog_store.columnar.scan import RecordScan
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format import sys_flag
from commitlog_store.format.arrays import BoolArray, Int32Array, Int64Array
from commitlog_store.format.consume_queue_unit import UNIT_FILE_DTYPE
from commitlog_store.format.message_rules import SCHEDULE_TOPIC, parse_delay_level
from commitlog_store.format.properties import (
    DELAY,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    TAGS,
)
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.paths import LIGHT_QUEUE_PREFIX, names_directory

_LIGHT_QUEUE_SEPARATOR = ","
# Messages of topics with this prefix get no units in light queues, nor do those of SCHEDULE_TOPIC_XXXX.
_NOT_SHARED_PREFIXES = ("%RETRY%", "rmq_sys_")

_OFFSET = re.compile(r"\+?[0-9]{1,19}", re.ASCII)


class LightUnits(NamedTuple):
    """Units in light queues: the record, the queue and the offset of each. In log order."""

    rows: Int64Array
    topic_codes: Int32Array
    queue_ids: Int32Array
    queue_offsets: Int64Array


@dataclass(frozen=True, kw_only=True)
class DispatchRequests:
    """Fields of records for dispatch: one value a record, in log order. Times are milliseconds.

    ``topic_codes`` points into ``topics``, where the topics of light queues, which have no records, come last.
    """

    physical_offsets: Int64Array
    sizes: Int32Array
    queue_ids: Int32Array
    queue_offsets: Int64Array
    store_timestamps: Int64Array
    sys_flags: Int32Array
    topic_codes: Int32Array
    tags_codes: Int64Array
    topics: list[str]
    light: LightUnits | None = None

    def __len__(self) -> int:
        """The number of records."""
        return len(self.physical_offsets)

    @property
    def queues(self) -> list[tuple[str, int]]:
        """The queues of the records, light ones too, each once."""
        codes, ids = self.topic_codes, self.queue_ids
        if self.light is not None:
            codes, ids = np.append(codes, self.light.topic_codes), np.append(ids, self.light.queue_ids)
        pairs = np.unique(codes.astype(np.int64) << 32 | ids.astype(np.int64) & 0xFFFFFFFF)
        found = zip((pairs >> 32).tolist(), (pairs & 0xFFFFFFFF).tolist(), strict=True)
        return [(self.topics[code], queue_id) for code, queue_id in found]

    @property
    def has_unit(self) -> BoolArray:
        """Which records get a unit in their consume queue: all but prepared and rolled-back ones."""
        return np.asarray(sys_flag.has_queue_unit(self.sys_flags))


class QueueUnits(NamedTuple):
    """Units of one queue, in log order: the offset of each, and the units as they stand in its file.

    ``light``: they are units of a light queue, whose offsets need not be contiguous (``queue/light_queues.py``).
    """

    topic: str
    queue_id: int
    queue_offsets: Int64Array
    units: npt.NDArray[np.void]
    light: bool = False


class GroupedUnits:
    """The units of many queues, one queue after the other in each array. A ``QueueUnits`` is made as it is asked for.

    ``bounds`` are the rows at which the queues begin, and the number of all rows.
    """

    def __init__(
        self,
        queues: Sequence[tuple[str, int]],
        light: Sequence[bool],
        bounds: Sequence[int],
        queue_offsets: Int64Array,
        units: npt.NDArray[np.void],
    ) -> None:
        self.queues = queues
        self.light = light
        self.bounds = bounds
        self.queue_offsets = queue_offsets
        self.units = units

    @classmethod
    def of(cls, groups: Iterable[QueueUnits]) -> GroupedUnits:
        """Groups that were made before; those without units are left out."""
        some = [group for group in groups if len(group.units)]
        offsets, units = [group.queue_offsets for group in some], [group.units for group in some]
        return cls(
            [group[:2] for group in some],
            [group.light for group in some],
            list(accumulate(map(len, units), initial=0)),
            offsets[0] if len(some) == 1 else np.concatenate(offsets or [np.empty(0, np.int64)]),
            # numpy gives what it joins the byte order of the machine.
            units[0]
            if len(some) == 1
            else np.concatenate(units or [np.empty(0, UNIT_FILE_DTYPE)], dtype=UNIT_FILE_DTYPE),
        )

    def starts(self) -> tuple[list[int], list[bool]]:
        """The first offset of each queue, and whether its others follow one another."""
        offsets, bounds = self.queue_offsets, self.bounds
        if len(self) == 1:  # as of most messages that come one at a time
            start = int(offsets[0])
            return [start], [int(offsets[-1]) - start + 1 == len(offsets)]
        firsts, lasts = offsets[bounds[:-1]], offsets[np.array(bounds[1:], np.int64) - 1]
        return firsts.tolist(), (lasts - firsts + 1 == np.diff(bounds)).tolist()

    def __len__(self) -> int:
        """The number of queues."""
        return len(self.queues)

    def __getitem__(self, number: int) -> QueueUnits:
        rows = slice(self.bounds[number], self.bounds[number + 1])
        return QueueUnits(*self.queues[number], self.queue_offsets[rows], self.units[rows], self.light[number])

    def __iter__(self) -> Iterator[QueueUnits]:
        return map(self.__getitem__, range(len(self)))


def dispatch_requests(scan: RecordScan, delay_levels_ms: Sequence[int]) -> DispatchRequests:
    """The dispatch requests of the scan's records. ``delay_levels_ms`` are the broker's delays of level 1, 2, ...

    RocketMQ stops at a DELAY that is not a number, and at light queues that it cannot parse. Here such a record counts
    as one without them: the log has it, and the records after it must stay readable.
    """
    topic_codes, names = scan.topics
    topics = list(names)
    store_timestamps = scan.field("store_timestamp")
    sys_flags = scan.field("sys_flag")
    codes, light = np.zeros(0, np.int64), None
    if len(scan):
        codes = tags_codes(scan.properties.text(TAGS))
        if SCHEDULE_TOPIC in topics and delay_levels_ms:
            delayed = topic_codes == topics.index(SCHEDULE_TOPIC)
            codes = _delivery_times(scan, delayed, store_timestamps, delay_levels_ms, codes)
        light = _light_units(scan, topic_codes, topics, sys_flags)
    return DispatchRequests(
        physical_offsets=scan.positions + scan.physical_offset,
        sizes=scan.sizes.astype(np.int32),
        queue_ids=scan.field("queue_id"),
        queue_offsets=scan.field("queue_offset"),
        store_timestamps=store_timestamps,
        sys_flags=sys_flags,
        topic_codes=topic_codes,
        tags_codes=codes,
        topics=topics,
        light=light,
    )


def _delivery_times(
    scan: RecordScan,
    delayed: BoolArray,
    store_timestamps: Int64Array,
    delay_levels_ms: Sequence[int],
    codes: Int64Array,
) -> Int64Array:
    """``codes``, with the time of delivery for ``delayed`` records that have a level of delay."""
    encoded = scan.properties.text(DELAY).dictionary_encode()
    delays = np.zeros(len(encoded.dictionary) + 1, np.int64)
    has_level = np.zeros(len(delays), np.bool_)
    for index, text in enumerate(encoded.dictionary.to_pylist()):
        level = parse_delay_level(text)
        if level:
            delays[index] = delay_levels_ms[min(level, len(delay_levels_ms)) - 1]
            has_level[index] = True
    which = encoded.indices.fill_null(len(delays) - 1).to_numpy(zero_copy_only=False)
    return np.where(delayed & has_level[which], store_timestamps + delays[which], codes)


def _light_units(
    scan: RecordScan, topic_codes: Int32Array, topics: list[str], sys_flags: Int32Array
) -> LightUnits | None:
    """The units of light queues; appends their topics to ``topics``. Rare, so one record after another."""
    names = scan.properties.text(INNER_MULTI_DISPATCH)
    if names.null_count == len(names):
        return None
    offsets = scan.properties.text(INNER_MULTI_QUEUE_OFFSET)
    may_share = [not topic.startswith(_NOT_SHARED_PREFIXES) and topic != SCHEDULE_TOPIC for topic in topics]
    shared = np.array(may_share, np.bool_)[topic_codes]
    shared &= pc.and_(names.is_valid(), offsets.is_valid()).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(shared & sys_flag.has_queue_unit(sys_flags))
    queue_ids = scan.field("queue_id")
    codes = {topic: code for code, topic in enumerate(topics)}
    found: list[tuple[int, int, int, int]] = []
    taken = pa.array(rows)
    for row, queues, places in zip(
        rows.tolist(), names.take(taken).to_pylist(), offsets.take(taken).to_pylist(), strict=True
    ):
        for queue, offset in _named_queues(queues, places):
            queue_id = 0 if queue.startswith(LIGHT_QUEUE_PREFIX) else int(queue_ids[row])
            found.append((row, codes.setdefault(queue, len(codes)), queue_id, offset))
    topics[:] = codes
    if not found:
        return None
    rows, to_topics, to_ids, to_offsets = np.array(found, np.int64).T
    return LightUnits(rows, to_topics.astype(np.int32), to_ids.astype(np.int32), to_offsets)


def _named_queues(queues: str, offsets: str) -> list[tuple[str, int]]:
    """The light queues of one message and its offset in each; none when the two texts do not go together."""
    # Java's split drops empty ends.
    names = queues.rstrip(_LIGHT_QUEUE_SEPARATOR).split(_LIGHT_QUEUE_SEPARATOR)
    places = offsets.rstrip(_LIGHT_QUEUE_SEPARATOR).split(_LIGHT_QUEUE_SEPARATOR)
    if len(names) != len(places):
        return []
    numbers = [int(place) if _OFFSET.fullmatch(place) else MAX_LONG + 1 for place in places]
    pairs = zip(names, numbers, strict=True)
    return [(name, number) for name, number in pairs if names_directory(name) and number <= MAX_LONG]


def inner_batch_topics(scan: RecordScan, requests: DispatchRequests) -> list[str]:
    """The topics of records that hold several messages each, sorted: those of batch consume queues.

    Such a record takes as many queue offsets as it has messages, so its queue looks as if it had gaps.
    """
    flagged = (requests.sys_flags & sys_flag.INNER_BATCH_FLAG) != 0
    if not flagged.any():
        return []
    flagged &= scan.properties.text(INNER_NUM).is_valid().to_numpy(zero_copy_only=False)
    return sorted({requests.topics[code] for code in requests.topic_codes[flagged].tolist()})


def units_by_queue(requests: DispatchRequests) -> GroupedUnits:
    """The units of every queue that gets any, in order of topic code and queue id.

    Each queue comes once, or, when it gets messages of its own and light units, once for each, its own first.
    """
    if len(requests) == 1 and requests.light is None:
        return _unit_of_one(requests)
    rows = np.flatnonzero(requests.has_unit)
    topic_codes, queue_ids = requests.topic_codes[rows], requests.queue_ids[rows]
    queue_offsets = requests.queue_offsets[rows]
    light = requests.light
    if light is not None:
        rows = np.concatenate((rows, light.rows))
        log_order = np.argsort(rows, kind="stable")
        rows = rows[log_order]
        # Twice the code, and one more for light units, keeps these apart.
        topic_codes = np.concatenate((topic_codes << 1, light.topic_codes << 1 | 1))[log_order]
        queue_ids = np.concatenate((queue_ids, light.queue_ids))[log_order]
        queue_offsets = np.concatenate((queue_offsets, light.queue_offsets))[log_order]
    if not len(rows):
        return GroupedUnits.of(())
    units = np.empty(len(rows), UNIT_FILE_DTYPE)
    for name, values in (
        ("physical_offset", requests.physical_offsets),
        ("size", requests.sizes),
        ("tags_code", requests.tags_codes),
    ):
        units[name] = values[rows]
    group = _groups(topic_codes, queue_ids)
    bounds = [0, len(rows)]
    if group is not None:
        order = np.argsort(group, kind="stable")
        group, units, queue_offsets = group[order], units[order], queue_offsets[order]
        topic_codes, queue_ids = topic_codes[order], queue_ids[order]
        bounds[1:1] = (np.flatnonzero(group[1:] != group[:-1]) + 1).tolist()
    firsts = bounds[:-1]
    codes, are_light = topic_codes[firsts], np.zeros(len(firsts), np.bool_)
    if light is not None:
        codes, are_light = codes >> 1, (codes & 1).astype(np.bool_)
    topics = [requests.topics[code] for code in codes.tolist()]
    queues = list(zip(topics, queue_ids[firsts].tolist(), strict=True))
    return GroupedUnits(queues, are_light.tolist(), bounds, queue_offsets, units)


def _unit_of_one(requests: DispatchRequests) -> GroupedUnits:
    """``units_by_queue`` of one record, in a fifth of the time: a store whose messages come one at a time has many."""
    if not sys_flag.has_queue_unit(int(requests.sys_flags[0])):
        return GroupedUnits.of(())
    units = np.array([(requests.physical_offsets[0], requests.sizes[0], requests.tags_codes[0])], UNIT_FILE_DTYPE)
    topic = requests.topics[requests.topic_codes[0]]
    return GroupedUnits([(topic, int(requests.queue_ids[0]))], [False], [0, 1], requests.queue_offsets, units)


def _groups(topic_codes: Int32Array, queue_ids: Int32Array) -> npt.NDArray[np.integer[Any]] | None:
    """A number for every row that orders rows by topic code and queue id; None when all rows are of one queue."""
    lowest, highest = int(queue_ids.min()), int(queue_ids.max())
    span = highest - lowest + 1
    highest_group = int(topic_codes.max()) * span + span - 1
    if lowest == highest and (topic_codes == topic_codes[0]).all():
        return None
    # Of two bytes numpy's stable sort is a radix sort: several times faster than that of eight.
    kind = np.uint16 if highest_group < 1 << 16 else np.int64
    return (topic_codes.astype(np.int64) * span + (queue_ids.astype(np.int64) - lowest)).astype(kind)


def index_entries(scan: RecordScan) -> IndexEntries:
    """The index entries of the scan's records: UNIQ_KEY, then each of KEYS, of every record.

    Rolled-back messages are not indexed, prepared ones are.
    """
    if not len(scan):
        return IndexEntries(np.zeros(0, np.int32), np.zeros(0, np.int64))
    topic_codes, topics = scan.topics
    indexed = sys_flag.transaction_type(scan.field("sys_flag")) != sys_flag.TRANSACTION_ROLLBACK_TYPE
    return key_entries(scan.properties, topics, topic_codes, indexed)
