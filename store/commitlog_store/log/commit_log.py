"""The CommitLog: every message of the store in one sequence of files, read by physical offset."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from commitlog_store.columnar.bodies import BODY_ADVICE, BODY_FIELDS, plain_body, still_packed
from commitlog_store.errors import (
    CommitLogError,
    CorruptRecord,
    CorruptStoreError,
    FileChanged,
    InvalidValue,
    LogNotFound,
    MessageNotFound,
    NotAStore,
    ReadFailed,
)
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.mapped_file_queue import MappedFileQueue
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.record import (
    HEADER_DTYPES,
    HEADER_SIZE,
    HOST_FLAGS,
    MAGIC_V1,
    MAX_TOPIC_SIZE,
    MIN_RECORD_SIZE,
    PROPERTIES_LENGTH_SIZE,
    Corrupt,
    Filler,
    Record,
    Torn,
    Unwritten,
    decode_record,
    field_offset,
    own_position,
)
from commitlog_store.format.sys_flag import COMPRESSED_FLAG
from commitlog_store.log.record_search import record_without_body
from commitlog_store.log.scan import LogFiles

# Bytes that a read of a single message fetches before its size is known; most messages fit.
_FIRST_READ = 4096
# The bytes at a record's start that are never all zero: its size and magic number.
_RECORD_START = 8
# What follows the body of a v1 record, with an empty topic and no properties.
_PLAIN_TAIL = MIN_RECORD_SIZE - HEADER_SIZE
# A reader of several queues does not pass from one file to the next in all of them at once.
_MAPPED_FILES = 2
# How often to look for a file again that retention removes between the listing and the opening.
_LOOKS = 4


class LogFileNames(Protocol):
    """Names and places of the log's files; ``NumberedFiles`` has the meanings."""

    @property
    def path(self) -> str: ...
    def path_of(self, base: int, /) -> str: ...
    def base_at(self, offset: int, /) -> int | None: ...


class FilesToRead(LogFiles, Protocol):
    """The files of a log that is read; ``MappedFileQueue`` has the meanings."""

    @property
    def files(self) -> LogFileNames: ...
    @property
    def bases(self) -> list[int]: ...
    def refresh(self) -> bool: ...
    def opened(self, base: int, /) -> MappedFile | None: ...
    def end(self) -> int: ...
    def close(self) -> None: ...


class HasDamagedParts(Protocol):
    """A log, or blocks of one, that other parts lead to, such as consume queues: each may be the damaged one."""

    def error_of_damaged_part(
        self, error: CorruptStoreError, queue: tuple[str, int] | None, offset: int
    ) -> CommitLogError:
        """The error to give for a message that cannot be read: of the part that is damaged.

        By default the error itself: files have no checksums that could say more. ``queue`` and ``offset`` are the
        message's; ``queue`` is None where no unit led there.
        """
        del queue, offset
        return error


