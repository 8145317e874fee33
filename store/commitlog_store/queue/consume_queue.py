"""A consume queue, read-only: the places in the CommitLog of all messages of one queue of a topic.

A queue is a sequence of 20-byte units in files of one directory; unit *n* is queue offset *n*. Files are allocated
ahead, so zeros up to the end of the last file mark the end: it comes after the last unit that is not zero, also where
damage has left zeros before that. The start is found by bisection.

The last units may lead to no message. In a store that was closed cleanly they are damaged, and reading them reports
that. Where the ``abort`` file exists, a machine may have stopped between writing the queue and writing the log: units
whose messages never reached the log are left out, as RocketMQ does when it starts; but when the log holds the message,
its unit is damaged, and that is an error. So is a message that the log had on the device, by the checkpoint's mark: the
log has lost its end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

import numpy as np

from commitlog_store.errors import (
    CorruptConsumeQueue,
    CorruptRecord,
    FileMissing,
    MessageNotFound,
    ReadFailed,
)
from commitlog_store.files import disk
from commitlog_store.files.numbered_files import NumberedFiles
from commitlog_store.format.arrays import BoolArray
from commitlog_store.format.consume_queue_unit import (
    FILLER_SIZE,
    UNIT_DTYPE,
    UNIT_SIZE,
    Units,
    decode_units,
    unit_place,
)
from commitlog_store.format.record import own_queue_place
from commitlog_store.format.sys_flag import has_queue_unit
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.queue.expired_units import end_before
from commitlog_store.queue.saved_ends import SavedEnd
from commitlog_store.queue.views import out_of_range
from commitlog_store.queue.written_units import last_written, written_units

_PAGE = 4096
# How long a unit may stay half written, when its writer's thread is put to sleep.
_LOOK_AGAIN_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.0)

_A_PLACE = "a physical offset of at least 0 and a size of at least 1"


class ConsumeQueue:
    """Read access to ``<store>/consumequeue/<topic>/<queue id>``. A ``QueueView``.

    ``bounds`` looks at the disk every time, which is cheap without a change: one ``stat``, one small read. Its searches
    look around damaged units, which reading meets. After a crash, a damaged unit at the end is refused; not with
    ``tolerant``.
    """

    __slots__ = (  # a reader has one for each queue
        "_commit_log",
        "_end",
        "_files",
        "_last_unit",
        "_listed_again",
        "_searched",
        "_start",
        "_start_seen_at",
        "_tolerant",
        "_unflushed_from",
        "_written",
        "path",
        "queue_id",
        "saved",
        "topic",
    )

    fillers_are_lost = False

    def __init__(
        self,
        path: str,
        topic: str,
        queue_id: int,
        commit_log: CommitLog,
        unflushed_from: Callable[[], int | None],
        *,
        tolerant: bool = False,
    ) -> None:
        """``unflushed_from``: from which physical offset on a crash may have left units without messages; or None."""
        self._tolerant = tolerant
        self.path = path
        self.topic = topic
        self.queue_id = queue_id
        self._commit_log = commit_log
        self._unflushed_from = unflushed_from
        self._files = NumberedFiles(path)
        self._end = -1
        # Of each file that was looked through, by its first byte: the number of its written units.
        self._written: dict[int, int] = {}
        self._last_unit: tuple[int, int] = (-1, 0)
        self._start = 0
        # The state for which ``_start`` was found: the log's first byte, the queue's first file, whether a log exists.
        self._start_seen_at: tuple[int, int, bool] | None = None
        # Whether a search has listed the files again, since one of them had gone.
        self._listed_again = False
        # The last search of the log: a unit's offset and bytes, and where its message was found.
        self._searched: tuple[int, bytes, int | None] = (-1, b"", None)
        # What is saved of the queue, for the first look at it.
        self.saved: SavedEnd | None = None

    def bounds(self) -> tuple[int, int]:
        """``(min_offset, max_offset)``: the first offset whose message is in the log, and the next to be written."""
        saved, self.saved = self.saved, None
        if saved is not None and self._take(saved):
            return self._start, self._end
        if not self._files.exists:
            self._files.bases = []  # those of ``begin_with`` were not listed
        try:
            changed = self._files.refresh() or self._listed_again
        except NotADirectoryError:
            raise CorruptConsumeQueue(
                "Consume queue", path=self.path, offset=0, expected="a directory of unit files", found="a file"
            ) from None
        if changed:
            try:
                self._check_names()
            except CorruptConsumeQueue:
                self._files.forget()  # the next call must report the damage too
                raise
            self._listed_again = False
        if not self._end_stands():
            self._find_end()
        log_start = self._commit_log.min_offset
        seen_at = (log_start, self._bases[0] if self._bases else 0, self._commit_log.file_count > 0)
        if seen_at != self._start_seen_at or self._start > self._end:
            self._start = self._find_start(log_start)
            self._start_seen_at = seen_at
        return self._start, self._end

    def _take(self, saved: SavedEnd) -> bool:
        """Take the bounds from what is saved; False where the queue has changed, or not all of it is saved."""
        log = self._commit_log
        if not (log.min_offset <= saved.first_place and log.holds(saved.last_place, saved.last_size)):
            return False
        found = saved.holds(self.path)
        if found is None:
            return False
        self._begin_with(saved)
        self._files.take(self._bases, disk.signature_of(found))
        return True

    def begin_with(self, saved: SavedEnd, *, look_again: bool) -> None:
        """Show what is saved of a queue that was compared with it just now. The next ``bounds`` looks at the queue;
        with ``look_again`` it compares first.
        """
        self._begin_with(saved)
        self.saved = saved if look_again else None

    def _begin_with(self, saved: SavedEnd) -> None:
        bases = self._files.bases = [base for base, _ in saved.extents]
        self._start, self._end = bases[0] // UNIT_SIZE, saved.end
        self._last_unit = (saved.end - 1, saved.last_place)
        self._written = {bases[-1]: saved.end - bases[-1] // UNIT_SIZE}
        log = self._commit_log
        self._start_seen_at = (log.min_offset, bases[0], log.file_count > 0)

    def last_unit(self) -> tuple[int, int]:
        """Queue offset and physical offset of the last message as ``bounds`` saw it; ``(-1, 0)`` without any."""
        return self._last_unit

    @property
    def _bases(self) -> list[int]:
        return self._files.bases

    def _check_names(self) -> None:
        for base in self._bases:
            if base % UNIT_SIZE:
                raise CorruptConsumeQueue(
                    "File name",
                    path=self._files.path_of(base),
                    offset=0,
                    expected=f"a multiple of the unit size {UNIT_SIZE}",
                    found=base,
                )
        self._end = -1
        self._written = {}
        self._start_seen_at = None

    def _base_of(self, offset: int) -> int | None:
        return self._files.base_at(offset * UNIT_SIZE)

    def _read(self, base: int, start: int, stop: int) -> bytes:
        """Bytes of the units ``[start, stop)`` as far as the file of that base holds them, in whole units."""
        try:
            data = read_file(self._files.path_of(base), (stop - start) * UNIT_SIZE, start * UNIT_SIZE - base)
        except FileNotFoundError:
            self._list_again()
            return b""
        return data[: len(data) - len(data) % UNIT_SIZE]

    def _read_across(self, start: int, stop: int) -> Units:
        """The units ``[start, stop)`` as far as files hold them without a gap; fillers for those of removed files."""
        parts: list[Units] = []
        at = start
        while at < stop:
            base = self._base_of(at)
            data = b"" if base is None else self._read(base, at, stop)
            if data:
                parts.append(decode_units(data))
            elif self._is_removed(at):
                removed = np.zeros(min(stop, self._first_left) - at, UNIT_DTYPE)
                removed["size"] = FILLER_SIZE
                parts.append(removed)
            else:
                break
            at += len(parts[-1])
        return np.concatenate(parts) if parts else decode_units(b"")

    def _list_again(self) -> None:
        """A file has gone since the files were listed: list them again, and let the next ``bounds`` search again."""
        self._files.refresh()
        self._listed_again = True

    def _is_removed(self, offset: int) -> bool:
        """Whether an offset, below the queue's end, stood in a file that is not listed any more."""
        return offset < self._first_left

    @property
    def _first_left(self) -> int:
        """The first offset with a place in a file that is listed; without files, one after all others."""
        return self._bases[0] // UNIT_SIZE if self._bases else 2**62

    def _unit_bytes(self, offset: int) -> bytes:
        base = self._base_of(offset)
        return self._read(base, offset, offset + 1) if base is not None else b""

    def _unit(self, offset: int) -> tuple[int, int] | None:
        """Physical offset and size of one unit; None where no file holds it or it is unwritten."""
        data = self._unit_bytes(offset)
        return unit_place(data) if data else None

    def _end_stands(self) -> bool:
        """Whether the end has not moved: the unit before it is the same, and none stands after it."""
        if self._end <= 0 or not self._bases or self._last_unit[0] != self._end - 1:
            return False
        if not self._commit_log.file_count:
            return False
        base = self._base_of(self._end - 1)
        if base is None:
            return False
        data = self._read(base, self._end - 1, self._end + 1)
        last = unit_place(data[:UNIT_SIZE]) if data else None
        if last is None or last[0] != self._last_unit[1] or last[1] <= 0:
            return False
        if len(data) > UNIT_SIZE:
            return unit_place(data[UNIT_SIZE:]) is None or self._still_left_out(data[UNIT_SIZE:])
        return self._base_of(self._end) == base

    def _find_end(self) -> None:
        self._end, self._last_unit = self._bases[0] // UNIT_SIZE if self._bases else 0, (-1, 0)
        for base in reversed(self._bases):
            first = base // UNIT_SIZE
            count = self._written_units(base)
            if count or not self._is_removed(first):
                self._end = first + count
            if count:
                break
            # An empty last file follows a full one; without the one before it, the queue ends (and starts) here.
        if self._bases:
            self._judge_the_last()

    def _written_units(self, base: int) -> int:
        """The number of units of a file up to the last one with bytes. Reading refuses those that damage has zeroed.

        A file is looked through once. After that its owner adds units where these ended, unless recovery cuts some off.
        """
        try:
            with _opened(self._files.path_of(base)) as descriptor:
                known = self._written.get(base)
                if known and any(disk.read_at(descriptor, UNIT_SIZE, (known - 1) * UNIT_SIZE)):
                    count = written_units(descriptor, known)
                elif known == 0:
                    count = written_units(descriptor)
                else:
                    count = last_written(descriptor)
                count = self._written[base] = min(count, disk.size_of(descriptor) // UNIT_SIZE)
                return count
        except FileNotFoundError:
            self._list_again()
            return 0

    def _judge_the_last(self) -> None:
        """Keep units at the end that lead to no message, for reading to refuse, or leave them out."""
        low = self._bases[0] // UNIT_SIZE
        last = self._unit(self._end - 1) if self._end > low else None
        if last is not None and not self._in_log(last):
            # The queue was read after the log: the unit may point into a file that is newer than our list.
            self._commit_log.refresh()

            def present(offset: int) -> bool:
                # Below the end every unit was written: where a file is missing, its messages are not.
                data = self._unit_bytes(offset)
                return not data or ((unit := unit_place(data)) is not None and self._in_log(unit))

            first = _first_false(low, self._end, present)
            if first < self._end and (unflushed := self._unflushed_from()) is not None:
                first = self.first_offset_from(unflushed, first, self._end)
            else:
                first = self._end
            if first < self._end:
                try:
                    if not self._never_logged(first, low):
                        self._find_end()  # read while it was written
                        return
                    self._end = first
                except CorruptConsumeQueue:
                    if not self._tolerant:
                        raise
            last = self._unit(self._end - 1) if self._end > low else None
        if last is not None:
            self._last_unit = (self._end - 1, last[0])

    def _never_logged(self, offset: int, low: int) -> bool:
        """True for a unit whose message is not in the log, or which is not whole yet; False for one that has changed.

        ``CorruptConsumeQueue`` when the message is there and the unit does not lead to it.
        """
        data = self._unit_bytes(offset)
        known = (offset, data) == self._searched[:2]
        found = self._searched[2] if known else None
        if not known or (found is not None and not self._is_own(found, offset)):
            found = self._search(offset, low)
            self._searched = (offset, data, found)
        if found is not None and self._half_written(offset, data, found):
            return True
        if found is not None and not self._being_written(offset, data):
            place, size = unit_place(data) or (0, 0)
            expected = f"{found} and the size of this queue's message there"
            self._refuse(offset, self._base_of(offset) or 0, place, size, expected)
        return found is None

    def _half_written(self, offset: int, data: bytes, found: int) -> bool:
        """Whether a unit's rest is still to be written: by its owner, or, when that was killed, by the next one.

        The kernel copies page by page, and stops between two of them for a kill. The bytes before that must be right
        for the message at ``found``: many units end in zeros, and a damaged one must not lose its row.
        """
        boundary = -self.place_of(offset)[1] % _PAGE
        if not 0 < boundary < UNIT_SIZE or any(data[boundary:]):
            return False
        size = self._commit_log.read_without_body(found).total_size
        whole = found.to_bytes(8, "big") + size.to_bytes(4, "big")
        return data[:boundary].startswith(whole[:boundary])

    def _being_written(self, offset: int, data: bytes) -> bool:
        """Whether a unit changes within a moment, because its owner is writing it."""
        for pause in _LOOK_AGAIN_SECONDS:
            if self._unit_bytes(offset) != data:
                return True
            time.sleep(pause)
        return False

    def _search(self, offset: int, low: int) -> int | None:
        """Where the log holds the message of a queue offset: record by record, from the message before it on."""
        start = self._commit_log.min_offset
        before = self._unit(offset - 1) if offset > low else None
        if before is not None and self._commit_log.holds(*before) and self._is_own(before[0], offset - 1):
            start = before[0]
        wanted = (self.queue_id, offset)
        for place, _, head in self._commit_log.headers_from(start):
            if head and own_queue_place(head) == wanted and self._is_own(place, offset):
                return place
        return None

    def _is_own(self, physical_offset: int, offset: int) -> bool:
        """Whether the record there is this queue's message of that offset."""
        try:
            record = self._commit_log.read_without_body(physical_offset)
        except (CorruptRecord, MessageNotFound):
            return False  # torn, or cut off
        own = (record.topic, record.queue_id, record.queue_offset) == (self.topic.encode(), self.queue_id, offset)
        return own and has_queue_unit(record.sys_flag)

    def _still_left_out(self, data: bytes) -> bool:
        """Whether the unit at the end is the one that was left out, for a reason that still holds."""
        place = unit_place(data)
        known = self._searched == (self._end, data, None)
        if not known or place is None or self._in_log(place):
            return False
        unflushed = self._unflushed_from()
        return unflushed is not None and place[0] >= unflushed

    def _in_log(self, unit: tuple[int, int]) -> bool:
        """Whether the unit's message reached the log; it may have expired since."""
        if unit[0] < 0 or unit[1] < 0 or unit[1] == FILLER_SIZE:
            return True  # damaged rather than absent: reading it reports that
        if unit[1] == 0:
            return False
        if self._commit_log.holds(*unit):
            return True
        # Checked after that, since it may have found that files were removed.
        if unit[0] < self._commit_log.min_offset:
            return True
        # After a gap of the log, or in it, the message was written once: the reader reports that.
        return self._commit_log.find(unit[0]) is None and self._commit_log.missing_file_after(unit[0]) is not None

    def _find_start(self, log_start: int) -> int:
        low = self._bases[0] // UNIT_SIZE if self._bases else 0
        if not self._commit_log.file_count:
            return self._end
        # The search for the end may have listed the files again, and found none left.
        if self._bases and low < self._end and self._begin_the_log(low, log_start):
            return low
        return end_before(self._read_across, low, self._end, log_start)

    def _begin_the_log(self, low: int, log_start: int) -> bool:
        """Whether the first units, a look at which decides for most queues, lead to messages that the log has.

        Three of them, or all: the search would compare as many.
        """
        data = self._read(self._bases[0], low, min(low + 3, self._end))
        before = log_start - 1
        for at in range(0, len(data), UNIT_SIZE):
            place, size = unit_place(data[at : at + UNIT_SIZE]) or (-1, 0)
            if place <= before or size <= 0 or size == FILLER_SIZE:
                return False
            before = place
        return bool(data)

    @property
    def removed(self) -> bool:
        """Whether the queue's directory was missing at the last call of ``bounds``."""
        return not self._files.exists

    def first_offset_from(self, physical_offset: int, start: int, stop: int) -> int:
        """The first offset in ``[start, stop)`` whose message lies at or after ``physical_offset``, or ``stop``."""

        return end_before(self._read_across, start, stop, physical_offset)

    def place_of(self, offset: int) -> tuple[str, int]:
        """The file that holds a unit, and the unit's first byte in it."""
        base = self._base_of(offset) or 0
        return self._files.path_of(base), offset * UNIT_SIZE - base

    def unit(self, offset: int) -> tuple[int, int] | None:
        """Physical offset and size of the message at a queue offset; None where no message is."""
        found = self._unit(offset) if offset >= 0 else None
        return None if found is None or found[1] == FILLER_SIZE else found

    def units(self, start: int, stop: int, *, chunk: int = 1_000_000, check: bool = True) -> Iterator[Units]:
        """The units ``[start, stop)`` in arrays of at most ``chunk``, fillers included.

        ``OffsetOutOfRange`` when retention has removed them, ``FileMissing`` for a gap in the middle,
        ``CorruptConsumeQueue`` for an impossible unit, with ``check``.
        """
        at = start
        while at < stop:
            base = self._base_of(at)
            data = self._read(base, at, min(at + chunk, stop)) if base is not None else b""
            if not data:
                self._explain_absence(at, stop)
            units = decode_units(data)
            if check:
                self._check(units, at, base or 0)
            yield units
            at += len(units)

    def _explain_absence(self, at: int, stop: int) -> None:
        self._commit_log.refresh()
        low, high = self.bounds()
        later = [base // UNIT_SIZE for base in self._bases if base // UNIT_SIZE > at]
        if low <= at < high and later:
            before = self._base_of(at)
            held = at * UNIT_SIZE if before is None else before + disk.file_size(self._files.path_of(before))
            raise FileMissing(
                path=self._files.path_of(held - held % UNIT_SIZE),
                topic=self.topic,
                queue_id=self.queue_id,
                start=at,
                stop=min(later),
            )
        raise out_of_range(self, at, stop, (low, high))

    def _check(self, units: Units, at: int, base: int) -> None:
        possible = are_possible(units)
        if not possible.all():
            index = int(np.argmin(possible))
            self._refuse(at + index, base, int(units["physical_offset"][index]), int(units["size"][index]))

    def _refuse(self, offset: int, base: int, physical_offset: int, size: int, expected: str = _A_PLACE) -> NoReturn:
        raise CorruptConsumeQueue(
            f"Unit of queue offset {offset} of topic {self.topic!r}, queue {self.queue_id}",
            path=self._files.path_of(base),
            offset=offset * UNIT_SIZE - base,
            expected=expected,
            found=f"{physical_offset} and {size}",
            advice="The queue can be rebuilt from the CommitLog.",
        )


def are_possible(units: Units) -> BoolArray:
    """Which units may lead to a message, or are fillers."""
    possible: BoolArray = (units["size"] > 0) & (units["physical_offset"] >= 0)
    return possible


def read_file(path: str, length: int, at: int) -> bytes:
    """``disk.read_at`` of a file. ``FileNotFoundError``; ``ReadFailed`` for a read that fails.

    Without ``_opened``, which takes as long as the read: each queue of a scan is read once.
    """
    descriptor = disk.open_file(path)
    try:
        return disk.read_at(descriptor, length, at)
    except OSError as error:
        raise ReadFailed("read", path=path, cause=error) from error
    finally:
        disk.close(descriptor)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    """The descriptor of a file, for reading. ``FileNotFoundError``; ``ReadFailed`` for a read that fails."""
    descriptor = disk.open_file(path)
    try:
        yield descriptor
    except OSError as error:
        raise ReadFailed("read", path=path, cause=error) from error
    finally:
        disk.close(descriptor)


def _first_false(low: int, high: int, predicate: Callable[[int], bool]) -> int:
    """The first number in ``[low, high)`` for which ``predicate`` fails, ``high`` when it never does (bisection)."""
    while low < high:
        middle = (low + high) // 2
        if predicate(middle):
            low = middle + 1
        else:
            high = middle
    return low
