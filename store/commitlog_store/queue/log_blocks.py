"""Blocks of records: the bytes of the messages that units lead to, cut so that memory stays flat. Reading's one seam.

``LogBlocks`` answers with what lies in the local log's files. Another source (a server, object storage) has the same
three methods and answers with the same ``Block`` and ``Lost``: it finds the units and leaves out those whose tags are
not wanted. What follows is above the seam and knows no file: ``block_reader`` checks, filters and decodes.

A block lies in one CommitLog file and is bounded in rows, bytes and span. Messages that fill half of their span or more
are read with it; those of a queue that is interleaved with others are read in the mapping; messages that lie far apart
(thousands of queues in one log) are read one by one, since mapping would pull in the neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NoReturn, Protocol, TypeAlias

import numpy as np

from commitlog_store.columnar.byte_parts import new_bytes
from commitlog_store.errors import (
    CommitLogError,
    CorruptConsumeQueue,
    CorruptRecord,
    CorruptStoreError,
    FileMissing,
    OffsetOutOfRange,
    ReadFailed,
)
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.memory import zeroed_bytes
from commitlog_store.format.arrays import BoolArray, ByteArray, Int32Array, Int64Array
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, Units, decode_units
from commitlog_store.format.record import MIN_RECORD_SIZE, RECORD_MAGICS
from commitlog_store.log.commit_log import CommitLog, HasDamagedParts
from commitlog_store.paths import LIGHT_QUEUE_PREFIX
from commitlog_store.queue.unchanged_queue import UnchangedQueue
from commitlog_store.queue.views import QueueView, out_of_range

# Units in memory at a time, of all queues: 1.25 MiB; more where few of them may lead to messages that are read.
_UNITS = 65_536
_UNITS_BY_TAGS = 262_144
# A mapped span of this many bytes a message or more is not worth its page faults.
_SPARSE_GAP = 64 << 10
# A span of so many times the bytes that are wanted of it is read into memory; in a longer one, fewer pages are mapped.
_COPIED_GAP = 2
# More than any block of good units spans then, unless one record is larger. A damaged size is not read into memory.
_MOST_COPIED = 16 << 20
# Fewer bytes are copied in the time that it takes to map them.
_LEAST_MAPPED = 256 << 10
# Bytes of a record that show that its unit has a damaged size.
_HEAD = 4096
# Bytes of a record that are read before its size is known; most records fit.
_FIRST_READ = 1024

# Batches of this size passed through Spark fastest: larger ones leave the processor's caches, smaller ones are more.
DEFAULT_ROWS = 16_384
DEFAULT_SIZE = 4 << 20

QueueRange: TypeAlias = tuple[QueueView, int, int]
"""A queue, and the queue offsets ``[start, stop)`` of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockLimits:
    """Limits of one block, and so of one batch: rows, bytes of records, and bytes from first to last if mapped.

    ``for_sending``: the bytes are only given to the system, so that those next to each other stay mapped, uncopied. Two
    blocks in a row, most of whose bytes are wanted, are one then: see ``cut``.
    """

    rows: int = DEFAULT_ROWS
    size: int = DEFAULT_SIZE
    span: int = 64 << 20
    for_sending: bool = False

    @property
    def most_rows(self) -> int:
        """Of one block, or of two that are sent as one."""
        return 2 * self.rows if self.for_sending else self.rows


@dataclass(frozen=True, slots=True)
class Messages:
    """The units of messages, one value a message. ``ranges`` has the index of the range that each one is in."""

    physical_offsets: Int64Array
    sizes: Int64Array
    ranges: Int32Array
    queue_offsets: Int64Array

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, rows: slice | Int64Array) -> Messages:
        """Some of the messages, in the order given."""
        return Messages(self.physical_offsets[rows], self.sizes[rows], self.ranges[rows], self.queue_offsets[rows])

    def in_log_order(self) -> Messages:
        """The messages by their physical offsets."""
        return self.take(np.argsort(self.physical_offsets, kind="stable"))

    def log_bytes(self, log_end: int) -> tuple[int, int]:
        """Where in the log the first message begins and the last one ends; -1 both where that cannot be."""
        start, end = int(self.physical_offsets[0]), int(self.physical_offsets[-1] + self.sizes[-1])
        return (start, end) if start >= 0 and end <= log_end else (-1, -1)


