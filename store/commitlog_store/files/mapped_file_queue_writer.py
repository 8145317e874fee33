"""The CommitLog's sequence of files, opened for writing: appended at its end, committed and flushed.

Physical offsets count from the first byte ever written. The log up to ``flushed_where`` is on the device, and up to
``committed_where`` in the kernel; each moves only after the work was done.

Of a long log a few files are open at a time, those used last: a process may open a limited number. A file is closed
only when all its written bytes are on the device.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Protocol

from commitlog_store.errors import CorruptRecord, StoreClosed
from commitlog_store.files import disk
from commitlog_store.files.error_paths import errors_name, failed_writes
from commitlog_store.files.limits import most_open_files
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.mapped_file_writer import HALTED, MappedFileWriter, make_file
from commitlog_store.files.transient_store_pool import PooledBuffer, TransientStorePool
from commitlog_store.files.whole_file import TEMPORARY_SUFFIX
from commitlog_store.paths import file_name_for_offset, parse_file_name

_PAGE = 4096
# Bytes to write back at a time.
_PIECE = 1 << 20
# The most and the fewest files that are kept open, and the share of those that the process may open.
_MAX_OPEN = 64
_MIN_OPEN = 4
_OPEN_SHARE = 16


def check_log_file(path: str, base: int, size: int, file_size: int, following: int | None) -> None:
    """``CorruptRecord`` for a file of another size than the others, or one that is missing before the following one."""
    if size != file_size:
        raise CorruptRecord(
            "Size of the CommitLog file",
            path=path,
            offset=0,
            expected=f"{file_size} bytes, the size of the first file",
            found=size,
            advice="Was it copied whole?",
        )
    if following is not None and following != base + size:
        raise CorruptRecord(
            "The file that follows",
            path=path,
            offset=size,
            expected=file_name_for_offset(base + size),
            found=file_name_for_offset(following),
            advice="Restore the missing file; a store with a hole is only read, not written.",
        )


def count_leftovers(bases: Sequence[int], path_of: Callable[[int], str]) -> int:
    """How many of a log's last files a crash has left without content.

    An empty one: RocketMQ gives a file its size after its name. And files of zeros after a gap, made ahead of need when
    the one before them could not be made.
    """
    left = len(bases)
    if left and disk.file_size(path_of(bases[-1])) == 0:
        left -= 1
    size = disk.file_size(path_of(bases[0])) if left else 0
    while left > 1 and bases[left - 1] != bases[left - 2] + size and _holds_nothing(path_of(bases[left - 1])):
        left -= 1
    return len(bases) - left


def _holds_nothing(path: str) -> bool:
    """Whether all bytes of a file are zero, or in a hole. ``NotAStore`` for a link, which an owner does not follow."""
    disk.identity_of(path)
    file = MappedFile.open(path, 0)
    try:
        extents = file.data_extents(0, file.size)
        places = ((at, min(_PIECE, stop - at)) for start, stop in extents for at in range(start, stop, _PIECE))
        return not any(file.read(at, length).strip(b"\0") for at, length in places)
    finally:
        file.close()


class FileAllocator(Protocol):
    """Maker of new files, and of space in them.

    ``make`` raises ``DiskFull``, ``StoreIOError`` and ``TimeoutError``; the others never raise. ``is_made`` says
    whether a file is there, or was prepared and may still be made.
    """

    def make(self, path: str, size: int, /) -> None: ...

    def prepare(self, path: str, size: int, /) -> None: ...

    def is_made(self, path: str, /) -> bool: ...

    def allocate_ahead(self, file: MappedFileWriter, position: int, /) -> None: ...


class AllocateNow:
    """The allocator without a service: a file is made when it is needed."""

    def make(self, path: str, size: int, /) -> None:
        if not disk.exists(path):
            make_file(path, size)

    def prepare(self, path: str, size: int, /) -> None:
        """Nothing is made ahead."""

    def is_made(self, path: str, /) -> bool:
        return disk.exists(path)

    def allocate_ahead(self, file: MappedFileWriter, position: int, /) -> None:
        """The append that needs space allocates it."""


class MappedFileQueueWriter:
    """All files of ``<store>/commitlog``. ``append`` is called under the put lock; one thread at a time flushes."""

    def __init__(
        self,
        path: str,
        file_size: int,
        *,
        allocator: FileAllocator | None = None,
        pool: TransientStorePool | None = None,
        warm: bool = False,
        max_open: int | None = None,
    ) -> None:
        """At most ``max_open`` files are open, unless more have to be synced; by default as many as fit."""
        self.path = path
        self.file_size = file_size
        self.files: list[MappedFileWriter] = []
        self.flushed_where = 0
        self.committed_where = 0
        self._allocator = allocator or AllocateNow()
        # The base of the file whose followers were requested.
        self._prepared = -1
        self._pool = pool
        self._warm = warm
        self._closed = False
        self._max_open = max_open or max(min(most_open_files() // _OPEN_SHARE, _MAX_OPEN), _MIN_OPEN)
        # The files that are open, those opened last at the end.
        self._open: list[MappedFileWriter] = []
        self._open_lock = threading.Lock()
        # Taken by the thread that commits: a service's, or a put's that needs a buffer (then under the put lock).
        self._committing = threading.Lock()
        # Whether appending has begun; before that, every file may be closed.
        self._appends = False

    def load(self, *, aborted: bool = True) -> None:
        """Find all files. Their size becomes ``file_size``; files that a crash left incomplete are removed.

        Each costs one look at its size here, and is opened at its first use.

        After a crash (``aborted``) a last file that is too short gets its size back, for recovery to read its content.
        ``CorruptRecord`` for a file of another size than the others, or one that is missing between them.
        """
        bases = []
        for name in disk.list_names(self.path):
            if name.endswith(TEMPORARY_SUFFIX):
                disk.unlink(os.path.join(self.path, name))
            elif (base := parse_file_name(name)) is not None:
                bases.append(base)
        bases.sort()
        for _ in range(count_leftovers(bases, self._path_of)):
            disk.unlink(self._path_of(bases.pop()))
        if bases:
            self.file_size = disk.file_size(self._path_of(bases[0]))
        if aborted and len(bases) > 1:
            self._extend(self._path_of(bases[-1]))
        for base, following in zip_longest(bases, bases[1:]):
            self.files.append(self._checked(base, following))

    def _extend(self, path: str) -> None:
        size = disk.file_size(path)
        if size < self.file_size:
            descriptor = disk.open_for_writing(path)
            try:
                with errors_name(path):
                    disk.truncate(descriptor, self.file_size)
                    disk.sync(descriptor)
            finally:
                disk.close(descriptor)

    def _checked(self, base: int, following: int | None) -> MappedFileWriter:
        path = self._path_of(base)
        identity = disk.identity_of(path)
        check_log_file(path, base, identity.size, self.file_size, following)
        return MappedFileWriter.unopened(path, base, identity, self._note_opened)

    def _path_of(self, base: int) -> str:
        return os.path.join(self.path, file_name_for_offset(base))

    @property
    def bases(self) -> list[int]:
        """The offset of the first byte of each file, in order."""
        return [file.base for file in self.files]

    @property
    def min_offset(self) -> int:
        return self.files[0].base if self.files else 0

    @property
    def max_wrote(self) -> int:
        """The end of all appended bytes, committed or not."""
        last = self.files[-1] if self.files else None
        return last.base + last.wrote_position if last is not None else self.flushed_where

    @property
    def dirty_pages(self) -> int:
        """Pages that are committed but not flushed."""
        return self.committed_where // _PAGE - self.flushed_where // _PAGE

    def set_end(self, end: int) -> None:
        """Set the log's end, as recovery found it. Empty files after it are found again when the log gets there."""
        for file in self.files:
            file.set_positions(min(max(end - file.base, 0), file.capacity))
        while self.files and self.files[-1].base >= end and len(self.files) > 1:
            # Made ahead of need and still empty: found again when the log gets there.
            self.files.pop().close()
        self.flushed_where = self.committed_where = end
        self._appends = True

    def cut(self, end: int) -> None:
        """Zero everything after ``end`` and delete the files after it (invariant 4). ``StoreIOError``."""
        while self.files and self.files[-1].base >= end and len(self.files) > 1:
            self.remove(self.files.pop())
        if self.files:
            last = self.files[-1]
            last.zero_from(end - last.base)
        self._sync_directory()

    def remove(self, file: MappedFileWriter) -> None:
        """Remove the last file, which is not part of the log (any more). ``StoreIOError``."""
        file.delete()
        # One by one: a file that comes back after a crash must not leave a gap before it.
        self._sync_directory()

    def remove_first(self, put_lock: threading.Lock) -> None:
        """Remove the oldest file, whose messages nothing needs any more, from the device too. ``StoreIOError``.

        On an error the file is still part of the log. ``put_lock`` orders the change of the list with appends. Bytes of
        the file that were mapped stay readable (invariant 8).
        """
        first = self.files[0]
        first.unlink()
        # One by one: of two names, a crash might bring only the older one back, and leave a gap after it.
        self._sync_directory()
        with put_lock:
            # A new list: other threads search the one that they have.
            self.files = self.files[1:]
        first.close()

    def write_back(self, start: int, stop: int) -> None:
        """Write the bytes of a stretch of the log once more, so that the next sync brings them to the device.

        After a sync that failed, the kernel takes those pages for clean: it shows bytes that the device never got, and
        every later sync skips them (invariant 2). ``StoreIOError``.
        """
        for file in self._from(start):
            first, last = max(start - file.base, 0), min(stop - file.base, file.capacity)
            if first >= last:
                continue
            with failed_writes(file.path, "write back", HALTED):
                descriptor = disk.open_for_writing(file.path)
                try:
                    for at in range(first, last, _PIECE):
                        disk.write_at(descriptor, file.read(at, min(_PIECE, last - at)), at)
                finally:
                    disk.close(descriptor)

    def _sync_directory(self) -> None:
        with failed_writes(self.path, "sync", HALTED):
            disk.sync_directory(self.path)

    def writable(self) -> MappedFileWriter:
        """The file for the next record; a new one when the last is full.

        ``FileAllocator``'s errors, and ``StoreClosed``.
        """
        last = self.files[-1] if self.files else None
        if last is not None and not last.is_full:
            return last
        base = self.flushed_where - self.flushed_where % self.file_size if last is None else last.base + last.capacity
        file = self.made(base)
        if (buffer := self._borrowed()) is not None:
            file.use_buffer(buffer)
        elif self._warm:
            self._warmed(file)
        self.files.append(file)
        return file

    def _borrowed(self) -> PooledBuffer | None:
        """A buffer of the pool. Where all are in use, their content is written first: a file without a buffer must not
        be on disk before the files that precede it, or a killed process leaves a hole. ``StoreIOError``."""
        if self._pool is None:
            return None
        buffer = self._pool.borrow(self.file_size)
        if buffer is None:
            self.commit()
            buffer = self._pool.borrow(self.file_size)
        return buffer

    def _warmed(self, file: MappedFileWriter) -> None:
        try:
            file.warm()
        except BaseException:
            file.close()  # of another program, with holes, and no space for them
            raise

    def made(self, base: int) -> MappedFileWriter:
        """The file of that base, made if need be, and not yet part of the log.

        ``FileAllocator``'s errors, and ``StoreClosed``.
        """
        if self._closed:
            # Without files the log's end is unknown.
            raise StoreClosed(f"The log of {self.path} is closed; open the store again.")
        path = self._path_of(base)
        self._allocator.make(path, self.file_size)
        # The sync of the name of a file that was made ahead may have failed without an error for any caller.
        self._sync_directory()
        self._appends = True
        self._make_room()
        file = MappedFileWriter.open(path, base, self._note_opened)
        self._note_opened(file)
        return file

    def is_made(self, base: int) -> bool:
        """Whether there is a file of that base, part of the log or made ahead, or another thread makes it soon."""
        return self._allocator.is_made(self._path_of(base))

    def _note_opened(self, file: MappedFileWriter) -> None:
        """A file was opened, by any thread: others are closed for it. Never waits, since a reader holds the file."""
        with self._open_lock:
            kept = [one for one in self._open if one.is_open and one is not file]
            excess = len(kept) + 1 - self._max_open
            for one in kept[:] if excess > 0 else ():
                if excess > 0 and (one.is_full or not self._appends) and one.rest():
                    kept.remove(one)
                    excess -= 1
            self._open = [*kept, file]

    def _make_room(self) -> None:
        """Before one more is made: where flushing lags behind, sync the files that are complete, and close them.

        Called under the put lock, so that is every file but the log's last one: those before it are full, and those
        after it belong to a frame that has moved to the next. ``StoreIOError``.
        """
        with self._open_lock:
            opened = [one for one in self._open if one.is_open]
        if len(opened) < self._max_open or any(one.is_full and one.rest() for one in opened):
            return
        last = self.files[-1] if self.files else None
        # Half of them, so that not every new file waits for the device.
        wanted = self._max_open // 2
        for one in opened:
            if wanted > 0 and one is not last and not one.has_buffer:
                one.sync_writes()
                wanted -= one.rest()

    def appended(self, *, ahead: bool = True) -> None:
        """Called under the put lock after an append: without a pool, the written bytes are committed.

        ``ahead``: have space allocated, and the next files made, before they are needed.
        """
        last = self.files[-1]
        if self._pool is None:
            self.committed_where = last.base + last.wrote_position
        if ahead and last.wrote_position > last.order_from:
            self._allocator.allocate_ahead(last, last.order_step())
        if ahead and last.base != self._prepared and last.wrote_position * 2 >= last.capacity:
            # Half full is early enough, and a store that stays small takes no space for files that it never needs.
            self._prepared = last.base
            for step in (1, 2):
                self._allocator.prepare(self._path_of(last.base + step * self.file_size), self.file_size)

    def commit(self) -> int:
        """Commit the content of buffers, file by file; returns the number of bytes. ``StoreIOError``.

        The position moves when all of it is done: not to within a frame, which may lie in several files.
        """
        with self._committing:
            done, end = 0, self.committed_where
            for file in self._from(self.committed_where):
                done += file.commit()
                end = file.base + file.committed_position
                buffer = file.give_back_buffer()
                if buffer is not None and self._pool is not None:
                    self._pool.give_back(buffer)
                if file.committed_position < file.capacity:
                    break
            self.committed_where = end
            return done

    def flush(self) -> None:
        """Sync all committed bytes, older files first. ``StoreIOError``: the position stays (invariant 2).

        It moves when all of it is done: not to within a frame, which may lie in several files.
        """
        end = self.committed_where
        for file in self._from(self.flushed_where):
            if file.base >= end:
                break
            file.flush()
        self.flushed_where = max(self.flushed_where, end)

    def _from(self, offset: int) -> list[MappedFileWriter]:
        """The files from the one that holds ``offset`` on."""
        files = self.files
        place = bisect_right(files, offset, key=lambda file: file.base) - 1
        return files[max(place, 0) :]

    def find(self, offset: int) -> MappedFileWriter | None:
        """The file that holds the byte at ``offset``; None outside the log."""
        files = self._from(offset)
        return files[0] if files and files[0].base <= offset < files[0].base + files[0].capacity else None

    def close(self) -> None:
        """Close all files. Appending is refused after that."""
        self._closed = True
        for file in self.files:
            file.close()
        self.files = []
        self._open = []
