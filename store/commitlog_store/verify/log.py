"""Verification of the CommitLog: its files, every record with its CRC, fillers, and the zeros after the end."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Generator, Iterator

import numpy as np

from commitlog_store.columnar.bodies import packing_fault
from commitlog_store.columnar.dispatch import DispatchRequests, dispatch_requests, index_entries, units_by_queue
from commitlog_store.columnar.scan import RecordScan, Stop, scan_records
from commitlog_store.errors import FileChanged, ReadFailed
from commitlog_store.files import disk
from commitlog_store.files.copied_file import PAGE_SIZE, CopiedFile
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.files.mapped_file_queue import MappedFileQueue
from commitlog_store.format.checkpoint import Checkpoint, CheckpointMark
from commitlog_store.format.record import (
    MIN_RECORD_SIZE,
    RECORD_PREFIX_SIZE,
    Corrupt,
    Filler,
    Record,
    Torn,
    Unwritten,
    field_offset,
)
from commitlog_store.format.sys_flag import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK
from commitlog_store.format.timestamps import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, is_timestamp
from commitlog_store.log.record_search import first_good_record, good_record
from commitlog_store.log.scan import FileWalk, first_store_timestamp
from commitlog_store.verify.access import report_failed_pages, report_failed_read
from commitlog_store.verify.findings import NOWHERE, Findings, Lost, Severity
from commitlog_store.verify.log_files import LogFile, check_log_files, check_log_heads, list_log_files, usual_size

_BLOCK_SIZE = 4 << 20
_ZEROS = bytes(_BLOCK_SIZE)
# A born timestamp is the client's, and a broker stores any; a store timestamp is that of the broker itself.
_TIMES: dict[str, Severity] = {"born_timestamp": "note", "store_timestamp": "error"}


def _data_extents(path: str, start: int, stop: int) -> list[tuple[int, int]]:
    """The parts of ``[start, stop)`` of a file that are not holes."""
    descriptor = disk.open_file(path)
    try:
        return disk.data_extents(descriptor, start, min(stop, disk.size_of(descriptor)))
    finally:
        disk.close(descriptor)


def first_nonzero(path: str, start: int, stop: int) -> int | None:
    """The first byte of ``[start, stop)`` of a file that is not zero. Holes are not read."""
    descriptor = disk.open_file(path)
    try:
        for first, last in disk.data_extents(descriptor, start, min(stop, disk.size_of(descriptor))):
            for at in range(first, last, _BLOCK_SIZE):
                data = disk.read_at(descriptor, min(_BLOCK_SIZE, last - at), at)
                if not _ZEROS.startswith(data):  # one memcmp and no slice
                    return at + len(data) - len(data.lstrip(b"\0"))
    finally:
        disk.close(descriptor)
    return None


class LogCheck:
    """Verifies the log's files as they were when this was made. ``scans`` walks them; other fields are valid after it.

    ``end`` is the end of the log, ``judged_end`` an earlier end: messages after it are an owner's newest, which queues
    and index need not hold yet. Both are physical offsets.
    """

    def __init__(
        self,
        path: str,
        findings: Findings,
        *,
        aborted: bool,
        checkpoint: Checkpoint,
        mark: CheckpointMark | None,
        block_size: int = _BLOCK_SIZE,
    ) -> None:
        """``block_size``: bytes of the log to read at a time."""
        self.path = path
        self.lost = Lost()
        self.records = 0
        self.newest_store_timestamp = 0
        self._misnamed: list[str] = []
        # Topic, queue and offsets [start, stop) of whole records whose bodies do not match their CRCs.
        self.unreadable: list[tuple[str, int, int, int]] = []
        self._findings = findings
        self._block_size = block_size
        self._aborted = aborted
        self._checkpoint = checkpoint
        self._mark = mark
        # Numbers of the pages that the disk fails to read, by the base of their file.
        self._failed: defaultdict[int, set[int]] = defaultdict(set)
        self._mapped = MappedFileQueue(path, open_file=lambda name, base: CopiedFile(name, base, self._failed[base]))
        # The last message of ``key_hashes``, and its hashes.
        self._hashes_of: tuple[int, frozenset[int]] = (NOWHERE, frozenset())
        self._mapped.refresh()
        self._listed = list_log_files(self._mapped.files)
        # Files that may not be read are as good as missing, and reported by themselves.
        self._use([file for file in self._listed if disk.may_read(file.path)])
        self._file_size = usual_size(self.files)
        self.min_offset = self.files[0].base if self.files else 0
        self.end = self.min_offset
        self.judged_end = self._written_end() if aborted else NOWHERE

    def close(self) -> None:
        self._mapped.close()

    def _use(self, files: list[LogFile]) -> None:
        """Verify these files alone."""
        self.files = files
        # End of each file; of a file that is too long, the start of the next one.
        starts = [*(file.base for file in files[1:]), NOWHERE]
        self._ends = [min(file.base + file.size, start) for file, start in zip(files, starts, strict=False)]

    @property
    def size(self) -> int:
        """Bytes from the start of the first file to the end of the last."""
        return self.files[-1].base + self.files[-1].size - self.min_offset if self.files else 0

    def _note(self, check: str, file: LogFile, at: int, message: str, severity: Severity = "note") -> None:
        self._findings.add(check, severity, file.path, message, offset=at - file.base)

    def check_files(self, *, kept: bool = False) -> None:
        """Names, sizes, gaps. ``kept``: a repair has kept this part of a log, which begins within a file."""
        check_log_files(self.path, self._listed, self._findings, aborted=self._aborted)
        # After a crash the records themselves show what is missing.
        unfinished_from = 0 if self._aborted or kept else None
        self._misnamed, _ = check_log_heads(self.files, self._findings, unfinished_from=unfinished_from)
        self._use([file for file in self.files if not self._findings.has_error("access.read", file.path)])

    def _written_end(self) -> int:
        """End of the records of the last written file now, by their sizes and offsets alone."""
        for file in reversed(self.files):
            try:
                opened = self._mapped.file(file.base)
                if any(opened.read(0, RECORD_PREFIX_SIZE)):
                    walk = FileWalk(
                        opened, file.base, file.base + file.size, check_crc=False, block_size=self._block_size
                    )
                    for _ in walk:
                        pass
                    return walk.offset
            except (FileNotFoundError, FileChanged):
                continue
        return self.min_offset

    def scans(self) -> Iterator[RecordScan]:
        """All good records, block by block; everything else becomes a finding."""
        at: int | None = self.min_offset
        while at is not None and (file := self._file_at(at)) is not None:
            if at < file.base:  # a file is missing, which is reported already
                self.lost.add(at, file.base)
                at = file.base
            try:
                at = yield from self._scan_file(file, at)
            except ReadFailed as error:
                report_failed_read(file.path, error, self._findings)
                self._use([one for one in self.files if one != file])
                at = max(at or 0, self.end)
            except (FileNotFoundError, FileChanged) as error:
                at = self._next_base(file)
                if self._aborted and disk.file_size(file.path) == 0:  # retention at work
                    self.min_offset = at if at is not None else file.base + file.size
                else:
                    self._note("files.size", file, file.base, str(error), "error")
            report_failed_pages(file.path, self._failed[file.base], self._findings)
        self.end = max(self.end, self.min_offset)

    @property
    def paths(self) -> list[str]:
        """All files of the log, those that may not be read too."""
        return [file.path for file in self._listed]

    def may_not_read(self, physical_offset: int, size: int) -> bool:
        """Whether so many bytes may not be read, cannot be, or are in a file with the name of another one."""
        if self._fails(physical_offset, size):
            return True
        if len(self._listed) == len(self.files) and not self._misnamed:
            return False
        denied = (file for file in self._listed if file not in self.files or file.path in self._misnamed)
        return any(file.base <= physical_offset < file.base + file.size for file in denied)

    def _fails(self, physical_offset: int, size: int) -> bool:
        """Whether the disk fails to read one of so many bytes."""
        file = self._file_at(physical_offset)
        if file is None or not (failed := self._failed[file.base]):
            return False
        first = (physical_offset - file.base) // PAGE_SIZE
        return any(first <= page <= (physical_offset + size - 1 - file.base) // PAGE_SIZE for page in failed)

    def recovery_start(self, timestamp: int) -> int:
        """The physical offset from which recovery indexes the log again when the index holds all that was stored up to
        a time (ms): the newest file that begins with a message of that time or before."""
        for file in reversed(self.files if timestamp > 0 else []):
            with contextlib.suppress(FileNotFoundError, FileChanged):
                stored = first_store_timestamp(self._mapped.file(file.base))
                if stored is not None and 0 < stored <= timestamp:
                    return file.base
        return self.min_offset

    def begin_at(self, physical_offset: int) -> None:
        """Verify only the log from there on; for a piece of a log that was cut there."""
        self.min_offset = max(self.min_offset, physical_offset)

    def place(self, physical_offset: int) -> tuple[str, int]:
        """The file that holds a byte of the log, and which byte of the file that is."""
        file = self._file_at(physical_offset)
        return (self.path, 0) if file is None else (file.path, physical_offset - file.base)

    def start_now(self) -> int:
        """The log's first byte now: beside an owner, retention may have removed files."""
        self._mapped.files.refresh()
        return max(self.min_offset, self._mapped.bases[0] if self._mapped.bases else NOWHERE)

    def holds_record(self, physical_offset: int) -> bool:
        """Whether a good record starts there by now."""
        file = self._file_at(physical_offset)
        if file is None or physical_offset < file.base:
            return self._aborted and physical_offset > self.end and file is None and self._grew()
        return self._good(self._mapped.file(file.base), file, physical_offset) is not None

    def key_hashes(self, physical_offset: int) -> frozenset[int]:
        """Hashes of the keys of the message there; none without a good record."""
        if self._hashes_of[0] != physical_offset:
            self._hashes_of = physical_offset, self._key_hashes(physical_offset)
        return self._hashes_of[1]

    def requests_of(self, physical_offset: int) -> DispatchRequests:
        """The dispatch request of the record there; none without a good record."""
        return dispatch_requests(self._scan_of(physical_offset), ())

    def _key_hashes(self, physical_offset: int) -> frozenset[int]:
        scan = self._scan_of(physical_offset)
        return frozenset(index_entries(scan).key_hashes.tolist())

    def _scan_of(self, physical_offset: int) -> RecordScan:
        """The one record there; none without a good record."""
        data = b""
        file = self._file_at(physical_offset)
        if file is not None and physical_offset >= file.base:
            opened = self._mapped.file(file.base)
            record = self._good(opened, file, physical_offset)
            if record is not None:
                data = opened.read(physical_offset - file.base, record.total_size)
        return scan_records(np.frombuffer(data, np.uint8), physical_offset, check_crc=False)

    def _grew(self) -> bool:
        """Whether an owner has made files since the log was listed."""
        self._mapped.files.refresh()
        return bool(self._mapped.bases and self.files and self._mapped.bases[-1] > self.files[-1].base)

    def _file_at(self, at: int) -> LogFile | None:
        """The file that holds a byte, or the first one after it."""
        place = bisect_right(self._ends, at)
        return self.files[place] if place < len(self.files) else None

    def _next_base(self, file: LogFile) -> int | None:
        return next((other.base for other in self.files if other.base > file.base), None)

    def _scan_file(self, file: LogFile, start: int) -> Generator[RecordScan, None, int | None]:
        """The records from ``start`` to the file's end. Returns where to continue; None at the log's end."""
        opened = self._mapped.file(file.base)
        next_base = self._next_base(file)
        file_end = min(file.base + file.size, next_base if next_base is not None else NOWHERE)
        walk = FileWalk(opened, start, file_end, check_crc=True, file_end=file_end, block_size=self._block_size)
        for scan in walk:
            self.end = max(self.end, walk.offset)
            self.records += len(scan)
            self.newest_store_timestamp = max(self.newest_store_timestamp, int(scan.headers["store_timestamp"].max()))
            self._check_times(file, scan)
            self._check_packing(file, scan)
            yield scan
        self.end = max(self.end, walk.offset)
        return walk.offset if walk.stop is None else self._after_bad(file, walk.offset, file_end, walk.stop)

    def _check_times(self, file: LogFile, scan: RecordScan) -> None:
        """Note the timestamps that readers give as null: a client's clock may say anything, a broker's may not."""
        for name, severity in _TIMES.items():
            values = scan.field(name)
            for row in np.flatnonzero(~is_timestamp(values)).tolist():
                at = int(scan.positions[row]) + scan.physical_offset
                offset = at + field_offset(name, int(scan.headers["sys_flag"][row]))
                field = name.replace("_", "").upper()
                self._note(
                    "log.timestamp", file, offset, f"{field} of the record at physical offset {at}: expected "
                    f"{MIN_TIMESTAMP_MS} to {MAX_TIMESTAMP_MS} ms (the years 1 to 9999), found {int(values[row])}. "
                    "Tables of messages have null there.", severity,
                )  # fmt: skip

    def _check_packing(self, file: LogFile, scan: RecordScan) -> None:
        """Report the bodies that readers refuse though their CRCs are right: no CRC covers SYSFLAG, and a broker stores
        what a client sends."""
        flags = scan.field("sys_flag")
        for row in np.flatnonzero(flags & (COMPRESSED_FLAG | COMPRESSION_TYPE_MASK)).tolist():
            start = int(scan.parts.body_starts[row])
            body = scan.data[start : start + int(scan.parts.body_lengths[row])].tobytes()
            fault = packing_fault(body, int(flags[row]))
            if fault is not None:
                at = int(scan.positions[row]) + scan.physical_offset
                what = f"{fault.field} of the record at physical offset {at}"
                message = f"{what}: expected {fault.expected}, found {fault.found}."
                self._note("log.body", file, at + fault.offset, message, "error")

    def _after_bad(self, file: LogFile, at: int, file_end: int, stop: Stop) -> int | None:
        """Report that no good record starts at ``at``. Returns where the next one starts; None at the log's end."""
        next_base = self._next_base(file)
        if file.size != self._file_size and isinstance(stop, Torn | Filler) and next_base is not None:
            self.lost.add(at, next_base)  # the file was cut, which is reported already
            return next_base
        later = self._next_good(at)
        if later is None:
            self._judge_end(file, at, file_end, stop)
            return None
        # No crash gives a file the name of another one.
        if self._aborted and file.path not in self._misnamed and not self._was_flushed(later):
            self._torn_end(file, at, stop)
            return None
        self._note_fault(file, at, stop, f"; the log continues at physical offset {later.physical_offset}")
        self._note_unreadable(file, at, stop)
        self.lost.add(at, later.physical_offset)
        return later.physical_offset

    def _note_unreadable(self, file: LogFile, at: int, stop: Stop) -> None:
        """Note a record that is whole but for its body, as its CRC shows."""
        if not isinstance(stop, Corrupt) or stop.field != "BODYCRC":
            return
        data = np.frombuffer(self._mapped.file(file.base).read(at - file.base, self._size_at(file, at)), np.uint8)
        for group in units_by_queue(dispatch_requests(scan_records(data, at, check_crc=False), ())):
            if not group.light:
                first = int(group.queue_offsets[0])
                self.unreadable.append((group.topic, group.queue_id, first, first + 1))

    def _size_at(self, file: LogFile, at: int) -> int:
        """The TOTALSIZE of the record there, whatever it is."""
        return int.from_bytes(self._mapped.file(file.base).read(at - file.base, 4), "big", signed=True)

    def _was_flushed(self, record: Record) -> bool:
        """Whether a record had been flushed when its owner stopped, so that no crash explains damage before it."""
        if self._mark is not None:
            return record.physical_offset < self._mark.flushed_offset
        return 0 < record.store_timestamp <= self._checkpoint.physic_msg_timestamp

    def _note_fault(self, file: LogFile, at: int, stop: Stop, where: str = "") -> None:
        if self._fails(at, max(self._size_at(file, at), MIN_RECORD_SIZE)):
            return  # which is reported by itself
        what = f"the record at physical offset {at}"
        match stop:
            case Corrupt(field, offset, expected, found):
                self._note(
                    "log.record", file, at + offset, f"{field} of {what}: expected {expected}, found {found}{where}.",
                    "error",
                )  # fmt: skip
            case Torn(needed, available):
                self._note(
                    "log.record", file, at, f"TOTALSIZE of {what}: expected at most the {available} bytes that are "
                    f"left of the file, found {needed}{where}.", "error",
                )  # fmt: skip
            case Filler(size):
                left = file.base + file.size - at
                self._note(
                    "log.filler", file, at, f"Size of the blank filler at physical offset {at}: expected {left}, all "
                    f"that is left of the file, found {size}{where}.", "error",
                )  # fmt: skip
            case _:
                self._note("log.record", file, at, f"Expected {what}, found nothing written{where}.", "error")

    def _judge_end(self, file: LogFile, at: int, file_end: int, stop: Stop) -> None:
        """Decide whether ``at``, after which no good record follows, is a proper end of the log."""
        if self._aborted:
            self._torn_end(file, at, stop)
            return
        zeros_from = at
        if not isinstance(stop, Unwritten | None):
            self._note_fault(file, at, stop)
            self._note_unreadable(file, at, stop)
            size = self._size_at(file, at)
            zeros_from = at + size if MIN_RECORD_SIZE <= size <= file_end - at else file_end
            self.lost.add(at, zeros_from)
        self._require_zeros(zeros_from, "error", f"the log's end, physical offset {at}")

    def _torn_end(self, file: LogFile, at: int, stop: Stop) -> None:
        if self.end > self.judged_end or self._good(self._mapped.file(file.base), file, at) is not None:
            return  # an owner is at work there
        self.judged_end = min(self.judged_end, at)
        if isinstance(stop, Unwritten | None):
            self._require_zeros(at, "note", f"the log's end, physical offset {at}")
        else:
            message = f"The log ends at physical offset {at}: what follows is not a whole record; opening cuts it off."
            self._note("tail.not-zero", file, at, message)

    def _require_zeros(self, start: int, severity: Severity, where: str) -> None:
        for file in self.files:
            if file.base + file.size > start:
                try:
                    found = first_nonzero(file.path, max(start - file.base, 0), file.size)
                except OSError as error:
                    report_failed_read(file.path, error, self._findings)
                    return
                if found is not None:
                    message = f"Expected zeros after {where}, found bytes at physical offset {file.base + found}."
                    self._note("tail.not-zero", file, file.base + found, message, severity)
                    return

    def _next_good(self, at: int) -> Record | None:
        """The next whole, good record after a bad one. The offset that the bad one's size leads to is tried first."""
        for file, file_end in zip(self.files, self._ends, strict=True):
            if file_end <= at + 1:
                continue
            opened = self._mapped.file(file.base)
            if file.base <= at:
                size = self._size_at(file, at)
                if size >= MIN_RECORD_SIZE and (found := self._good(opened, file, at + size)) is not None:
                    return found
            start = max(at + 1 - file.base, 0)
            for first, last in _data_extents(file.path, start, file_end - file.base):
                # A record's size begins with zeros, so a record may begin in a hole.
                begin = file.base + max(first - 7, start)
                found = first_good_record(opened, begin, file.base + last, file_end)
                if found is not None:
                    return found
        return None

    def _good(self, opened: MappedFile, file: LogFile, at: int) -> Record | None:
        return good_record(opened, at, file.base + file.size)