@dataclass(frozen=True, slots=True)
class Block:
    """The bytes of messages' records, and where each starts in them; perhaps of no message.

    ``positions`` are by range: the queue offset up to which every message is in this block or an earlier one, was
    reported as lost, or is not wanted.
    """

    data: ByteArray
    starts: Int64Array
    messages: Messages
    positions: Int64Array

    def __len__(self) -> int:
        return len(self.messages)

    def take(self, rows: slice | Int64Array) -> Block:
        """Some of the messages, in the order given."""
        return Block(self.data, self.starts[rows], self.messages.take(rows), self.positions)

    def cut(self, limits: BlockLimits, positions: Int64Array) -> Iterator[Block]:
        """The block in parts that keep the limits: of one that was sent, the blocks that it was made of.

        ``positions`` are those of the block before it.
        """
        at = 0
        while (left := len(self) - at) > (count := _count_within(self.messages.sizes[at : at + limits.rows], limits)):
            part = self.take(slice(at, at + count))
            positions = positions.copy()
            positions[part.messages.ranges] = part.messages.queue_offsets + 1
            yield replace(part, positions=positions)
            at += count
        yield self.take(slice(at, None)) if left < len(self) else self


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages at the queue offsets ``[start, stop)`` that cannot be read, and why.

    ``physical`` bounds the bytes of the log in which they lie, or lay; -1 both where that is not known.
    """

    start: int
    stop: int
    error: CommitLogError | str
    physical: tuple[int, int] = (-1, -1)


_NO_MESSAGES = Messages(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64))

NO_BLOCK = Block(np.empty(0, np.uint8), np.empty(0, np.int64), _NO_MESSAGES, np.empty(0, np.int64))


class UnitFilter(Protocol):
    """A filter as far as it decides about units."""

    @property
    def looks_at_units(self) -> bool:
        """Whether it decides about any."""
        ...

    @property
    def tags_of_units(self) -> list[tuple[str, ...]]:
        """Lists of tags: a message that is wanted has one tag of each."""
        ...

    def may_match(self, tags_codes: Int64Array, /) -> BoolArray:
        """Which units may lead to a message that is wanted."""
        ...


class BlockSource(HasDamagedParts, Protocol):
    """Where blocks come from; ``LogBlocks`` has the meanings."""

    def of_queue(
        self, part: QueueRange, limits: BlockLimits, *, wanted: UnitFilter | None = None, tolerant: bool = False
    ) -> Iterator[Block | Lost]:
        """Blocks of one queue's range, and the parts of it that are lost."""
        ...

    def of_ranges(
        self, ranges: Sequence[QueueRange], limits: BlockLimits, *, wanted: UnitFilter | None = None
    ) -> Iterator[Block]:
        """Blocks of several ranges in the order of the log."""
        ...

    def place_of(self, physical_offset: int) -> tuple[str, int]:
        """The file of a byte of the log, and which of its bytes that is."""
        ...


