"""HistoryReader: ``StoreReader`` of a store whose head is in an archive.

Two readers as one: that of the directory (or of a server of it), and that of the archive. Questions about queues
and messages are asked of the one that has them, and everything else is the live store's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, wraps
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from commitlog_store.archive_reader.reader import ArchiveReader
from commitlog_store.columnar.columns import DEFAULT_COLUMNS
from commitlog_store.errors import CommitLogError, FileMissing, MessageNotFound, NotFoundError, TopicNotFound, raised
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.consume_queue_unit import Units
from commitlog_store.history.blocks import HistoryBlocks
from commitlog_store.history.sides import GONE, BothSides, QueueKey, Sides
from commitlog_store.index.service import IndexFileInfo
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.message import MessageExt
from commitlog_store.queue.fence import Fence
from commitlog_store.queue.get_message import GetMessageResult, GetMessageStatus, PullLimits, checked_count
from commitlog_store.queue.log_blocks import DEFAULT_ROWS, DEFAULT_SIZE
from commitlog_store.queue.reader_catalog import ReaderCatalog
from commitlog_store.queue.skipped import SkippedRange
from commitlog_store.reader import OnDamage, QueueInfo, QueueOffsets, StoreReader, WantedQueues
from commitlog_store.reading.arguments import checked_ranges, checked_topics, repeatable
from commitlog_store.reading.arrivals import checked_deadline, is_any_filled
from commitlog_store.reading.key_lookup import WantedKeys
from commitlog_store.reading.places import Boundary
from commitlog_store.reading.ranges import while_open
from commitlog_store.storage_stats import StorageStats
from commitlog_store.timestamps import GivenTime, milliseconds_of

_Found = TypeVar("_Found")
_P = ParamSpec("_P")
# Always read: it is NULL for a key without a message, and only then.
_PLACE = "queueOffset"
# What a pull from the live store answers when retention has taken the message since the bounds were asked for.
_REMOVED = frozenset(
    {GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_FOUND_NULL, GetMessageStatus.MESSAGE_WAS_REMOVING}
)


def _of_live(
    question: Callable[Concatenate[StoreReader, _P], _Found],
) -> Callable[Concatenate[HistoryReader, _P], _Found]:
    """A question that the live store alone answers."""

    @wraps(question)
    def answer(reader: HistoryReader, /, *arguments: _P.args, **named: _P.kwargs) -> _Found:
        found: _Found = getattr(reader.live, question.__name__)(*arguments, **named)
        return found

    return answer


class HistoryReader(StoreReader):
    """Made by ``StoreReader.open("/data/store", archive="s3://bucket/prefix")``."""

    def __init__(self, live: StoreReader, past: ArchiveReader, *, on_damage: OnDamage = "raise") -> None:
        self.live = live
        self.past = past
        past.show_open_batch()
        self.path = live.path
        self._both = BothSides(past, live)
        self._on_damage = on_damage
        self._counts = None
        self._skipped: list[SkippedRange] = []
        self._snapshot = None
        self._closed = False
        self._blocks = HistoryBlocks(self._both)
        self._catalog = ReaderCatalog(self)

    @property
    def paths(self) -> StorePaths:  # type: ignore[override]
        """Those of the live store."""
        return self.live.paths

    def __repr__(self) -> str:
        return f"<StoreReader of {self.path!r} and {self.past.path!r}, {'closed' if self._closed else 'open'}>"

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(HistoryReader, on_damage=self._on_damage), (self.live, self.past))

    def close(self) -> None:
        self._closed = True
        try:
            self.live.close()
        finally:
            self.past.close()

    @property
    def for_shell(self) -> str:
        return self.live.for_shell

    @property
    def skipped(self) -> list[SkippedRange]:
        return [*self._skipped, *self.past.skipped, *self.live.skipped]

    def stats(self) -> StorageStats:
        return self.past.stats()

    # Topics, queues and bounds.

    def topics(self) -> list[str]:
        self._refuse_closed()
        return sorted({*self.past.topics(), *self.live.topics()})

    def queue_ids(self, topic: str) -> list[int]:
        return raised(self.queue_ids_of([topic])[0])

    def queue_ids_of(self, topics: Sequence[str]) -> list[list[int] | CommitLogError]:
        self._refuse_closed()
        topics = checked_topics(topics)
        answers: list[list[int] | CommitLogError] = []
        for live, past in zip(self.live.queue_ids_of(topics), self.past.queue_ids_of(topics), strict=True):
            if isinstance(past, CommitLogError):
                answers.append(live)
            elif isinstance(live, CommitLogError):
                answers.append(past if isinstance(live, TopicNotFound) else live)
            else:
                answers.append(sorted({*live, *past}))
        return answers

    def queue_infos(self, queues: WantedQueues) -> list[QueueInfo]:
        self._refuse_closed()
        return [QueueInfo(*key, *sides.bounds) for key, sides in self._both.of(queues)]

    def consistently(self, ask: Callable[[], _Found], *, one_moment: bool = True) -> _Found:
        self._refuse_closed()
        said = ""
        while True:
            try:
                return self.live.consistently(ask, one_moment=one_moment)
            except GONE as error:  # retention moved the border; the same error twice in a row is how both are
                if str(error) == said:
                    raise
                said = str(error)

    def settled_state(self) -> object | None:
        self._refuse_closed()
        live = self.live.settled_state()
        return None if live is None else (live, self.past.settled_state())

    def log_start(self) -> int:
        self._refuse_closed()
        live = self.live.log_start()
        start = self.past.physical_bounds()[0]
        return start if live < 0 else min(start, live)

    def physical_bounds(self) -> tuple[int, int]:
        self._refuse_closed()
        start, stop = self.live.physical_bounds()
        return min(start, self.past.physical_bounds()[0]), stop

    # Messages of queues. Blocks are read by ``HistoryBlocks``.

    def units(self, topic: str, queue_id: int, start: int, stop: int, *, chunk: int = 1_000_000) -> Iterator[Units]:
        return (units for _, units in self.units_of([(topic, queue_id, start, stop)], chunk=chunk))

    def units_of(self, ranges: Sequence[QueueOffsets], *, chunk: int = 1_000_000) -> Iterator[tuple[int, Units]]:
        self._refuse_closed()
        checked_count("chunk", chunk)
        ranges = checked_ranges(ranges)
        self._ranges.checked(ranges)
        return while_open(self._units_of(ranges, chunk), self._refuse_closed)

    def _units_of(self, ranges: list[QueueOffsets], chunk: int) -> Iterator[tuple[int, Units]]:
        positions, bridged, first = [start for _, _, start, _ in ranges], 0, 0
        while first < len(ranges):
            number = first
            try:
                for number, units in self._units_by_side(ranges, first, positions, bridged, chunk):
                    yield number, units
                    positions[number] += len(units)
                return
            except GONE as gone:
                # Before the first units of a range, the error alone says which one it is.
                if not isinstance(gone, NotFoundError):
                    keys = [one[:2] for one in ranges]
                    number = keys.index((gone.topic, gone.queue_id), number)
                while number < len(ranges) - 1 and positions[number] == ranges[number][3]:
                    number += 1
                at = positions[number]
                archived_to = self._both.archived_to(ranges[number][:2], at)
                if archived_to < 0 or (number == first and at < bridged):
                    raise
                stop = gone.stop if isinstance(gone, FileMissing) else 0
                first, bridged = number, min(max(stop, at + 1), archived_to)

    def _units_by_side(
        self, ranges: list[QueueOffsets], first: int, positions: list[int], bridged: int, chunk: int
    ) -> Iterator[tuple[int, Units]]:
        """The units of ranges from their positions on, those of one reader after another with one question each."""
        waiting: list[tuple[int, QueueOffsets]] = []
        asked: StoreReader | None = None

        def answered() -> Iterator[tuple[int, Units]]:
            if asked is not None and waiting:
                for index, units in asked.units_of([one for _, one in waiting], chunk=chunk):
                    yield waiting[index][0], units
            waiting.clear()

        found = self._both.of([one[:2] for one in ranges[first:]])
        for number, (key, sides) in enumerate(found, first):
            at, stop = positions[number], ranges[number][3]
            for part in self._both.parts(sides, at, stop, bridged=bridged if number == first else 0):
                if part.reader is not asked:
                    yield from answered()
                    asked = part.reader
                if part.reader is None:
                    raise self._both.gap(key, sides, part)
                waiting.append((number, (*key, part.start, part.stop)))
        yield from answered()

    def first_offsets_from(self, wanted: Sequence[tuple[str, int, int, int, int]]) -> list[int]:
        wanted = repeatable(wanted)

        def look() -> list[int]:
            found = self._both.of([one[:2] for one in wanted])
            return [self._first_in_parts(key, sides, *one[2:]) for one, (key, sides) in zip(wanted, found, strict=True)]

        return self.consistently(look, one_moment=False)

    def _first_in_parts(self, key: QueueKey, sides: Sides, physical_offset: int, start: int, stop: int) -> int:
        for part in self._both.parts(sides, start, stop):
            if part.reader is None:
                continue
            found = part.reader.first_offset_from(*key, physical_offset, part.start, part.stop)
            if found < part.stop:
                return found
        return stop

    def fences(self, positions: Sequence[tuple[str, int, int]]) -> list[Fence | None]:
        self._refuse_closed()
        return self._by_place(positions, lambda reader, some: reader.fences(some), lambda found: found is None)

    def store_timestamps(self, positions: Sequence[tuple[str, int, int]]) -> list[int | CommitLogError]:
        self._refuse_closed()
        return self._by_place(
            positions, lambda reader, some: reader.store_timestamps(some), lambda found: isinstance(found, GONE)
        )

    def store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        return raised(self.store_timestamps([(topic, queue_id, offset)])[0])

    def _by_place(
        self,
        positions: Sequence[tuple[str, int, int]],
        ask: Callable[[StoreReader, Sequence[tuple[str, int, int]]], list[_Found]],
        is_gone: Callable[[_Found], bool],
    ) -> list[_Found]:
        """The answers about messages, of the reader that has each; the archive's where the live store's is gone."""
        positions = repeatable(positions)
        found = self.consistently(lambda: self._both.of([one[:2] for one in positions]), one_moment=False)
        archived = [
            sides.archived[0] <= at < sides.archived[1] or sides.live is None
            for (_, sides), (*_, at) in zip(found, positions, strict=True)
        ]
        live = iter(ask(self.live, [one for one, old in zip(positions, archived, strict=True) if not old]))
        past = iter(ask(self.past, [one for one, old in zip(positions, archived, strict=True) if old]))
        answers: list[_Found] = [next(past if old else live) for old in archived]
        for number, (answer, old) in enumerate(zip(answers, archived, strict=True)):
            topic, queue_id, at = positions[number]
            if not old and is_gone(answer) and self._both.archived_to((topic, queue_id), at) >= 0:
                answers[number] = ask(self.past, [positions[number]])[0]
        return answers

    # Times.

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        timestamp_ms: GivenTime,
        *,
        boundary: Boundary = "lower",
        bounds: QueueInfo | None = None,
        on_damage: OnDamage | None = None,
    ) -> int:
        wanted_ms = milliseconds_of(timestamp_ms, "timestamp_ms")

        def find() -> int:
            sides = self._both.of_one(topic, queue_id)
            if bounds is not None:
                sides = _within(sides, bounds)
            return self._by_time((topic, queue_id), sides, wanted_ms, boundary, on_damage)

        return self.consistently(find, one_moment=False)

    def _by_time(
        self, key: QueueKey, sides: Sides, wanted_ms: int, boundary: Boundary, on_damage: OnDamage | None
    ) -> int:
        start, stop = sides.archived
        live, live_is_empty = sides.live or (stop, stop), sides.live is None or sides.live[0] == sides.live[1]
        past_is_empty = start >= stop
        if past_is_empty or (not live_is_empty and self._begins_before(key, live[0], wanted_ms, boundary)):
            return self.live.offset_by_time(
                *key, wanted_ms, boundary=boundary, bounds=QueueInfo(*key, *live), on_damage=on_damage
            )
        found = self.past.offset_by_time(
            *key, wanted_ms, boundary=boundary, bounds=QueueInfo(*key, start, stop), on_damage=on_damage
        )
        if not sides.has_gap or (found < stop and (boundary == "lower" or found < stop - 1)):
            return found
        # Between the archive's last message and the live store's first one, the wanted one may have been.
        if (on_damage or self._on_damage) == "skip":
            return live[0] if boundary == "lower" else found
        part = next(one for one in self._both.parts(sides, stop, live[0]) if one.reader is None)
        raise self._both.gap(key, sides, part)

    def _begins_before(self, key: QueueKey, offset: int, wanted_ms: int, boundary: Boundary) -> bool:
        """Whether the live part begins so early that it has the message of a time: what is archived is older."""
        stored = self.live.store_timestamp(*key, offset)
        return stored < wanted_ms or (boundary == "upper" and stored == wanted_ms)

    # Single messages.

    def message_at(self, physical_offset: int, *, verify_crc: bool = True) -> MessageExt:
        return self._of_either(lambda reader: reader.message_at(physical_offset, verify_crc=verify_crc))

    def message_by_id(self, message_id_text: str, *, verify_crc: bool = True) -> MessageExt:
        return self._of_either(lambda reader: reader.message_by_id(message_id_text, verify_crc=verify_crc))

    def _of_either(self, ask: Callable[[StoreReader], _Found]) -> _Found:
        self._refuse_closed()
        try:
            return ask(self.live)
        except (MessageNotFound, FileMissing) as gone:
            for look in (self.past.settled_state, self.past.look_again):
                look()
                try:
                    return ask(self.past)
                except MessageNotFound:
                    continue
            raise gone

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin: GivenTime = 0,
        end: GivenTime = MAX_LONG,
        limit: int = 64,
        verify_crc: bool = True,
    ) -> list[MessageExt]:
        """Those of the live store, and where these are fewer than ``limit``, older ones of the archive."""
        self._refuse_closed()

        def ask(reader: StoreReader) -> list[MessageExt]:
            return reader.query(topic, key, begin=begin, end=end, limit=limit, verify_crc=verify_crc)

        found = ask(self.live)
        if len(found) >= limit:
            return found
        self.past.look_again()  # retention may have taken messages since, right after they were archived
        # What both have is in the archive's answer again: it has as many more as are left.
        older = ask(self.past)
        live_from = found[0].physical_offset if found else MAX_LONG
        return [*(one for one in older if one.physical_offset < live_from), *found][-limit:]

    def query_keys(
        self,
        topic: str,
        keys: Sequence[str | None] | pa.Array | pa.ChunkedArray,
        *,
        columns: Sequence[str] = DEFAULT_COLUMNS,
        max_batch_rows: int = DEFAULT_ROWS,
        max_batch_bytes: int = DEFAULT_SIZE,
        verify_crc: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """The archive is asked for keys that no message of the live store has."""
        self._refuse_closed()
        wanted = WantedKeys(keys).all
        names = [*columns, _PLACE]

        def ask(reader: StoreReader, some: pa.StringArray) -> Iterator[pa.RecordBatch]:
            return reader.query_keys(
                topic,
                some,
                columns=names,
                max_batch_rows=max_batch_rows,
                max_batch_bytes=max_batch_bytes,
                verify_crc=verify_crc,
            )

        def found() -> Iterator[pa.RecordBatch]:
            at = 0
            for batch in live:
                missing = np.flatnonzero(batch.column(len(columns)).is_null().to_numpy(zero_copy_only=False))
                parts = iter([batch])
                if len(missing):
                    self.past.look_again()
                    parts = _filled(batch, missing, ask(self.past, wanted.take(pa.array(at + missing))))
                at += batch.num_rows
                yield from (part.select(range(len(columns))) for part in parts)

        live = ask(self.live, wanted)
        return while_open(found(), self._refuse_closed)

    def _pull(
        self, topic: str, queue_id: int, position: int, limits: PullLimits, wanted: MessageFilter
    ) -> GetMessageResult:
        def pull_from(reader: StoreReader) -> GetMessageResult:
            return reader.get_message(topic, queue_id, position, limits.messages, max_bytes=limits.size, filter=wanted)

        try:
            sides = self._both.of_one(topic, queue_id)
        except GONE:
            return pull_from(self.live)  # its answer for a queue that does not exist
        is_past = sides.live is None or position < sides.archived[1]
        found = pull_from(self.past if is_past else self.live)
        if found.status in _REMOVED and self._both.archived_to((topic, queue_id), position) >= 0:
            found = pull_from(self.past)
        low, high = sides.bounds
        return replace(found, min_offset=min(low, found.min_offset), max_offset=max(high, found.max_offset))

    def wait_for_any(self, positions: Mapping[tuple[str, int], int], timeout_s: float | None = None) -> bool:
        self._refuse_closed()
        deadline = checked_deadline(positions, timeout_s)
        if is_any_filled(self, positions):
            return True
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        return self.live.wait_for_any(positions, left)

    # What both have, and what is the live store's.

    def index_files(self) -> list[IndexFileInfo]:
        """Those of the live store, and before them the index objects of what is before its index."""
        found = self.live.index_files()
        first = min((one.begin_physical_offset for one in found if one.index_count), default=MAX_LONG)
        return [*(one for one in self.past.index_files() if one.end_physical_offset <= first), *found]

    @property
    def aborted(self) -> bool:
        return self.live.aborted

    lost_ends = _of_live(StoreReader.lost_ends)
    facts = _of_live(StoreReader.facts)
    assess = _of_live(StoreReader.assess)
    checkpoint = _of_live(StoreReader.checkpoint)
    topic_settings = _of_live(StoreReader.topic_settings)
    groups = _of_live(StoreReader.groups)
    group_offsets = _of_live(StoreReader.group_offsets)
    dead_letters = _of_live(StoreReader.dead_letters)
    group_settings = _of_live(StoreReader.group_settings)
    group_filters = _of_live(StoreReader.group_filters)
    batches = _of_live(StoreReader.batches)
    delay_levels = _of_live(StoreReader.delay_levels)
    waiting_timers = _of_live(StoreReader.waiting_timers)
    pending_half_messages = _of_live(StoreReader.pending_half_messages)


def _filled(batch: pa.RecordBatch, rows: Int64Array, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batch with its rows at ``rows`` replaced by those that are given for them, in as many parts as are given.

    So a part is at most twice as large as a batch may be: rows that were null have bodies now.
    """
    start = taken = 0
    for found in given:
        places = rows[taken : taken + found.num_rows] - start
        taken += found.num_rows
        stop = batch.num_rows if taken == len(rows) else int(rows[taken])
        part = batch.slice(start, stop - start)
        order = np.arange(part.num_rows)
        order[places] = part.num_rows + np.arange(found.num_rows)
        both = pa.Table.from_batches([part, found], batch.schema).take(pa.array(order)).combine_chunks()
        yield from both.to_batches()
        start = stop


def _within(sides: Sides, bounds: QueueInfo) -> Sides:
    """The sides as far as they are within bounds that were asked for before."""

    def clipped(side: tuple[int, int] | None) -> tuple[int, int] | None:
        if side is None:
            return None
        low, high = (min(max(one, bounds.min_offset), bounds.max_offset) for one in side)
        return low, high

    return Sides(clipped(sides.past), clipped(sides.live))
