"""ArchivedLog: the CommitLog of an archive, read by physical offset as the files of a directory are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from commitlog_store.archive.damage import advice_for
from commitlog_store.archive.manifest import Segment
from commitlog_store.archive_reader.opened_archive import OpenedArchive, stored
from commitlog_store.errors import ArchiveDamaged, CommitLogError, CorruptRecord, CorruptStoreError, ReaderClosed
from commitlog_store.files.disk import FileIdentity
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.format.arrays import ByteArray, Int64Array
from commitlog_store.format.record import Record
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.object_storage.pages import PAGE, ReadAhead, as_bytes


class ArchivedFile(MappedFile):
    """A segment of an archive, where a ``MappedFile`` is a file of a directory: nothing of it is mapped."""

    def __init__(self, archive: OpenedArchive, segment: Segment) -> None:
        self._archive = archive
        self.segment = segment
        self.path = f"{archive.url}/{segment.log.name}"
        self.base = segment.start
        self.capacity = segment.log.size
        self.identity = FileIdentity(0, 0, segment.log.size)

    @property
    def size(self) -> int:
        return self.capacity

    def read(self, position: int, length: int) -> bytes:
        """``length`` bytes from ``position`` of the file, fewer at its end. ``ArchiveDamaged``, ``ArchiveFailed``."""
        return bytes(self._archive.read(self.segment.log, position, min(position + length, self.capacity)))

    def _fill(self, buffer: memoryview, start: int) -> int:
        data = self._archive.read(self.segment.log, start, start + len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def span(self, start: int, stop: int) -> ByteArray:
        """The bytes ``[start, stop)``, which the segment has."""
        return as_bytes(self._archive.read(self.segment.log, start, stop))

    def scanned(self, start: int, stop: int) -> ByteArray:
        return self.span(start, stop)

    def data_extents(self, start: int, stop: int) -> list[tuple[int, int]]:
        return [(start, stop)]

    def pieces(self, starts: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.void]:
        return np.frombuffer(b"".join(self.read(start, size) for start in starts.tolist()), f"V{size}")

    def stretches(self, starts: Int64Array, sizes: Int64Array) -> tuple[ByteArray, Int64Array]:
        """Records at ascending places of the file: bytes that hold them, and where each one starts in these.

        What lies between two that are near each other comes with them; what lies between others is not read.
        """
        stops = np.minimum(starts + sizes, self.capacity)
        cuts = np.flatnonzero(starts[1:] - stops[:-1] > PAGE) + 1
        firsts, lasts = np.append(0, cuts), np.append(cuts, len(starts))
        lengths = np.maximum.reduceat(stops, firsts) - starts[firsts]
        if len(firsts) == 1:
            return self.span(int(starts[0]), int(starts[0] + lengths[0])), starts - starts[0]
        begins = np.cumsum(lengths) - lengths
        data = np.empty(int(lengths.sum()), np.uint8)
        for start, length, at in zip(starts[firsts].tolist(), lengths.tolist(), begins.tolist(), strict=True):
            self._fill(data[at : at + length].data, start)
        return data, starts + np.repeat(begins - starts[firsts], lasts - firsts)

    def release(self) -> None:
        """Nothing: pages are dropped as others come."""

    def close(self) -> None:
        """Nothing: it is no file of this process."""


class _ArchivedNames:
    """The segments' names, where ``NumberedFiles`` has those of a directory."""

    def __init__(self, owner: ArchivedFiles) -> None:
        self._owner = owner

    @property
    def path(self) -> str:
        return f"{self._owner.archive.url}/commitlog"

    def path_of(self, base: int) -> str:
        segment = self._owner.archive.segment_at(base)
        name = f"commitlog/{base:020d}" if segment is None else segment.log.name
        return f"{self._owner.archive.url}/{name}"

    def base_at(self, offset: int) -> int | None:
        bases = self._owner.bases
        place = int(np.searchsorted(bases, offset, side="right")) - 1
        return bases[place] if place >= 0 else None