class LogBlocks:
    """Blocks of the local log, mapped or read."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._commit_log = commit_log

    def of_queue(
        self, part: QueueRange, limits: BlockLimits, *, wanted: UnitFilter | None = None, tolerant: bool = False
    ) -> Iterator[Block | Lost]:
        """The messages of a range ``(queue, start, stop)``, and the lost ones among them, in this order.

        Messages whose tags are not ``wanted`` are left out, as far as the units say. What follows a ``Lost`` is read on
        without it. Unless ``tolerant``, impossible units, and units that are not in the log's order, raise
        ``CorruptConsumeQueue``. ``FileChanged``, ``ReadFailed``.
        """
        queue, start, stop = part
        position = start
        for piece in self._chunks(queue, start, stop, wanted, tolerant=tolerant):
            if isinstance(piece, Lost):
                if queue.fillers_are_lost and piece.start > position:
                    yield self._lost_between(queue, position, piece.start)
                yield piece
                position = piece.stop
                continue
            at, chunk = piece
            rows = np.flatnonzero(chunk["size"] != FILLER_SIZE)
            if tolerant:
                bad = (chunk["size"] <= 0) | (chunk["physical_offset"] < 0)
                for row in np.flatnonzero(bad).tolist():
                    yield Lost(at + row, at + row + 1, f"its unit is {chunk[row].tolist()[:2]}")
                rows = rows[~bad[rows]]
            for run in _runs(rows, cut=queue.fillers_are_lost):
                units = chunk if len(run) == len(chunk) else chunk[run]
                first, after = at + int(run[0]), at + int(run[-1]) + 1
                if queue.fillers_are_lost and first > position:
                    yield self._lost_between(queue, position, first)
                messages = _messages(units, at + run, 0, wanted)
                yield from self._of_messages(queue, messages, after, stop, limits, tolerant=tolerant)
                position = after
        if queue.fillers_are_lost and position < stop:
            yield self._lost_between(queue, position, stop)

    def of_ranges(
        self, ranges: Sequence[QueueRange], limits: BlockLimits, *, wanted: UnitFilter | None = None
    ) -> Iterator[Block]:
        """The messages of ranges ``(queue, start, stop)``, of any topics, in the order of the log.

        Messages whose tags are not ``wanted`` are left out. The blocks end early at a missing file, at damaged units,
        and at once for queues whose units share records with another queue, or were derived from the log: ``positions``
        of the last block says how far they are complete.
        """
        if not all(self._reads_together(queue) for queue, _, _ in ranges):
            return
        positions = np.array([start for _, start, _ in ranges], np.int64)
        rounds = -(-sum(stop - start for _, start, stop in ranges) // _units_at_a_time(wanted))
        for step in range(1, rounds + 1):
            ends = [start + (stop - start) * step // rounds for _, start, stop in ranges]
            parts = [(queue, at, end) for (queue, _, _), at, end in zip(ranges, positions.tolist(), ends, strict=True)]
            try:
                messages = messages_in_log_order(parts, wanted)
                if messages is None:
                    return
                at = 0
                while at < len(messages):
                    file = self._commit_log.find(int(messages.physical_offsets[at]))
                    if file is None:
                        return
                    window = messages.take(slice(at, at + limits.most_rows))
                    taken = window.take(slice(_count(window, file, limits)))
                    if 0 < at == len(messages) - len(taken) and step < rounds:
                        break  # a short block is left for the next round
                    # Of equal ranges the last one counts, and the offsets of a range ascend.
                    positions = positions.copy()
                    positions[taken.ranges] = taken.queue_offsets + 1
                    yield self._block(file, taken, positions, limits)
                    at += len(taken)
            except CommitLogError:
                return
            positions = np.array(ends, np.int64)
            # Of those left for the next round, the first one of each range.
            positions[messages.ranges[at:][::-1]] = messages.queue_offsets[at:][::-1]
            yield _without_messages(positions)

    def at_places(self, physical_offsets: Int64Array, sizes: Int64Array | None, limits: BlockLimits) -> Iterator[Block]:
        """The records at ascending physical offsets; what is not a whole record is left out.

        They lie far apart, so each is read by itself. ``sizes`` are those that are known already, None for none.
        ``ranges`` of the messages are the indices of their places.
        """
        parts: list[bytes] = []
        rows: list[int] = []
        taken = 0
        file: MappedFile | None = None
        file_end = -1
        for row, offset in enumerate(physical_offsets.tolist()):
            # In ascending order, so that each file is looked for once.
            if offset >= file_end:
                file = self._commit_log.find(offset) if offset >= 0 else None
                file_end = -1 if file is None else file.base + file.size
            guess = _FIRST_READ if sizes is None else int(sizes[row])
            part = None if file is None else _record_at(file, offset, guess)
            if part is None:
                continue
            if parts and (taken + len(part) > limits.size or len(parts) == limits.rows):
                yield _joined(parts, rows, physical_offsets)
                parts, rows, taken = [], [], 0
            parts.append(part)
            rows.append(row)
            taken += len(part)
        if parts:
            yield _joined(parts, rows, physical_offsets)

    def place_of(self, physical_offset: int) -> tuple[str, int]:
        """The file that holds a byte of the log, and which byte of the file that is; for errors."""
        file = self._commit_log.find(physical_offset)
        return (self._commit_log.path, physical_offset) if file is None else (file.path, physical_offset - file.base)

    def error_of_damaged_part(
        self, error: CorruptStoreError, queue: tuple[str, int] | None, offset: int
    ) -> CommitLogError:
        """See ``CommitLog.error_of_damaged_part``."""
        return self._commit_log.error_of_damaged_part(error, queue, offset)

    def _reads_together(self, queue: QueueView) -> bool:
        """Whether a queue's messages may be read in the order of the log, with those of other queues."""
        return not (queue.topic.startswith(LIGHT_QUEUE_PREFIX) or queue.fillers_are_lost)

    def _chunks(
        self, queue: QueueView, start: int, stop: int, wanted: UnitFilter | None, *, tolerant: bool
    ) -> Iterator[tuple[int, Units] | Lost]:
        """The queue's units, with the first offset of each chunk; the messages of a missing queue file are lost."""
        at = start
        while at < stop:
            try:
                for chunk in queue.units(at, stop, chunk=_units_at_a_time(wanted), check=not tolerant):
                    yield at, chunk
                    at += len(chunk)
            except FileMissing as missing:
                resume = min(max(missing.stop, at + 1), stop)
                yield Lost(at, resume, missing)
                at = resume

    def _of_messages(
        self, queue: QueueView, messages: Messages, after: int, stop: int, limits: BlockLimits, *, tolerant: bool
    ) -> Iterator[Block | Lost]:
        """Some messages of a queue, up to the queue offset ``after``, in blocks."""
        at = 0
        complete = False
        while at < len(messages):
            window = messages.take(slice(at, at + limits.most_rows))
            found: MappedFile | CommitLogError
            try:
                found = self._file_of(queue, window, stop)
                window = self._in_order(queue, window, tolerant=tolerant)
                count = _count(window, found, limits)
            except FileMissing as missing:
                found, count = missing, max(int(np.searchsorted(messages.queue_offsets, missing.stop)) - at, 1)
            except (CorruptConsumeQueue, OffsetOutOfRange) as damage:
                found, count = damage, 1
            taken = messages.take(slice(at, at + count))
            at += count
            complete = at == len(messages) and isinstance(found, MappedFile)
            last = int(taken.queue_offsets[-1])
            if isinstance(found, MappedFile):
                yield from self._readable_blocks(found, taken, after if complete else last + 1, limits)
            else:
                physical = taken.log_bytes(self._commit_log.bounds()[1])
                yield Lost(int(taken.queue_offsets[0]), last + 1, found, physical)
        if not complete:
            yield _without_messages(np.array([after]))

    def _in_order(self, queue: QueueView, messages: Messages, *, tolerant: bool) -> Messages:
        """Those of a queue's messages up to the first that is not after the one before it in the log."""
        starts = messages.physical_offsets
        if (starts[1:] > starts[:-1]).all():
            return messages
        if not tolerant:
            self._refuse_order(queue, starts, messages.queue_offsets)
        # One of the two units is wrong: its record will say which.
        return messages.take(slice(int(np.argmax(starts[1:] <= starts[:-1])) + 1))

    def _file_of(self, queue: QueueView, messages: Messages, stop: int) -> MappedFile:
        """The log file with the first message. ``FileMissing``, ``CorruptConsumeQueue``, ``OffsetOutOfRange``."""
        physical = int(messages.physical_offsets[0])
        file = self._commit_log.find(physical)
        if file is None and self._commit_log.refresh():
            file = self._commit_log.find(physical)
        if file is None:
            self._explain_absence(queue, physical, int(messages.queue_offsets[0]), stop)
        return file

    def _block(self, file: MappedFile, messages: Messages, positions: Int64Array, limits: BlockLimits) -> Block:
        """The bytes of messages of one file, in ascending order. ``FileChanged``, ``ReadFailed``."""
        physical, sizes = messages.physical_offsets, messages.sizes
        start = int(physical[0]) - file.base
        stop = file.reach(start, int(physical[-1] + sizes[-1]) - file.base)
        if stop - start <= min(int(sizes.sum()) * _COPIED_GAP, _MOST_COPIED):
            if limits.for_sending and stop - start >= _LEAST_MAPPED:
                data = self._commit_log.span(file, start, stop)
            else:
                data = new_bytes(stop - start)
                file.read_into(data, start)
            return Block(data, physical - file.base - start, messages, positions)
        if len(physical) > 1 and _is_sparse(stop - start, len(physical)):
            return Block(*self._commit_log.gather(file, physical, sizes), messages, positions)
        head = _head_alone(file, start, stop, int(sizes[0])) if len(physical) == 1 else None
        data = self._commit_log.span(file, start, stop) if head is None else head
        return Block(data, physical - file.base - start, messages, positions)

    def _readable_blocks(
        self, file: MappedFile, messages: Messages, after: int, limits: BlockLimits
    ) -> Iterator[Block | Lost]:
        """Messages of one file up to the queue offset ``after``; those that the disk fails to read are lost."""
        try:
            block = self._block(file, messages, np.array([after]), limits)
        except ReadFailed as failed:
            if len(messages) > 1:
                half = len(messages) // 2
                cut = int(messages.queue_offsets[half])
                yield from self._readable_blocks(file, messages.take(slice(half)), cut, limits)
                yield from self._readable_blocks(file, messages.take(slice(half, None)), after, limits)
                return
            offset = int(messages.queue_offsets[0])
            yield Lost(offset, offset + 1, failed, messages.log_bytes(self._commit_log.bounds()[1]))
            block = _without_messages(np.array([after]))
        yield block

    def _refuse_order(self, queue: QueueView, starts: Int64Array, offsets: Int64Array) -> NoReturn:
        index = int(np.argmax(starts[1:] <= starts[:-1])) + 1
        before = int(starts[index - 1])
        if self._commit_log.find(before) is None:  # the unit before it is wrong
            self._explain_absence(queue, before, int(offsets[index - 1]), int(offsets[index]))
        offset = int(offsets[index])
        unit_path, unit_position = queue.place_of(offset)
        error = CorruptConsumeQueue(
            f"Unit of queue offset {offset} of topic {queue.topic!r}, queue {queue.queue_id}",
            path=unit_path,
            offset=unit_position,
            expected=f"a physical offset after {int(starts[index - 1])}, that of the unit before it",
            found=int(starts[index]),
            advice="The queue can be rebuilt from the CommitLog.",
        )
        raise self.error_of_damaged_part(error, (queue.topic, queue.queue_id), offset)

    def _lost_between(self, queue: QueueView, start: int, stop: int) -> Lost:
        """A derived queue has no messages at ``[start, stop)``: the log holds none that is whole."""
        path, within, before = self._place_before(queue, start)
        following = queue.unit(stop)
        after = before if following is None else following[0]
        error = CorruptRecord(
            f"Messages of topic {queue.topic!r}, queue {queue.queue_id}, offsets [{start}, {stop})",
            path=path,
            offset=within,
            expected=f"whole records between the physical offsets {before} and {after}",
            found="none of that queue with these offsets",
            advice=f"Read from offset {stop} on, or with on_damage='skip'.",
        )
        return Lost(start, stop, error, (before, after))

    def _place_before(self, queue: QueueView, offset: int) -> tuple[str, int, int]:
        """The file of the last message before an offset of a derived queue, its byte in it, and that of the log."""
        path, before = queue.place_of(offset - 1)
        return path, before, before

    def _is_lost_end(self, queue: QueueView, physical: int, offset: int, queue_end: int) -> bool:
        """Whether a place is in the file after the log's last one, and the queue's next and last units lead there, too,
        or further on. A unit that leads further than its followers is damaged."""
        end = self._commit_log.bounds()[1]
        file_size = end - self._commit_log.bases[-1]
        followers = (queue.unit(min(offset + 1, queue_end - 1)), queue.unit(queue_end - 1))
        after_end = all(unit is not None and unit[0] >= end for unit in followers)
        return end <= physical < end + file_size and after_end

    def _explain_absence(self, queue: QueueView, physical: int, offset: int, stop: int) -> NoReturn:
        """No CommitLog file holds the message: retention, a gap, a file that was cut, or a damaged unit."""
        self._commit_log.refuse_cut(physical)
        low, high = queue.bounds()
        # The bounds of a queue that was derived from the log do not move; in another one, the unit is damaged.
        removed = physical < self._commit_log.min_offset and (offset < low or queue.fillers_are_lost)
        if removed or not self._commit_log.file_count:
            advice = "Retention removed the head of the log while it was being read."
            raise out_of_range(queue, offset, stop, (low, high), advice)
        missing = self._commit_log.missing_file_after(physical)
        if missing is not None:
            path, resumes = missing
            beyond = queue.first_offset_from(resumes, offset + 1, stop)
            raise FileMissing(
                path=path,
                topic=queue.topic,
                queue_id=queue.queue_id,
                start=offset,
                stop=beyond,
                is_cut=disk.exists(path),
            )
        if low <= offset < high and self._is_lost_end(queue, physical, offset, high):
            raise FileMissing(
                path=self._commit_log.path_of(self._commit_log.bounds()[1]),
                topic=queue.topic,
                queue_id=queue.queue_id,
                start=offset,
                stop=min(high, stop),
                why="the queue leads to messages there: the log ends before it",
            )
        unit_path, unit_position = queue.place_of(offset)
        error = CorruptConsumeQueue(
            f"Unit of queue offset {offset} of topic {queue.topic!r}, queue {queue.queue_id}",
            path=unit_path,
            offset=unit_position,
            expected=f"a physical offset {_within(*self._commit_log.bounds(), physical)}",
            found=physical,
            advice="The queue can be rebuilt from the CommitLog.",
        )
        raise self.error_of_damaged_part(error, (queue.topic, queue.queue_id), offset)


