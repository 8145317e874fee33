"""Writer of one index file: creates it whole, appends entries, and truncates it after a crash.

A batch of keys gives the same bytes as RocketMQ's ``IndexFile.putKey`` for each. Entries follow each other, so they
are written like a log, into space that is allocated in steps; slots lie scattered over megabytes, so they are stored
through a mapping, and all of the slot table is allocated when the file is made. The header is written last, with its
index count: readers in other processes do not see entries that it does not count.

RocketMQ begins a file that follows a full one with the full one's end timestamp, and counts the seconds of entry 1 from
there, but those of all others from the time of entry 1. So it dates that one entry too late. Here every file begins as
the first one does, with entry 1 at second 0.

Source: RocketMQ ``store/index/IndexFile.java`` (``putKey``, ``isWriteFull``), ``store/index/IndexHeader.java``.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import CorruptIndex, FileChanged, InvalidValue, TooManyOpenFiles, UnsupportedStore
from commitlog_store.files import disk, space
from commitlog_store.files.error_paths import errors_name
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.whole_file import new_file
from commitlog_store.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    INDEX_ENTRY_DTYPE,
    IndexHeader,
    encode_header,
    entry_capacity,
    entry_offset,
    file_size,
)
from commitlog_store.index.service import IndexFile
from commitlog_store.java_numbers import MAX_INT

# Entries are given space in steps of this many bytes.
ENTRY_STEP = 1 << 20

_SECOND_MS = 1000
_ROW_BITS = 32
# Entries to read at a time when a file is checked: 5 MB.
_CHECKED_ENTRIES = 1 << 18
_ADVICE = "The file can be made again from the CommitLog."


class Links(NamedTuple):
    """The links of a batch of entries: changes to the chains and the slot table.

    ``previous`` (int32) is a value for each entry, in order. ``slots`` (int64, ascending, each once) are the slots that
    change, ``newest`` (int32) their values after it, and ``new_slots`` is the number of them that were not in use.
    """

    previous: npt.NDArray[np.int32]
    slots: npt.NDArray[np.int64]
    newest: npt.NDArray[np.int32]
    new_slots: int


def link_entries(heads: npt.NDArray[Any], slots: npt.NDArray[np.int64], first: int) -> Links:
    """Chain a batch of at least one entry, numbered from ``first``, to the entries in the slot table ``heads``.

    ``slots`` is the slot of each entry. A slot that holds no number of an earlier entry counts as unused. (RocketMQ
    accepts the number of the entry itself, which leads the chain into itself; a crash leaves such slots.)
    """
    if len(slots) == 1:
        head = int(heads[slots[0]])
        chained_one = head if 0 < head < first else 0
        return Links(np.array([chained_one], np.int32), slots, np.array([first], np.int32), int(not chained_one))
    # One sort of integers brings the entries of a slot together and keeps their order, and the slot table is then
    # accessed in ascending order: both are several times faster than a loop over the rows.
    order = np.sort((slots << _ROW_BITS) | np.arange(len(slots), dtype=np.int64))
    rows = order & ((1 << _ROW_BITS) - 1)
    sorted_slots = order >> _ROW_BITS
    numbers = (rows + first).astype(np.int32)
    is_first = np.ones(len(slots) + 1, np.bool_)
    np.not_equal(sorted_slots[1:], sorted_slots[:-1], out=is_first[1:-1])
    chained = heads[sorted_slots].astype(np.int32)
    chained[(chained < 0) | (chained >= first)] = 0
    new_slots = int(np.count_nonzero(is_first[:-1] & (chained == 0)))
    chained[1:] = np.where(is_first[1:-1], chained[1:], numbers[:-1])
    previous = np.empty(len(slots), np.int32)
    previous[rows] = chained
    # The last of a slot is the one before the first of the next.
    return Links(previous, sorted_slots[is_first[1:]], numbers[is_first[1:]], new_slots)


class IndexFileWriter:
    """An index file that is open for appending. Not safe for several threads at once.

    After a failed write or sync the file's content is unknown: every further put and flush is an ``OSError`` too.
    """

    def __init__(self, path: str, descriptor: int, slot_count: int, capacity: int, header: IndexHeader) -> None:
        """Takes over the descriptor. The space of header and slots must have been allocated."""
        self.path = path
        self.slot_count = slot_count
        self.capacity = capacity
        self.header = header
        self._descriptor = descriptor
        slots_end = entry_offset(0, slot_count)
        mapping = disk.map_for_writing(descriptor, slots_end)
        self._slots = disk.mapped_bytes(mapping, HEADER_SIZE, slots_end).view(">i4")
        # Bytes before it have their space on the device; in a file that was opened perhaps more.
        self._allocated = entry_offset(header.index_count, slot_count)
        # An earlier owner's writes may not be on the device either.
        self._unsynced = True
        self._failed = False

    @classmethod
    def create(cls, path: str, slot_count: int, capacity: int) -> IndexFileWriter:
        """Make a file of that many slots and places for entries: ``path`` is a whole file, or does not exist.

        Header and slots have their space on the device, entries get theirs before they are written. ``OSError``;
        ``InvalidValue`` for an impossible geometry.
        """
        size = file_size(slot_count, capacity)

        def prepare(descriptor: int) -> None:
            disk.truncate(descriptor, size)
            disk.allocate(descriptor, 0, entry_offset(0, slot_count))

        descriptor = new_file(path, prepare)
        try:
            with errors_name(path):
                return cls(path, descriptor, slot_count, capacity, IndexHeader(0, 0, 0, 0, 0, 1))
        except (TooManyOpenFiles, OSError):
            disk.close(descriptor)
            with contextlib.suppress(OSError):
                disk.unlink(path)
            raise

    @classmethod
    def open(cls, path: str, slots_by_size: dict[int, int]) -> IndexFileWriter:
        """Open a file that has entries. ``slots_by_size``: known slot counts of the store's files; the file's is added.

        ``CorruptIndex`` when its header is impossible, or no number of slots agrees with its entries; ``OSError``.
        """
        size, header, slot_count = _geometry(path, slots_by_size)
        descriptor = disk.open_for_writing(path)
        try:
            with errors_name(path):
                # RocketMQ's files may have holes, and a page that finds no space when it is touched kills the process.
                disk.allocate(descriptor, 0, entry_offset(0, slot_count))
                return cls(path, descriptor, slot_count, entry_capacity(size, slot_count) or 0, header)
        except (TooManyOpenFiles, OSError):
            disk.close(descriptor)
            raise

    @property
    def room(self) -> int:
        """The number of entries that still fit. Entry 0 is never used, so a file takes one less than it has places."""
        return self.capacity - self.header.index_count

    def put(
        self,
        key_hashes: npt.NDArray[np.int32],
        physical_offsets: npt.NDArray[np.int64],
        store_timestamps: npt.NDArray[np.int64],
    ) -> int:
        """Append an entry for each row, as many as fit; returns their number.

        Hashes are those of ``index_key_hash``, timestamps are milliseconds; physical offsets do not descend. It takes
        about 100 bytes of memory a row. ``OSError``; then none of the rows is counted. When the disk was full, the same
        call may be made again.
        """
        self._check_usable()
        count = min(len(key_hashes), self.room)
        if count <= 0:
            return 0
        key_hashes, stored = key_hashes[:count], store_timestamps[:count]
        if int(key_hashes.min()) < 0:
            raise InvalidValue("The hash of an index key is never negative; see index_key_hash.")
        old = self.header
        first = old.index_count
        begin = int(stored[0]) if first == 1 else old.begin_timestamp
        links = link_entries(self._slots, (key_hashes % np.int32(self.slot_count)).astype(np.int64), first)
        entries = np.empty(count, INDEX_ENTRY_DTYPE)
        entries["key_hash"] = key_hashes
        entries["physical_offset"] = physical_offsets[:count]
        entries["seconds"] = _seconds(begin, stored)
        entries["previous"] = links.previous
        header = IndexHeader(
            begin,
            int(stored[-1]),
            int(physical_offsets[0]) if first == 1 else old.begin_physical_offset,
            int(physical_offsets[count - 1]),
            old.hash_slot_count + links.new_slots,
            first + count,
        )
        encoded = encode_header(header)
        self._allocate(entry_offset(first + count, self.slot_count), written=entry_offset(first, self.slot_count))
        # If one of these fails, slots may lead to entries that are not counted.
        self._failed = self._unsynced = True
        with errors_name(self.path):
            disk.write_at(self._descriptor, entries.view(np.uint8), entry_offset(first, self.slot_count))
            self._store_slots(links.slots, links.newest)
            disk.write_at(self._descriptor, encoded, 0)
        self._failed = False
        self.header = header
        return count

    def _allocate(self, end: int, *, written: int) -> None:
        """Allocate space for entries up to ``end``. ``OSError``: nothing is written, and the same put may be repeated.

        A write that found no space half-way would leave a file of unknown content.
        """
        if end <= self._allocated:
            return
        size = file_size(self.slot_count, self.capacity)
        stop = min(-(-end // ENTRY_STEP) * ENTRY_STEP, size)
        with errors_name(self.path):
            space.allocate(self._descriptor, self._allocated, stop, unwritten=written)
        self._allocated = stop

    def _store_slots(self, slots: npt.NDArray[np.int64], values: npt.NDArray[np.int32]) -> None:
        disk.store_mapped(self._slots, slots, values, descriptor=self._descriptor, offset=HEADER_SIZE)

    def _check_usable(self) -> None:
        if self._failed:
            raise OSError(errno.EIO, "an earlier write or sync failed, so what it holds is unknown", self.path)

    def flush(self) -> None:
        """Return when every entry is on the device. ``OSError``."""
        self._check_usable()
        if self._unsynced:
            # A second sync would succeed though the first has lost the pages, so it is not tried.
            self._failed = True
            with errors_name(self.path):
                disk.sync(self._descriptor)
            self._unsynced = self._failed = False

    def truncate(self, physical_offset: int, *, block_entries: int = _CHECKED_ENTRIES) -> int:
        """Keep the entries of messages before a physical offset; returns their number. With 0 the file is removed.

        All kept entries are checked, slots are made again from them, and all else is zeroed: the file is as if no
        other entry had ever been put, and synced. Only the end timestamp is then rounded to seconds, as in entries.
        ``block_entries`` are read at a time. ``CorruptIndex`` when a kept entry is impossible, and nothing was changed;
        ``OSError``.
        """
        self._check_usable()
        old = self.header
        heads = np.zeros(self.slot_count, np.int32)
        entries = _Entries(self.path, self._descriptor, self.slot_count, old)
        kept, last = entries.relink(heads, physical_offset, block_entries)
        whole = entries.are_whole(kept, last)
        self._failed = self._unsynced = True
        if kept == 0:
            self.close()
            disk.unlink(self.path)
            disk.sync_directory(os.path.dirname(self.path))
            return 0
        header = IndexHeader(
            old.begin_timestamp,
            old.end_timestamp if whole else old.begin_timestamp + int(last["seconds"]) * _SECOND_MS,
            old.begin_physical_offset,
            int(last["physical_offset"]),
            int(np.count_nonzero(heads)),
            kept + 1,
        )
        with errors_name(self.path):
            disk.write_at(self._descriptor, encode_header(header), 0)
            changed = np.flatnonzero(self._slots != heads)
            self._store_slots(changed, heads[changed])
            # Space that is cut off and added again is zero. In between the size is wrong; a crash then leaves damage.
            disk.truncate(self._descriptor, entry_offset(kept + 1, self.slot_count))
            disk.truncate(self._descriptor, file_size(self.slot_count, self.capacity))
            self._allocated = entry_offset(kept + 1, self.slot_count)
        self._failed = False
        self.header = header
        self.flush()
        return kept

    def close(self) -> None:
        """Close without a sync. A second call does nothing."""
        if self._descriptor >= 0:
            # The mapping is closed with the last array on it.
            self._slots = np.zeros(0, ">i4")
            disk.close(self._descriptor)
            self._descriptor = -1


def _geometry(path: str, slots_by_size: dict[int, int]) -> tuple[int, IndexHeader, int]:
    """Size, header and number of slots of a file that has entries. ``CorruptIndex``."""
    reader = IndexFile(MappedFile.open(path, 0), slots_by_size)
    try:
        size, header, slot_count = reader.size, reader.header(), reader.slot_count()
    except (UnsupportedStore, FileChanged) as error:
        raise _corrupt(path, 0, "slots that lead to the entries", f"none ({error})") from error
    finally:
        reader.close()
    if slot_count is None:
        raise _corrupt(path, HEADER_SIZE - 4, "an index count of at least 2", header.index_count)
    return size, header, slot_count


def count_entries(path: str, slots_by_size: dict[int, int], physical_offset: int) -> int:
    """The number of entries that ``IndexFileWriter.truncate`` would keep. Changes nothing.

    ``CorruptIndex``, ``OSError``.
    """
    _, header, slot_count = _geometry(path, slots_by_size)
    descriptor = disk.open_file(path)
    try:
        entries = _Entries(path, descriptor, slot_count, header)
        kept, last = entries.relink(np.zeros(slot_count, np.int32), physical_offset, _CHECKED_ENTRIES)
        entries.are_whole(kept, last)
        return kept
    finally:
        disk.close(descriptor)


class _Entries:
    """The entries of a file as they stand in it, to be checked one by one."""

    def __init__(self, path: str, descriptor: int, slot_count: int, header: IndexHeader) -> None:
        self._path = path
        self._descriptor = descriptor
        self._slot_count = slot_count
        self._header = header

    def relink(self, heads: npt.NDArray[np.int32], physical_offset: int, block_entries: int) -> tuple[int, Any]:
        """Fill an empty slot table from the entries before a physical offset; their number, and the last one."""
        kept = 0
        last = np.zeros((), INDEX_ENTRY_DTYPE)
        last["physical_offset"] = self._header.begin_physical_offset
        while kept < self._header.index_count - 1:
            count = min(self._header.index_count - 1 - kept, block_entries)
            at = entry_offset(kept + 1, self._slot_count)
            with errors_name(self._path):
                data = disk.read_at(self._descriptor, count * ENTRY_SIZE, at)
            if len(data) < count * ENTRY_SIZE:
                raise _corrupt(self._path, at, f"{count * ENTRY_SIZE} bytes", f"{len(data)}")
            entries = np.frombuffer(data, INDEX_ENTRY_DTYPE)
            beyond = np.flatnonzero(entries["physical_offset"] >= physical_offset)
            if len(beyond):
                entries = entries[: int(beyond[0])]
            if len(entries):
                self._relink_block(heads, entries, kept + 1, int(last["physical_offset"]))
                kept += len(entries)
                last = entries[-1]
            if len(beyond):
                break
        return kept, last

    def _relink_block(
        self, heads: npt.NDArray[np.int32], entries: npt.NDArray[Any], first: int, not_before: int
    ) -> None:
        key_hashes = entries["key_hash"].astype(np.int32)
        offsets = entries["physical_offset"].astype(np.int64)
        wrong = (key_hashes < 0) | (entries["seconds"] < 0)
        wrong |= np.diff(offsets, prepend=np.int64(not_before)) < 0
        # Unwritten bytes look like an entry of the message at physical offset 0.
        wrong |= (key_hashes == 0) & (offsets == 0) & (entries["previous"] == 0)
        wrong[0] |= first == 1 and int(offsets[0]) != self._header.begin_physical_offset
        links = link_entries(heads, key_hashes.astype(np.int64) % self._slot_count, first) if not wrong.any() else None
        if links is not None:
            # With these two fields alone lost in a crash, older entries would be out of reach.
            wrong = entries["previous"] != links.previous
        if wrong.any():
            row = int(np.argmax(wrong))
            at = entry_offset(first + row, self._slot_count)
            raise _corrupt(self._path, at, f"entry {first + row}, of its slot's chain, in log order", entries[row])
        assert links is not None
        heads[links.slots] = links.newest

    def are_whole(self, kept: int, last: Any) -> bool:
        """Whether the kept entries are all. ``CorruptIndex`` when the header does not agree with the last one."""
        header = self._header
        whole = kept == header.index_count - 1 and int(last["physical_offset"]) == header.end_physical_offset
        seconds = int(_seconds(header.begin_timestamp, np.array(header.end_timestamp)))
        if whole and int(last["seconds"]) != seconds:
            raise _corrupt(self._path, entry_offset(kept, self._slot_count), f"{seconds} seconds", last)
        return whole


def _seconds(begin: int, stored: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The seconds of an entry for its store timestamp, with RocketMQ's limits."""
    if begin <= 0:
        return np.zeros_like(stored)
    if stored.size == 1:  # as most that come one at a time: five times as fast
        return np.full_like(stored, min(max((int(stored.item()) - begin) // _SECOND_MS, 0), MAX_INT))
    return np.clip((stored - begin) // _SECOND_MS, 0, MAX_INT)


def _corrupt(path: str, at: int, expected: str, found: object) -> CorruptIndex:
    return CorruptIndex("Index file", path=path, offset=at, expected=expected, found=found, advice=_ADVICE)
