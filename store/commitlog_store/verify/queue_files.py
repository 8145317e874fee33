"""Consume-queue files for verification: reads units at any offset, also of queues with missing or damaged files."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import StoreAccessDenied
from commitlog_store.files import disk
from commitlog_store.format.consume_queue_unit import UNIT_FILE_DTYPE, UNIT_SIZE
from commitlog_store.paths import file_name_for_offset, is_queue_id, parse_file_name
from commitlog_store.queue.expired_units import end_before
from commitlog_store.queue.saved_ends import Unchanged
from commitlog_store.verify.access import read_part
from commitlog_store.verify.findings import Findings, Severity
from commitlog_store.verify.log_files import usual_size

# The longest record that a unit is believed to lead to: damage shows sizes and places of all kinds.
MAX_SIZE = 64 << 20


class UnitFile(NamedTuple):
    base: int
    size: int
    path: str


def queue_directories(
    path: str, denied: list[str], unchanged: Unchanged | None = None
) -> Iterator[tuple[str, list[int]]]:
    """Each topic below ``consumequeue`` with the ids of its queues' directories; those of unchanged topics are not
    listed. ``denied`` gets the directories that may not be listed.
    """
    for topic in _names(path, denied):
        known = None if unchanged is None else unchanged.topic(topic)
        if known is not None:
            yield topic, sorted(known.queue_ids, key=str)
        else:
            names = _names(os.path.join(path, topic), denied, listed=disk.list_directories)
            yield topic, [int(name) for name in names if is_queue_id(name)]


def list_unit_files(path: str, denied: list[str]) -> list[UnitFile]:
    """The files in a queue's directory, in order; ``denied`` gets a directory that may not be listed."""
    bases = sorted(base for name in _names(path, denied) if (base := parse_file_name(name)) is not None)
    paths = [(base, os.path.join(path, file_name_for_offset(base))) for base in bases]
    return [UnitFile(base, disk.file_size(file), file) for base, file in paths]


def _names(path: str, denied: list[str], listed: Callable[[str], list[str]] = disk.list_names) -> list[str]:
    """The names in a directory, sorted; none for anything else. One that may not be listed is noted as ``denied``."""
    try:
        return sorted(listed(path))
    except (FileNotFoundError, NotADirectoryError):
        pass
    except StoreAccessDenied:
        denied.append(path)
    return []


def check_unit_files(
    topic: str, queue_id: int, files: Sequence[UnitFile], findings: Findings, *, aborted: bool
) -> None:
    """Report names, sizes and gaps of a queue's files."""
    if len(files) == 1 and files[0].base % UNIT_SIZE == files[0].size % UNIT_SIZE == 0:
        return  # as most are
    usual = usual_size(files)
    for place, (base, size, path) in enumerate(files):
        check, problem = "files.size", ""
        severity: Severity = "error"
        if base % UNIT_SIZE:
            check, problem = "files.name", f"expected a name that is a multiple of {UNIT_SIZE}, found {base}"
        elif aborted and size != usual and (not disk.exists(path) or disk.file_size(path) != size):
            continue  # an owner has made or removed it since
        elif size != usual or size % UNIT_SIZE:
            wanted = (
                f"a multiple of {UNIT_SIZE} bytes"
                if size == usual
                else f"the size that the queue's files have, {usual}"
            )
            problem = f"expected {wanted}, found {size}"
            if aborted and size == 0 and place == len(files) - 1:
                severity = "note"
        elif place and base != files[place - 1].base + usual:
            before = files[place - 1].base
            check, problem = "files.gap", f"expected the file at {before + usual} after that at {before}, found none"
        if problem:
            findings.add(
                check,
                severity,
                path,
                f"Topic {topic!r}, queue {queue_id}: {problem}.",
                offset=0,
                topic=topic,
                queue_id=queue_id,
            )


