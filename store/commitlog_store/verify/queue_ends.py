"""Ends of all queues, and which of their messages cannot be in the log, by its files' names and sizes.

The units around each gap of the log are found by bisection, so that no record and few units are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.format.checkpoint import CheckpointMark
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_SIZE
from commitlog_store.format.record import MIN_RECORD_SIZE
from commitlog_store.log.store_directory import check_topic_kind, has_other_kinds
from commitlog_store.paths import CONSUME_QUEUE, LIGHT_QUEUE_PREFIX
from commitlog_store.queue.expired_units import end_before, sound_units
from commitlog_store.queue.saved_ends import SavedEnd, SavedEnds
from commitlog_store.queue.written_units import last_written, written_units
from commitlog_store.verify.access import report_failed_read
from commitlog_store.verify.findings import NOWHERE, Findings
from commitlog_store.verify.log_files import LogFile, usual_size
from commitlog_store.verify.queue_files import (
    MAX_SIZE,
    UnitFile,
    UnitFiles,
    list_unit_files,
    queue_directories,
)

# Units that are read at once.
_PIECE = 512


class Absent(NamedTuple):
    """A stretch ``[start, stop)`` of the log (physical offsets) without bytes.

    ``denied``: its file may not be read, or has the name of another one.
    """

    start: int
    stop: int
    denied: bool


@dataclass(frozen=True)
class QueueEnd:
    """A queue and its last unit.

    ``end`` is the next queue offset; ``physical_offset`` and ``size`` are those of the record that the unit leads to.
    """

    topic: str
    queue_id: int
    path: str
    files: list[UnitFile]
    findings: Findings = field(repr=False, compare=False)
    end: int = 0
    physical_offset: int = -1
    size: int = 0

    @property
    def is_light(self) -> bool:
        """Whether its units lead to messages of other queues, which are counted there."""
        return self.topic.startswith(LIGHT_QUEUE_PREFIX)

    @cached_property
    def units(self) -> UnitFiles:
        """Its units."""
        return UnitFiles(self.path, self.findings)

    def first_offset(self, physical_offset: int) -> int:
        """The first offset whose record ends after a place in the log, of those that a unit names."""
        at = self._end_before(physical_offset)
        if at > self.units.bounds()[0]:
            units = self.units.read(at - 1, at + 1)  # zeros after the end
            places, sizes = units["physical_offset"].tolist(), units["size"].tolist()
            end = places[0] + sizes[0]
            is_whole = sizes[0] not in (0, FILLER_SIZE) and (sizes[1] < MIN_RECORD_SIZE or end <= places[1])
            if is_whole and places[0] < physical_offset < end:
                return at - 1
        return self._first_named(at)

    def first_offset_in_log(self, log_start: int) -> int:
        """The first offset whose record begins in a log that starts there.

        Records do not cross the border of two files: a unit that says so has a damaged size, and has expired.
        """
        return self._first_named(self._end_before(log_start))

    def _end_before(self, physical_offset: int) -> int:
        return end_before(self.units.read, self.units.bounds()[0], self.end, physical_offset)

    def _first_named(self, start: int) -> int:
        """The first offset from there on with a unit that may lead to a record: damage leaves others before it."""
        for at in range(start, self.end, _PIECE):
            units = self.units.read(at, min(at + _PIECE, self.end))
            named = np.flatnonzero((units["size"] >= MIN_RECORD_SIZE) & sound_units(units))
            if len(named):
                return at + int(named[0])
        return self.end


def find_queue_ends(
    store_path: str, findings: Findings, saved: SavedEnds | None = None
) -> tuple[list[QueueEnd], list[str]]:
    """All queues with their last units, and the paths that this process may not read. A failed read is a finding.

    ``saved``: the store's saved ends, which are compared with all queues.
    """
    path = os.path.join(store_path, CONSUME_QUEUE)
    found: list[QueueEnd] = []
    denied: list[str] = []
    all_plain = not has_other_kinds(store_path)
    unchanged = None if saved is None else saved.compare()
    for topic, queue_ids in queue_directories(path, denied, unchanged):
        if not queue_ids or not (all_plain or _is_plain(store_path, topic)):
            continue
        known = None if unchanged is None else unchanged.topic(topic)
        for queue_id in queue_ids:
            directory = f"{path}/{topic}/{queue_id}"
            if known is not None:
                found.append(_saved_queue_end(topic, queue_id, directory, known.ends[queue_id], findings))
            else:
                files = list_unit_files(directory, denied)
                found.append(_queue_end(QueueEnd(topic, queue_id, directory, files, findings), denied))
    return found, denied


def _saved_queue_end(topic: str, queue_id: int, path: str, saved: SavedEnd, findings: Findings) -> QueueEnd:
    """The queue as it is saved, which holds."""
    files = [UnitFile(base, size, f"{path}/{base:020d}") for base, size in saved.extents]
    return QueueEnd(topic, queue_id, path, files, findings, saved.end, saved.last_place, saved.last_size)


def _is_plain(store_path: str, topic: str) -> bool:
    try:
        check_topic_kind(store_path, topic)
    except CommitLogError:
        return False
    return True


def _queue_end(queue: QueueEnd, denied: list[str]) -> QueueEnd:
    """The queue with its last unit, if it has any."""
    last: QueueEnd | None = None
    for file in reversed(queue.files):
        if last is not None:
            if not disk.may_read(file.path):
                denied.append(file.path)
            continue
        try:
            descriptor = disk.open_file(file.path)
        except FileNotFoundError:
            continue
        except CommitLogError:
            denied.append(file.path)
            continue
        try:
            found = _last_unit(descriptor, min(last_written(descriptor), file.size // UNIT_SIZE))
            if found is not None and not 0 < found[2] <= MAX_SIZE:  # bytes of another kind follow the units
                found = _last_unit(descriptor, min(written_units(descriptor), file.size // UNIT_SIZE))
        except OSError as error:
            report_failed_read(file.path, error, queue.findings)
            continue
        finally:
            disk.close(descriptor)
        if found is not None:
            count, at, size = found
            end = file.base // UNIT_SIZE + count
            last = QueueEnd(queue.topic, queue.queue_id, queue.path, queue.files, queue.findings, end, at, size)
    return last or queue


def _last_unit(descriptor: int, count: int) -> tuple[int, int, int] | None:
    """The number of a file's units, and physical offset and size in the last one; None without any."""
    unit = disk.read_at(descriptor, UNIT_SIZE, (count - 1) * UNIT_SIZE) if count else b""
    if len(unit) < UNIT_SIZE:
        return None
    return count, int.from_bytes(unit[:8], "big", signed=True), int.from_bytes(unit[8:12], "big", signed=True)


