"""Writer of the CommitLog: appends records at its end, one put at a time.

The put lock orders everything: a record's queue offset, its place, its store time, and the bytes themselves. It is a
plain ``threading.Lock``; see docs/decisions/0006-append-and-group-commit.md.

Source: RocketMQ ``store/CommitLog.java`` (``asyncPutMessage``, ``DefaultAppendMessageCallback.doAppend``).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from commitlog_store.columnar.batch_frame import FrameRecord
from commitlog_store.columnar.records import EncodedRecords, QueuedRecords, patch_late_fields
from commitlog_store.columnar.staged_block import StagedBlock
from commitlog_store.errors import CommitLogError, PutRefused, StoreIOError
from commitlog_store.files.frame_space import FrameSpace
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.files.mapped_file_writer import HALTED, MappedFileWriter
from commitlog_store.format.arrays import ByteArray, Int64Array
from commitlog_store.format.checksum import crc32_combine
from commitlog_store.format.record import FILLER_SIZE, encode_filler
from commitlog_store.format.single_record import patch_late
from commitlog_store.log.recent_appends import LEAST_ROWS, AppendedRecords, RecentAppends
from commitlog_store.put_status import PutMessageStatus
from commitlog_store.slow_steps import SLOW_S

_LOG = logging.getLogger(__name__)
# A topic and a queue id.
_Queue: TypeAlias = tuple[str, int]
_Result = TypeVar("_Result", bound="Appended | AppendedFrame | AppendedRows | None")
_Given = TypeVar("_Given")


class RecordsOfQueue(NamedTuple):
    """Consecutive records of one queue in one file, without their late fields."""

    records: bytearray
    sizes: Sequence[int]
    sys_flags: int
    queue: _Queue
    has_unit: bool


class Appended(NamedTuple):
    """The place of an appended message, or of the first of several. Times are milliseconds."""

    physical_offset: int
    queue_offset: int
    store_timestamp: int
    end: int
    rows: int


class AppendedFrame(NamedTuple):
    """The place of a frame: its first record, the log's end after it, the number of further records, and the time."""

    physical_offset: int
    end: int
    rows: int
    store_timestamp: int


class AppendedRows(NamedTuple):
    """The places of many messages, one value a row; ``end`` is the log's end after the last.

    Rows from ``written`` on are not in the log, because of ``error``: no room for a new file, a failure of the disk,
    or an unexpected exception.
    """

    physical_offsets: Int64Array
    queue_offsets: Int64Array
    store_timestamp: int
    end: int
    written: int
    error: Exception | None


