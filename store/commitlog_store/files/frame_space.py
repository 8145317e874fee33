"""Space after the log's end in which a frame is written, to be published wholly or not at all.

The frame's bytes lie after the wrote position of their file, or in files that are not yet part of the log. A flush,
the checkpoint and dispatch use these positions, so none of them can count a part of it. ``publish`` moves them.
"""

from __future__ import annotations

from commitlog_store.files import disk
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.files.mapped_file_writer import MappedFileWriter


class FrameSpace:
    """Writes from the log's end on, under the put lock. Either ``publish`` or ``discard`` ends it."""

    def __init__(self, files: MappedFileQueueWriter) -> None:
        """Raises ``FileAllocator``'s errors when the log's last file is full."""
        self._files = files
        self._first = self._file = files.writable()
        self._new: list[MappedFileWriter] = []
        self._at = self._first.wrote_position
        self.start = self._first.base + self._at
        # From now on it is a part of the log, wholly or (after an interrupt) in a way that only recovery can find out.
        self.published = False

    @property
    def position(self) -> int:
        """The physical offset of the next byte."""
        return self._file.base + self._at

    @property
    def room(self) -> int:
        """The number of bytes left in the current file."""
        return self._file.capacity - self._at

    def skip(self, length: int) -> None:
        """Leave out bytes that ``write_at_start`` writes last."""
        self._at += length

    def write(self, data: disk.Bytes) -> None:
        """Write ``data``, which fits into the file. ``DiskFull``, ``StoreIOError``."""
        self._file.reserve(self._at + len(data))
        self._file.write_ahead(data, self._at)
        self._at += len(data)

    def end_file(self, filler: disk.Bytes) -> None:
        """Write a blank filler, and continue in the next file. ``StoreIOError``, and ``FileAllocator``'s errors."""
        self.write(filler)
        self._file.leave_rest(self._at)
        self.next_file()

    def next_file(self) -> None:
        """Continue in the next file, when this one is full. ``FileAllocator``'s errors."""
        following = self._files.made(self._file.base + self._file.capacity)
        self._new.append(following)
        self._file, self._at = following, 0

    def write_at_start(self, data: disk.Bytes) -> None:
        """Write where the space begins. ``DiskFull``, ``StoreIOError``."""
        self._first.reserve(self.start - self._first.base + len(data))
        self._first.write_ahead(data, self.start - self._first.base)

    def publish(self) -> None:
        """Count everything as written: from now on it is a part of the log. It cannot fail."""
        self.published = True
        for file in self._new[:-1]:
            file.advance(file.capacity)
        if self._new:
            self._new[-1].advance(self._at)
            self._first.advance(self._first.capacity)
            self._files.files.extend(self._new)
        else:
            self._first.advance(self._at)
        # A frame makes its files, and allocates their space, while it is written. After a commit from Spark the store
        # is closed, which would wait for a file being made ahead.
        self._files.appended(ahead=False)

    def discard(self) -> None:
        """Zero the written bytes: they must never come back. ``StoreIOError``.

        Their space is given back, and new files are removed: a frame that found no room on the disk must not keep the
        disk full. A file stays, without content, where others that were made ahead, or are being made, come after it:
        a gap before them would be a missing file. An earlier put ordered them, or one before a crash.
        """
        while self._new:
            file = self._new.pop()
            file.zero_from(0)  # its name may come back when the machine stops
            if self._files.is_made(file.base + file.capacity):
                file.close()
            else:
                self._files.remove(file)
        self._first.zero_from(self.start - self._first.base)
