"""Consume queues derived from the log, in memory: to read a store whose queue files are missing or damaged.

The units are those that dispatch writes. A message's queue offset is in its record, so offsets keep their meaning
when records are lost: a filler is at each missing offset between two messages. Where two records claim one offset,
the first one counts.

Most of a record's header is not covered by its CRC, and a damaged QUEUEOFFSET leads to any number. So each queue's
records are kept as *runs*, in log order, within which offsets follow one another. Of all sequences of runs whose
offsets rise, the one with most messages is the queue; the records of the other runs are strays, which are reported. A
run is not joined to one before it when more offsets are missing between the two than records can have been lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from commitlog_store.columnar.dispatch import DispatchRequests, QueueUnits, units_by_queue
from commitlog_store.errors import InvalidValue, QueueNotFound, TopicNotFound
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_DTYPE, Units
from commitlog_store.format.record import MIN_RECORD_SIZE
from commitlog_store.log.store_directory import check_topic_kind
from commitlog_store.paths import validate_topic
from commitlog_store.queue.light_queues import first_light_offset, taken_rows
from commitlog_store.queue.views import CatalogView, out_of_range

_FIRST_CAPACITY = 64
# Runs before one with which it may be joined: a stray is a run, and so is each stretch between two lost records.
_LOOK_BACK = 64
# Offsets that may be missing between two runs although the log has no gap between them: records whose topic or queue
# id is damaged count for another queue.
MISSING_BEFORE_ONE = 16
MISSING_BEFORE_SEVERAL = 1 << 20
_NO_PLACES = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Stray:
    """Whole records that are in no queue: another record has their queue offset, or it is far from their neighbours'.

    ``queue_offset`` and ``physical_offset`` are the first one's; they follow one another in the queue.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    records: int


class DerivedQueue:
    """One queue: ``units`` from offset ``first`` on. A ``QueueView``."""

    fillers_are_lost = True

    def __init__(self, topic: str, queue_id: int, first: int, units: Units, log_path: str) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._first = first
        self._units = units
        self._log_path = log_path
        fillers = np.flatnonzero(units["size"] == FILLER_SIZE)
        # Rows of messages; None where every row is one.
        self._messages = np.delete(np.arange(len(units)), fillers) if len(fillers) else None

    def bounds(self) -> tuple[int, int]:
        return self._first, self._first + len(self._units)

    def last_unit(self) -> tuple[int, int]:
        if not len(self._units):
            return -1, 0
        return self._first + len(self._units) - 1, int(self._units["physical_offset"][-1])

    def first_offset_from(self, physical_offset: int, start: int, stop: int) -> int:
        rows = self._messages
        places: npt.NDArray[np.int64] = self._units["physical_offset"]
        low, high = start - self._first, stop - self._first
        if rows is not None:
            low, high = int(np.searchsorted(rows, low)), int(np.searchsorted(rows, high))
        while low < high:
            middle = (low + high) // 2
            if places[middle if rows is None else int(rows[middle])] < physical_offset:
                low = middle + 1
            else:
                high = middle
        row = low
        if rows is not None:
            row = int(rows[low]) if low < len(rows) else len(self._units)
        return min(row + self._first, stop)

    def place_of(self, offset: int) -> tuple[str, int]:
        """The log, and where the message at ``offset`` or the last one before it lies: a derived unit is in no file."""
        row = min(max(offset - self._first, 0), len(self._units) - 1)
        if self._messages is not None:
            row = int(self._messages[max(int(np.searchsorted(self._messages, row, side="right")) - 1, 0)])
        return self._log_path, int(self._units["physical_offset"][row])

    def unit(self, offset: int) -> tuple[int, int] | None:
        row = offset - self._first
        if not 0 <= row < len(self._units) or self._units["size"][row] == FILLER_SIZE:
            return None
        return int(self._units["physical_offset"][row]), int(self._units["size"][row])

    def units(self, start: int, stop: int, *, chunk: int = 1_000_000, check: bool = True) -> Iterator[Units]:  # noqa: ARG002  # units of records are possible
        low, high = self.bounds()
        if start < stop and not low <= start < stop <= high:
            raise out_of_range(self, start, stop, (low, high))
        for at in range(start, stop, chunk):
            yield self._units[at - low : min(at + chunk, stop) - low].copy()


