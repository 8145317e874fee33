"""One file of the log, of a queue or of the index, read by position or through a mapping.

A process that touches a mapped page which the kernel cannot bring in is killed (SIGBUS): its sector is bad, or another
program has truncated the file. So no page is touched before one call of the kernel has brought it in, which gives an
error instead (``MADV_POPULATE_READ``). Where that call fails or does not exist, the bytes are read with ``pread``:
it gives them, or says what is wrong with them. Dangerous remain the microseconds in which the array is used, for a page
that is truncated, or that the kernel drops for lack of memory and cannot read a second time.
"""

from __future__ import annotations

import mmap
import sys

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import FileChanged, ReaderClosed, ReadFailed
from commitlog_store.files import disk
from commitlog_store.files.memory import drop_pages, populate_pages, zeroed_bytes

# The kernel brings in a page together with those of the same 64 KiB: single pages of it are not asked for.
_NEAR = 64 << 10
# So many small pieces are read one by one in the time that it takes to find the pages of all.
_FEW_PIECES = 256
# In place of a descriptor.
_NONE = -1


class MappedFile:
    """A file opened for reading. ``base`` is the offset of its first byte in the queue of files.

    ``capacity`` is its size when it was opened.
    """

    # Pages this far before the last one that was read stay with the process, since the queues of a log are interleaved:
    # a task that reads several of them side by side comes by again. Pages further back are given back, so that memory
    # stays flat for files of any length.
    _resident_size = 64 << 20
    _descriptor = _NONE

    def __init__(self, path: str, base: int, descriptor: int, identity: disk.FileIdentity | None = None) -> None:
        """Takes over the descriptor. ``identity`` is the file's, when it is known already."""
        self._descriptor = descriptor  # first: from here on it is closed, whatever happens
        self.path = path
        self.base = base
        self._mapping: mmap.mmap | None = None
        # The stretch of the mapping whose pages may be in this process's memory.
        self._resident = (0, 0)
        # A stretch of the file that had no hole when it was looked at: each look may take as long as a small block.
        self._without_hole = (0, 0)
        self._populates = sys.platform == "linux"
        self.identity = disk.identity(descriptor) if identity is None else identity
        self.capacity = self.identity.size

    @classmethod
    def open(cls, path: str, base: int) -> MappedFile:
        return cls(path, base, disk.open_file(path))

    def _opened(self) -> int:
        """The descriptor of the open file. ``ReaderClosed``."""
        if self._descriptor == _NONE:
            raise ReaderClosed(f"{self.path} was closed with its reader; open the store again to read on.")
        return self._descriptor

    @property
    def size(self) -> int:
        """The file's size now, in bytes. ``ReaderClosed``, as all that reads the file."""
        return disk.size_of(self._opened())

    def read(self, position: int, length: int) -> bytes:
        """``length`` bytes from ``position`` of the file, fewer at its end. ``ReadFailed``."""
        try:
            return disk.read_at(self._opened(), length, position)
        except OSError as error:
            raise ReadFailed("read", path=self.path, cause=error) from error

    def read_into(self, data: npt.NDArray[np.uint8], start: int) -> None:
        """Fill ``data`` with the bytes from ``start`` of the file. ``FileChanged`` when it ends before, ``ReadFailed``.

        Cheaper than faulting in mapped pages where most of the bytes are used: the memory is used again and again.
        """
        done = self._fill(data.data, start)
        if done < len(data):
            raise self._truncated(f"holds {start + done} bytes, {start + len(data)} were expected")

    def _fill(self, buffer: memoryview, start: int) -> int:
        try:
            return disk.read_into(self._opened(), buffer, start)
        except OSError as error:
            raise ReadFailed("read", path=self.path, cause=error) from error

    def sync(self) -> None:
        """Bring what was written so far to the device. It needs no permission to write. ``ReadFailed``."""
        try:
            disk.sync(self._opened())
        except OSError as error:
            raise ReadFailed("sync", path=self.path, cause=error) from error

    def data_extents(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The stretches of ``[start, stop)`` that are not holes of the file."""
        return disk.data_extents(self._opened(), start, stop)

    def reach(self, start: int, stop: int) -> int:
        """``stop``, or where the file ends before it. ``FileChanged`` when it reached further since it was opened."""
        size = self.size
        if size < stop and (size <= start or size < self.identity.size):
            raise self._truncated(f"holds {size} bytes, {stop} were expected")
        return min(size, stop)

    def span(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """The bytes ``[start, stop)`` of the file, mapped. ``FileChanged`` when it does not reach that far,
        ``ReadFailed``.

        The array keeps the mapping alive, so nothing is unmapped under it (invariant 8).
        """
        mapping = self._mapped_to(stop)
        self._reside(mapping, start, stop)
        if self._populated(mapping, start, stop):
            return disk.mapped_bytes(mapping, start, stop)
        data = np.empty(stop - start, np.uint8)
        self.read_into(data, start)
        return data

    def pieces(self, starts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.void]:
        """Pieces of ``size`` bytes each, copied, from many places of the file. The errors of ``span``.

        Their pages stay in memory until ``release``.
        """
        if len(starts) > _FEW_PIECES:
            end = int(starts.max()) + size
            mapping = self._mapped_to(end)
            if all(self._populated(mapping, first, last) for first, last in _stretches(starts, size)):
                self._resident = (0, max(end, self._resident[1]))
                return np.ndarray((end - size + 1,), f"V{size}", mapping, strides=(1,))[starts]
        parts = [self.read(start, size) for start in starts.tolist()]
        for start, part in zip(starts.tolist(), parts, strict=True):
            if len(part) < size:
                raise self._truncated(f"holds {start + len(part)} bytes, {start + size} were expected")
        return np.frombuffer(b"".join(parts), f"V{size}")

    def _mapped_to(self, stop: int) -> mmap.mmap:
        """The mapping of at least the first ``stop`` bytes. ``FileChanged``."""
        size = self.size
        if size < stop:
            raise self._truncated(f"holds {size} bytes, {stop} were expected")
        if self._mapping is None or len(self._mapping) < stop:
            self._mapping = disk.map_file(self._opened(), size)
        return self._mapping

    def _populated(self, mapping: mmap.mmap, start: int, stop: int) -> bool:
        """Bring in the pages of ``[start, stop)``; False when ``pread`` has to read these bytes."""
        if not self._populates:
            return False
        try:
            self._populates = populate_pages(mapping, start, stop)
        except OSError:
            return False
        return self._populates

    def scanned(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """The bytes ``[start, stop)`` for a scan, which may go beyond the written ones.

        A stretch with holes is copied: in tmpfs a hole of a mapping takes space when it is touched, and on a full disk
        kills the process. ``FileChanged``, ``ReadFailed``.
        """
        if self._has_no_hole(start, stop):
            return self.span(start, stop)
        extents = self.data_extents(start, stop)
        if self.size < stop:
            raise self._truncated(f"holds {self.size} bytes, {stop} were expected")
        data = zeroed_bytes(stop - start)
        for first, last in extents:
            self._fill(data[first - start : last - start].data, first)
        return data

    def _has_no_hole(self, start: int, stop: int) -> bool:
        """Whether ``[start, stop)`` has no hole.

        An owner that has cut off the file's end in another process since the last look has made one: then the page is
        brought in, or read by ``pread`` if that fails, as is any other.
        """
        first, last = self._without_hole
        if not first <= start <= stop <= last:
            first, last = self._without_hole = start, disk.first_hole(self._opened(), start)
        return stop <= last

    def _reside(self, mapping: mmap.mmap, start: int, stop: int) -> None:
        """Move the stretch of resident pages on to ``[start, stop)``, giving back pages too far before it."""
        low, high = self._resident
        if not low <= start <= high:
            self.release()
            low = high = start
        high = max(high, stop)
        keep_from = min(start, high - self._resident_size)
        if low < keep_from:
            drop_pages(mapping, low, keep_from)
            low = keep_from
        self._resident = (low, high)

    def _truncated(self, what: str) -> FileChanged:
        return FileChanged(
            f"{self.path} {what}: it was truncated, or its disk failed, while it was being read. "
            "Restore the file, or open the store again to read what is left.",
            path=self.path,
        )

    def release(self) -> None:
        """Give back all resident pages of the mapping. Bytes already handed out are read from the file again."""
        low, high = self._resident
        if self._mapping is not None and low < high:
            drop_pages(self._mapping, low, min(high, len(self._mapping)))
        self._resident = (0, 0)

    def close(self) -> None:
        # A mapping with arrays on it cannot be closed by force; it is closed with the last array.
        self._mapping = None
        # Closed last: an interrupt in between leaves the descriptor open, rather than a number here that may be another
        # file's by then.
        descriptor, self._descriptor = self._descriptor, _NONE
        if descriptor >= 0:
            disk.close(descriptor)

    def __del__(self) -> None:
        # Of a reader that was dropped, or whose opening a signal handler has ended. A writer was closed before it is
        # dropped, since the set of open stores holds its owner until then; its descriptor is _NONE then, as here.
        MappedFile.close(self)


def _stretches(starts: npt.NDArray[np.int64], size: int) -> list[tuple[int, int]]:
    """Stretches of the file that hold all pieces. Pieces near each other share one: their pages come in together."""
    # Equal ones may stay, and np.unique takes several times as long.
    near = np.sort(np.concatenate((starts // _NEAR, (starts + size - 1) // _NEAR)), kind="stable")
    cuts = np.flatnonzero(np.diff(near) > 1) + 1
    begins, ends = near[np.concatenate([[0], cuts])], near[np.concatenate([cuts - 1, [-1]])]
    limit = int(starts.max()) + size
    return [
        (begin * _NEAR, min((end + 1) * _NEAR, limit))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
