"""One file of the log, read with ``pread`` alone: for a walk over files that may be on a failing disk.

A mapped page kills the process that touches it (SIGBUS) when its sector is bad, or when another program has truncated
the file since its size was checked. ``pread`` gives an error, or fewer bytes.
"""

from __future__ import annotations

import errno

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import ReadFailed
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile

PAGE_SIZE = 4096
# A disk may take seconds for each page that it fails: with so many, all of the file counts as unreadable.
MOST_FAILED = 64


class CopiedFile(MappedFile):
    """A file without a mapping. Pages that the disk fails to read are zeros, and their numbers are in ``failed``.

    ``ReadFailed`` with more of them than it is worth to try, and for an error that is not the disk's.
    """

    def __init__(self, path: str, base: int, failed: set[int]) -> None:
        """``failed`` is the caller's, and outlives the file. ``FileNotFoundError``."""
        super().__init__(path, base, disk.open_file(path))
        self.failed = failed

    def read(self, position: int, length: int) -> bytes:
        try:
            return super().read(position, length)
        except ReadFailed:
            data = bytearray(max(min(length, self.size - position), 0))
            return bytes(data[: self._fill(memoryview(data), position)])

    def span(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        if self.size < stop:
            raise self._truncated(f"holds {self.size} bytes, {stop} were expected")
        data = np.zeros(stop - start, np.uint8)
        self._fill(data.data, start)
        return data

    def _fill(self, buffer: memoryview, start: int) -> int:
        try:
            return disk.read_into(self._opened(), buffer, start)
        except OSError as error:
            if error.errno != errno.EIO:
                raise ReadFailed("read", path=self.path, cause=error) from error
        done = 0
        while done < len(buffer):
            page, within = divmod(start + done, PAGE_SIZE)
            piece = buffer[done : done + PAGE_SIZE - within]
            if not self._fill_page(piece, start + done, page):
                break
            done += len(piece)
        return done

    def _fill_page(self, piece: memoryview, start: int, page: int) -> bool:
        """Fill a part of one page; False at the file's end."""
        if page not in self.failed:
            try:
                return disk.read_into(self._opened(), piece, start) == len(piece)
            except OSError as error:
                if error.errno != errno.EIO or len(self.failed) >= MOST_FAILED:
                    raise ReadFailed("read", path=self.path, cause=error) from error
                self.failed.add(page)
        piece[:] = bytes(len(piece))
        return True