def _head_alone(file: MappedFile, start: int, stop: int, size: int) -> ByteArray | None:
    """For a unit whose size is not that of its record: the record's head and zeros, which say so. Else None."""
    head = np.frombuffer(file.read(start, min(_HEAD, stop - start)), np.uint8)
    if int.from_bytes(head[:4].tobytes(), "big", signed=True) == size:
        return None
    data = zeroed_bytes(stop - start)
    data[: len(head)] = head
    return data


def _units_at_a_time(wanted: UnitFilter | None) -> int:
    return _UNITS_BY_TAGS if wanted is not None and wanted.looks_at_units else _UNITS


def _runs(rows: Int64Array, *, cut: bool) -> Iterator[Int64Array]:
    """Rows of messages; ``cut`` where messages are lost between them, so that these are reported in their order."""
    cuts = (np.flatnonzero(np.diff(rows) != 1) + 1).tolist() if cut else []
    return (rows[start:stop] for start, stop in pairwise([0, *cuts, len(rows)]) if start < stop)


def _messages(units: Units, offsets: Int64Array, index: int, wanted: UnitFilter | None) -> Messages:
    """The messages of a range that may be wanted, as far as their units say."""
    sizes = units["size"].astype(np.int64)
    every = Messages(units["physical_offset"], sizes, np.full(len(units), index, np.int32), offsets)
    if wanted is None or not wanted.looks_at_units:
        return every
    chosen = wanted.may_match(units["tags_code"])
    return every if chosen.all() else every.take(np.flatnonzero(chosen))