class DerivedCatalog(CatalogView):
    """The queues of one store that were derived from its log."""

    def __init__(self, path: str, queues: Iterable[DerivedQueue]) -> None:
        self._path = path
        self._queues: dict[str, dict[int, DerivedQueue]] = {}
        for queue in queues:
            self._queues.setdefault(queue.topic, {})[queue.queue_id] = queue

    def topics(self) -> list[str]:
        return sorted(self._queues)

    def queue_ids(self, topic: str) -> list[int]:
        validate_topic(topic)
        check_topic_kind(self._path, topic)
        if topic not in self._queues:
            raise TopicNotFound(f"Topic {topic!r} has no message in the log of {self._path}.")
        return sorted(self._queues[topic])

    def queue(self, topic: str, queue_id: int) -> DerivedQueue:
        found = self._queues.get(topic, {}).get(queue_id)
        if found is None:
            self.queue_ids(topic)
            raise QueueNotFound(f"Topic {topic!r} has no message in queue {queue_id} in the log of {self._path}.")
        return found


class QueueBuilder:
    """Builds the queues of a log from the dispatch requests of its records, added in log order. 20 bytes a message."""

    def __init__(self) -> None:
        self.strays: list[Stray] = []
        self._own: dict[tuple[str, int], _Runs] = {}
        self._light: dict[tuple[str, int], _Runs] = {}
        self._lost = 0
        self._possible: dict[str, bool] = {}

    def add_gap(self, size: int) -> None:
        """The log has a gap of that many bytes, or a hole of that size, before the records that come next."""
        self._lost += size

    def add(self, requests: DispatchRequests) -> None:
        """Add the units of the next records."""
        for group in units_by_queue(requests):
            if not self._names_topic(group.topic):
                self._add_stray(group)
            elif group.light:
                self._add_light(group)
            else:
                runs = self._own.setdefault((group.topic, group.queue_id), _Runs())
                runs.add(group.queue_offsets, group.units, self._lost)

    def _names_topic(self, topic: str) -> bool:
        known = self._possible.get(topic)
        if known is None:
            known = True
            try:
                validate_topic(topic)
            except InvalidValue:
                known = False
            self._possible[topic] = known
        return known

    def _add_stray(self, group: QueueUnits) -> None:
        if not group.light:
            place = int(group.units["physical_offset"][0])
            offset = int(group.queue_offsets[0])
            self.strays.append(Stray(group.topic, group.queue_id, offset, place, len(group.units)))

    def _add_light(self, group: QueueUnits) -> None:
        """Light units follow one another whatever the messages' offsets; ``light_queues`` has the rules."""
        runs = self._light.setdefault((group.topic, group.queue_id), _Runs())
        end = runs.end if runs.count else first_light_offset(group.queue_offsets)
        if end is not None:
            rows = taken_rows(group.queue_offsets, group.units, end, runs.last_place, _NO_PLACES)
            runs.add(np.arange(end, end + len(rows)), group.units[rows], self._lost)

    def finish(self, log_path: str, end: int) -> list[DerivedQueue]:
        """The queues of all records before the physical offset ``end``. Adds to ``strays``."""
        queues = []
        # A queue that gets messages of its own gets no light units.
        for (topic, queue_id), runs in sorted({**self._light, **self._own}.items()):
            first, units, strays = runs.joined(end)
            self.strays += [Stray(topic, queue_id, *stray) for stray in strays]
            if len(units):
                queues.append(DerivedQueue(topic, queue_id, first, units, log_path))
        self._own, self._light = {}, {}
        return queues


