"""Writer of a store's index files: adds the keys of messages in log order, file after file.

The next file is begun when one is full and the full one is on the device, so only the newest file can be incomplete
after a crash. The index is derived from the CommitLog (invariant 1): doubtful entries are dropped, and written again
from the message after the last one that is kept.

Source: RocketMQ ``store/index/IndexService.java``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import (
    CorruptIndex,
    FileChanged,
    InvalidValue,
    StoreClosed,
    TooManyOpenFiles,
    UnsupportedStore,
)
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.whole_file import TEMPORARY_SUFFIX
from commitlog_store.format.index_file import DEFAULT_ENTRY_CAPACITY, DEFAULT_SLOT_COUNT, IndexHeader, file_size
from commitlog_store.index.file_writer import IndexFileWriter, count_entries
from commitlog_store.index.service import INDEX_NAME_DIGITS, IndexFile, is_index_file_name
from commitlog_store.java_numbers import MAX_LONG

_LOG = logging.getLogger(__name__)

# The errors of a damaged file when it is opened or checked.
_DAMAGE = (CorruptIndex, FileChanged, UnsupportedStore)
# The number of newest files whose slot count is inferred when an index is opened that was closed cleanly.
_TELLING = 2


class IndexWriter:
    """All files of ``index/``, for the one owner of a store.

    New files get ``max_hash_slot_num`` slots and places for ``max_index_num`` entries, RocketMQ's settings of these
    names; an existing file keeps its own. One thread puts; another may flush. ``OSError`` is the operating system's
    error; a position moves only after the work that it stands for.
    """

    def __init__(
        self,
        path: str,
        *,
        max_hash_slot_num: int = DEFAULT_SLOT_COUNT,
        max_index_num: int = DEFAULT_ENTRY_CAPACITY,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """``InvalidValue`` for a geometry in which no key has room."""
        if max_index_num < 2:
            raise InvalidValue(f"max_index_num is at least 2, since entry 0 is never used, not {max_index_num}.")
        self.path = path
        self._slot_count = max_hash_slot_num
        self._capacity = max_index_num
        self._now_ms = now_ms
        self._slots_by_size = {file_size(max_hash_slot_num, max_index_num): max_hash_slot_num}
        self._lock = threading.Lock()
        self._is_open = False
        self._newest: IndexFileWriter | None = None
        self._end_physical_offset = -1
        self._index_msg_timestamp = 0
        self._file_count = 0

    @property
    def end_physical_offset(self) -> int:
        """Physical offset of the last message that is indexed with all of its keys; -1 for none."""
        return self._end_physical_offset

    @property
    def index_msg_timestamp(self) -> int:
        """Store timestamp (ms) up to which the index is known to be on the device, for the checkpoint; 0 for none."""
        return self._index_msg_timestamp

    @property
    def file_count(self) -> int:
        """The number of files whose names are on the device, for the checkpoint's mark."""
        return self._file_count

    def open(self) -> None:
        """Make the directory if it is missing, remove files that a crash left incomplete, and open the newest file.

        A newest file without entries is removed too. ``CorruptIndex`` when a file is damaged: ``truncate`` or
        ``reset`` repairs that, and opens too. After a crash call ``truncate`` at once.
        """
        with self._lock:
            self._close_newest()
            names = self._prepare()
            end = -1
            for position, name in enumerate(names):
                # The newest file shows the geometry of all, or the one before it while the newest has few entries.
                header = self._look_into(name, slots=len(names) - position <= _TELLING)
                if header is not None:
                    end = max(end, header.end_physical_offset)
                elif position == len(names) - 1:
                    self._remove([names.pop()])
            if names:
                self._newest = IndexFileWriter.open(self._file_path(names[-1]), self._slots_by_size)
            self._end_physical_offset = end
            self._file_count = len(names)
            self._is_open = True

    def _prepare(self) -> list[str]:
        """The names of the files, oldest first; the directory is made and cleaned first."""
        try:
            disk.make_directory(self.path)
            disk.sync_directory(os.path.dirname(os.path.abspath(self.path)))
        except FileExistsError:
            pass
        self._remove([name for name in sorted(disk.list_names(self.path)) if _is_half_made(name)])
        return self._names()

    def _names(self) -> list[str]:
        """The names of the files, oldest first; none where the directory is missing."""
        names = disk.list_names(self.path) if disk.is_directory(self.path) else []
        return sorted(name for name in names if is_index_file_name(name))

    def _file_path(self, name: str) -> str:
        return os.path.join(self.path, name)

    def _look_into(self, name: str, *, slots: bool = True, spread: bool = False) -> IndexHeader | None:
        """The header of a file; None when it has no entries. One of ``_DAMAGE``.

        ``slots``: check that its slots lead to its entries, and infer their number. ``spread``: to entries of all parts
        of the file.
        """
        with self._opened(name) as file:
            if file is None or file.header().index_count <= 1:
                return None
            return None if slots and file.slot_count(spread=spread) is None else file.header()

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[IndexFile | None]:
        """A file for reading; None while it is empty: RocketMQ makes a file first, and gives it its size afterwards."""
        file = MappedFile.open(self._file_path(name), 0)
        try:
            yield IndexFile(file, self._slots_by_size) if file.size else None
        finally:
            file.close()

    def looks_right(self) -> bool:
        """Whether ``open`` would succeed; for an index that is not open. Changes nothing. ``OSError``."""
        with self._lock:
            names = self._names()
            try:
                headers = [
                    self._look_into(name, slots=len(names) - position <= _TELLING)
                    for position, name in enumerate(names)
                ]
            except CorruptIndex:
                return False
            if headers and headers[-1] is None:
                headers.pop()  # ``open`` removes it, and takes the one before it for the newest
            return not headers or headers[-1] is not None

    def count_files(self) -> int:
        """Count the index files in the directory."""
        return len(self._names())

    def borders(self) -> list[tuple[int, int]]:
        """Between each file and the next: physical offsets of the last message of the one and the first of the other.

        Before all of them -1 and the first message of the first file, after all of them ``MAX_LONG``. For an index
        that is not open. Empty when a file is damaged. ``OSError``.
        """
        with self._lock:
            try:
                found = [self._look_into(name, slots=False) for name in self._names()]
            except _DAMAGE:
                return []
            headers = [header for header in found if header is not None]
            ends = [-1, *(header.end_physical_offset for header in headers)]
            begins = [*(header.begin_physical_offset for header in headers), MAX_LONG]
            return list(zip(ends, begins, strict=True))

    def _remove(self, names: list[str]) -> None:
        """Remove files, the newest first: a crash in between leaves the older ones."""
        for name in reversed(names):
            disk.unlink(self._file_path(name))
        if names:
            disk.sync_directory(self.path)

    def put(
        self,
        key_hashes: npt.NDArray[np.int32],
        physical_offsets: npt.NDArray[np.int64],
        store_timestamps: npt.NDArray[np.int64],
    ) -> None:
        """Index messages in log order: a row for each key, all rows of a message in one call.

        Hashes are those of ``index_key_hash``, timestamps are milliseconds. Rows of messages up to
        ``end_physical_offset`` are skipped, so a message may be dispatched again. After an ``OSError`` from making
        a file or from allocating space (a full disk) the same call may be made again; after any other it fails until
        the index is opened again.
        """
        if not len(key_hashes) == len(physical_offsets) == len(store_timestamps):
            raise InvalidValue("Each index entry has a key hash, a physical offset and a store timestamp.")
        if len(physical_offsets) and (physical_offsets[0] < 0 or (physical_offsets[1:] < physical_offsets[:-1]).any()):
            raise InvalidValue("Messages are indexed in log order: their physical offsets do not descend.")
        with self._lock:
            self._check_open()
            at = int(np.searchsorted(physical_offsets, self._end_physical_offset, side="right"))
            while at < len(key_hashes):
                at += self._file_with_room().put(key_hashes[at:], physical_offsets[at:], store_timestamps[at:])
                # A message whose other keys go into the next file counts once they are written.
                whole = int(np.searchsorted(physical_offsets, physical_offsets[at])) if at < len(key_hashes) else at
                if whole:
                    self._end_physical_offset = max(self._end_physical_offset, int(physical_offsets[whole - 1]))

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreClosed(f"The index {self.path} is not open.")

    def _file_with_room(self) -> IndexFileWriter:
        full = self._newest
        if full is not None and full.room > 0:
            return full
        self._flush()
        path = self._file_path(self._new_name())
        # An existing index keeps its geometry: RocketMQ requires one size for all files.
        slots, capacity = (self._slot_count, self._capacity) if full is None else (full.slot_count, full.capacity)
        self._newest = IndexFileWriter.create(path, slots, capacity)
        self._file_count += 1
        if full is not None:
            full.close()
        return self._newest

    def _new_name(self) -> str:
        """The local time, or the next number after the newest file's name: file names have to ascend."""
        now = self._now_ms()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now // 1000)) + f"{now % 1000:03d}"
        if self._newest is not None:
            newest = int(os.path.basename(self._newest.path))
            name = max(name, f"{newest + 1:0{INDEX_NAME_DIGITS}d}")
        return name

    def flush(self) -> None:
        """Return when all entries are on the device."""
        with self._lock:
            self._check_open()
            self._flush()

    def _flush(self) -> None:
        if self._newest is not None:
            self._newest.flush()
            self._index_msg_timestamp = self._newest.header.end_timestamp

    def truncate(self, physical_offset: int) -> bool:
        """Recovery: keep the entries of messages before a physical offset, if they are right, and open the index.

        The caller guarantees that every message before the offset was indexed with all its keys, and that these are on
        the device; it indexes again from there. The newest file that is kept is checked entry by entry, those before it
        by a sample. A damaged one is removed with all after it. Then the result is False: entries that belong to the
        store are gone, and the whole log is to be indexed from scratch.
        """
        with self._lock:
            self._close_newest()
            names = self._prepare()
            kept, whole = self._count_kept(names, physical_offset)
            self._remove(names[kept:])
            while kept and self._newest is None:
                kept -= 1
                try:
                    self._newest = self._truncated(names[kept], physical_offset)
                except _DAMAGE:
                    whole = False
                    self._remove([names[kept]])
            self._end_physical_offset = -1 if self._newest is None else self._newest.header.end_physical_offset
            self._index_msg_timestamp = 0 if self._newest is None else self._newest.header.end_timestamp
            self._file_count = 0 if self._newest is None else kept + 1
            self._is_open = True
            return whole

    def survey(self, physical_offset: int) -> tuple[bool, int]:
        """What ``truncate`` would return, and how many files it would leave. Changes nothing.

        For an index that is not open. ``OSError``.
        """
        with self._lock:
            names = self._names()
            kept, whole = self._count_kept(names, physical_offset)
            while kept:
                try:
                    entries = count_entries(self._file_path(names[kept - 1]), self._slots_by_size, physical_offset)
                except _DAMAGE:
                    entries, whole = 0, False
                if entries:
                    break
                kept -= 1
            return whole, kept

    def last_indexed(self) -> int:
        """``end_physical_offset`` as ``open`` would find it; for an index that is not open. ``OSError``."""
        with self._lock:
            headers = [self._look_into(name, slots=False) for name in self._names()]
            return max((header.end_physical_offset for header in headers if header is not None), default=-1)

    def _count_kept(self, names: list[str], physical_offset: int) -> tuple[int, bool]:
        """The number of files, from the oldest on, that hold entries before the physical offset and look right.

        And whether no file after them holds any: False when one is damaged.
        """
        end = 0
        for position, name in enumerate(names):
            try:
                header = self._look_into(name, spread=True)
            except _DAMAGE:
                return position, False
            if header is None or header.begin_physical_offset < end:
                # A crash may leave the newest file without entries, but not a file with a successor.
                return position, header is None and position == len(names) - 1
            if header.begin_physical_offset >= physical_offset:
                return position, True
            end = header.end_physical_offset
        return len(names), True

    def _truncated(self, name: str, physical_offset: int) -> IndexFileWriter | None:
        """The file of that name with its kept entries; None without any, and then the file is removed. ``_DAMAGE``."""
        file = IndexFileWriter.open(self._file_path(name), self._slots_by_size)
        try:
            return file if file.truncate(physical_offset) else None
        except (CorruptIndex, TooManyOpenFiles, OSError):
            file.close()
            raise

    def reset(self) -> None:
        """Remove every index file."""
        with self._lock:
            self._close_newest()
            self._remove(self._prepare())
            self._end_physical_offset = -1
            self._index_msg_timestamp = 0
            self._file_count = 0
            self._is_open = True

    def discount_expired(self, log_start: int) -> int:
        """How many of the oldest files hold only messages before ``log_start``; not counted from now on. ``OSError``.

        The newest file stays. A damaged file, and those after it, stay too, with a warning.
        """
        with self._lock:
            self._check_open()
            count = 0
            try:
                for name in self._names()[:-1]:
                    with self._opened(name) as file:
                        end = None if file is None else file.last_indexed()
                    if end is None or end >= log_start:
                        break
                    count += 1
            except _DAMAGE as damage:
                _LOG.warning("Cleaning keeps the index files from a damaged one on: %s", damage)
            self._file_count -= count
            return count

    def remove_oldest(self, count: int) -> None:
        """Delete so many of the oldest files, which were discounted, one by one. ``OSError``."""
        with self._lock:
            for name in self._names()[:count]:
                disk.unlink(self._file_path(name))
                disk.sync_directory(self.path)

    def _close_newest(self) -> None:
        self._is_open = False
        file, self._newest = self._newest, None
        if file is not None:
            file.close()

    def release(self) -> None:
        """Close without a flush. A second call does nothing."""
        with self._lock:
            self._close_newest()

    def close(self) -> None:
        """Flush and close. A second call does nothing."""
        with self._lock:
            try:
                self._flush()
            finally:
                self._close_newest()


def _is_half_made(name: str) -> bool:
    stem, suffix = os.path.splitext(name)
    return suffix == TEMPORARY_SUFFIX and is_index_file_name(stem)