class UnitFiles:
    """The files of one queue, in order, as they were when this was made."""

    def __init__(self, path: str, findings: Findings) -> None:
        """Reads that the disk fails are reported to ``findings``; the units are zeros then."""
        self.path = path
        self._findings = findings
        self.files: list[UnitFile] = []
        self._bases: list[int] = []
        # The queue's paths that this process may not read, or that the disk fails to read.
        self.denied: list[str] = []
        self._refresh()

    def _refresh(self) -> None:
        self.denied = []
        self.files = list_unit_files(self.path, self.denied)
        self._bases = [file.base for file in self.files]
        self.denied += [file.path for file in self.files if not disk.may_read(file.path)]

    @property
    def exists(self) -> bool:
        """Whether the queue has any file."""
        return bool(self.files)

    def bounds(self) -> tuple[int, int]:
        """The first offset of the first file, and the offset after the last one of the last file."""
        if not self.files:
            return 0, 0
        last = self.files[-1]
        return -(-self.files[0].base // UNIT_SIZE), (last.base + last.size) // UNIT_SIZE

    def start_now(self) -> int:
        """The first offset of the first file that exists now; after all of them if none does."""
        _, stop = self.bounds()
        self._refresh()
        return self.bounds()[0] if self.files else stop

    def end_before(self, physical_offset: int) -> int:
        """The offset after the last unit whose message lies before ``physical_offset``, by bisection."""
        return end_before(self.read, *self.bounds(), physical_offset)

    def place_of(self, offset: int) -> tuple[str, int]:
        """The file that holds an offset, or should, and the byte within it."""
        at = offset * UNIT_SIZE
        place = bisect_right(self._bases, at) - 1 if self.files else -1
        if place < 0:
            return self.path, 0
        file = self.files[place]
        if at < file.base + file.size:
            return file.path, at - file.base
        usual = max(one.size for one in self.files)
        base = file.base + (at - file.base) // usual * usual if usual else file.base
        return os.path.join(self.path, file_name_for_offset(base)), at - base

    def read(self, start: int, stop: int) -> npt.NDArray[np.void]:
        """The units of ``[start, stop)``; zeros for offsets without a file."""
        low, high = start * UNIT_SIZE, stop * UNIT_SIZE
        if self.files and high > self.files[-1].base + self.files[-1].size:
            self._refresh()  # an owner may have created files
        place = bisect_right(self._bases, low) - 1 if self.files else -1
        if place >= 0 and high <= self.files[place].base + self.files[place].size:
            data = self._bytes(self.files[place], low, high)
            if len(data) == high - low:
                return np.frombuffer(data, UNIT_FILE_DTYPE)
        whole = bytearray(high - low)
        for file in self.files[max(place, 0) :]:
            first, last = max(low, file.base), min(high, file.base + file.size)
            if file.base >= high:
                break
            if first < last:
                data = self._bytes(file, first, last)
                whole[first - low : first - low + len(data)] = data
        return np.frombuffer(bytes(whole), UNIT_FILE_DTYPE)

    def _bytes(self, file: UnitFile, low: int, high: int) -> bytes:
        data = read_part(file.path, high - low, low - file.base, self._findings)
        if not data and self._findings.has_error("access.read", file.path) and file.path not in self.denied:
            self.denied.append(file.path)
        return data

    def data(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The ranges of offsets in ``[low, high)`` that are not holes of their files."""
        for file in self.files:
            start, stop = max(low * UNIT_SIZE, file.base), min(high * UNIT_SIZE, file.base + file.size)
            if start >= stop:
                continue
            try:
                descriptor = disk.open_file(file.path)
            except (FileNotFoundError, StoreAccessDenied):
                continue
            try:
                extents = disk.data_extents(descriptor, start - file.base, stop - file.base)
            finally:
                disk.close(descriptor)
            for first, last in extents:
                yield (
                    max((file.base + first) // UNIT_SIZE, low),
                    min(-(-(file.base + last) // UNIT_SIZE), high),
                )