class ArchivedFiles:
    """The log's segments, where ``MappedFileQueue`` has the files of a directory."""

    def __init__(self, archive: OpenedArchive) -> None:
        self.archive = archive
        self.files = _ArchivedNames(self)
        self._open: dict[str, ArchivedFile] = {}
        self._closed = False

    def use(self, archive: OpenedArchive) -> None:
        """Show another generation from now on."""
        self.archive = archive
        known = {segment.log.name for segment in archive.manifest.segments}
        self._open = {name: file for name, file in self._open.items() if name in known}

    @property
    def bases(self) -> list[int]:
        return self.archive.bases

    def refresh(self) -> bool:
        """False: a generation does not change. ``ReaderClosed``."""
        if self._closed:
            raise ReaderClosed(f"The reader of {self.archive.url} is closed; open the archive again to read on.")
        return False

    def opened(self, base: int) -> ArchivedFile | None:
        return self.find(base)

    def find(self, offset: int) -> ArchivedFile | None:
        """The segment that holds the byte at ``offset``, or None."""
        self.refresh()
        segment = self.archive.segment_at(offset)
        if segment is None:
            return None
        found = self._open.get(segment.log.name)
        if found is None:
            found = self._open[segment.log.name] = ArchivedFile(self.archive, segment)
        return found

    def end(self) -> int:
        """The offset after the last archived byte."""
        return self.archive.manifest.stop

    def close(self) -> None:
        self._closed = True


class ArchivedLog(CommitLog):
    """Read access to the log of an archive."""

    def __init__(self, files: ArchivedFiles) -> None:
        super().__init__(files.files.path, files=files)
        self._archived = files

    def find(self, physical_offset: int) -> ArchivedFile | None:
        return self._archived.find(physical_offset)

    def read_record(self, physical_offset: int, *, check_crc: bool = True) -> Record:
        """See ``CommitLog.read_record``. ``ArchiveDamaged``, ``ArchiveFailed``."""
        try:
            return super().read_record(physical_offset, check_crc=check_crc)
        except CorruptRecord as error:
            raise self.error_of_damaged_part(error, None, -1) from None

    def read_without_body(self, physical_offset: int) -> Record:
        """See ``CommitLog.read_without_body``. ``ArchiveDamaged``, ``ArchiveFailed``."""
        try:
            return super().read_without_body(physical_offset)
        except CorruptRecord as error:
            raise self.error_of_damaged_part(error, None, -1) from None

    def error_of_damaged_part(
        self, error: CorruptStoreError, queue: tuple[str, int] | None, offset: int
    ) -> CommitLogError:
        """``ArchiveDamaged`` where the object with the message's unit has other bytes than the manifest says; else the
        error, which says what to do about a record in an archive."""
        archive = self._archived.archive
        if queue is not None:
            try:
                archive.refuse_changed_units(queue, offset)
            except ArchiveDamaged as damaged:
                return damaged
        return error.advised(advice_for(archive.url))

    def missing_file_after(self, physical_offset: int) -> tuple[str, int] | None:
        """For an offset in a gap between segments: the path that a file there has, and where the gap ends."""
        later = [base for base in self.bases if base > physical_offset]
        if not later or physical_offset < self.min_offset:
            return None
        size = self._archived.archive.manifest.file_size
        return self.path_of(physical_offset // size * size), later[0]

    def expect(self, ahead: ReadAhead, starts: Int64Array, sizes: Int64Array) -> None:
        """Records that will be read, at places of the log, in any order."""
        segments = self._archived.archive.manifest.segments
        numbers = np.searchsorted(self.bases, starts, side="right") - 1
        # Mostly one or two of them; a place before the first has the number -1.
        for number in np.flatnonzero(np.bincount(numbers + 1)[1:]).tolist():
            segment = segments[number]
            within = starts[numbers == number] - segment.start
            lengths = sizes[numbers == number]
            if int(within.max()) >= segment.log.size:  # places in a gap after it
                within, lengths = within[within < segment.log.size], lengths[within < segment.log.size]
            ahead.expect(stored(segment.log), within, np.minimum(within + lengths, segment.log.size))