def messages_in_log_order(ranges: Sequence[QueueRange], wanted: UnitFilter | None) -> Messages | None:
    """The messages of several ranges that may be wanted. None for damaged units, for fillers that stand for lost
    messages, and where those of one queue are not in the log's order: messages of the queue would pass each other.
    Raises the errors of ``QueueView.units``."""
    units, counts = _units_of(ranges)
    if not counts.any():
        return _NO_MESSAGES
    # By columns: numpy joins and picks records of several fields one by one.
    physical = np.concatenate([one["physical_offset"] for one in units])
    sizes = np.concatenate([one["size"] for one in units])
    if int(sizes.min()) <= 0 or int(physical.min()) < 0:
        return None
    ends = np.cumsum(counts)
    chosen = sizes != FILLER_SIZE
    if not chosen.all():
        of_fillers = np.searchsorted(ends, np.flatnonzero(~chosen), side="right")
        if np.array([queue.fillers_are_lost for queue, _, _ in ranges])[of_fillers].any():
            return None
    if wanted is not None and wanted.looks_at_units:
        chosen &= wanted.may_match(np.concatenate([one["tags_code"] for one in units]))
    before = np.array([start for _, start, _ in ranges], np.int64) - (ends - counts)
    if chosen.all():
        of_range = np.repeat(np.arange(len(ranges), dtype=np.int32), counts)
        offsets = np.repeat(before, counts) + np.arange(len(sizes))
    else:
        rows = np.flatnonzero(chosen)
        physical, sizes = physical[rows], sizes[rows]
        of_range = np.searchsorted(ends, rows, side="right").astype(np.int32)
        offsets = before[of_range] + rows
    messages = Messages(physical, sizes.astype(np.int64), of_range, offsets)
    steps_back = np.flatnonzero(np.diff(messages.physical_offsets) <= 0)
    if (messages.ranges[steps_back + 1] == messages.ranges[steps_back]).any():
        return None
    return messages.in_log_order()