def absent_stretches(
    files: Sequence[LogFile], *, denied: Sequence[str], misnamed: Sequence[str], failed: Mapping[str, int]
) -> list[Absent]:
    """The stretches of the log from its first byte on, to all that may follow it, that no file holds.

    ``denied`` are files that may not be read, ``misnamed`` those that hold another stretch: a salvage takes their
    records, and no reader finds them. ``failed``: bytes from the beginning of a file on that the disk fails to read.
    """
    usual = usual_size(files)
    found: list[Absent] = []
    at = files[0].base if files else 0
    for place, file in enumerate(files):
        if file.base > at:
            found.append(Absent(at, file.base, denied=False))
        stop = file.base + file.size
        following = files[place + 1].base if place + 1 < len(files) else NOWHERE
        if file.path in denied or file.path in misnamed:
            found.append(Absent(file.base, min(file.base + usual, following), denied=True))
        elif file.path in failed:
            found.append(Absent(file.base, file.base + failed[file.path], denied=True))
        at = max(at, stop)
    found.append(Absent(at, NOWHERE, denied=False))
    return found


def lost_offsets(queue: QueueEnd, absent: Sequence[Absent], begins_at: int) -> list[tuple[int, int, bool]]:
    """The queue offsets ``[start, stop)`` of messages in absent stretches, and whether these may only not be read.

    ``begins_at``: messages before that physical offset have expired.
    """
    found: list[tuple[int, int, bool]] = []
    reach = queue.physical_offset + queue.size
    for start, stop, denied in absent if not queue.is_light and 0 < queue.size <= MAX_SIZE else ():
        low = max(start, begins_at)
        if low >= stop or reach <= low:
            continue
        first = queue.first_offset(low)
        last = queue.end if stop >= reach else end_before(queue.units.read, queue.units.bounds()[0], queue.end, stop)
        if found and found[-1][1:] == (first, denied):
            first = found.pop()[0]
        if first < last:
            found.append((first, last, denied))
    return found


def note_removed_head(
    path: str, mark: CheckpointMark | None, log_start: int, queues: Sequence[QueueEnd], findings: Findings
) -> None:
    """Note that the log began earlier when the store was closed. ``path`` is the log's directory.

    Whether retention, an operator or a disk has removed its first files, nothing says.
    """
    if mark is None or not mark.closed or log_start <= mark.log_start:
        return
    count = sum(
        queue.first_offset_in_log(log_start) - queue.first_offset_in_log(mark.log_start)
        for queue in queues
        if not queue.is_light and 0 < queue.size <= MAX_SIZE
    )
    message = (
        f"The log began at physical offset {mark.log_start} when the store was closed, and begins at {log_start} now: "
        f"its first files were removed, with {count} messages that the queues name. They count as expired."
    )
    findings.add("files.head", "note", path, message)


def given_out(queue: QueueEnd, begins_at: int) -> tuple[int, int] | None:
    """The queue offsets ``[start, stop)`` that units give to messages from a place in the log on; None without any."""
    if queue.is_light or not MIN_RECORD_SIZE <= queue.size <= MAX_SIZE or queue.physical_offset < begins_at:
        return None
    start = queue.first_offset_in_log(begins_at)
    return (start, queue.end) if start < queue.end else None


def unwritten_from(queue: QueueEnd, is_written: Callable[[int, int], bool]) -> int:
    """The first offset of the messages at a queue's end that are not in the log: it is older than the queue."""
    low, high = queue.units.bounds()[0], queue.end
    while low < high:
        middle = (low + high) // 2
        (unit,) = queue.units.read(middle, middle + 1)
        at, size = int(unit["physical_offset"]), int(unit["size"])
        if size == FILLER_SIZE or is_written(at, size):
            low = middle + 1
        else:
            high = middle
    return low
