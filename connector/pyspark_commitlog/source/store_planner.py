"""``StorePlanner``: what waits in one store, the offset after a batch, and the partitions of a batch.

It decides nothing about limits: ``StreamPlanner`` does, for all stores together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from commitlog_store import Fence, QueueInfo, StoreReader
from commitlog_store.errors import CommitLogError, FileMissing
from pyspark_commitlog import loss
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.options.subscription import QueueKey, Subscription
from pyspark_commitlog.source.offset_rules import resolve_rule
from pyspark_commitlog.source.partitions import RangePartition, limit_records, plan_partitions
from pyspark_commitlog.source.stream_offset import StreamOffset
from pyspark_commitlog.source.units_of_ranges import QueueRange, units_around_holes

if TYPE_CHECKING:
    from commitlog_store.history.planned import PlannedManifest

# The oldest message that waits is looked for in so many queues: each takes a tenth of a millisecond of every trigger.
_MOST_QUEUES_ASKED = 32


@dataclass(frozen=True, kw_only=True)
class Positions:
    """Positions of the queues. ``next``: the next offset to read; ``moved``: those that differ from the checkpoint.

    A queue that has moved was new, or has lost messages. ``kept`` are positions of queues that exist but are not
    subscribed (any more): they are kept, so that subscribing again continues at the query's last position.
    """

    next: dict[QueueKey, int] = field(default_factory=dict)
    moved: set[QueueKey] = field(default_factory=set)
    kept: dict[QueueKey, int] = field(default_factory=dict)


class CheckedPositions:
    """What planning knows of the positions that it compared, kept while no queue changes.

    A query that reads a backlog of thousands of queues plans many batches of the same state of the store. It would
    compare the fences of all queues, and look for the age of each one's next message, for each of them again.
    """

    def __init__(self) -> None:
        self.state: object | None = None
        # By queue, of the last position that was asked for: the fence that the store has before it, and the physical
        # offset of the message there.
        self._fences: dict[QueueKey, tuple[int, Fence]] = {}
        self._places: dict[QueueKey, tuple[int, int]] = {}

    def begin(self, state: object | None) -> None:
        """``state``: of ``StoreReader.settled_queue_infos``. What was found in another one, or in none, is dropped."""
        if state is None or state != self.state:
            self._fences.clear()
            self._places.clear()
        self.state = state

    def has_fence(self, key: QueueKey, position: int, fence: Fence | None) -> bool:
        """Whether the store has this fence before a position, without a question."""
        return fence is not None and self._fences.get(key) == (position, fence)

    def add_fences(self, positions: Mapping[QueueKey, int], fences: Mapping[QueueKey, Fence]) -> None:
        """The store has these fences before these positions, or nothing to compare them with."""
        if self.state is not None:
            self._fences.update({key: (positions[key], fence) for key, fence in fences.items()})

    def place(self, key: QueueKey, position: int) -> int | None:
        """The physical offset of the message at a position; None if it is not known."""
        at, place = self._places.get(key, (-1, 0))
        return place if at == position else None

    def add_place(self, key: QueueKey, position: int, place: int) -> None:
        if self.state is not None:
            self._places[key] = position, place


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """What waits in a store: ``queues`` has the offsets ``[next, end)`` of each queue with messages to read."""

    start: StreamOffset
    positions: Positions
    queues: Mapping[QueueKey, tuple[int, int]]

    @property
    def rows(self) -> int:
        """Messages that wait, in all queues."""
        return sum(end - at for at, end in self.queues.values())

    @property
    def lost(self) -> bool:
        """Whether a queue that was read before has lost messages."""
        return not self.positions.moved.isdisjoint(self.start.offsets)

    @property
    def needs_batch(self) -> bool:
        """Whether the offset changes, even if there is nothing to read."""
        return bool(self.queues or self.positions.moved or self.start.initial)

    def ends(self) -> dict[QueueKey, int]:
        """Where a batch without limits ends."""
        return {key: end for key, (_, end) in self.queues.items()}


class StorePlanner:
    """The part of planning that concerns one store, in one run of one query."""

    def __init__(self, reader: StoreReader, options: SourceOptions, targets: dict[QueueKey, int] | None = None) -> None:
        """``targets``: where AvailableNow stops, if it has begun already."""
        self.reader = reader
        self._options = options
        # Where AvailableNow stops; None for the other triggers.
        self.targets = targets
        # As the last ``look`` saw them; None before the first.
        self._bounds: dict[QueueKey, QueueInfo] | None = None
        self._checked_idle = False
        # What the start of a query or a run has seen, and the store's state: the first trigger asks for it again.
        self._seen: tuple[object, dict[QueueKey, QueueInfo]] | None = None
        self._checked = CheckedPositions()

    def close(self) -> None:
        self.reader.close()

    def initial(self) -> StreamOffset:
        """Start of a query without a checkpoint. Topics that do not exist yet are read as soon as they do."""
        options = self._options
        bounds = self._look_ahead()
        starts = resolve_rule(self.reader, bounds.values(), options.start_rule, options, which="starting")
        # Before a queue's first message is none that could be another one.
        after = {key: start for key, start in starts.items() if start > bounds[key].min_offset}
        return StreamOffset(offsets=starts, fences=self._fences_before(after), initial=True)

    def stop_at_present_end(self) -> None:
        """Limit the run to messages written until now."""
        self.targets = {key: info.max_offset for key, info in self._look_ahead().items()}

    def ends(self) -> StreamOffset | None:
        """The ends of all queues as the last look saw them, and in ``batch_starts`` those starts that are not 0."""
        if self._bounds is None:
            return None
        ends = {key: info.max_offset for key, info in self._bounds.items()}
        firsts = {key: info.min_offset for key, info in self._bounds.items() if info.min_offset}
        return StreamOffset(offsets=ends, batch_starts=firsts)

    def oldest_waiting(self, positions: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """When the first message from a position on was stored, of the 32 queues in which most messages wait.

        Of the queues that the last look saw; one whose message is gone, or damaged, is left out.
        """
        waiting: dict[QueueKey, tuple[int, int]] = {}
        for key, info in (self._bounds or {}).items():
            first = max(positions.get(key, info.min_offset), info.min_offset)
            if first < info.max_offset:
                waiting[key] = first, info.max_offset - first
        most = sorted(waiting.items(), key=lambda item: -item[1][1])[:_MOST_QUEUES_ASKED]
        stored = self.reader.store_timestamps([(*key, first) for key, (first, _) in most])
        return {key: at for (key, _), at in zip(most, stored, strict=True) if not isinstance(at, CommitLogError)}

    def backlog(self, start: StreamOffset) -> Backlog:
        """Look at the store: what waits after ``start``. ``DataLossError``, ``TailLostError``, ``ConnectorError``."""
        before, (state, bounds) = self._bounds, self._seen_just_now() or self._look()
        self._bounds = bounds
        self._checked.begin(state)
        start = self._begun_later(start, bounds)
        positions = _find_positions(
            self.reader,
            start,
            self._within_targets(bounds, start),
            self._options.subscription,
            checked=self._checked,
            check_idle=not self._checked_idle,
            fail=self._options.fail_on_data_loss,
        )
        self._checked_idle = True
        if before is None or _ends_earlier(bounds, before):
            loss.report_lost_ends(self.reader, fail=self._options.fail_on_data_loss)
        queues = {key: (at, end) for key, at in positions.next.items() if at < (end := self._end_of(key, bounds))}
        return Backlog(start=start, positions=positions, queues=queues)

    def _begun_later(self, start: StreamOffset, bounds: Mapping[QueueKey, QueueInfo]) -> StreamOffset:
        """The start of a query that has read nothing so far, when retention has moved a queue's beginning since.

        A start at the earliest message, or by time, means what the queue holds when the first batch is planned.
        """
        if not start.initial:
            return start
        later = {
            key: info.min_offset
            for key, at in start.offsets.items()
            if (info := bounds.get(key)) is not None and at < info.min_offset and self._options.start_rule.is_open(key)
        }
        return replace(start, offsets={**start.offsets, **later}) if later else start

    def next_places(self, backlog: Backlog) -> dict[QueueKey, int]:
        """The physical offset of each queue's next message: its age.

        A queue whose file is missing there is moved to the offset after that file, and left out if no message follows.
        """
        positions = backlog.positions
        places: dict[QueueKey, int] = {}
        # With a limit of bytes, a queue whose file has gone since would block there indefinitely.
        if self._options.max_bytes_per_trigger is None:
            known = {key: self._checked.place(key, positions.next[key]) for key in backlog.queues}
            places = {key: place for key, place in known.items() if place is not None}
        asked = sorted(backlog.queues.keys() - places.keys())
        while asked:
            again: list[QueueKey] = []
            ranges = [QueueRange(*key, positions.next[key], positions.next[key] + 1) for key in asked]
            for one, units in units_around_holes(self.reader, ranges):
                key = one.topic, one.queue_id
                if isinstance(units, FileMissing):
                    wanted = positions.next[key], backlog.queues[key][1]
                    positions.next[key] = loss.file_missing(units, wanted, fail=self._options.fail_on_data_loss)
                    positions.moved.add(key)
                    if positions.next[key] < wanted[1]:
                        again.append(key)
                else:
                    places[key] = int(units["physical_offset"][0])
                    self._checked.add_place(key, one.start, places[key])
            asked = again
        return places

    def offset_after(self, backlog: Backlog, ends: Mapping[QueueKey, int]) -> StreamOffset:
        """The offset that ends a batch in which the queues of ``ends`` are read up to there."""
        start, positions = backlog.start, backlog.positions
        offsets = {**positions.kept, **positions.next, **ends}
        fences = {key: fence for key, fence in start.fences.items() if key in offsets}
        changed = [key for key in positions.next if key in positions.moved or ends.get(key, -1) > positions.next[key]]
        for key in changed:
            fences.pop(key, None)
        found = self._fences_before({key: offsets[key] for key in changed})
        self._checked.add_fences(offsets, found)
        fences |= found
        unclear = positions.next if start.initial else positions.moved & positions.next.keys()
        return StreamOffset(offsets=offsets, fences=fences, batch_starts={key: positions.next[key] for key in unclear})

    def _fences_before(self, positions: Mapping[QueueKey, int]) -> dict[QueueKey, Fence]:
        """The fences of the messages before positions, of those that have one."""
        asked = [key for key, position in positions.items() if position]
        if not asked:
            return {}
        found = self.reader.fences([(*key, positions[key] - 1) for key in asked])
        return {key: fence for key, fence in zip(asked, found, strict=True) if fence is not None}

    def partitions(self, ranges: Sequence[QueueRange], *, min_partitions: int | None) -> list[RangePartition]:
        """The partitions of ranges that the store has."""
        partitions = plan_partitions(
            self.reader,
            ranges,
            max_bytes=self._options.max_bytes_per_partition,
            min_partitions=min_partitions,
            fail_on_data_loss=self._options.fail_on_data_loss,
            fetched=self._options.remote.reads_archive(self._options.path),
        )
        partitions = limit_records(partitions, self._options.max_records_per_partition)
        manifest = self._manifest()
        return partitions if manifest is None else [replace(one, manifest=manifest) for one in partitions]

    def _manifest(self) -> PlannedManifest | None:
        """The manifest with which an archive is planned; None for a store without one."""
        if not self._options.remote.reads_archive(self._options.path):
            return None
        from commitlog_store.history.planned import manifest_of  # other stores do not wait for its import

        return manifest_of(self.reader)

    def existing(self, wanted: Sequence[QueueRange], start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
        """The ranges that the store still has, with the same messages; a loss is handled as failOnDataLoss says."""
        bounds = loss.bounds_of_queues(self.reader, [(one.topic, one.queue_id) for one in wanted])
        recorded: dict[QueueKey, list[tuple[int, Fence | None]]] = {}
        for one in wanted:
            key = (one.topic, one.queue_id)
            known_start = start.fences.get(key) if start.offsets.get(key) == one.start else None
            recorded[key] = [(one.stop, end.fences.get(key)), (one.start, known_start)]
        replaced = loss.replaced_positions(self.reader, bounds, recorded)
        left: list[QueueRange] = []
        for one in wanted:
            key = (one.topic, one.queue_id)
            losses = loss.find_losses((one.start, one.stop), bounds[key], replaced.get(key))
            loss.report_losses(*key, losses, fail=self._options.fail_on_data_loss)
            left.append(QueueRange(*key, *losses.left))
        return left

    def _look(self) -> tuple[object | None, dict[QueueKey, QueueInfo]]:
        """The bounds of all subscribed queues that exist now, and the store's state before that."""
        bounds, state = self._options.subscription.settled_bounds(self.reader)
        return state, bounds

    def _look_ahead(self) -> dict[QueueKey, QueueInfo]:
        """``_look``, for the next trigger too if no queue changes until then."""
        state, bounds = self._look()
        self._seen = None if state is None else (state, bounds)
        return bounds

    def _seen_just_now(self) -> tuple[object, dict[QueueKey, QueueInfo]] | None:
        """What was seen before, if no queue has changed since; once, so that planning that failed looks again."""
        seen, self._seen = self._seen, None
        return seen if seen is not None and self.reader.settled_state() == seen[0] else None

    def _within_targets(self, bounds: dict[QueueKey, QueueInfo], start: StreamOffset) -> dict[QueueKey, QueueInfo]:
        """Without the queues that came after an AvailableNow run began."""
        targets = self.targets
        if targets is None:
            return bounds
        return {key: info for key, info in bounds.items() if key in targets or key in start.offsets}

    def _end_of(self, key: QueueKey, bounds: Mapping[QueueKey, QueueInfo]) -> int:
        end = bounds[key].max_offset
        return end if self.targets is None else min(end, self.targets.get(key, 0))


