"""Writer of a consume queue: units are appended by dispatch and rewritten by recovery.

A unit is written once. Dispatching the same messages again is harmless: units that exist already are skipped. A queue
whose first message has a higher offset (its head expired before the queue was rebuilt) begins with fillers, as
RocketMQ pads it.

Source: RocketMQ ``store/ConsumeQueue.java`` (``putMessagePositionInfo``, ``fillPreBlank``).
"""

from __future__ import annotations

import logging
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import CorruptConsumeQueue, NotAStore, StoreIOError
from commitlog_store.files import disk
from commitlog_store.files.error_paths import errors_name, failed_writes
from commitlog_store.files.limits import most_open_files
from commitlog_store.files.mapped_file_writer import made_file
from commitlog_store.files.numbered_files import NumberedFiles
from commitlog_store.format.consume_queue_unit import (
    FILLER_SIZE,
    UNIT_DTYPE,
    UNIT_FILE_DTYPE,
    UNIT_SIZE,
    Units,
    decode_units,
)
from commitlog_store.paths import file_name_for_offset
from commitlog_store.queue.expired_units import end_before, judge_range, sound_at_or_before, sound_units
from commitlog_store.queue.new_names import NewNames
from commitlog_store.queue.written_units import last_written

_LOG = logging.getLogger(__name__)

_PAGE = 4096
# The most and the fewest files that are kept open, and the share of those that the process may open.
_MAX_OPEN = 16_384
_MIN_OPEN = 8
_OPEN_SHARE = 4
# Where more queues than that take turns, one in so many files stays open in the place of another one. If all did, each
# would be closed just before it is used again.
_ADOPTED = 32