def _units_of(ranges: Sequence[QueueRange]) -> tuple[list[Units], Int64Array]:
    """The units of all ranges in their order, in pieces of any length, and the number of those of each range."""
    pieces: list[Units] = []
    counts: list[int] = []
    packed: list[bytes] = []  # of neighbours: those of thousands are decoded in one step
    for queue, start, stop in ranges:
        data = queue.packed(start, stop) if isinstance(queue, UnchangedQueue) else None
        if data is not None:
            packed.append(data)
            counts.append(stop - start)
            continue
        if packed:
            pieces.append(decode_units(b"".join(packed)))
            packed.clear()
        some = list(queue.units(start, stop, check=False))
        pieces += some
        counts.append(sum(map(len, some)))
    if packed:
        pieces.append(decode_units(b"".join(packed)))
    return pieces, np.array(counts, np.int64)


def places_of(ranges: Sequence[QueueRange], wanted: UnitFilter | None) -> tuple[Int64Array, Int64Array]:
    """The physical offsets and sizes of the messages of ranges that may be wanted, in no order: where one looks ahead.

    Without those of damaged units. Raises the errors of ``QueueView.units``.
    """
    starts, sizes = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for queue, start, stop in ranges:
        for units in queue.units(start, stop, check=False):
            size, physical = units["size"], units["physical_offset"]
            chosen = (size > 0) & (size != FILLER_SIZE) & (physical >= 0)
            if wanted is not None and wanted.looks_at_units:
                chosen &= wanted.may_match(units["tags_code"])
            starts.append(physical[chosen].astype(np.int64))
            sizes.append(size[chosen].astype(np.int64))
    return np.concatenate(starts), np.concatenate(sizes)


