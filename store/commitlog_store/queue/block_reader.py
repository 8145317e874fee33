"""Reads ranges of a queue as record batches: cuts units into blocks, and maps, checks and decodes each block.

A block lies in one CommitLog file and is bounded in rows, bytes and span, so memory stays flat for ranges of any
length. Messages that fill half of their span or more are read with it; those of a queue that is interleaved with others
are read in the mapping; messages that lie far apart (thousands of queues in one log) are read one by one, since mapping
would pull in the neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NoReturn

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.bodies import BODY_ADVICE, BODY_FIELDS, BodiesTooLarge, verify_crc
from commitlog_store.columnar.byte_parts import new_bytes
from commitlog_store.columnar.decode import record_batch
from commitlog_store.columnar.locate import QueuePlace, RecordBlock, RecordProblem, locate
from commitlog_store.errors import CorruptConsumeQueue, CorruptRecord, FileMissing, OffsetOutOfRange
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.arrays import ByteArray, Int64Array
from commitlog_store.format.consume_queue_unit import FILLER_SIZE
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.paths import LIGHT_QUEUE_PREFIX
from commitlog_store.queue.consume_queue import Units
from commitlog_store.queue.skipped import SkippedRange, Skips
from commitlog_store.queue.views import QueueView

__all__ = ["DEFAULT_ROWS", "DEFAULT_SIZE", "BlockLimits", "BlockReader", "block_bytes"]

# Units read at a time: 1.25 MiB; more where few of them may lead to messages that are read.
_UNITS_CHUNK = 65_536
_UNITS_CHUNK_BY_TAGS = 262_144
# A mapped span of this many bytes a message or more is not worth its page faults.
_SPARSE_GAP = 64 << 10
# Below this many, nearly every page will be touched: faulting them in one by one costs more than all at once.
_DENSE_GAP = 16 << 10
# A span of so many times the bytes that are wanted of it is read into memory; in a longer one, fewer pages are mapped.
_COPIED_GAP = 2
# More than any block of good units spans then, unless one record is larger. A damaged size is not read into memory.
_MOST_COPIED = 16 << 20

# Batches of this size passed through Spark fastest: larger ones leave the processor's caches, smaller ones are more.
DEFAULT_ROWS = 16_384
DEFAULT_SIZE = 4 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockLimits:
    """Limits of one block, and so of one batch: rows, bytes of records, and bytes from first to last if mapped."""

    rows: int = DEFAULT_ROWS
    size: int = DEFAULT_SIZE
    span: int = 64 << 20


def block_bytes(
    commit_log: CommitLog, file: MappedFile, physical: Int64Array, sizes: Int64Array
) -> tuple[ByteArray, Int64Array]:
    """Bytes that hold records of one file, in ascending order, and the position of each in them. ``FileChanged``."""
    start = int(physical[0]) - file.base
    stop = file.reach(start, int(physical[-1] + sizes[-1]) - file.base)
    if stop - start <= min(int(sizes.sum()) * _COPIED_GAP, _MOST_COPIED):
        data = new_bytes(stop - start)
        file.read_into(data, start)
        return data, physical - file.base - start
    dense = stop - start < len(physical) * _DENSE_GAP
    if len(physical) > 1 and _is_sparse(stop - start, len(physical)):
        return commit_log.gather(file, physical, sizes)
    return commit_log.span(file, start, stop, populate=dense), physical - file.base - start


class BlockReader:
    """Decodes ranges of one queue.

    With ``skips``, damage does not end the reading: a message that cannot be read is skipped and reported there. With
    ``wanted``, only messages that match are given: units decide first, then properties, and bodies of other messages
    are not touched. ``verify_crc`` compares the bodies of the messages that are given with their CRC, whatever columns
    are asked for.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queue: QueueView,
        limits: BlockLimits,
        *,
        verify_crc: bool,
        skips: Skips | None = None,
        wanted: MessageFilter | None = None,
    ) -> None:
        # The queue offset after the last message that was given or left out.
        self.position = -1
        self._wanted = wanted
        self._commit_log = commit_log
        self._queue = queue
        self._limits = limits
        self._verify_crc = verify_crc
        self._skips = skips
        self._shared = queue.topic.startswith(LIGHT_QUEUE_PREFIX)
        # Bytes of records a block: fewer than the limit where bodies unpack to more than they take in the log.
        self._size = limits.size
        # Messages a block: fewer than the limit after a damaged one, so that much damage costs no decoding in vain.
        self._rows = limits.rows

    def batches(self, start: int, stop: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The messages at queue offsets ``[start, stop)`` as batches of the named columns."""
        self.position = start
        for at, chunk in self._chunks(start, stop):
            for units, offsets in self._runs(at, chunk):
                if self._queue.fillers_are_lost and offsets[0] > self.position:
                    self._report_lost(self.position, int(offsets[0]))
                yield from self._run(*self._candidates(units, offsets), stop, columns)
                self.position = int(offsets[-1]) + 1
        if self._queue.fillers_are_lost and self.position < stop:
            self._report_lost(self.position, stop)
        self.position = stop
        if self._skips is not None:
            self._skips.flush()

    def _run(self, units: Units, offsets: Int64Array, stop: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The batches of some messages."""
        place = 0
        while place < len(units):
            batch, count = self._next_batch(units, offsets, place, stop, columns)
            place += count
            self.position = int(offsets[place - 1]) + 1
            if batch is not None:
                if self._skips is not None:
                    self._skips.flush()
                yield batch

    def _chunks(self, start: int, stop: int) -> Iterator[tuple[int, Units]]:
        """The queue's units and the first offset of each chunk; a missing queue file is skipped, if damage is."""
        at = start
        size = _UNITS_CHUNK_BY_TAGS if self._wanted is not None and self._wanted.looks_at_units else _UNITS_CHUNK
        while at < stop:
            try:
                for chunk in self._queue.units(at, stop, chunk=size, check=self._skips is None):
                    yield at, chunk
                    at += len(chunk)
            except FileMissing as missing:
                if self._skips is None or not self._skips.missing_files:
                    raise
                resume = min(max(missing.stop, at + 1), stop)
                self._skip(at, resume, None, missing)
                at = resume

    def _messages(self, at: int, chunk: Units) -> Int64Array:
        """The rows that are messages. Impossible units are skipped here, if damage is."""
        is_message = chunk["size"] != FILLER_SIZE
        if self._skips is not None:
            bad = (chunk["size"] <= 0) | (chunk["physical_offset"] < 0)
            for row in np.flatnonzero(bad).tolist():
                self._skip(at + row, at + row + 1, None, f"its unit is {chunk[row].tolist()[:2]}")
            is_message &= ~bad
        return np.flatnonzero(is_message)

    def _runs(self, at: int, chunk: Units) -> Iterator[tuple[Units, Int64Array]]:
        """Units and offsets of the messages in a chunk of units that begins at the queue offset ``at``.

        They are cut where messages are lost, so that these are reported between those before and after them.
        """
        messages = self._messages(at, chunk)
        if not len(messages):
            return
        units = chunk if len(messages) == len(chunk) else chunk[messages]
        cuts = (np.flatnonzero(np.diff(messages) != 1) + 1).tolist() if self._queue.fillers_are_lost else []
        for start, stop in pairwise([0, *cuts, len(units)]):
            yield units[start:stop], at + messages[start:stop]

    def _candidates(self, units: Units, offsets: Int64Array) -> tuple[Units, Int64Array]:
        """Those of some messages that may match, as far as their units say."""
        if self._wanted is None or not self._wanted.looks_at_units:
            return units, offsets
        chosen = self._wanted.may_match(units["tags_code"])
        return units[chosen], offsets[chosen]

    def _next_batch(
        self, units: Units, offsets: Int64Array, place: int, stop: int, columns: Sequence[str]
    ) -> tuple[pa.RecordBatch | None, int]:
        """The next batch, from ``place`` on, and the number of its messages; None for messages that were skipped."""
        try:
            file, count = self._next_block(units, offsets, place, stop)
            block = slice(place, place + count)
            batch, count = self._decode(file, units[block], offsets[block], columns)
            self._rows = min(2 * self._rows, self._limits.rows)
            return batch, count
        except FileMissing as missing:
            error: Exception = missing
            count = max(int(np.searchsorted(offsets, missing.stop)) - place, 1)
            if self._skips is None or not self._skips.missing_files:
                raise
        except (CorruptRecord, CorruptConsumeQueue, OffsetOutOfRange) as damage:
            count, error = 1, damage
            expired = isinstance(damage, OffsetOutOfRange) and damage.start < damage.min_offset
            if self._skips is None or expired:
                raise
        self._skip(int(offsets[place]), int(offsets[place + count - 1]) + 1, units[place : place + count], error)
        return None, count

    def _next_block(self, units: Units, offsets: Int64Array, place: int, stop: int) -> tuple[MappedFile, int]:
        """The file of the message at ``place``, and the number of messages from there on in one block."""
        first = int(units["physical_offset"][place])
        file = self._commit_log.find(first)
        if file is None and self._commit_log.refresh():
            file = self._commit_log.find(first)
        if file is None:
            self._explain_absence(first, int(offsets[place]), stop)
        window = units[place : place + self._rows]
        starts = window["physical_offset"]
        if len(window) > 1 and not (starts[1:] > starts[:-1]).all():
            if self._skips is None:
                self._refuse_order(starts, offsets[place:])
            # One of the two units is wrong: its record will say which.
            window = window[: int(np.argmax(starts[1:] <= starts[:-1])) + 1]
            starts = window["physical_offset"]
        within_file = np.searchsorted(starts, file.base + file.size)
        within_size = np.searchsorted(np.cumsum(window["size"], dtype=np.int64), self._size, side="right")
        count = max(int(min(within_file, within_size)), 1)
        if starts[count - 1] - first >= self._limits.span and not _is_sparse(int(starts[count - 1]) - first, count):
            count = max(int(np.searchsorted(starts, first + self._limits.span)), 1)
        return file, count

    def _decode(
        self,
        file: MappedFile,
        units: Units,
        offsets: Int64Array,
        columns: Sequence[str],
    ) -> tuple[pa.RecordBatch | None, int]:
        """A batch (None without a row that matches), and the number of its units.

        They are fewer than all where bodies unpack to more than a batch holds.
        """
        physical = units["physical_offset"]
        sizes = units["size"].astype(np.int64)
        data, positions = block_bytes(self._commit_log, file, physical, sizes)
        place = QueuePlace(
            topic=self._queue.topic, queue_id=self._queue.queue_id, queue_offsets=offsets, shared=self._shared
        )
        try:
            block = locate(data, positions, sizes, physical, place, body_limit=self._limits.size)
            batch = self._columns(block, columns)
        except BodiesTooLarge as full:
            self._size = max(int(sizes[: full.rows].sum()) * 3 // 4, 1)
            return self._decode(file, units[: full.rows], offsets[: full.rows], columns)
        except RecordProblem as problem:
            if self._skips is not None and problem.index:
                self._rows = problem.index
                return self._decode(file, units[: problem.index], offsets[: problem.index], columns)
            self._rows = 1
            self._report(problem, file, units, offsets)
        self._size = min(self._size + self._size // 32 + 1, self._limits.size)
        return batch, len(units)

    def _report_lost(self, start: int, stop: int) -> None:
        """A derived queue has no messages at ``[start, stop)``: the log holds none that is whole."""
        path, before = self._queue.place_of(start - 1)
        following = self._queue.unit(stop)
        after = before if following is None else following[0]
        error = CorruptRecord(
            f"Messages of topic {self._queue.topic!r}, queue {self._queue.queue_id}, offsets [{start}, {stop})",
            path=path,
            offset=before,
            expected=f"whole records between the physical offsets {before} and {after}",
            found="none of that queue with these offsets",
            advice=f"Read from offset {stop} on, or with on_damage='skip'.",
        )
        if self._skips is None:
            raise error
        self._skips.add(self._skipped(start, stop, (before, after), error))

    def _skip(self, start: int, stop: int, units: Units | None, reason: object) -> None:
        """Report the messages at ``[start, stop)`` as skipped; ``units`` are theirs, where these are known."""
        assert self._skips is not None
        physical = (-1, -1)
        if (
            units is not None
            and units["physical_offset"][0] >= 0
            and self._commit_log.bounds()[1] >= units["physical_offset"][-1] + np.int64(units["size"][-1])
        ):
            physical = int(units["physical_offset"][0]), int(units["physical_offset"][-1]) + int(units["size"][-1])
        self._skips.add(self._skipped(start, stop, physical, reason))

    def _skipped(self, start: int, stop: int, physical: tuple[int, int], reason: object) -> SkippedRange:
        return SkippedRange(
            topic=self._queue.topic,
            queue_id=self._queue.queue_id,
            start=start,
            stop=stop,
            physical_start=physical[0],
            physical_stop=physical[1],
            reason=str(reason),
        )

    def _columns(self, block: RecordBlock, columns: Sequence[str]) -> pa.RecordBatch | None:
        """The columns of the records that match; None without any."""
        if self._wanted is None:
            return self._all_columns(block, columns)
        kept = np.flatnonzero(self._wanted.matches(block.properties))
        if not len(kept):
            return None
        try:
            return self._all_columns(block if len(kept) == len(block.sizes) else block.take(kept), columns)
        except BodiesTooLarge as full:
            raise BodiesTooLarge(int(kept[full.rows])) from None
        except RecordProblem as problem:
            problem.index = int(kept[problem.index])
            raise

    def _all_columns(self, block: RecordBlock, columns: Sequence[str]) -> pa.RecordBatch:
        if self._verify_crc:
            verify_crc(block)
        return record_batch(block, columns)

    def _report(
        self,
        problem: RecordProblem,
        file: MappedFile,
        units: Units,
        offsets: Int64Array,
    ) -> NoReturn:
        physical = int(units["physical_offset"][problem.index])
        raise CorruptRecord(
            f"{problem.field} of the record of topic {self._queue.topic!r}, queue {self._queue.queue_id}, "
            f"offset {int(offsets[problem.index])}",
            path=file.path,
            offset=physical - file.base + problem.within,
            expected=problem.expected,
            found=problem.found,
            advice=BODY_ADVICE if problem.field in BODY_FIELDS else "",
        ) from problem

    def _refuse_order(self, starts: Int64Array, offsets: Int64Array) -> NoReturn:
        index = int(np.argmax(starts[1:] <= starts[:-1])) + 1
        before = int(starts[index - 1])
        if self._commit_log.find(before) is None:  # the unit before it is wrong
            self._explain_absence(before, int(offsets[index - 1]), int(offsets[index]))
        offset = int(offsets[index])
        unit_path, unit_position = self._queue.place_of(offset)
        raise CorruptConsumeQueue(
            f"Unit of queue offset {offset} of topic {self._queue.topic!r}, queue {self._queue.queue_id}",
            path=unit_path,
            offset=unit_position,
            expected=f"a physical offset after {int(starts[index - 1])}, that of the unit before it",
            found=int(starts[index]),
            advice="The queue can be rebuilt from the CommitLog.",
        )

    def _is_lost_end(self, physical: int, offset: int, queue_end: int) -> bool:
        """Whether a place is in the file after the log's last one, and the queue's next and last units lead there, too,
        or further on. A unit that leads further than its followers is damaged."""
        end = self._commit_log.bounds()[1]
        file_size = end - self._commit_log.bases[-1]
        followers = (self._queue.unit(min(offset + 1, queue_end - 1)), self._queue.unit(queue_end - 1))
        after_end = all(unit is not None and unit[0] >= end for unit in followers)
        return end <= physical < end + file_size and after_end

    def _explain_absence(self, physical: int, offset: int, stop: int) -> NoReturn:
        """No CommitLog file holds the message: retention, a gap, a file that was cut, or a damaged unit."""
        self._commit_log.refuse_cut(physical)
        low, high = self._queue.bounds()
        queue = self._queue
        # The bounds of a queue that was derived from the log do not move; in another one, the unit is damaged.
        removed = physical < self._commit_log.min_offset and (offset < low or queue.fillers_are_lost)
        if removed or not self._commit_log.file_count:
            raise OffsetOutOfRange(
                topic=queue.topic,
                queue_id=queue.queue_id,
                start=offset,
                stop=stop,
                min_offset=low,
                max_offset=high,
                advice="Retention removed the head of the log while it was being read.",
            )
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
        if low <= offset < high and self._is_lost_end(physical, offset, high):
            raise FileMissing(
                path=self._commit_log.path_of(self._commit_log.bounds()[1]),
                topic=queue.topic,
                queue_id=queue.queue_id,
                start=offset,
                stop=min(high, stop),
                why="the log ends before it although the queue leads to messages there",
            )
        unit_path, unit_position = queue.place_of(offset)
        raise CorruptConsumeQueue(
            f"Unit of queue offset {offset} of topic {queue.topic!r}, queue {queue.queue_id}",
            path=unit_path,
            offset=unit_position,
            expected=f"a physical offset {_within(*self._commit_log.bounds(), physical)}",
            found=physical,
            advice="The queue can be rebuilt from the CommitLog.",
        )


def _within(start: int, end: int, physical: int) -> str:
    """The bound of the log that a place is beyond."""
    return f"from the log's first byte {start} on" if physical < start else f"below the log's end {end}"


def _is_sparse(span: int, count: int) -> bool:
    """Whether messages lie so far apart that each is read by itself, and neither the span nor its pages matter."""
    return span > count * _SPARSE_GAP
