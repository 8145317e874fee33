"""Verification of the consume queues: built again from the log and compared with their files, unit by unit.

The log's records come block by block, in log order. Their units are compared with those on disk at once; only if bytes
differ are the units compared one by one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from commitlog_store.columnar.dispatch import DispatchRequests, QueueUnits, units_by_queue
from commitlog_store.errors import CommitLogError, CorruptConfig, InvalidValue, ReadFailed, StoreAccessDenied
from commitlog_store.files import disk
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_SIZE, Units
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from commitlog_store.format.record import MIN_RECORD_SIZE
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.store_directory import check_topic_kind
from commitlog_store.paths import CONSUME_QUEUE, CONSUME_QUEUE_EXT, LIGHT_QUEUE_PREFIX, parse_file_name, validate_topic
from commitlog_store.queue.consume_queue_ext import LAST_EXT_ADDRESS
from commitlog_store.queue.deleted_topics import DeletedTopics
from commitlog_store.queue.expired_units import sound_units
from commitlog_store.queue.light_queues import first_light_offset, places_of, taken_rows
from commitlog_store.queue.offset_hole import OffsetHole
from commitlog_store.queue.topic_config import read_topic_config
from commitlog_store.recovery.broker_deletions import BrokerDeletions
from commitlog_store.verify.findings import FINDINGS_PER_FILE, Findings, Lost, Severity
from commitlog_store.verify.log import LogCheck
from commitlog_store.verify.queue_files import MAX_SIZE, UnitFiles, check_unit_files, queue_directories

_CHUNK = 1 << 18
# The last offset whose unit has a place in a file.
_HIGHEST_OFFSET = MAX_LONG // UNIT_SIZE - 1


@dataclass
class _Queue:
    """State of one queue while the log is read. ``first`` and ``next`` are its offsets in the log; None before any."""

    topic: str
    queue_id: int
    files: UnitFiles
    first: int | None = None
    next: int | None = None
    last_physical_offset: int = -1
    missing: tuple[int, int, Severity] | None = None
    has_own: bool = False
    # Before a single record whose offset does not follow: the next offset; and the place of that record.
    before_misfit: tuple[int, int] | None = None


class QueueCheck:
    """Verifies every queue of a store. Feed it all dispatch requests with ``compare``, then call ``finish``."""

    def __init__(
        self,
        path: str,
        log: LogCheck,
        findings: Findings,
        deleted: DeletedTopics | None,
        deletions: BrokerDeletions | None,
        *,
        aborted: bool,
        safe_timestamp: int,
    ) -> None:
        """``safe_timestamp``: units of messages stored up to then (ms) are on the device, also after a crash.

        ``deleted``: topics whose messages get no units; None when the list of them cannot be read. ``deletions``: those
        of a broker; None when it or the log's files cannot be read.
        """
        self._deleted = deleted
        self._deletions = deletions
        self._traces = None if deletions is None else deletions.deleted
        self._store = path
        self._path = os.path.join(path, CONSUME_QUEUE)
        self._log = log
        self._lost: Lost = log.lost
        self._findings = findings
        self._aborted = aborted
        self._safe = safe_timestamp
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._kept_otherwise: dict[str, bool] = {}
        self._on_disk = {(topic, queue_id) for topic, ids in queue_directories(self._path, []) for queue_id in ids}
        # Topic, queue and offsets [start, stop) of units whose messages are not in the log, and have not expired.
        self.without_message: list[tuple[str, int, int, int]] = []
        # Places of whole records whose QUEUEID, QUEUEOFFSET or TOPIC is damaged, by these units or their neighbours.
        self.misplaced: set[int] = set()
        self._holes_in_log: list[OffsetHole] = []
        # Places of records that do not continue their queue; and topic, queue, offset and place of units that lead to
        # whole records of another queue or offset.
        self._out_of_line: set[int] = set()
        self._leads: list[tuple[str, int, int, int]] = []
        # Where the record of the newest message ends and begins that a queue names, and the log should hold.
        self.newest: tuple[int, int] = (0, 0)
        # How many messages that queues name lie after the log's files.
        self.after_the_log = 0
        self._has_ext = disk.is_directory(os.path.join(path, CONSUME_QUEUE_EXT))

    @property
    def count(self) -> int:
        """The number of queues, on disk or in the log."""
        return len({*self._queues, *self._on_disk})

    def count_files(self) -> int:
        """The number of files of the queues on disk."""
        directories = (os.path.join(self._path, topic, str(queue_id)) for topic, queue_id in self._on_disk)
        return sum(
            parse_file_name(name) is not None
            for path in directories
            if disk.may_read(path)
            for name in disk.list_names(path)
        )

    def file_paths(self) -> Iterator[str]:
        """The files of all queues that were compared."""
        for queue in self._queues.values():
            yield from queue.files.denied or (file.path for file in queue.files.files)

    def compare(self, requests: DispatchRequests) -> None:
        """Compare the units of the next part of the log with those on disk."""
        groups = list(units_by_queue(requests))
        if self._deletions is not None:
            try:
                self._deletions.note(groups)
            except (StoreAccessDenied, ReadFailed):  # of a queue, which is reported by itself
                self._deletions = self._traces = None
        for given in groups:
            group = self._left(given)
            if group is None or self._skips(group.topic):
                continue
            queue = self._queue(group.topic, group.queue_id)
            if group.light:
                self._compare_light(queue, group, requests)
                continue
            queue.has_own = True
            offsets, units = group.queue_offsets, group.units
            jumps = np.flatnonzero(np.diff(offsets) != 1) + 1
            for start, stop in zip([0, *jumps.tolist()], [*jumps.tolist(), len(offsets)], strict=True):
                self._run(queue, offsets[start:stop], units[start:stop], requests)

    def _left(self, group: QueueUnits) -> QueueUnits | None:
        """The messages that should have units, and those whose lack of units is reported as a note."""
        if self._deleted is None or self._traces is None:
            return group
        if (group.topic, group.queue_id) in self._on_disk:
            return self._deleted.left(group)
        return group if self._traces.gone_before(group.topic) else self._traces.left(group)

    def skip_batch_topics(self, topics: list[str]) -> None:
        """Do not verify the queues of these topics: the log holds records for batch consume queues of them."""
        for topic in topics:
            if not self._skips(topic):
                reason = f"Not verified: the log holds records of topic {topic!r} for batch consume queues."
                self._note_kind(topic, reason)
                self._kept_otherwise[topic] = True

    def _note_kind(self, topic: str, reason: str) -> None:
        self._findings.add("queue.kind", "note", self._path, reason, topic=topic)

    def _compare_light(self, queue: _Queue, group: QueueUnits, requests: DispatchRequests) -> None:
        """Light units follow one another; before the first, the queue's files give its offset."""
        if queue.has_own:
            return
        offsets, units = group.queue_offsets, group.units
        place, end = int(units["physical_offset"][0]), queue.next
        if end is None or self._lost.between(queue.last_physical_offset, place):
            low, end = queue.files.bounds()[0], queue.files.end_before(place)
            begin = first_light_offset(offsets)
            if end == low and begin is not None and places_of(queue.files.read(end, end + 1))[0] != place:
                end = begin
            if queue.next is not None:
                self._stray(queue, queue.next, end)
                queue.next = end
        there = places_of(queue.files.read(end, end + len(units)))
        rows = taken_rows(offsets, units, end, queue.last_physical_offset, there)
        if rows:
            self._run(queue, np.arange(end, end + len(rows)), units[rows], requests)

    def _skips(self, topic: str) -> bool:
        """Whether a topic has no plain queue to verify; reported once."""
        known = self._kept_otherwise.get(topic)
        if known is None:
            reason = ""
            try:
                validate_topic(topic)
                check_topic_kind(self._store, topic)
            except InvalidValue as error:
                reason = f"Messages in the log name a topic that cannot be one: {error}"
                self._findings.add("log.topic", "error", self._log.path, reason)
            except CommitLogError as error:
                reason = f"Not verified: {error}"
                self._note_kind(topic, reason)
            known = self._kept_otherwise[topic] = bool(reason)
        return known

    def _queue(self, topic: str, queue_id: int) -> _Queue:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            files = UnitFiles(os.path.join(self._path, topic, str(queue_id)), self._findings)
            queue = self._queues[topic, queue_id] = _Queue(topic, queue_id, files)
        return queue

    def _run(self, queue: _Queue, offsets: Int64Array, units: Units, requests: DispatchRequests) -> None:
        """Compare messages with consecutive offsets."""
        first, stop = int(offsets[0]), int(offsets[-1]) + 1
        if first != queue.next:
            self._out_of_line.add(int(units["physical_offset"][0]))
        if not 0 <= first < stop <= _HIGHEST_OFFSET:
            text = f"QUEUEOFFSET of the record at physical offset {int(units['physical_offset'][0])}: expected 0 to "
            message = f"{text}{_HIGHEST_OFFSET}, found {first}."
            self._findings.add("log.record", "error", self._log.path, message)
            return
        misfit = None
        if queue.next is None:
            queue.first = first
        elif first != queue.next:
            place = int(units["physical_offset"][0])
            if queue.before_misfit is not None and first - queue.before_misfit[0] in (0, 1):
                self.misplaced.add(queue.before_misfit[1])  # the record after it continues the queue without it
            elif stop - first == 1:
                misfit = queue.next, place
            self._jump(queue, first, place)
        queue.before_misfit = misfit
        queue.next, queue.last_physical_offset = stop, int(units["physical_offset"][-1])
        found = queue.files.read(first, stop)
        if found.tobytes() != units.tobytes():
            self._differ(queue, first, units, found, requests)

    def _jump(self, queue: _Queue, first: int, place: int) -> None:
        assert queue.next is not None
        if first == 0:
            self._end_missing(queue)
            self._findings.withdraw(queue.topic, queue.queue_id)
            self._add(queue, "queue.contiguous", "note", 0, "the queue begins again at 0 in the log: its topic was "
                      f"deleted and made again after offset {queue.next - 1}")  # fmt: skip
            queue.first = 0
        elif self._aborted and first > queue.next and queue.last_physical_offset < self._log.start_now():
            pass  # an owner's retention has removed files of the log before the walk came to them
        elif first < queue.next or not self._lost.between(queue.last_physical_offset, place):
            if first > queue.next:  # if a header field of one record is damaged, its unit leads to that record
                unit = queue.files.read(queue.next, queue.next + 1)
                places, sizes = unit["physical_offset"].astype(np.int64), unit["size"].astype(np.int64)
                self._note_lost(queue, queue.next, places, sizes)
            if first > queue.next:
                self._holes_in_log.append(OffsetHole(queue.next, first, queue.last_physical_offset, place))
            what = "given twice" if first < queue.next else "in no message of the log"
            low, high = sorted((first, queue.next))
            self._add(queue, "queue.contiguous", "error", low, f"expected offset {queue.next} at physical offset "
                      f"{place}, found {first}: the offsets [{low}, {high}) are {what}")  # fmt: skip
        else:
            self._stray(queue, queue.next, first)

    def _differ(self, queue: _Queue, first: int, units: Units, found: Units, requests: DispatchRequests) -> None:
        places = units["physical_offset"].astype(np.int64)
        if queue.files.denied:
            return  # which is reported by itself
        wrong: BoolArray = np.asarray(found != units)
        if queue.topic == SCHEDULE_TOPIC or self._has_ext:
            same = np.asarray((found["physical_offset"] == places) & (found["size"] == units["size"]))
            if self._has_ext:
                wrong &= ~(same & (found["tags_code"] <= LAST_EXT_ADDRESS))
        else:
            same = np.zeros(len(units), np.bool_)
        # Messages that an owner has appended since, or deleted with their topic, or that retention has removed.
        wrong &= places < self._log.judged_end
        if self._aborted and wrong.any():
            wrong &= places >= max(self._log.start_now(), self._deleted_now(queue))
        rows = np.flatnonzero(wrong)
        if not len(rows):
            return
        stored = requests.store_timestamps[np.searchsorted(requests.physical_offsets, places[rows])]
        notes = (stored > self._safe) if self._aborted else np.zeros(len(rows), np.bool_)
        if self._was_deleted(queue):
            assert self._traces is not None
            notes |= places[rows] >= self._traces.gone_before(queue.topic)
        absent = np.asarray(found["size"] == 0)[rows] & np.asarray(found["physical_offset"] == 0)[rows]
        self._add_missing(queue, rows[absent] + first, notes[absent])
        other = rows[~absent]
        delayed = same[other] & (queue.topic == SCHEDULE_TOPIC)
        of_notes = notes[~absent] | delayed
        for place, row in enumerate(other[:FINDINGS_PER_FILE].tolist()):
            # RocketMQ 4.9 recovers its queues before it has read its delay levels.
            why = " (another messageDelayLevel than RocketMQ's default, or its recovery)" if delayed[place] else ""
            severity: Severity = "note" if of_notes[place] else "error"
            self._unit(queue, first + row, units[row], found[row], severity, why)
        if len(other) > FINDINGS_PER_FILE:
            path, _ = queue.files.place_of(first + int(other[0]))
            severity = "note" if of_notes.all() else "error"
            self._findings.add_more("queue.unit", severity, path, len(other) - FINDINGS_PER_FILE)

    def _deleted_now(self, queue: _Queue) -> int:
        """Before which place the owner has deleted the queue's messages by now; 0 if the list cannot be read."""
        with contextlib.suppress(CorruptConfig, ReadFailed):
            return DeletedTopics(self._store).units_from(queue.topic, queue.queue_id)
        return 0

    def _unit(
        self, queue: _Queue, offset: int, expected: np.void, found: np.void, severity: Severity, why: str
    ) -> None:
        self._add(queue, "queue.unit", severity, offset, f"expected {_text(expected)}, found {_text(found)}{why}")

    def _add_missing(self, queue: _Queue, offsets: Int64Array, notes: BoolArray) -> None:
        """Gather offsets without a unit into runs; a run is reported when it ends."""
        if not len(offsets):
            return
        cuts = np.flatnonzero((np.diff(offsets) != 1) | (np.diff(notes.astype(np.int8)) != 0)) + 1
        for start, stop in zip([0, *cuts.tolist()], [*cuts.tolist(), len(offsets)], strict=True):
            severity: Severity = "note" if notes[start] else "error"
            low, high = int(offsets[start]), int(offsets[stop - 1]) + 1
            if queue.missing is not None and (queue.missing[1], queue.missing[2]) == (low, severity):
                low = queue.missing[0]
            else:
                self._end_missing(queue)
            queue.missing = (low, high, severity)

    def _end_missing(self, queue: _Queue) -> None:
        if queue.missing is None:
            return
        low, high, severity = queue.missing
        queue.missing = None
        why = ""
        if severity == "note":
            why = ": dispatch had not come so far, or did not reach the device; opening the store writes them"
        elif self._was_deleted(queue):
            severity, why = "note", ": the topic was deleted"
        elif not queue.files.exists and self._is_unlisted(queue.topic):
            # Only a broker lists every topic, so the queues may be lost as well.
            severity, why = "note", ": the topic is not listed, as if it was deleted; opening the store writes them"
        self._add(queue, "queue.missing-message", severity, low, f"expected units for the messages of the offsets "
                  f"[{low}, {high}), found none{why}")  # fmt: skip

    def _is_unlisted(self, topic: str) -> bool:
        """Whether the broker's list of topics exists and does not name the topic."""
        try:
            listed = read_topic_config(self._store)
        except (ReadFailed, CorruptConfig):
            return False
        return bool(listed) and topic not in listed

    def _was_deleted(self, queue: _Queue) -> bool:
        """Whether a broker has deleted the queue's topic: opening the store agrees."""
        return not queue.files.exists and self._traces is not None and self._traces.gone_before(queue.topic) > 0

    def _add(self, queue: _Queue, check: str, severity: Severity, offset: int, message: str) -> None:
        path, at = queue.files.place_of(offset)
        text = f"Topic {queue.topic!r}, queue {queue.queue_id}, offset {offset}: {message}."
        self._findings.add(
            check, severity, path, text, offset=at, topic=queue.topic, queue_id=queue.queue_id, queue_offset=offset
        )

    def finish(self) -> None:
        """Report findings that show only after the whole log: heads, tails, files."""
        for topic, queue_id in sorted({*self._queues, *self._on_disk}):
            if self._skips(topic):
                continue
            queue = self._queue(topic, queue_id)
            self._end_missing(queue)
            check_unit_files(topic, queue_id, queue.files.files, self._findings, aborted=self._aborted)
            low, high = queue.files.bounds()
            if queue.first is not None and queue.next is not None:
                self._stray(queue, low, min(queue.first, high), head=True)
                self._stray(queue, max(queue.next, low), high)
            else:
                self._stray(queue, low, high, head=True)
        self._settle_leads()
        self._settle_strays()

    def _stray(self, queue: _Queue, low: int, high: int, *, head: bool = False) -> None:
        """Verify units at offsets without a message in the log: they have expired, or should not exist."""
        for at, found in _chunks(queue.files, low, high, skip_holes=not head):
            places = found["physical_offset"].astype(np.int64)
            sizes = found["size"].astype(np.int64)
            # Damaged units among expired ones lead anywhere.
            self._note_lost(queue, at, places, np.where(sound_units(found), sizes, 0) if head else sizes)
            written = (sizes != 0) | (places != 0) | (found["tags_code"] != 0)
            bad = written & ~((places >= 0) & (places < self._gone_before(queue)) & (sizes > 0))
            if head or (self._aborted and bad.any() and self._deleted_now(queue)):
                bad &= sizes != FILLER_SIZE
            for row in np.flatnonzero(bad).tolist():
                place = int(places[row])
                if self._lost.holds(place):
                    continue
                severity: Severity = "error"
                if self._aborted and place >= self._log.judged_end:
                    if place < self._log.end or self._log.holds_record(place):
                        continue  # an owner at work
                    severity = "note"
                inside = 0 <= place < self._log.end
                where = "the log holds no such message" if inside else f"the log ends at {self._log.end}"
                text = f"expected nothing, found {_text(found[row])}; {where}"
                self._add(queue, "queue.extra-unit", severity, at + row, text)
            if head and queue.first is not None:
                self._holes(queue, at, written)

    def _gone_before(self, queue: _Queue) -> int:
        """Where the log's messages of a queue begin: those before have expired, or were deleted with their topic."""
        before = self._deleted.units_from(queue.topic, queue.queue_id) if self._deleted else 0
        return max(self._log.min_offset, before)

    def _note_lost(self, queue: _Queue, at: int, places: Int64Array, sizes: Int64Array) -> None:
        """Units of messages that the log should hold: their offsets were given out."""
        should = (places >= self._gone_before(queue)) & (sizes >= MIN_RECORD_SIZE) & (sizes <= MAX_SIZE)
        rows = np.flatnonzero(should & (np.diff(places, prepend=np.int64(-1)) > 0))
        if len(rows):
            self.newest = max(self.newest, (int(places[rows[-1]] + sizes[rows[-1]]), int(places[rows[-1]])))
        self.after_the_log += int(np.count_nonzero(places[rows] >= self._log.min_offset + self._log.size))
        inside = [row for row in rows.tolist() if places[row] < self._log.end]
        whole = [row for row in inside if self._log.holds_record(int(places[row]))]
        self._leads += [(queue.topic, queue.queue_id, at + row, int(places[row])) for row in whole]
        rows = np.setdiff1d(rows, np.array(whole, np.int64))
        if queue.topic.startswith(LIGHT_QUEUE_PREFIX):
            return  # their messages are counted in their own queues
        for row in rows.tolist():
            if self._log.may_not_read(int(places[row]), int(sizes[row])):
                self._log.unreadable.append((queue.topic, queue.queue_id, at + row, at + row + 1))
        for run in np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1) if len(rows) else ():
            self.without_message.append((queue.topic, queue.queue_id, at + int(run[0]), at + int(run[-1]) + 1))

    def _settle_strays(self) -> None:
        """The only record of a queue without files is misplaced if it fits a hole of another queue."""
        for queue in self._queues.values():
            if queue.first is None or queue.next != queue.first + 1 or queue.files.exists:
                continue
            offset, place = queue.first, queue.last_physical_offset
            if any(hole.is_filled_by(offset, place) for hole in self._holes_in_log):
                self.misplaced.add(place)

    def _settle_leads(self) -> None:
        """Tell damaged records from wrong units, as of two queues whose files were swapped.

        A unit that leads to a record of another queue is wrong if that record continues its own queue.
        """
        for topic, queue_id, offset, place in self._leads:
            if place in self._out_of_line:
                self.misplaced.add(place)
                if not topic.startswith(LIGHT_QUEUE_PREFIX):
                    self.without_message.append((topic, queue_id, offset, offset + 1))

    def _holes(self, queue: _Queue, at: int, written: BoolArray) -> None:
        empty = at + np.flatnonzero(~written)
        if len(empty) and self._aborted:  # an owner's retention may have removed the first files since they were listed
            empty = empty[empty >= queue.files.start_now()]
        if len(empty):
            first = int(empty[0])
            self._add(queue, "queue.unit", "error", first, "expected an expired message or a filler before the queue's "
                      "first message, found nothing written")  # fmt: skip


def _chunks(files: UnitFiles, low: int, high: int, *, skip_holes: bool) -> Iterator[tuple[int, Units]]:
    """The units of ``[low, high)`` in pieces, each with its first offset."""
    stretches = files.data(low, high) if skip_holes else iter([(low, high)])
    for start, stop in stretches:
        for at in range(start, stop, _CHUNK):
            yield at, files.read(at, min(at + _CHUNK, stop))


def _text(unit: np.void) -> str:
    if unit["size"] == 0 and unit["physical_offset"] == 0:
        return "no unit"
    return f"({int(unit['physical_offset'])}, {int(unit['size'])}, {int(unit['tags_code'])})"