class OpenFiles:
    """Descriptors of queue files that are used often: a store may have more queues than a process may open files."""

    def __init__(self, *, read_only: bool = False) -> None:
        self._open_one = disk.open_file if read_only else disk.open_for_writing
        self._limit = max(min(most_open_files() // _OPEN_SHARE, _MAX_OPEN), _MIN_OPEN)
        # The next one to be closed comes first.
        self._open: OrderedDict[str, int] = OrderedDict()
        self._passed = 0

    def get(self, path: str) -> int:
        descriptor = self._open.get(path)
        if descriptor is None:
            descriptor = self._open_one(path)
            self._add(path, descriptor)
        else:
            self._open.move_to_end(path)
        return descriptor

    def keep(self, path: str, descriptor: int) -> None:
        """Take over the descriptor of a file that was just made."""
        self.forget(path)  # one of that name may have been removed from outside
        self._add(path, descriptor)

    def _add(self, path: str, descriptor: int) -> None:
        self._open[path] = descriptor
        if len(self._open) > self._limit:
            disk.close(self._open.popitem(last=False)[1])
            self._passed = (self._passed + 1) % _ADOPTED
            if self._passed:
                self._open.move_to_end(path, last=False)  # closed for the next one, unless it is used before that

    def forget(self, path: str) -> None:
        """Close a file that is to be deleted."""
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            disk.close(descriptor)

    def close(self) -> None:
        while self._open:
            disk.close(self._open.popitem()[1])


class ConsumeQueueWriter:
    """Writer of one queue. ``next_offset`` is the offset of the next unit; None until it is first needed."""

    _warned_of_restart = False

    def __init__(
        self, path: str, topic: str, queue_id: int, file_size: int, open_files: OpenFiles, names: NewNames
    ) -> None:
        self.path = path
        self.topic = topic
        self.queue_id = queue_id
        self.next_offset: int | None = None
        self._files = NumberedFiles(path)
        if all(is_there for _, is_there in _directories(path)):
            self._files.refresh()
        self._file_size = self._size_of_files() or file_size
        self._open_files = open_files
        self._names = names
        # Files written since the last flush, and the number of bytes.
        self.dirty: set[str] = set()
        self._syncing: set[str] = set()
        self._dirty_bytes = 0
        # The file that was written last, by its first byte and its path.
        self._last_file = (-1, "")
        # Set while the first file gets its fillers, which may take several attempts.
        self.pads = False
        # Whether messages of its own were written, and not only light units.
        self.has_own = False
        # Whether a file of the queue was made, written or deleted.
        self.has_changed = False

    def _size_of_files(self) -> int:
        """The size of the queue's files; 0 without files, and when a single one is truncated within a unit."""
        bases = self._files.bases
        if len(bases) > 1:  # whatever was cut off the files
            size = min(following - base for base, following in pairwise(bases))
        else:
            size = disk.file_size(self._files.path_of(bases[0])) if bases else 0
        return size if size % UNIT_SIZE == 0 else 0

    @property
    def is_empty(self) -> bool:
        """Whether the queue has no file yet."""
        return not self._files.bases

    @property
    def files_end(self) -> int:
        """The byte of the queue at which its last file ends; 0 without files."""
        return self._files.bases[-1] + self._file_size if self._files.bases else 0

    @property
    def first_offset(self) -> int:
        """The first offset with a place in a file; 0 without files."""
        return self._files.bases[0] // UNIT_SIZE if self._files.bases else 0

    def continue_at(self, offset: int) -> None:
        """Set the offset of the next unit, as it was found on disk."""
        self.next_offset = offset

    def append(self, offsets: npt.NDArray[np.int64], units: Units, *, light: bool = False) -> None:
        """Add units (``UNIT_FILE_DTYPE``) at ascending, contiguous offsets. Those below ``next_offset`` exist already.

        ``light``: they are units of messages of other queues. ``CorruptConsumeQueue`` for a gap (invariant 6),
        ``StoreIOError``.
        """
        self.has_own |= not light
        start = self.next_offset or 0
        fresh, fresh_units = first_of_each(offsets, units, start)
        if len(fresh):
            self._append(fresh, fresh_units, start)
        if len(fresh) < len(offsets) and not light:
            self._warn_of_restart(offsets, units)

    def _append(self, offsets: npt.NDArray[np.int64], units: Units, start: int) -> None:
        first = int(offsets[0])
        self._refuse_gap(offsets, start)
        if first > start:
            self.pads = True
            self._pad(first)
            # At once: should there be no space for the units, the next attempt finds no gap here.
            self.next_offset, self.pads = first, False
        self._write(first, units)
        self.next_offset, self.pads = first + len(units), False

    def append_next(self, start: int, data: bytes) -> bool:
        """``append`` of own units from an offset on, as their bytes, that follow those of the file that was written
        last, and fit in it; else False.

        Most units of a dispatch come here: it takes a third of what ``append`` takes. ``StoreIOError``.
        """
        if start != self.next_offset:
            return False
        base, path = self._last_file
        at, size = start * UNIT_SIZE - base, len(data)
        if base < 0 or not 0 <= at <= self._file_size - size:
            return False
        try:
            descriptor = self._open_files.get(path)
            self.has_own = self.has_changed = True
            disk.write_at(descriptor, data, at)
        except OSError as error:
            raise StoreIOError("write", path=path, cause=error) from error
        self.dirty.add(path)
        self._dirty_bytes += size
        self.next_offset, self.pads = start + size // UNIT_SIZE, False
        return True

    def _warn_of_restart(self, offsets: npt.NDArray[np.int64], units: Units) -> None:
        """Warn once when a mirror gets the messages of a topic that its master has deleted and made again.

        As in a slave of RocketMQ, the old messages keep the offsets.
        """
        restarts = np.flatnonzero(offsets == 0)
        if self._warned_of_restart or not len(restarts):
            return
        place, first = int(units["physical_offset"][restarts[-1]]), self.unit(0)
        if first is not None and first[0] == place:
            return  # dispatched another time
        self._warned_of_restart = True
        _LOG.warning(
            "%s: the queue begins again at offset 0 at physical offset %d: its topic was deleted and made again. The "
            "new messages are hidden where old ones have their offsets. To have the new ones instead, stop the "
            "follower, remove the directory consumequeue, and follow again.",
            self.path,
            place,
        )

    def _refuse_gap(self, offsets: npt.NDArray[np.int64], start: int) -> None:
        first, last = int(offsets[0]), int(offsets[-1])
        if first > start and not (self.is_empty or self.pads):
            self._refuse(start, first)
        if last - first + 1 != len(offsets):
            index = int(np.argmax(np.diff(offsets) != 1))
            self._refuse(int(offsets[index]) + 1, int(offsets[index + 1]))

    def _refuse(self, expected: int, found: int) -> None:
        raise CorruptConsumeQueue(
            f"Next message of topic {self.topic!r}, queue {self.queue_id}",
            path=self.path,
            offset=expected * UNIT_SIZE,
            expected=f"queue offset {expected}",
            found=found,
            advice="The CommitLog holds messages of this queue that do not follow one another.",
        )

    def _pad(self, first: int) -> None:
        """Fill the file of the first unit up to it: the messages before it have expired."""
        self._fill(first - first % (self._file_size // UNIT_SIZE), first)

    def _fill(self, first: int, stop: int) -> None:
        fillers = np.zeros(stop - first, UNIT_FILE_DTYPE)
        fillers["size"] = FILLER_SIZE
        self._write(first, fillers)

    def _pad_missing(self, first: int, *, write_back: bool) -> None:
        """``_pad`` unless units stand there already: fillers, or those of messages that have expired.

        A queue has no holes. Where it is older than the log, and ends before the first message that is left, the files
        before that one's are deleted.
        """
        capacity = self._file_size // UNIT_SIZE
        begin = first - first % capacity
        before = [base // UNIT_SIZE for base in self._files.bases if base < begin * UNIT_SIZE]
        start = max(begin - capacity, before[-1]) if before else begin
        there = self.read(start, first)
        if len(there) < first - start or not there["size"].all():
            self._remove_before(begin)
            self._pad(first)
        elif write_back:
            self._write(start, there.astype(UNIT_FILE_DTYPE))

    def forget_before(self, first: int) -> None:
        """Recovery, before the first ``rewrite``: delete a queue with units of messages before an offset."""
        before = self.unit(first - 1) if self.next_offset is None and first else None
        if before is not None and before[1] != FILLER_SIZE:
            self.delete()

    def _remove_before(self, offset: int) -> None:
        """Delete the files before the one that holds an offset, the newest first. ``StoreIOError``."""
        for base in [base for base in reversed(self._files.bases) if base < offset * UNIT_SIZE]:
            path = self._files.path_of(base)
            with failed_writes(path, "remove"):
                self._remove(base, path)

    def _note_dirty(self, first: int, stop: int) -> None:
        """Mark files for syncing even without a write: their writer may have been killed before its sync."""
        begin = first * UNIT_SIZE
        for base in range(begin - begin % self._file_size, stop * UNIT_SIZE, self._file_size):
            if base in self._files.bases:
                self.dirty.add(self._files.path_of(base))

    def rewrite(
        self,
        offsets: npt.NDArray[np.int64],
        units: Units,
        *,
        from_start: bool,
        write_back: bool = False,
        light: bool = False,
    ) -> bool:
        """Recovery's ``append``: write units at their places, over any others. Equal units stay.

        ``write_back`` writes these too: after a sync that failed, bytes that the kernel shows may be missing on the
        device, and the next sync brings only rewritten ones there.

        False when the queue's units before the first of these are missing although the log may hold their messages:
        everything has to be read again, ``from_start``.
        """
        self.has_own |= not light
        offsets, units = first_of_each(offsets, units, self.next_offset or 0)
        if not len(offsets):
            return True
        first = int(offsets[0])
        if self.next_offset is None:
            if not from_start and self.lacks_units_before(first):
                return False
            if from_start and first:
                self._pad_missing(first, write_back=write_back)
            self.next_offset = first
        if first > self.next_offset:
            self._refuse(self.next_offset, first)
        self._refuse_gap(offsets, first)
        self._note_dirty(first, first + len(units))
        same = 0 if write_back else self._count_same(first, units)
        if same < len(units):
            self._write(first + same, units[same:])
        self.next_offset = first + len(units)
        return True

    def _count_same(self, first: int, units: Units) -> int:
        """How many of ``units`` stand in the files already, from offset ``first`` on, up to one that does not."""
        present = self.read(first, first + len(units))
        same = present == units.astype(UNIT_DTYPE)[: len(present)]
        return int(np.argmin(np.append(same, False)))

    def lacks_units_before(self, first: int) -> bool:
        """Whether the unit before an offset is missing, though its message may be in the log."""
        return first > 0 and self.unit(first - 1) is None

    def _write(self, first: int, units: Units) -> None:
        self.has_changed = True
        data = memoryview(units.tobytes())
        at = first * UNIT_SIZE
        while data:
            base = at - at % self._file_size
            piece = data[: base + self._file_size - at]
            path = self._file_at(base)
            try:
                disk.write_at(self._open_files.get(path), piece, at - base)
            except OSError as error:
                raise StoreIOError("write", path=path, cause=error) from error
            self.dirty.add(path)
            self._dirty_bytes += len(piece)
            at += len(piece)
            data = data[len(piece) :]

    def _file_at(self, base: int) -> str:
        path = os.path.join(self.path, file_name_for_offset(base))
        if base not in self._files.bases:
            with failed_writes(self.path, "make the directory"):
                is_new = _make_directories(self.path, self._names)
            if is_new or not disk.exists(path):
                # A queue may be one of thousands that a moment brings; a following file is one of 300,000 messages.
                descriptor = made_file(path, self._file_size, sparse=True, synced=not self.is_empty)
                self._open_files.keep(path, descriptor)
                self._names.add_file(path)
            self._files.add(base)
        self._last_file = base, path
        return path

    def read(self, first: int, stop: int) -> Units:
        """The units ``[first, stop)`` as far as files hold them without a gap (``UNIT_DTYPE``)."""
        parts = []
        at, end = first * UNIT_SIZE, stop * UNIT_SIZE
        while at < end:
            base = at - at % self._file_size
            if base not in self._files.bases:
                break
            length = min(end, base + self._file_size) - at
            path = self._files.path_of(base)
            with errors_name(path):
                data = disk.read_at(self._open_files.get(path), length, at - base)
            parts.append(data[: len(data) - len(data) % UNIT_SIZE])
            at += length
            if len(data) < length:
                break
        return decode_units(b"".join(parts))

    def file_end(self, offset: int) -> int:
        """The offset at which the file with this one ends."""
        units = self._file_size // UNIT_SIZE
        return offset - offset % units + units

    def unit(self, offset: int) -> tuple[int, int] | None:
        """Physical offset and size of one unit; None where it is unwritten."""
        found = self.read(offset, offset + 1)
        return (int(found["physical_offset"][0]), int(found["size"][0])) if len(found) and found["size"][0] else None

    @property
    def written_end(self) -> int:
        """The offset after the last unit that is not zero; ``first_offset`` without any. ``OSError``."""
        for base in reversed(self._files.bases):
            count = last_written(self._open_files.get(self._files.path_of(base)))
            if count:
                return base // UNIT_SIZE + count
        return self.first_offset

    def end_before(self, physical_offset: int) -> int:
        """The offset after the last unit whose message lies before ``physical_offset``. ``OSError``."""
        return end_before(self.read, self.first_offset, self.written_end, physical_offset)

    def end_before_lost(self, physical_offset: int, lost: range) -> int | None:
        """``end_before`` if all units after it are right, and lead to places in ``lost``; None if some are damaged."""
        first, stop = self.end_before(physical_offset), self.written_end
        units = self.read(first, stop)
        places = units["physical_offset"]
        right = sound_units(units) & (lost.start <= places) & (places < lost.stop)
        return first if len(units) == stop - first and bool(right.all()) else None

    def continue_after_damage(self, physical_offset: int) -> None:
        """Continue after all written units; fillers replace those after the last one before a place. ``StoreIOError``.

        For a queue whose messages have expired: nothing else says where it ends, and no offset is to be given twice.
        """
        first, stop = self.end_before(physical_offset), self.written_end
        self._fill(first, stop)
        self.continue_at(stop)

    def cut(self, end: int) -> None:
        """Zero all units at ``end`` and after; files that begin after it are deleted. ``StoreIOError``.

        So is one that begins there, unless it is the queue's only file, whose name says where the queue is.
        """
        self.next_offset = end
        for base in reversed(list(self._files.bases)):
            path = self._files.path_of(base)
            try:
                if base > end * UNIT_SIZE or (base == end * UNIT_SIZE and base > self._files.bases[0]):
                    self._remove(base, path)
                elif base + self._file_size > end * UNIT_SIZE:
                    self._zero(path, max(end * UNIT_SIZE - base, 0))
            except OSError as error:
                raise StoreIOError("cut off the end of", path=path, cause=error) from error

    def _remove(self, base: int, path: str, *, discount: bool = True) -> None:
        """Delete a file and sync that: after the next clean close its return would go unnoticed."""
        self.has_changed = True
        self._open_files.forget(path)
        self._last_file = -1, ""
        disk.unlink(path)
        if discount:
            self._names.discount(1)
        disk.sync_directory(self.path)
        self._files.bases.remove(base)
        self.dirty.discard(path)

    def _zero(self, path: str, position: int) -> None:
        self.has_changed = True
        descriptor = self._open_files.get(path)
        size = disk.size_of(descriptor)
        if size < self._file_size:
            disk.truncate(descriptor, self._file_size)
            self.dirty.add(path)
        for start, stop in disk.data_extents(descriptor, position, size):
            data = disk.read_at(descriptor, stop - start, start)
            if any(data):
                disk.write_at(descriptor, bytes(len(data)), start)
                self.dirty.add(path)

    def begin_sync(self) -> set[str]:
        """The files that the caller has to sync before it calls ``end_sync``.

        Those of a sync that did not finish are among them again.
        """
        self._syncing |= self.dirty
        self.dirty = set()
        self._dirty_bytes = 0
        return set(self._syncing)

    def end_sync(self) -> None:
        self._syncing = set()

    @property
    def dirty_pages(self) -> int:
        return max(-(-self._dirty_bytes // _PAGE), len(self._syncing))

    def keep_expired(self, log_start: int) -> None:
        """Remove all but the last units of messages before ``log_start``, as many as a file has.

        Where one of these is damaged, fillers take the place of all, so that the queue's end stays.
        """
        end = self.written_end
        last = self.unit(end - 1) if end > self.first_offset else None
        if last is not None and last[1] != FILLER_SIZE and last[0] + last[1] > log_start:
            end = self.end_before(log_start)
        first = max(end - self._file_size // UNIT_SIZE, self.first_offset)
        there = self.read(first, end)
        if not log_start or not len(there):
            self.delete()
        elif len(there) == end - first and sound_units(there).all():
            self.cut(end)
        else:
            self.delete()
            self._fill(end - 1 - (end - 1) % (self._file_size // UNIT_SIZE), end)

    def expired_files(self, log_start: int) -> tuple[int, CorruptConsumeQueue | None]:
        """How many of the oldest files hold only messages before ``log_start``; the last file is never among them.

        Units follow the order of the log, so the last one of a file decides. Where that is damaged, the error that says
        so comes too: its file, and those after it, stay.
        """
        count = 0
        for base in self._files.bases[:-1]:
            last = (base + self._file_size) // UNIT_SIZE - 1
            whole = self.first_offset, self.files_end // UNIT_SIZE
            sound, before = judge_range(self.read, last, last + 1, *whole, log_start)
            if not sound[0]:
                return count, self._damaged(last)
            if not before[0]:
                break
            count += 1
        return count, None

    def last_place(self) -> int:
        """The physical offset of the queue's last message; -1 without one. ``CorruptConsumeQueue`` for damage there."""
        end = self.next_offset or 0
        if end <= self.first_offset:
            return -1
        sound, _ = judge_range(self.read, end - 1, end, self.first_offset, end, 0)
        last = self.unit(end - 1)
        if not sound[0] or last is None:
            raise self._damaged(end - 1)
        return -1 if last[1] == FILLER_SIZE else last[0]

    def place_from(self, offset: int) -> int | None:
        """The physical offset of the message at an offset; None where nothing was written.

        Where its unit is damaged, that of the last message before it whose unit is not; 0 without one.
        """
        end = self.next_offset or 0
        if offset >= end:
            return None
        found = sound_at_or_before(self.read, offset, self.first_offset, end)
        return 0 if found is None else found[1]

    def _damaged(self, offset: int) -> CorruptConsumeQueue:
        at = offset * UNIT_SIZE
        base = at - at % self._file_size
        place, size = self.unit(offset) or (0, 0)
        return CorruptConsumeQueue(
            f"Unit of queue offset {offset} of topic {self.topic!r}, queue {self.queue_id}",
            path=self._files.path_of(base),
            offset=at - base,
            expected="a size of at least 1, and a physical offset between those of the units before and after it",
            found=f"{place} and {size}",
            advice="The queue can be rebuilt from the CommitLog.",
        )

    @property
    def file_count(self) -> int:
        return len(self._files.bases)

    def remove_oldest(self, count: int) -> None:
        """Delete so many of the oldest files, which the caller has discounted already. ``StoreIOError``."""
        for base in self._files.bases[:count]:
            path = self._files.path_of(base)
            try:
                self._remove(base, path, discount=False)
            except OSError as error:
                raise StoreIOError("delete", path=path, cause=error) from error

    def delete(self) -> None:
        """Delete every file of the queue; its next offset is open then. ``StoreIOError``."""
        self.cut(0)
        for base in list(self._files.bases):
            path = self._files.path_of(base)
            try:
                self._remove(base, path)
            except OSError as error:
                raise StoreIOError("delete", path=path, cause=error) from error
        self.next_offset, self.pads = None, False
        self.dirty.clear()
        self._dirty_bytes = 0


def _directories(path: str) -> Iterator[tuple[str, bool]]:
    """A queue's directory and those above it in the store, the outermost first, and whether each is there.

    ``NotAStore`` when one is a link (invariant 10).
    """
    topic = os.path.dirname(path)
    mode: int | None = 0
    for directory in (os.path.dirname(topic), topic, path):
        mode = None if mode is None else disk.mode_of(directory)  # a missing directory has none in it
        if mode is not None and stat.S_ISLNK(mode):
            raise NotAStore(f"{directory} is a symbolic link; a store is written only where it lies.", path=directory)
        yield directory, mode is not None


def _make_directories(path: str, names: NewNames) -> bool:
    """Make ``<store>/consumequeue/<topic>/<queue id>``, its parents first; False when it exists. The names are synced
    later."""
    is_there = True
    for directory, is_there in _directories(path):
        if not is_there:
            disk.make_directory(directory)
            names.add_directory(directory)
    return not is_there


def first_of_each(offsets: npt.NDArray[np.int64], units: Units, start: int) -> tuple[npt.NDArray[np.int64], Units]:
    """Units from offset ``start`` on. Where several messages have one queue offset, the first of them counts."""
    if not len(offsets) or (int(offsets[0]) >= start and int(offsets[-1] - offsets[0]) + 1 == len(offsets)):
        return offsets, units
    highest = np.maximum.accumulate(np.append(start - 1, offsets))
    fresh = offsets > highest[:-1]
    return offsets[fresh], units[fresh]