def _ends_earlier(bounds: Mapping[QueueKey, QueueInfo], before: Mapping[QueueKey, QueueInfo]) -> bool:
    """Whether a queue ends before the place where it ended at an earlier look."""
    return any(key in bounds and bounds[key].max_offset < info.max_offset for key, info in before.items())


def planned_ranges(start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
    """What the batch between two offsets reads."""
    return [
        QueueRange(*key, begin, stop)
        for key, stop in sorted(end.offsets.items())
        if (begin := end.batch_starts.get(key, start.offsets.get(key, stop))) < stop
    ]


def _find_positions(
    reader: StoreReader,
    start: StreamOffset,
    bounds: Mapping[QueueKey, QueueInfo],
    subscription: Subscription,
    *,
    checked: CheckedPositions,
    check_idle: bool,
    fail: bool,
) -> Positions:
    """Check every position of ``start`` against ``bounds`` (of the subscribed queues that exist), and add new queues.

    The fence of a queue is compared whenever messages will be read after it, so a replaced tail never stays unnoticed.
    ``check_idle`` compares those of idle queues as well. ``DataLossError`` or ``TailLostError`` with ``fail``.
    """
    found = Positions()
    available: dict[QueueKey, tuple[int, int] | None] = {}
    for key, position in start.offsets.items():
        info = bounds.get(key)
        if info is None and not subscription.covers(*key):
            found.kept[key] = position
        elif info is not None and position == info.max_offset and not check_idle:
            found.next[key] = position
        else:
            available[key] = None if info is None else (info.min_offset, info.max_offset)
    # The fences of a start that was found just now were read just now.
    fences = {} if start.initial else {key: start.fences[key] for key in available if key in start.fences}
    recorded = {
        key: [(start.offsets[key], fence)]
        for key, fence in fences.items()
        if not checked.has_fence(key, start.offsets[key], fence)
    }
    replaced = loss.replaced_positions(reader, available, recorded)
    checked.add_fences(start.offsets, {key: fences[key] for key in recorded.keys() - replaced.keys()})
    for key, limits in available.items():
        position = start.offsets[key]
        if limits is not None and limits[0] <= position <= limits[1] and key not in replaced:
            found.next[key] = position  # as of most: nothing is lost
            continue
        wanted = (position, position if limits is None else max(position, limits[1]))
        losses = loss.find_losses(wanted, limits, replaced.get(key))
        loss.report_losses(*key, losses, fail=fail)
        if limits is not None:
            found.next[key] = losses.left[0]
        if losses.kinds:
            found.moved.add(key)
    for key in bounds.keys() - start.offsets.keys():
        info = bounds[key]
        # An empty queue needs no batch. It is still new when its first message comes.
        if info.min_offset < info.max_offset:
            found.next[key] = info.min_offset
            found.moved.add(key)
    return found