@dataclass(slots=True)
class _Runs:
    """Units of one queue in log order, and its runs: the first offset and row of each, and the bytes lost before it."""

    count: int = 0
    end: int = 0
    _units: Units = field(default_factory=lambda: np.empty(_FIRST_CAPACITY, UNIT_DTYPE))
    _firsts: list[int] = field(default_factory=list)
    _rows: list[int] = field(default_factory=list)
    _lost: list[int] = field(default_factory=list)

    @property
    def last_place(self) -> int:
        """The physical offset of the last unit; -1 without any."""
        return int(self._units["physical_offset"][self.count - 1]) if self.count else -1

    def add(self, offsets: Int64Array, units: Units, lost: int) -> None:
        """Append units; ``lost`` is the bytes of the log's gaps so far."""
        if not len(offsets):
            return
        count = self.count + len(offsets)
        if count > len(self._units):
            larger = np.empty(max(count, 2 * len(self._units)), UNIT_DTYPE)
            larger[: self.count] = self._units[: self.count]
            self._units = larger
        self._units[self.count : count] = units  # in native byte order
        starts = [] if self.count and offsets[0] == self.end else [0]
        if len(offsets) > 1:
            starts += (np.flatnonzero(offsets[1:] - offsets[:-1] != 1) + 1).tolist()
        for row in starts:
            self._firsts.append(int(offsets[row]))
            self._rows.append(self.count + row)
            self._lost.append(lost)
        self.count, self.end = count, int(offsets[-1]) + 1

    def joined(self, log_end: int) -> tuple[int, Units, list[tuple[int, int, int]]]:
        """First offset and units of the queue, and the strays: queue offset, physical offset, and number of records."""
        places = self._units["physical_offset"][: self.count]
        count = int(np.searchsorted(places, log_end)) if self.count and places[-1] >= log_end else self.count
        rows = [row for row in self._rows if row < count]
        firsts = self._firsts[: len(rows)]
        lengths = np.diff(rows, append=count)
        if len(rows) <= 1:
            return firsts[0] if firsts else 0, self._units[:count], []
        chain = set(_best_chain(np.array(firsts), lengths, np.array(self._lost[: len(rows)])))
        strays, pieces = [], []
        at = firsts[min(chain)]
        for run in range(len(rows)):
            length = int(lengths[run])
            # The head of a run whose offsets earlier messages have.
            head = min(max(at - firsts[run], 0), length) if run in chain else length
            if head:
                strays.append((firsts[run], int(places[rows[run]]), head))
            if head < length:
                at = firsts[run] + length
                pieces.append((firsts[run] + head, self._units[rows[run] + head : rows[run] + length]))
        low = pieces[0][0]
        units = np.zeros(at - low, UNIT_DTYPE)
        units["size"] = FILLER_SIZE
        for offset, piece in pieces:
            units[offset - low : offset - low + len(piece)] = piece
        return low, units, strays


def _best_chain(firsts: Int64Array, lengths: Int64Array, lost: Int64Array) -> list[int]:
    """The runs, in log order, whose offsets rise and that together have most messages."""
    stops = firsts + lengths
    best, before = np.zeros(len(firsts), np.int64), np.full(len(firsts), -1, np.int64)
    slack = np.where(lengths > 1, MISSING_BEFORE_SEVERAL, MISSING_BEFORE_ONE)
    for run in range(len(firsts)):
        best[run] = lengths[run]
        earlier = slice(max(run - _LOOK_BACK, 0), run)
        fresh = stops[run] - np.maximum(stops[earlier], firsts[run])
        missing = firsts[run] - stops[earlier]
        allowed = (lost[run] - lost[earlier]) // MIN_RECORD_SIZE + np.minimum(slack[earlier], slack[run])
        sums = np.where((fresh > 0) & (missing <= allowed), best[earlier] + fresh, 0)
        if len(sums) and sums.max() > best[run]:
            best[run] = sums.max()
            before[run] = earlier.start + int(np.argmax(sums))
    chain = [int(np.argmax(best))]
    while (previous := int(before[chain[-1]])) >= 0:
        chain.append(previous)
    return chain[::-1]
