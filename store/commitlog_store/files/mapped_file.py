"""One file of the log or of a queue, read by position or through a mapping.

A mapped page beyond the end of its file kills the process that touches it (SIGBUS). So the file's size is checked
before every access to the mapping, and a file that has become shorter is a named error. A live store's files are never
truncated (RocketMQ deletes whole files, and a deleted file stays readable while it is open), so only a truncation by
another program within microseconds of the check stays dangerous; single reads and ``read_into`` use ``pread``,
which is safe.
"""

from __future__ import annotations

import mmap
import sys

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import FileChanged, ReadFailed
from commitlog_store.files import disk
from commitlog_store.files.memory import drop_pages, populate_pages

# Pages this far before the last one that was read stay with the process, since the queues of a log are interleaved: a
# task that reads several of them side by side comes by again. Pages further back are given back, so that memory stays
# flat for files of any length.
_RESIDENT_SIZE = 64 << 20


class MappedFile:
    """A file opened for reading. ``base`` is the offset of its first byte in the queue of files.

    ``capacity`` is its size when it was opened.
    """

    def __init__(self, path: str, base: int, descriptor: int, identity: disk.FileIdentity | None = None) -> None:
        """Takes over the descriptor. ``identity`` is the file's, when it is known already."""
        self.path = path
        self.base = base
        self._descriptor = descriptor
        self._mapping: mmap.mmap | None = None
        # The stretch of the mapping whose pages may be in this process's memory.
        self._resident = (0, 0)
        self._populates = sys.platform == "linux"
        self.identity = disk.identity(descriptor) if identity is None else identity
        self.capacity = self.identity.size

    @classmethod
    def open(cls, path: str, base: int) -> MappedFile:
        return cls(path, base, disk.open_file(path))

    def _opened(self) -> int:
        """The descriptor of the open file."""
        return self._descriptor

    @property
    def size(self) -> int:
        """The file's size now, in bytes."""
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

    def data_extents(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The stretches of ``[start, stop)`` that are not holes of the file."""
        return disk.data_extents(self._opened(), start, stop)

    def reach(self, start: int, stop: int) -> int:
        """``stop``, or where the file ends before it. ``FileChanged`` when it reached further since it was opened."""
        size = self.size
        if size < stop and (size <= start or size < self.identity.size):
            raise self._truncated(f"holds {size} bytes, {stop} were expected")
        return min(size, stop)

    def span(self, start: int, stop: int, *, populate: bool) -> npt.NDArray[np.uint8]:
        """The mapped bytes ``[start, stop)`` of the file. ``FileChanged`` when the file does not reach that far.

        ``populate`` faults the pages in at once, for a caller that will touch most of them. The array keeps the
        mapping alive, so nothing is unmapped under it (invariant 8).
        """
        size = self.size
        if size < stop:
            raise self._truncated(f"holds {size} bytes, {stop} were expected")
        if self._mapping is None or len(self._mapping) < stop:
            self._mapping = disk.map_file(self._opened(), size)
        self._reside(self._mapping, start, stop, populate=populate)
        return disk.mapped_bytes(self._mapping, start, stop)

    def scanned(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """The bytes ``[start, stop)`` for a scan, which may go beyond the written ones.

        A stretch with holes is copied: in tmpfs a hole of a mapping takes space when it is touched, and on a full disk
        kills the process. ``FileChanged``, ``ReadFailed``.
        """
        extents = self.data_extents(start, stop)
        if extents == [(start, stop)]:
            return self.span(start, stop, populate=True)
        if self.size < stop:
            raise self._truncated(f"holds {self.size} bytes, {stop} were expected")
        memory = mmap.mmap(-1, max(stop - start, 1))  # of its zeros, no page takes memory
        for first, last in extents:
            self._fill(memoryview(memory)[first - start : last - start], first)
        return np.frombuffer(memory, np.uint8, stop - start)

    def _reside(self, mapping: mmap.mmap, start: int, stop: int, *, populate: bool) -> None:
        """Move the stretch of resident pages on to ``[start, stop)``, giving back pages too far before it."""
        low, high = self._resident
        if not low <= start <= high:
            self.release()
            low = high = start
        if populate and self._populates and stop > high:
            try:
                self._populates = populate_pages(mapping, max(start, high), stop)
            except OSError as error:
                raise self._truncated(f"cannot be read from {start} to {stop} ({error.strerror})") from error
        high = max(high, stop)
        keep_from = min(start, high - _RESIDENT_SIZE)
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
        disk.close(self._descriptor)