class CommitLogWriter:
    """Appends to the CommitLog. ``next_queue_offsets`` gives the next offsets of queues that no put has touched.

    Any exception, an interrupt included, may be raised between the first byte of an append and the last update of the
    positions. The written records then have no queue offsets of their own: a later put would get the same ones, and
    would never be read. So from there on every put is refused (``PutRefused``), decided before the put lock is
    released.
    """

    def __init__(
        self,
        files: MappedFileQueueWriter,
        next_queue_offsets: Callable[[Sequence[_Queue]], list[int]],
        list_queues: Callable[[Iterable[_Queue]], None],
        on_failure: Callable[[BaseException], None],
        *,
        last_record: int = -1,
        last_store_timestamp: int = 0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``list_queues`` lists queues for consumers, before the first message of each; ``PutRefused``.

        ``last_record`` (-1: none) and ``last_store_timestamp`` are those of the log on disk.
        """
        self.files = files
        # A record never spans two files, and each file keeps room for a blank filler.
        self.largest_record = files.file_size - FILLER_SIZE
        self.lock = threading.Lock()
        # When the put that holds the lock took it; 0 while the lock is free.
        self.locked_at = 0.0
        self.last_store_timestamp = last_store_timestamp
        self.last_record = last_record
        # The error that halted the log until it is opened again, and the callback that reports it, under the put lock.
        self.failure: BaseException | None = None
        self._on_failure = on_failure
        # Whether bytes may have been written whose positions are not updated yet.
        self._unsettled = False
        # Set under the put lock: every later append is refused, on whatever way it got here.
        self._closed = False
        # Dispatch takes bulk appends from here.
        self.recent_appends = RecentAppends()
        self._clock = clock
        self._next_queue_offsets = next_queue_offsets
        self._list_queues = list_queues
        self._queue_offsets: dict[_Queue, int] = {}
        # How often queues were forgotten, whose offsets may then be others than just found.
        self._forgotten = 0

    def append(
        self, records: bytearray, sizes: Sequence[int], sys_flags: int, topic: str, queue_id: int, *, has_unit: bool
    ) -> Appended:
        """Append consecutive records of one queue in one file; returns the place of the first one.

        ``StoreIOError``, ``DiskFull``, ``TimeoutError``: no queue offset was taken. ``PutRefused``: nothing was
        written.
        """
        queue = topic, queue_id
        if has_unit and queue not in self._queue_offsets:
            self._find_ahead((queue,))
        return self._locked(self._append, RecordsOfQueue(records, sizes, sys_flags, queue, has_unit))

    def append_at_once(self, given: Sequence[RecordsOfQueue]) -> list[Appended | Exception]:
        """``append`` each, under one hold of the lock, up to the first that would wait: for another append, for space,
        or for the next offset of its queue. In place of a result stands the error that ``append`` would raise.

        It waits for an append that takes the lock right before it: an ``acquire`` that does not wait would leave the
        lock taken when a signal handler raises between it and what follows.
        """
        found: list[Appended | Exception] = []
        if self.lock.locked():
            return found
        with self.lock:
            files = self.files.files
            for one in given:
                records, _, _, queue, has_unit = one
                if has_unit and queue not in self._queue_offsets:
                    break
                if not files or not files[-1].takes_at_once(len(records), FILLER_SIZE):
                    break
                try:
                    found.append(self._under_lock(self._append, one))
                except (CommitLogError, OSError) as error:
                    found.append(error)
        return found

    def _locked(self, append: Callable[[_Given], _Result], given: _Given) -> _Result:
        """Append under the put lock, and report when it held the lock for long.

        When it fails and leaves bytes whose positions are not updated, or a write failed, every later append is
        refused. ``PutRefused`` if an earlier one has done so.
        """
        with self.lock:
            return self._under_lock(append, given)

    def _under_lock(self, append: Callable[[_Given], _Result], given: _Given) -> _Result:
        if self._closed or self._unsettled or self.failure is not None:
            self._refuse_halted()
        began = self.locked_at = time.monotonic()
        try:
            result = append(given)
        except BaseException as error:
            self._halt_after(error)
            raise
        finally:
            self.locked_at = 0.0
        held = time.monotonic() - began
        if held > SLOW_S and result is not None:
            _report_slow(held, result)
        return result

    def _refuse_halted(self) -> None:
        if self._closed:
            raise PutRefused(PutMessageStatus.SERVICE_NOT_AVAILABLE, "The store is closed.")
        self._halt_if_unsettled()
        if self.failure is not None:
            raise PutRefused(
                PutMessageStatus.SERVICE_NOT_AVAILABLE,
                f"The store rejects messages until it is opened again: {self.failure!r}",
            )

    def halt_if_unsettled(self) -> None:
        """Before the store is closed: halt it if the outcome of an append is unknown, so that recovery decides."""
        with self.lock:
            self._halt_if_unsettled()

    def close(self) -> None:
        """Refuse all later appends."""
        with self.lock:
            self._closed = True

    def _halt_if_unsettled(self) -> None:
        """Halt the log if a second interrupt prevented that while the first one was handled."""
        if self._unsettled and self.failure is None:
            self._halt(RuntimeError("An append was interrupted, and its handling too."))

    def _halt_after(self, error: BaseException) -> None:
        """Refuse every later append, unless the positions of all written bytes are known and no write failed."""
        if self._unsettled or _is_failed_write(error):
            self._halt(error)

    def _halt(self, error: BaseException) -> None:
        self.failure = error
        self._on_failure(error)

    def _append(self, given: RecordsOfQueue) -> Appended:
        records, sizes, sys_flags, queue, has_unit = given
        first = queue_offset = 0
        if has_unit:
            known = self._queue_offsets.get(queue)
            first = queue_offset = self._queue_offset(queue) if known is None else known
        size = len(records)
        files = self.files.files
        file = files[-1] if files else None
        # Nearly every record finds its space in the last file.
        if file is None or not file.allocated_position >= file.wrote_position + size <= file.capacity - FILLER_SIZE:
            file = self._file_with_room(size)
        start = place = file.base + file.wrote_position
        now = self._now()
        if len(sizes) == 1:
            patch_late(records, sys_flags, queue_offset, place, now)
            queue_offset += has_unit
        else:
            at = 0
            for each in sizes:
                place = start + at
                patch_late(records, sys_flags, queue_offset, place, now, at)
                queue_offset += has_unit
                at += each
        self._unsettled = True
        file.append(records)
        self.files.appended()
        # No offset was taken before the bytes were written: a refused put takes no offset (invariant 6).
        if has_unit:
            self._queue_offsets[queue] = queue_offset
        self.last_store_timestamp = now
        self.last_record = place
        self._unsettled = False
        # The same as Appended(...), in half the time.
        return tuple.__new__(Appended, (start, first, now, start + size, len(sizes)))

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """The queue offset of the next message of a queue, whether the ones before it are dispatched or not."""
        with self.lock:
            return self._queue_offset((topic, queue_id))

    def _queue_offset(self, queue: _Queue) -> int:
        found = self._queue_offsets.get(queue)
        if found is None:
            # It is listed, unless its topic has just been deleted: that takes the put lock, too.
            self._list_queues((queue,))
            try:
                (found,) = self._next_queue_offsets([queue])
            except (CommitLogError, OSError) as error:
                raise PutRefused(
                    PutMessageStatus.SERVICE_NOT_AVAILABLE,
                    f"Topic {queue[0]!r}, queue {queue[1]}, takes no messages: {error}",
                ) from error
            self._queue_offsets[queue] = found
        return found

    def _find_ahead(self, queues: Sequence[_Queue]) -> None:
        """List queues that no put has touched, and find their next offsets, while other puts do not wait.

        Where that fails, the append tries again, and reports the error. ``PutRefused`` for a list that fails.
        """
        new = [queue for queue in queues if queue not in self._queue_offsets]
        if not new:
            return
        forgotten = self._forgotten
        self._list_queues(new)
        with contextlib.suppress(CommitLogError, OSError):
            found = self._next_queue_offsets(new)
            with self.lock:
                if self._forgotten == forgotten:
                    for queue, offset in zip(new, found, strict=True):
                        self._queue_offsets.setdefault(queue, offset)

    def forget_topic(self, topic: str, ends: Mapping[int, int]) -> bool:
        """Under the put lock: let the queues of a topic begin again, if their next offsets are ``ends`` by queue id.

        False, and nothing is forgotten, when a put has gone beyond that.
        """
        known = {queue: offset for queue, offset in self._queue_offsets.items() if queue[0] == topic}
        if any(offset != ends.get(queue_id, 0) for (_, queue_id), offset in known.items()):
            return False
        for queue in known:
            del self._queue_offsets[queue]
        self._forgotten += 1
        return True

    def _now(self) -> int:
        """The store time: it never goes back, even when the clock does."""
        now = int(self._clock() * 1000)
        if now < self.last_store_timestamp:
            return self.last_store_timestamp
        return now

    def _file_with_room(self, length: int) -> MappedFileWriter:
        """The file for that many bytes, which have their space on the device. ``DiskFull``: nothing is written.

        A filler may have been written to the file before it.
        """
        if length > self.largest_record:
            raise self._too_large(length)
        file = self.files.writable()
        left = file.capacity - file.wrote_position
        if length + FILLER_SIZE <= left:
            file.reserve(file.wrote_position + length)
            return file
        # The file ends with a blank filler. It always fits: every record left eight bytes.
        filler = encode_filler(left)
        file.reserve(file.wrote_position + len(filler))
        self._unsettled = True
        file.append(filler)
        file.leave_rest(file.wrote_position)
        file.skip_to_end()
        self.files.appended()
        self._unsettled = False
        file = self.files.writable()
        if length + FILLER_SIZE > file.capacity:
            cause = OSError(errno.ESTALE, f"the file has {file.capacity} bytes: another program truncated it")
            raise StoreIOError("append to", path=file.path, cause=cause, advice=HALTED)
        file.reserve(length)
        return file

    def _too_large(self, length: int) -> PutRefused:
        return PutRefused(
            PutMessageStatus.MESSAGE_ILLEGAL,
            f"The record takes {length} bytes; with files of {self.files.file_size} bytes at most "
            f"{self.largest_record} fit.",
        )

    def append_rows(self, rows: QueuedRecords) -> AppendedRows:
        """Append many records under one lock hold."""
        self._find_ahead(rows.queues)
        return self._locked(self._append_rows, rows)

    def _append_rows(self, rows: QueuedRecords) -> AppendedRows:
        bases = np.array([self._queue_offset(queue) for queue in rows.queues], np.int64)
        queue_offsets = _queue_offsets(bases, rows.queue_codes)
        starts, now = rows.records.starts, self._now()
        places = np.full(len(rows), -1, np.int64)
        row = 0
        error: Exception | None = None
        try:
            while row < len(rows):
                file = self._file_with_room(int(starts[row + 1] - starts[row]))
                end = file.base + file.wrote_position
                piece = _placed(rows, row, file.capacity - file.wrote_position, end, queue_offsets, now)
                assert piece is not None, "the file has room for the first one"
                file.reserve(file.wrote_position + len(piece.data))
                self._unsettled = True
                file.append(piece.data)
                self._hand_over(rows, row, piece, queue_offsets, now)
                self.files.appended()
                _count(self._queue_offsets, rows.queues, rows.queue_codes[row : piece.stop])
                self._settle(int(piece.places[-1]), now)
                places[row : piece.stop] = piece.places
                row = piece.stop
        except Exception as failure:  # noqa: BLE001 - the result reports it, beside the rows that are in the log
            # The rows before have their places, which their put reports; the rest has taken none (invariant 6).
            self._halt_after(failure)
            error = failure
        return AppendedRows(places, queue_offsets, now, self.files.max_wrote, row, error)

    def _settle(self, last_record: int, now: int) -> None:
        """The written bytes have their positions; what was written last starts at ``last_record``."""
        self.last_store_timestamp = now
        self.last_record = last_record
        self._unsettled = False

    def _hand_over(self, rows: QueuedRecords, row: int, piece: _Piece, queue_offsets: Int64Array, now: int) -> None:
        """Hand a written piece over to dispatch, which does not use it before the log's end has moved."""
        if rows.hints is None or piece.stop - row < LEAST_ROWS:
            return
        piece_rows = slice(row, piece.stop)
        with contextlib.suppress(MemoryError):  # then dispatch reads it from the log
            self.recent_appends.add(
                AppendedRecords(
                    piece.places,
                    int(piece.places[0]) + len(piece.data),
                    rows.queues,
                    rows.queue_codes[piece_rows].astype(np.int32),
                    queue_offsets[piece_rows],
                    now,
                    rows.host_flags,
                    rows.hints.part(row, piece.stop),
                )
            )

    def append_replica(self, data: bytes, *, last_record: int, last_store_timestamp: int) -> None:
        """Append bytes of another store's log as they are: whole records within one file.

        ``last_record`` is where the last record of them starts. No queue offset is given here: the records have
        theirs. ``DiskFull``, ``TimeoutError``, ``PutRefused``: nothing is written.
        """
        self._locked(self._append_replica, (data, last_record, last_store_timestamp))

    def _append_replica(self, given: tuple[bytes, int, int]) -> None:
        data, last_record, last_store_timestamp = given
        file = self.files.writable()
        file.reserve(file.wrote_position + len(data))
        self._unsettled = True
        file.append(data)
        if file.is_full:
            file.skip_to_end()
        self.files.appended()
        self._settle(last_record, last_store_timestamp)

    def begin_replica_frame(self) -> FrameSpace:
        """Space after the log's end for another store's batch or filler, until ``end_replica_frame``. Errors as above.

        No other append comes before that.
        """
        with self.lock:
            self._refuse_halted()
            space = FrameSpace(self.files)
            self._unsettled = True
            return space

    def end_replica_frame(self, space: FrameSpace, *, last_record: int, last_store_timestamp: int) -> None:
        """The batch is whole: it becomes a part of the log. Without a record (-1) it was a filler."""
        with self.lock:
            space.publish()
            if last_record >= 0:
                self.last_record, self.last_store_timestamp = last_record, last_store_timestamp
            self._unsettled = False

    def discard_replica_frame(self, space: FrameSpace) -> None:
        """The batch will not become whole: zero what there is of it. ``StoreIOError``."""
        with self.lock:
            self._discard(space)

    def append_frame(self, head: FrameRecord, queue: _Queue, blocks: Iterable[StagedBlock]) -> AppendedFrame:
        """Append a record to ``queue`` and all blocks after it, so that all of it is in the log or nothing.

        Other puts wait. ``StoreIOError``, ``DiskFull``, ``TimeoutError``, and errors of ``blocks``: nothing is in the
        log. ``PutRefused``: nothing was written.
        """
        return self._locked(self._append_frame, (head, queue, blocks))

    def _append_frame(self, given: tuple[FrameRecord, _Queue, Iterable[StagedBlock]]) -> AppendedFrame:
        head, queue, blocks = given
        self._file_with_room(head.size)
        space = FrameSpace(self.files)
        # Until it is published, or zeroed: bytes after the log's end may come back.
        self._unsettled = True
        try:
            now = self._now()
            offsets = {queue: self._queue_offset(queue) + 1}
            space.skip(head.size)
            first, last_record = space.position, space.start
            rows = checksum = 0
            for block in blocks:
                if not len(block):
                    continue
                last_record = self._write_block(space, block, offsets, now)
                checksum = crc32_combine(checksum, block.crc, len(block.records.data))
                rows += len(block)
                self.locked_at = time.monotonic()  # it makes progress, so the disk must not be reported as too busy
            end = space.position
            record = head.encoded(end - first, rows, checksum)
            patch_late(record, head.host_flags, offsets[queue] - 1, space.start, now)
            space.write_at_start(record)
            space.publish()
        except BaseException as error:
            if not space.published and not _is_failed_write(error):
                self._discard(space)
            raise
        self._queue_offsets.update(offsets)
        self._settle(last_record, now)
        return AppendedFrame(space.start, end, rows, now)

    def _write_block(self, space: FrameSpace, block: StagedBlock, offsets: dict[_Queue, int], now: int) -> int:
        """Write a block's records, each with its place and its queue offset; returns where the last one starts."""
        largest = int(block.records.sizes.max())
        if largest > self.largest_record:
            raise self._too_large(largest)
        bases = np.array([offsets.setdefault(name, self._queue_offset(name)) for name in block.queues], np.int64)
        queue_offsets = _queue_offsets(bases, block.queue_codes)
        _count(offsets, block.queues, block.queue_codes)
        row = last = 0
        while row < len(block):
            piece = _placed(block, row, space.room, space.position, queue_offsets, now)
            if piece is None:
                space.end_file(encode_filler(space.room))
                continue
            space.write(piece.data)
            self._hand_over(block, row, piece, queue_offsets, now)
            row, last = piece.stop, int(piece.places[-1])
        return last

    def _discard(self, space: FrameSpace) -> None:
        try:
            self.recent_appends.drop_from(space.start)
            space.discard()
        except BaseException as error:
            self._halt(error)
            raise
        self._unsettled = False


def _report_slow(held_s: float, appended: Appended | AppendedFrame | AppendedRows) -> None:
    if isinstance(appended, AppendedRows):
        rows, size = appended.written, appended.end - int(appended.physical_offsets[0]) if appended.written else 0
    else:
        rows, size = appended.rows, appended.end - appended.physical_offset
    _LOG.warning(
        "An append of %d records, %d bytes, held the put lock for %.0f ms; other puts waited for it.",
        rows, size, held_s * 1000,
    )  # fmt: skip


def _is_failed_write(error: BaseException) -> bool:
    """Whether it is unknown how many of the bytes are in the file."""
    return isinstance(error, StoreIOError | OSError) and not isinstance(error, TimeoutError)


def _count(offsets: dict[_Queue, int], queues: list[_Queue], codes: Int64Array) -> None:
    """Advance the next offset of each queue by its number of rows."""
    for queue, count in zip(queues, np.bincount(codes, minlength=len(queues)).tolist(), strict=True):
        offsets[queue] += count


def _queue_offsets(bases: Int64Array, codes: Int64Array) -> Int64Array:
    """The queue offset of each row: its queue's next one, and the number of rows of the same queue before it."""
    count = len(bases)
    if count == 1:
        return np.arange(int(bases[0]), int(bases[0]) + len(codes))
    # Of two bytes numpy's stable sort is a radix sort: several times faster than that of eight.
    order = np.argsort(codes.astype(np.uint16) if count <= 1 << 16 else codes, kind="stable")
    counts = np.bincount(codes, minlength=count)
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - np.repeat(np.cumsum(counts) - counts, counts)
    return bases[codes] + ranks


class _Piece(NamedTuple):
    """Records that are written at once: the row after them, the place of each, and their bytes."""

    stop: int
    places: Int64Array
    data: ByteArray


def _placed(rows: QueuedRecords, row: int, room: int, begin: int, queue_offsets: Int64Array, now: int) -> _Piece | None:
    """The records from ``row`` on that fit into a file's last ``room`` bytes, at ``begin``, with their late fields."""
    starts = rows.records.starts
    first = int(starts[row])
    stop = int(np.searchsorted(starts, first + room - FILLER_SIZE, side="right")) - 1
    if stop <= row:
        return None
    places = starts[row:stop] - first + begin
    patched = patch_late_fields(
        EncodedRecords(rows.records.data, starts[row : stop + 1]),
        host_flags=rows.host_flags,
        queue_offsets=queue_offsets[row:stop],
        physical_offsets=places,
        store_timestamps=now,
    )
    return _Piece(stop, places, patched.data[first : int(starts[stop])])