class CommitLog(HasDamagedParts):
    """Read access to ``<store>/commitlog``, or to a log that lies elsewhere."""

    def __init__(self, path: str, *, files: FilesToRead | None = None) -> None:
        """``files`` are those of a log that is in no directory; ``path`` is what errors name then."""
        self._files: FilesToRead = MappedFileQueue(path) if files is None else files
        self._mapped: list[MappedFile] = []
        # Retention and recovery leave a log that has files at least one: without any, its disk is gone.
        self._had_files = False

    @property
    def path(self) -> str:
        return self._files.files.path

    def refresh(self) -> bool:
        """Update the list of files; True when it changed.

        ``LogNotFound`` when it had files and has none any more, ``NotAStore`` for a file in the directory's place.
        """
        try:
            changed = self._files.refresh()
        except NotADirectoryError:
            raise NotAStore(f"{self.path} should be the directory of the log, but is a file.", path=self.path) from None
        if self._files.bases:
            self._had_files = True
        elif self._had_files:
            raise LogNotFound.at(self.path, "its files were there before")
        return changed

    def bounds(self) -> tuple[int, int]:
        """First byte of the first file, and the end of the last one. Equal without files.

        The last file is allocated ahead, so its end is the most that the log may reach.
        """
        return (self._files.bases[0] if self._files.bases else 0), self._files.end()

    @property
    def min_offset(self) -> int:
        return self._files.bases[0] if self._files.bases else 0

    @property
    def file_count(self) -> int:
        return len(self._files.bases)

    @property
    def bases(self) -> list[int]:
        """The first byte of each file, in order."""
        return self._files.bases

    def path_of(self, base: int) -> str:
        """The path of the file that begins at that byte, whether it exists or not."""
        return self._files.files.path_of(base)

    def find(self, physical_offset: int) -> MappedFile | None:
        """The file that holds that byte; None before the first file, after the last and in a gap."""
        for _ in range(_LOOKS):
            try:
                return self._files.find(physical_offset)
            except FileNotFoundError:
                self.refresh()
        return None

    def missing_file_after(self, physical_offset: int) -> tuple[str, int] | None:
        """For an offset in a gap between files: the path of the missing or cut file, and where the gap ends."""
        bases = self._files.bases
        before = self._files.files.base_at(physical_offset)
        later = [base for base in bases if base > physical_offset]
        if before is None or not later:
            return None
        usual_size = min(*(after - base for base, after in pairwise(bases)), self._largest_size())
        missing = before + (physical_offset - before) // usual_size * usual_size
        return self._files.files.path_of(missing), later[0]

    def _largest_size(self) -> int:
        sizes = []
        for base in self._files.bases:
            with contextlib.suppress(OSError):  # others show the size
                sizes.append(disk.file_size(self._files.files.path_of(base)))
        return max(sizes, default=0) or self._files.end()

    def refuse_cut(self, physical_offset: int) -> None:
        """``FileChanged`` when the file that held that byte was cut off before it since it was opened."""
        base = self._files.files.base_at(physical_offset)
        found = None if base is None else self._files.opened(base)
        if found is not None and physical_offset - found.base < found.identity.size:
            found.reach(physical_offset - found.base, physical_offset - found.base + 1)

    def header(self, physical_offset: int) -> bytes | None:
        """The first 88 bytes of the record there; None outside the log and where nothing was written."""
        found = self.find(physical_offset)
        if found is None:
            return None
        head = found.read(physical_offset - found.base, HEADER_SIZE)
        return head if len(head) == HEADER_SIZE and any(head[:8]) else None

    def holds(self, physical_offset: int, size: int) -> bool:
        """Whether bytes were written at that place and the file holds all of them. The content is not checked."""
        found = self.find(physical_offset)
        if found is None or physical_offset - found.base + size > found.size:
            return False
        return any(found.read(physical_offset - found.base, _RECORD_START))

    def holds_all(self, places: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """``holds`` of many places, each file asked once. False also for those in a file that just went, or failed to
        be read: ``holds`` says what is with them.
        """
        held = np.zeros(len(places), np.bool_)
        for numbers, pieces in self._pieces(places, np.maximum(sizes, _RECORD_START), _RECORD_START):
            held[numbers] = pieces.view(np.int64) != 0
        return held

    def headers(self, places: npt.NDArray[np.int64]) -> list[bytes | None]:
        """``header`` of many places, as ``holds_all`` asks for them; None also where ``header`` says what is there."""
        found: list[bytes | None] = [None] * len(places)
        for numbers, pieces in self._pieces(places, np.full(len(places), HEADER_SIZE), HEADER_SIZE):
            for number, head in zip(numbers.tolist(), pieces.tolist(), strict=True):
                found[number] = head if any(head[:8]) else None
        return found

    def store_times(self, places: Int64Array) -> Int64Array:
        """The store times (ms) of records at many places, -1 where ``read_without_body`` has to look: at the few that
        are long-named (v2) or have IPv6 hosts, and at damaged ones. All fields are checked but the body's CRC.
        """
        times = np.full(len(places), -1, np.int64)
        rows, found = self._gathered(places, np.full(len(places), HEADER_SIZE), HEADER_SIZE)
        heads = found.view(HEADER_DTYPES[0])
        room = heads["total_size"].astype(np.int64) - MIN_RECORD_SIZE - heads["body_length"]
        plain = (heads["magic"] == MAGIC_V1) & (heads["sys_flag"] & HOST_FLAGS == 0)
        plain &= (heads["physical_offset"] == places[rows]) & (heads["body_length"] >= 0) & (room >= 0)
        rows, heads, room = rows[plain], heads[plain], room[plain]
        # The topic's length, where the file has the whole record.
        ends = places[rows] + HEADER_SIZE + heads["body_length"]
        some, found = self._gathered(ends, room + _PLAIN_TAIL, 1)
        rows, ends, room, heads = rows[some], ends[some], room[some], heads[some]
        names = found.view(np.uint8).astype(np.int64)
        some, found = self._gathered(
            ends + 1 + names, np.full(len(ends), PROPERTIES_LENGTH_SIZE), PROPERTIES_LENGTH_SIZE
        )
        right = (found.view(">i2") == (room - names)[some]) & (names <= MAX_TOPIC_SIZE[MAGIC_V1])[some]
        some = some[right]
        times[rows[some]] = heads["store_timestamp"][some]
        return times

    def _gathered(self, places: Int64Array, reaches: Int64Array, size: int) -> tuple[Int64Array, npt.NDArray[np.void]]:
        """``_pieces`` of all files together, in the order of the places."""
        held, data = np.zeros(len(places), np.bool_), np.zeros(len(places), f"V{size}")
        for numbers, pieces in self._pieces(places, reaches, size):
            held[numbers], data[numbers] = True, pieces
        return np.flatnonzero(held), data[held]

    def _pieces(
        self, places: npt.NDArray[np.int64], reaches: npt.NDArray[np.int64], size: int
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.void]]]:
        """The first ``size`` bytes at places whose files hold ``reaches`` bytes from there on, file by file: the
        numbers of the places, and the bytes. A file that just went, or failed to be read, is left out.
        """
        bases = list(self.bases)
        of_file = np.searchsorted(np.array(bases, np.int64), places, side="right") - 1
        for number in np.unique(of_file[of_file >= 0]).tolist():
            of_this = np.flatnonzero(of_file == number)
            pieces: npt.NDArray[np.void] | None = None
            with contextlib.suppress(FileChanged, ReadFailed):
                found = self.find(int(places[of_this[0]]))
                if found is None or found.base != bases[number]:
                    continue
                starts = places[of_this] - found.base
                within = starts + reaches[of_this] <= found.size
                of_this, starts = of_this[within], starts[within]
                if len(of_this):
                    pieces = found.pieces(starts, size)
                    found.release()
            if pieces is not None:
                yield of_this, pieces

    def read_record(self, physical_offset: int, *, check_crc: bool = True) -> Record:
        """The record that starts at ``physical_offset``.

        ``MessageNotFound`` outside the log, in unwritten space, and at a file's blank end; ``CorruptRecord`` where
        the bytes contradict the format; with ``check_crc`` also where the body does not match its CRC.
        """
        found = self._file_of(physical_offset)
        position = physical_offset - found.base
        data = found.read(position, _FIRST_READ)
        decoded = decode_record(data, physical_offset=physical_offset, check_crc=check_crc)
        if isinstance(decoded, Torn) and MIN_RECORD_SIZE <= decoded.needed <= found.size - position:
            data = found.read(position, decoded.needed)
            decoded = decode_record(data, physical_offset=physical_offset, check_crc=check_crc)
        if not isinstance(decoded, Record):
            raise _no_record(decoded, found, physical_offset)
        if check_crc and still_packed(decoded.body, decoded.sys_flag):
            raise CorruptRecord(
                f"SYSFLAG of the record at physical offset {physical_offset}",
                path=found.path,
                offset=position + field_offset("sys_flag"),
                expected=f"{decoded.sys_flag | COMPRESSED_FLAG:#x}, since the body is compressed",
                found=f"{decoded.sys_flag:#x}",
                advice=BODY_ADVICE,
            )
        return decoded

    def read_without_body(self, physical_offset: int) -> Record:
        """``read_record`` without the body, which is ``b""`` and not read where it is long, and without its CRC."""
        found = self._file_of(physical_offset)
        decoded = record_without_body(found, physical_offset)
        if not isinstance(decoded, Record):
            raise _no_record(decoded, found, physical_offset)
        return decoded

    def _file_of(self, physical_offset: int) -> MappedFile:
        found = self.find(physical_offset) if physical_offset >= 0 else None
        if found is None:
            first, end = self.bounds()
            raise MessageNotFound(f"No message at physical offset {physical_offset}: the log holds [{first}, {end}).")
        return found

    def whole_record(self, physical_offset: int, *, verify_crc: bool = True) -> Record | None:
        """The record there if it is whole and has the right CRC."""
        try:
            return self.read_record(physical_offset, check_crc=verify_crc)
        except (CorruptRecord, MessageNotFound):
            return None

    def headers_from(self, physical_offset: int) -> Iterator[tuple[int, int, bytes]]:
        """Place, size and first 88 bytes of consecutive records, from a place where a record or the end is known
        to be. Fillers are among them, without bytes: their content is undefined."""
        at = physical_offset
        while (found := self.find(at)) is not None:
            head = found.read(at - found.base, HEADER_SIZE)
            match decode_record(head):
                case Torn() if own_position(head) != at:
                    return  # left over from an earlier use of the file
                case Torn(needed, _) | Filler(needed) as piece if needed <= found.size - (at - found.base):
                    yield at, needed, head if isinstance(piece, Torn) else b""
                    at += needed
                case _:
                    return

    def written_end(self, start: int) -> int:
        """The end of the consecutive records from ``start``, where a record or the end is known to be."""
        end = start
        while True:
            for at, size, _ in self.headers_from(end):
                end = at + size
            # At the end of a file the next one, with the rest of the same commit, may have come after the last look.
            if end < self._files.end() or not self.refresh():
                return end

    def body(self, record: Record) -> bytes:
        """The record's body, unpacked when it was stored compressed. ``CorruptRecord`` when it cannot be unpacked."""
        try:
            return plain_body(record.body, record.sys_flag)
        except InvalidValue as error:
            found = self.find(record.physical_offset)
            raise CorruptRecord(
                f"Body of the record at physical offset {record.physical_offset}",
                path=self.path if found is None else found.path,
                offset=record.physical_offset - (0 if found is None else found.base),
                expected="a compressed stream, as its system flag says",
                found=str(error),
            ) from error

    def span(self, found: MappedFile, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Mapped bytes of a file (``MappedFile.span``). Of all files, the last two keep their pages in memory."""
        if found in self._mapped:
            self._mapped.remove(found)
        elif len(self._mapped) == _MAPPED_FILES:
            self._mapped.pop(0).release()
        self._mapped.append(found)
        return found.span(start, stop)

    def gather(
        self, found: MappedFile, physical_offsets: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        """Read a few records that lie far apart, one by one: their bytes back to back, and where each one starts."""
        parts = [
            found.read(offset - found.base, size)
            for offset, size in zip(physical_offsets.tolist(), sizes.tolist(), strict=True)
        ]
        data = np.frombuffer(b"".join(parts), np.uint8)
        positions = np.zeros(len(parts), np.int64)
        np.cumsum([len(part) for part in parts[:-1]], out=positions[1:])
        return data, positions

    def close(self) -> None:
        self._mapped = []
        self._files.close()


def _no_record(
    found: Unwritten | Filler | Torn | Corrupt, file: MappedFile, physical_offset: int
) -> MessageNotFound | CorruptRecord:
    """The error for what is at a place of the log in place of a record."""
    if isinstance(found, Unwritten | Filler):
        what = "nothing was written there" if isinstance(found, Unwritten) else "the file's blank end starts there"
        return MessageNotFound(f"No message at physical offset {physical_offset}: {what}.")
    position, advice = physical_offset - file.base, "Is this where a message starts?"
    if isinstance(found, Torn):
        return CorruptRecord(
            f"TOTALSIZE of the record at physical offset {physical_offset}",
            path=file.path,
            offset=position,
            expected=f"at most the {file.size - position} bytes that are left of the file",
            found=found.needed,
            advice=advice,
        )
    return CorruptRecord(
        f"{found.field} of the record at physical offset {physical_offset}",
        path=file.path,
        offset=position + found.offset,
        expected=found.expected,
        found=found.found,
        advice=BODY_ADVICE if found.field in BODY_FIELDS else advice,
    )
