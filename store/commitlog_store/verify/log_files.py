"""Files of the CommitLog by names and sizes alone: foreign names, files of another size, missing ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from commitlog_store.files import disk
from commitlog_store.files.numbered_files import NumberedFiles
from commitlog_store.files.whole_file import TEMPORARY_SUFFIX
from commitlog_store.format.record import BLANK_MAGIC, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, field_offset, own_position
from commitlog_store.paths import file_name_for_offset, parse_file_name
from commitlog_store.verify.access import failed_head, read_part
from commitlog_store.verify.findings import Findings, Severity

_BLANK = BLANK_MAGIC.to_bytes(4, "big")


class LogFile(NamedTuple):
    """One file: ``base`` is the physical offset of its first byte, by its name; ``size`` in bytes."""

    path: str
    base: int
    size: int


class _Numbered(Protocol):
    @property
    def base(self) -> int: ...
    @property
    def size(self) -> int: ...


def usual_size(files: Sequence[_Numbered]) -> int:
    """The size that files of a directory, in order, have by most of their sizes and names; 0 without files."""
    sizes = [file.size for file in files]
    counts = Counter(sizes + [following.base - file.base for file, following in pairwise(files)])
    return max(sizes, key=lambda size: (counts[size], size), default=0)


def list_log_files(listed: NumberedFiles) -> list[LogFile]:
    """The files of a listing that was refreshed, in order; a directory in the place of a file is none."""
    paths = [(listed.path_of(base), base) for base in listed.bases]
    return [LogFile(path, base, disk.file_size(path)) for path, base in paths if not disk.is_directory(path)]


def check_log_files(path: str, files: Sequence[LogFile], findings: Findings, *, aborted: bool) -> None:
    """Report names, sizes and gaps of the log's files. ``path`` is their directory."""
    if disk.is_directory(path):
        for name in sorted(disk.list_names(path)):
            if parse_file_name(name) is not None and disk.is_directory(os.path.join(path, name)):
                at = os.path.join(path, name)
                message = f"{at} should be a file of the log, but is a directory: restore the file."
                findings.add("files.kind", "error", at, message)
            half_made = aborted and name.endswith(TEMPORARY_SUFFIX)  # an owner makes its next file
            if parse_file_name(name) is None and not half_made:
                message = "The name is not a 20-digit offset; RocketMQ and this package ignore the file."
                findings.add("files.name", "note", os.path.join(path, name), message)
    usual = usual_size(files)

    def note(check: str, file: LogFile, message: str, severity: Severity) -> None:
        findings.add(check, severity, file.path, message, offset=0)

    for place, file in enumerate(files):
        following = files[place + 1] if place + 1 < len(files) else None
        if file.size != usual:
            made = aborted and following is None and file.size == 0
            message = f"A CommitLog file of {file.size} bytes; the others have {usual}."
            note("files.size", file, message, "note" if made else "error")
        expected = file.base + usual
        removed = aborted and not disk.exists(file.path)  # retention is at work, and removes the oldest files first
        if following is not None and following.base != expected and not removed:
            what = "missing" if following.base > expected else "out of place"
            message = f"The CommitLog file that starts at {expected} is {what}: the next one starts at "
            note("files.gap", following, f"{message}{following.base}.", "error")


class LogHeads(NamedTuple):
    """What the beginnings of log files show: the paths of files that hold the records of another one, and by path how
    many bytes from the beginning on the disk fails to read, where others of the file can be read."""

    misnamed: list[str]
    failed: dict[str, int]


def check_log_heads(files: Sequence[LogFile], findings: Findings, *, unfinished_from: int | None) -> LogHeads:
    """Report files that do not begin with their own record: swapped, misnamed or damaged ones; and those that cannot be
    read at all. Zeros at the beginning are no fault in files after
    the log's end, and in files that begin at ``unfinished_from`` or after it: the rest of a batch may be there whose
    commit a crash has interrupted.
    """
    misnamed: list[str] = []
    headless: list[LogFile] = []
    failed: dict[str, int] = {}
    reads = Findings()
    for file in files:
        head = _record_head(file.path, findings=reads)
        if reads.has_error("access.read", file.path):
            size = failed_head(file.path, file.size)
            if size < file.size:
                failed[file.path] = size
            else:
                found = next(one for one in reads.all() if one.path == file.path)
                findings.add(found.check, found.severity, found.path, found.message, offset=found.offset)
            continue
        if head is None:
            headless.append(file)
            continue
        if head[4:8] == _BLANK:
            continue  # a salvage leaves it in the place of a lost file
        for one in headless:
            if unfinished_from is not None and one.base >= unfinished_from:
                continue
            message = f"No record begins with the file, and the log continues at physical offset {file.base}."
            findings.add("log.head", "error", one.path, message, offset=0)
        headless = []
        if claimed_base(file.path, file.base) != file.base:
            misnamed.append(file.path)
            message = (
                f"The file's records belong at physical offset {own_position(head)}, by their PHYSICALOFFSET: the file "
                "has the name of another one. 'commitlog salvage' takes misnamed files for what they are."
            )
            at = field_offset("physical_offset")
            findings.add("files.misnamed", "error", file.path, message, offset=at)
    return LogHeads(misnamed, failed)


def claimed_base(path: str, base: int) -> int:
    """The physical offset at which a log file's records say that it begins; ``base``, of its name, if they do not say.

    Of two records that contradict each other, the first one is damaged.
    """
    head = _record_head(path)
    if head is None or head[4:8] == _BLANK or own_position(head) == base:
        return base
    place, size = own_position(head), int.from_bytes(head[:4], "big")
    following = _record_head(path, size)
    contradicts = following is not None and following[4:8] != _BLANK and own_position(following) != place + size
    return base if contradicts or place < 0 else place


def _record_head(path: str, position: int = 0, findings: Findings | None = None) -> bytes | None:
    """The header of the record or filler at a position of a log file; None where none begins, or it cannot be read."""
    head = read_part(path, MIN_RECORD_SIZE, position, findings)
    is_record = len(head) == MIN_RECORD_SIZE and int.from_bytes(head[4:8], "big") in (MAGIC_V1, MAGIC_V2, BLANK_MAGIC)
    return head if is_record else None


def check_log_end(
    path: str, files: Sequence[LogFile], newest: int, last_offset: int, count: int, findings: Findings, *, aborted: bool
) -> None:
    """Report that the log's files end before the newest message that a queue names.

    ``newest`` is the physical offset at which its record ends, ``last_offset`` the one at which it begins; ``count``
    messages lie after the files.
    """
    end = files[-1].base + files[-1].size if files else 0
    if newest <= end:
        return
    usual = usual_size(files)
    missing = os.path.join(path, file_name_for_offset(last_offset - last_offset % usual)) if usual else path
    what = "is shorter than it was" if disk.exists(missing) and usual else "is missing"
    severity: Severity = "note" if aborted else "error"
    message = f"The log's files end at physical offset {end}, and a queue names a message at {last_offset}: "
    if not files:
        message = (
            f"{path} holds no file, and a queue names a message at {last_offset}. Mount or restore the log, or name "
            "its directory: --commit-log DIR."
        )
    elif count == 1:
        message += f"its unit is damaged, or {missing} {what}."
    else:
        message += f"{missing} {what}. Restore the newest files from a copy."
    findings.add("files.end", severity, missing, message)
