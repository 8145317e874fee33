"""One file of the CommitLog, opened for writing: appended to, committed, flushed, deleted.

Four positions, each at most the next one::

    0      flushed_position   committed_position      wrote_position    allocated_position    size
    +--------------+------------------+----------------------+--------------------+------------+
    | on the device| in the kernel    | in the pool's buffer | allocated, zero    | a hole     |
    +--------------+------------------+----------------------+--------------------+------------+

Without a buffer of the transient pool, written bytes are committed at once. Single records are written through a
mapping, large pieces by ``pwrite``; the kernel keeps both, and the mappings of readers, the same. A system call
releases the interpreter's lock, and each of many putting threads would queue for it again while it holds the put lock.
Space is allocated in steps (``space``), before the bytes that need it: ``reserve`` finds a full disk, so that it is
``DiskFull`` with nothing written, and neither a SIGBUS nor half a record. The allocated position is not stored: of a
file that is opened again, space is allocated from the wrote position on, which changes nothing where it was before.

A log may have more files than a process may open. A complete file, every byte of which is on the device, can ``rest``:
its descriptor and mappings are closed, and opened again when it is read.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import sys
import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import DiskFull, FileCreationFailed, StoreIOError, TooManyOpenFiles
from commitlog_store.files import disk, space
from commitlog_store.files.error_paths import failed_writes
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.memory import drop_pages, lock_memory, will_need
from commitlog_store.files.space import NO_SPACE
from commitlog_store.files.transient_store_pool import PooledBuffer
from commitlog_store.files.whole_file import new_file

# The advice after a write or a sync that failed.
HALTED = "Whether its bytes are on the device is unknown; the store takes no more writes until it is opened again."

_ZEROS = bytes(1 << 20)
# Up to this many bytes a copy is cheaper than a system call.
_SMALL = 64 << 10
# Up to this many an append may run on an event loop: batches of 100 messages of 1 KiB came out a tenth faster.
_AT_ONCE = 256 << 10
# Bytes written through the mapping, or read by dispatch, that stay in the process's memory.
_RESIDENT = 8 << 20
# In place of a descriptor. A closed file has the same number in MappedFile, whose __del__ then closes nothing.
_UNOPENED, _CLOSED = -2, -1


def is_out_of_space(error: BaseException) -> bool:
    """Whether the disk had no space for a write, which can then be tried again later."""
    return isinstance(error, DiskFull) or (isinstance(error, StoreIOError) and error.errno in NO_SPACE)


def passes(error: BaseException) -> bool:
    """Whether a failure has changed nothing and passes: without space or descriptors, a step is tried again later."""
    return isinstance(error, TooManyOpenFiles) or is_out_of_space(error)


def make_file(path: str, size: int, *, sparse: bool = False, warm: bool = False, synced: bool = True) -> None:
    """``made_file``, closed."""
    disk.close(made_file(path, size, sparse=sparse, warm=warm, synced=synced))


def made_file(path: str, size: int, *, sparse: bool = False, warm: bool = False, synced: bool = True) -> int:
    """Make a file of zeros that is whole or does not exist, whenever the machine stops; the former only if ``synced``.

    Returns its descriptor, open for writing. It has the space of its first step, with ``warm`` all of it, with
    ``sparse`` none. ``synced`` as for ``new_file``. ``DiskFull``, ``StoreIOError``; then nothing is left.
    """
    allocated = 0 if sparse else size if warm else space.first_step(size)

    def prepare(descriptor: int) -> None:
        if allocated < size:
            disk.truncate(descriptor, size)
        if allocated:
            disk.allocate(descriptor, 0, allocated)
        if warm:
            _write_zeros(descriptor, 0, size)

    try:
        return new_file(path, prepare, synced=synced)
    except OSError as error:
        if error.errno in NO_SPACE:
            raise DiskFull(
                f"make a file of {size} bytes at", path=path, cause=error, advice="Free some space and put again."
            ) from error
        if error.errno == errno.ENOMEM:
            raise FileCreationFailed("make the file", path=path, cause=error) from error
        raise StoreIOError("make the file", path=path, cause=error) from error


def _write_zeros(descriptor: int, start: int, stop: int) -> None:
    for at in range(start, stop, len(_ZEROS)):
        disk.write_at(descriptor, memoryview(_ZEROS)[: stop - at], at)


class MappedFileWriter(MappedFile):
    """One file of the log. One thread appends at a time, another may commit or flush concurrently."""

    # Dispatch comes by once: readers have mappings of their own.
    _resident_size = _RESIDENT

    def __init__(
        self,
        path: str,
        base: int,
        descriptor: int,
        identity: disk.FileIdentity | None = None,
        on_opened: Callable[[MappedFileWriter], None] | None = None,
    ) -> None:
        """``on_opened`` is called when a use has opened the file."""
        super().__init__(path, base, descriptor, identity)
        self.wrote_position = 0
        self.committed_position = 0
        self.flushed_position = 0
        # Bytes before it have their space on the device; a multiple of the page size, or the capacity.
        self.allocated_position = 0
        # The wrote position after which the next step of space is to be ordered; the capacity: none is.
        self.order_from = self.capacity
        # The end of a blank filler, after which the file stays a hole; the capacity without one.
        self._bytes_end = self.capacity
        self._buffer: PooledBuffer | None = None
        # For small writes: None until the first one, and where a mapping cannot be used.
        self._window: mmap.mmap | None = None
        self._maps = sys.platform == "linux"
        # The mapping's pages were given back up to the first position; the next ones when writing passes the second.
        self._dropped = self._keep_until = 0
        # Writes to the file, and those of them that the last sync covered.
        self._writes = self._synced_writes = 0
        self._syncing = threading.Lock()
        # A sync that failed has lost its pages, and the next one would succeed all the same (invariant 2).
        self._failure: StoreIOError | None = None
        self._on_opened = on_opened
        # Held by the thread that opens or reads the file, or allocates in it, so that it is not closed concurrently.
        self._opening = threading.RLock()

    @classmethod
    def open(
        cls, path: str, base: int, on_opened: Callable[[MappedFileWriter], None] | None = None
    ) -> MappedFileWriter:
        return cls(path, base, disk.open_for_writing(path), on_opened=on_opened)

    @classmethod
    def unopened(
        cls, path: str, base: int, identity: disk.FileIdentity, on_opened: Callable[[MappedFileWriter], None]
    ) -> MappedFileWriter:
        """A file that is opened at its first use: most files of a long log are never used."""
        return cls(path, base, _UNOPENED, identity, on_opened)

    def _opened(self) -> int:
        """The descriptor. ``StoreIOError``, ``StoreAccessDenied``, ``NotAStore`` when the file cannot be opened."""
        if self._descriptor == _UNOPENED:
            with self._opening:
                if self._descriptor == _UNOPENED:
                    with failed_writes(self.path, "open"):
                        self._descriptor = self._open_same()
                    if self._on_opened is not None:
                        self._on_opened(self)
        return self._descriptor

    def _open_same(self) -> int:
        descriptor = disk.open_for_writing(self.path)
        try:
            if disk.identity(descriptor) != self.identity:
                raise OSError(errno.ESTALE, "another file has taken its place, or it has another size")
        except OSError:
            disk.close(descriptor)
            raise
        return descriptor

    @property
    def is_open(self) -> bool:
        """Whether the file has a descriptor."""
        return self._descriptor >= 0

    @property
    def size(self) -> int:
        with self._opening:
            return super().size

    def read(self, position: int, length: int) -> bytes:
        with self._opening:
            return super().read(position, length)

    def read_cached(self, position: int, length: int) -> bytearray | None:
        """``length`` bytes from ``position`` if they are in memory; None where the read would wait. ``OSError``,
        ``disk.CachedUnknown``."""
        if not self._opening.acquire(blocking=False):
            return None
        try:
            return disk.read_cached(self._opened(), length, position)
        finally:
            self._opening.release()

    def data_extents(self, start: int, stop: int) -> list[tuple[int, int]]:
        with self._opening:
            return super().data_extents(start, stop)

    def span(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        with self._opening:
            return super().span(start, stop)

    def scanned(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        with self._opening:
            return super().scanned(start, stop)

    def rest(self) -> bool:
        """Close the file until it is used again; False when it has to stay open, or is being read at this moment.

        For a complete file. One with bytes that are not on the device stays open: after a sync that failed, only this
        descriptor shows that. Arrays keep their mapping alive (invariant 8).
        """
        if self._buffer is not None or self._writes != self._synced_writes or not self._opening.acquire(blocking=False):
            return False
        try:
            if self.is_open:
                # Closed last: an interrupt in between leaves the descriptor open, rather than a number that may be
                # another file's by then.
                descriptor, self._descriptor = self._descriptor, _UNOPENED
                self._mapping, self._window, self._resident = None, None, (0, 0)
                disk.close(descriptor)
            return self._descriptor == _UNOPENED
        finally:
            self._opening.release()

    def close(self) -> None:
        with self._opening:
            descriptor, self._descriptor = self._descriptor, _CLOSED
            self._mapping, self._window = None, None
            if descriptor >= 0:
                disk.close(descriptor)

    @property
    def is_full(self) -> bool:
        return self.wrote_position >= self.capacity

    @property
    def has_buffer(self) -> bool:
        """Whether writes gather in a buffer of the transient pool."""
        return self._buffer is not None

    def set_positions(self, position: int) -> None:
        """Set all three positions, when the file is opened with that many bytes."""
        self.wrote_position = self.committed_position = self.flushed_position = position
        self.allocated_position, self.order_from = space.page_before(position), self.capacity
        self._bytes_end = self.capacity

    def use_buffer(self, buffer: PooledBuffer) -> None:
        """Gather writes in a buffer of the transient pool from now on."""
        self._buffer = buffer

    def reserve(self, end: int) -> None:
        """Allocate the space of a write that ends at ``end``. ``DiskFull``, ``StoreIOError``; nothing is written."""
        if end > self.allocated_position:
            self.allocate(space.needed(end, self.capacity))

    def takes_at_once(self, size: int, rest: int) -> bool:
        """Whether an append of so many bytes is a copy into memory, and leaves room for ``rest`` more."""
        position = self.wrote_position
        return (
            size <= _AT_ONCE
            and self._buffer is None
            # Only small ones go through the mapping, which is to be mapped, or freed of old pages, now and then.
            and (size > _SMALL or (self._window is not None and position < self._keep_until))
            and position + size <= min(self.allocated_position, self.capacity - rest)
        )

    def order_step(self) -> int:
        """The position up to which to allocate ahead; it is not ordered again before space runs out."""
        self.order_from = self.capacity
        return space.next_step(self.allocated_position, self.capacity)

    def allocate(self, position: int) -> None:
        """Allocate the space up to a position, while another thread may append. ``DiskFull``, ``StoreIOError``.

        Nothing is allocated after a blank filler: an order may be late.
        """
        with self._opening:
            start = self.allocated_position
            if position <= start or self.is_full or self._bytes_end < self.capacity:
                return
            try:
                self._refuse_truncated()
                space.allocate(self._opened(), start, position, unwritten=self.wrote_position)
            except OSError as error:
                if error.errno in NO_SPACE:
                    raise DiskFull(
                        f"allocate {position - start} bytes in",
                        path=self.path,
                        cause=error,
                        advice="Free some space and put again.",
                    ) from error
                raise StoreIOError("allocate space in", path=self.path, cause=error, advice=HALTED) from error
            self.allocated_position = position
            self.order_from = space.order_from(position, self.capacity)

    def _refuse_truncated(self) -> None:
        """Allocating beyond the end would extend a file that another program has cut short. ``OSError``."""
        if disk.size_of(self._opened()) < self.capacity:
            raise OSError(
                errno.ESTALE, f"the file has less than {self.capacity} bytes: another program truncated it", self.path
            )

    def append(self, data: disk.Bytes) -> None:
        """Write ``data`` at the wrote position. ``StoreIOError``: part of it may be written, no position moved.

        ``DiskFull``, when ``reserve`` was not called before: nothing is written.
        """
        position = self.wrote_position
        end = position + len(data)
        if end > self.allocated_position:
            self.reserve(end)
        if self._buffer is not None:
            self._buffer.view[position:end] = data
            self.wrote_position = end
            return
        if end - position <= _SMALL and ((self._window is not None and position < self._keep_until) or self._mapped()):
            assert self._window is not None
            try:
                disk.write_mapped(self._window, data, position, descriptor=self._descriptor)
            finally:
                self._writes += 1
        else:
            self._write(data, position)
        self.wrote_position = self.committed_position = end

    def write_ahead(self, data: disk.Bytes, position: int) -> None:
        """Write ``data`` after the wrote position, which stays until ``advance`` counts it. ``StoreIOError``.

        Space is for the caller to ``reserve``.
        """
        if self._buffer is not None:
            self._buffer.view[position : position + len(data)] = data
        else:
            self._write(data, position)

    def advance(self, position: int) -> None:
        """Count the bytes written ahead up to ``position``."""
        if position >= self.capacity:
            self.skip_to_end()
            return
        self.wrote_position = position
        if self._buffer is None:
            self.committed_position = position

    def _mapped(self) -> bool:
        """Whether small writes go through the mapping. Pages that they dirtied stay with the process only a while."""
        if self._window is None:
            if not self._maps:
                return False
            try:
                self._window = disk.map_for_writing(self._opened(), self.capacity)
            except TooManyOpenFiles:
                self._maps = False
                return False
            except OSError as error:
                if error.errno != errno.ENOMEM:
                    raise StoreIOError("map", path=self.path, cause=error, advice=HALTED) from error
                self._maps = False
                return False
        elif self.wrote_position >= self._keep_until:
            drop_pages(self._window, self._dropped, self.wrote_position)
        else:
            return True
        self._dropped, self._keep_until = self.wrote_position, self.wrote_position + _RESIDENT
        return True

    def warm(self) -> bool:
        """Lock the file's pages in memory while it is appended to; False where that is not allowed.

        Locking writes to every page, so all of the file is allocated first. ``DiskFull``, ``StoreIOError``.
        """
        self.allocate(self.capacity)
        if not self._mapped():
            return False
        assert self._window is not None
        will_need(self._window)
        locked = lock_memory(memoryview(self._window))
        if locked:
            self._keep_until = self.capacity
        return locked

    def leave_rest(self, end: int) -> None:
        """Leave everything after ``end``, that of a blank filler, a hole: space there is given back.

        Before ``skip_to_end``, and before another file is written. It is undone when the filler is zeroed.
        """
        with self._opening:
            self._bytes_end = end
            first = space.page_after(end)
            self.allocated_position = min(self.allocated_position, first)
            if first < self.capacity:
                self._without_hole = (0, 0)
                with contextlib.suppress(OSError):  # then the file keeps it
                    space.release(self._opened(), first, self.capacity)

    def skip_to_end(self) -> None:
        """Count the rest of the file, a blank filler, as written."""
        self.wrote_position = self.order_from = self.capacity
        self._window, self._maps = None, False
        if self._buffer is None:
            self.committed_position = self.capacity

    def commit(self) -> int:
        """Write the buffer's new content to the file; returns the number of bytes. ``StoreIOError``."""
        buffer, start, stop = self._buffer, self.committed_position, self.wrote_position
        if buffer is None or start == stop:
            return 0
        if start < (end := min(stop, self._bytes_end)):
            self._write(buffer.view[start:end], start)
        self.committed_position = stop
        return stop - start

    def flush(self) -> None:
        """Sync the committed bytes. ``StoreIOError``: then no position moved (invariant 2)."""
        position = self.committed_position
        if position == self.flushed_position:
            return
        self.sync_writes()
        self.flushed_position = position

    def sync_writes(self) -> None:
        """Sync the file if it was written since the last sync. ``StoreIOError``, then at every later call too."""
        with self._syncing:
            if self._writes != self._synced_writes or self._failure is not None:
                self._sync()

    def sync_all(self) -> None:
        """Sync the file, also writes by other programs. ``StoreIOError``."""
        with self._syncing:
            self._sync()

    def _sync(self) -> None:
        if self._failure is not None:
            # A new object: raising one again would add to its traceback.
            raise self._failure.again() from self._failure
        writes = self._writes
        try:
            disk.sync(self._opened())
        except OSError as error:
            self._failure = StoreIOError("sync", path=self.path, cause=error, advice=HALTED)
            raise self._failure from error
        self._synced_writes = writes

    def give_back_buffer(self) -> PooledBuffer | None:
        """The buffer for the next file, when this one is full and committed."""
        if self._buffer is None or self.committed_position < self.capacity:
            return None
        buffer, self._buffer = self._buffer, None
        return buffer

    def zero_from(self, position: int) -> None:
        """Zero all bytes after ``position``, take the space of whole pages there, and sync. ``StoreIOError``."""
        page = min(space.page_after(position), self.capacity)
        with self._opening:
            self.allocated_position = min(self.allocated_position, space.page_before(position))
            self.order_from = self._bytes_end = self.capacity
            with failed_writes(self.path, "zero the end of"):
                self._zero_data(position, page)
                if page < self.capacity and not self._release(page):
                    self._zero_data(page, self.capacity)
        self.sync_all()

    def _release(self, start: int) -> bool:
        """Make everything from a page on a hole; False where that is not possible."""
        self._without_hole = (0, 0)
        try:
            return space.release(self._opened(), start, self.capacity)
        finally:
            self._writes += 1

    def _zero_data(self, start: int, stop: int) -> None:
        for first, end in disk.data_extents(self._opened(), start, stop):
            self._zero(first, end)

    def _zero(self, start: int, stop: int) -> None:
        """Write zeros over the pieces of a stretch that are not zero."""
        for at in range(start, stop, len(_ZEROS)):
            zeros = _ZEROS[: stop - at]
            if self.read(at, len(zeros)) != zeros:
                try:
                    disk.write_at(self._opened(), zeros, at)
                finally:
                    self._writes += 1

    def _write(self, data: disk.Bytes, position: int) -> None:
        try:
            disk.write_at(self._opened(), data, position)
        except OSError as error:
            raise StoreIOError("write", path=self.path, cause=error, advice=HALTED) from error
        finally:
            self._writes += 1

    def delete(self) -> None:
        """Delete the file. Bytes that were mapped stay readable as long as the mapping lives (invariant 8)."""
        self.unlink()
        self.close()

    def unlink(self) -> None:
        """Remove the file's name; it stays readable until it is closed. ``StoreIOError``."""
        with failed_writes(self.path, "delete"), contextlib.suppress(FileNotFoundError):
            disk.unlink(self.path)