def _count(messages: Messages, file: MappedFile, limits: BlockLimits) -> int:
    """The number of messages, of those that the limits allow, that make a block: in one file; at least one."""
    count = _count_of_one(messages.take(slice(limits.rows)), file, limits)
    if not limits.for_sending or count == len(messages):
        return count
    starts, sizes = messages.physical_offsets, messages.sizes
    if int(starts[count]) >= file.base + file.size:
        return count
    both = count + _count_of_one(messages.take(slice(count, count + limits.rows)), file, limits)
    reach = int(starts[both - 1] + sizes[both - 1] - starts[0])
    return both if reach <= min(int(sizes[:both].sum()) * _COPIED_GAP, _MOST_COPIED) else count


def _count_of_one(messages: Messages, file: MappedFile, limits: BlockLimits) -> int:
    starts = messages.physical_offsets
    within_file = int(np.searchsorted(starts, file.base + file.size))
    count = max(min(within_file, _count_within(messages.sizes, limits)), 1)
    span = int(starts[count - 1] - starts[0])
    if span >= limits.span and not _is_sparse(span, count):
        count = max(int(np.searchsorted(starts, starts[0] + limits.span)), 1)
    return count


def _count_within(sizes: Int64Array, limits: BlockLimits) -> int:
    """How many records of these sizes the limit of bytes allows; at least one."""
    return max(int(np.searchsorted(np.cumsum(sizes), limits.size, side="right")), 1)


def _is_sparse(span: int, count: int) -> bool:
    """Whether messages lie so far apart that each is read by itself, and neither the span nor its pages matter."""
    return span > count * _SPARSE_GAP


def _record_at(file: MappedFile, offset: int, guess: int) -> bytes | None:
    """The bytes that begin at an offset of the log and are as many as they say; None where no record can be."""
    at = offset - file.base
    data = file.read(at, guess)
    size = int.from_bytes(data[:4], "big", signed=True)
    if data[4:8] not in RECORD_MAGICS or size < MIN_RECORD_SIZE:
        return None
    if size > len(data):
        if size > file.size - at:
            return None
        data = file.read(at, size)
    return data[:size] if len(data) >= size else None


def _joined(parts: list[bytes], rows: list[int], physical_offsets: Int64Array) -> Block:
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    places = np.array(rows, np.int64)
    messages = Messages(physical_offsets[places], sizes, places.astype(np.int32), np.full(len(parts), -1, np.int64))
    return Block(np.frombuffer(b"".join(parts), np.uint8), np.cumsum(sizes) - sizes, messages, np.empty(0, np.int64))


def _without_messages(positions: Int64Array) -> Block:
    return replace(NO_BLOCK, positions=positions)


def _within(start: int, end: int, physical: int) -> str:
    """The bound of the log that a place is beyond."""
    return f"from the log's first byte {start} on" if physical < start else f"below the log's end {end}"
