"""Files of the CommitLog by names and sizes alone: foreign names, files of another size, missing ones."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from commitlog.errors import CommitLogError
from commitlog.files import disk
from commitlog.files.numbered_files import NumberedFiles
from commitlog.files.whole_file import TEMPORARY_SUFFIX
from commitlog.format.record import MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, field_offset
from commitlog.paths import file_name_for_offset, parse_file_name
from commitlog.verify.findings import Finding, Findings, Severity

__all__ = ["LogFile", "check_log_end", "check_log_files", "check_log_heads", "list_log_files", "usual_size"]


class LogFile(NamedTuple):
    """One file: ``base`` is the physical offset of its first byte, by its name; ``size`` in bytes."""

    path: str
    base: int
    size: int


def usual_size(sizes: list[int]) -> int:
    """The size of most files of a directory; 0 without files."""
    return Counter(sizes).most_common(1)[0][0] if sizes else 0


def list_log_files(listed: NumberedFiles) -> list[LogFile]:
    """The files of a listing that was refreshed, in order."""
    return [LogFile(path, base, disk.file_size(path)) for base in listed.bases for path in [listed.path_of(base)]]


def check_log_files(path: str, files: Sequence[LogFile], findings: Findings, *, aborted: bool) -> None:
    """Report names, sizes and gaps of the log's files. ``path`` is their directory."""
    if disk.is_directory(path):
        for name in sorted(disk.list_names(path)):
            half_made = aborted and name.endswith(TEMPORARY_SUFFIX)  # an owner makes its next file
            if parse_file_name(name) is None and not half_made:
                message = "The name is not a 20-digit offset; RocketMQ and this package ignore the file."
                findings.add(
                    Finding(check="files.name", severity="note", path=os.path.join(path, name), message=message)
                )
    usual = usual_size([file.size for file in files])

    def note(check: str, file: LogFile, message: str, severity: Severity) -> None:
        findings.add(Finding(check=check, severity=severity, path=file.path, offset=0, message=message))

    for place, file in enumerate(files):
        following = files[place + 1] if place + 1 < len(files) else None
        if file.size != usual:
            made = aborted and following is None and file.size == 0
            message = f"A CommitLog file of {file.size} bytes; the others have {usual}."
            note("files.size", file, message, "note" if made else "error")
        expected = file.base + usual
        if following is not None and following.base != expected:
            what = "missing" if following.base > expected else "out of place"
            message = f"The CommitLog file that starts at {expected} is {what}: the next one starts at "
            note("files.gap", following, f"{message}{following.base}.", "error")


def check_log_heads(files: Sequence[LogFile], findings: Findings) -> list[str]:
    """Report files whose first record belongs elsewhere: swapped or misnamed ones. Returns their paths.

    And zeroed ones before others: a file is full before the next one is begun.
    """
    wrong: list[str] = []
    heads = [_first_bytes(file) for file in files]
    last_written = max((place for place, head in enumerate(heads) if any(head)), default=0)
    for file, head in zip(files[:last_written], heads, strict=False):
        if head and not any(head):
            message = "The file begins with zeros, and a later file holds records: it was overwritten, or never synced."
            findings.add(Finding(check="files.zeroed", severity="error", path=file.path, offset=0, message=message))
    for file, head in zip(files, heads, strict=True):
        if len(head) < MIN_RECORD_SIZE or int.from_bytes(head[4:8], "big") not in (MAGIC_V1, MAGIC_V2):
            continue
        at = field_offset("physical_offset")
        place = int.from_bytes(head[at : at + 8], "big", signed=True)
        if place != file.base:
            wrong.append(file.path)
            message = (
                f"The file's first record belongs at physical offset {place}, by its PHYSICALOFFSET: it has the name "
                "of another one, or that record is damaged. 'commitlog salvage' takes misnamed files for what they are."
            )
            findings.add(Finding(check="files.misnamed", severity="error", path=file.path, offset=at, message=message))
    return wrong


def _first_bytes(file: LogFile) -> bytes:
    try:
        descriptor = disk.open_file(file.path)
    except (FileNotFoundError, CommitLogError):
        return b""
    try:
        return disk.read_at(descriptor, MIN_RECORD_SIZE, 0)
    finally:
        disk.close(descriptor)


def check_log_end(
    path: str, files: Sequence[LogFile], newest: int, last_place: int, findings: Findings, *, aborted: bool
) -> None:
    """Report that the log's files end before the newest message that a queue names.

    ``newest`` is the physical offset at which its record ends, ``last_place`` the one at which it begins.
    """
    end = files[-1].base + files[-1].size if files else 0
    if newest <= end:
        return
    usual = usual_size([file.size for file in files])
    missing = os.path.join(path, file_name_for_offset(last_place - last_place % usual)) if usual else path
    what = "is shorter than it was" if disk.exists(missing) and usual else "is missing"
    severity: Severity = "note" if aborted else "error"
    message = (
        f"The log's files end at physical offset {end}, and a queue names a message at {last_place}: {missing} {what}. "
        "Restore the newest files from a copy."
    )
    findings.add(Finding(check="files.end", severity=severity, path=missing, message=message))
