"""``StreamPlanner``: plans the batches of a stream: the end offset of each, and its partitions.

No necessary state is kept between calls, since the process may be killed between any two: everything that a batch needs
is in the offsets themselves. The state that is kept saves repeated looks, and delays small batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from commitlog import QueueInfo, StoreReader
from commitlog.errors import FileMissing
from pyspark_commitlog import loss
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.source.admission import SizeWalker, admit_bytes, admit_rows
from pyspark_commitlog.source.offset_rules import resolve_rule
from pyspark_commitlog.source.partitions import QueueRange, RangePartition, plan_partitions
from pyspark_commitlog.source.record_limit import limit_records
from pyspark_commitlog.source.replanning import STORE_CHANGED, retry_while_store_changes
from pyspark_commitlog.source.stream_offset import StreamOffset
from pyspark_commitlog.source.stream_positions import Positions, find_positions

__all__ = ["StreamPlanner"]


class StreamPlanner:
    """Plans one run of one query. Not for several threads; Spark has one process for each run."""

    def __init__(
        self, reader: StoreReader, options: SourceOptions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._reader = reader
        self._options = options
        self._clock = clock
        # When the last batch with messages was planned, by the clock in seconds; None before the first of this run.
        self._last_batch_s: float | None = None
        # Where AvailableNow stops; None for the other triggers.
        self._targets: dict[QueueKey, int] | None = None
        # As the last ``latest_offset`` saw them; None before the first.
        self._bounds: dict[QueueKey, QueueInfo] | None = None
        self._checked_idle = False
        # The last offset given to Spark and the last one parsed, as JSON and as value: Spark passes them back.
        self._given: tuple[dict[str, Any], StreamOffset] | None = None
        self._parsed: tuple[dict[str, Any], StreamOffset] | None = None

    @classmethod
    def open(cls, options: SourceOptions) -> StreamPlanner:
        """``StoreNotFound``, ``NotAStore``, ``StoreAccessDenied``, ``UnsupportedStore``."""
        reader = options.open_store()
        try:
            options.subscription.warn_of_missing(reader)
        except BaseException:
            reader.close()
            raise
        return cls(reader, options)

    def close(self) -> None:
        self._reader.close()

    def initial_offset(self) -> dict[str, Any]:
        """Start of a query without a checkpoint: ``startingOffsets`` or ``startingTimestamp``.

        Topics that do not exist yet are read as soon as they do.
        """
        options = self._options

        def plan() -> dict[str, Any]:
            bounds = self._look()
            starts = resolve_rule(self._reader, bounds.values(), options.start_rule, options, which="starting")
            fences = {key: self._reader.fence(*key, start - 1) for key, start in starts.items() if start > 0}
            offset = StreamOffset(
                offsets=starts,
                fences={key: fence for key, fence in fences.items() if fence is not None},
                initial=True,
            )
            return offset.to_json()

        return retry_while_store_changes(plan, fail=options.fail_on_data_loss)

    def prepare_for_available_now(self) -> None:
        """Limit the run to messages written until now."""
        self._targets = {key: info.max_offset for key, info in self._look().items()}

    def latest_offset(self, start_json: dict[str, Any], *, limited: bool) -> dict[str, Any]:
        """The end of the next batch; ``start_json`` itself if there is nothing to read.

        ``limited`` says whether the options' limits count. ``DataLossError``, ``TailLostError``, ``OffsetFormatError``.
        """
        fail = self._options.fail_on_data_loss
        return retry_while_store_changes(lambda: self._latest_offset(start_json, limited), fail=fail)

    def report_latest_offset(self) -> dict[str, Any] | None:
        """The ends of all queues as the last ``latest_offset`` saw them, without another look at the disk.

        ``from`` has the starts of queues with an expired head. None before the first ``latest_offset``: after a
        restart, Spark first repeats the batch that was not committed.
        """
        if self._bounds is None:
            return None
        ends = {key: info.max_offset for key, info in self._bounds.items()}
        firsts = {key: info.min_offset for key, info in self._bounds.items() if info.min_offset}
        return StreamOffset(offsets=ends, batch_starts=firsts).to_json()

    def _latest_offset(self, start_json: dict[str, Any], limited: bool) -> dict[str, Any]:
        start = self._parse(start_json)
        bounds = self._bounds = self._look()
        positions = find_positions(
            self._reader,
            start,
            self._within_targets(bounds, start),
            self._options.subscription,
            check_idle=not self._checked_idle,
            fail=self._options.fail_on_data_loss,
        )
        self._checked_idle = True
        backlog = {key: (at, end) for key, at in positions.next.items() if at < (end := self._end_of(key, bounds))}
        if not backlog and not positions.moved and not start.initial:
            return start_json
        if limited and self._may_wait(backlog, lost=not positions.moved.isdisjoint(start.offsets)):
            return start_json
        ends = self._admit(backlog, positions) if limited else {key: end for key, (_, end) in backlog.items()}
        planned = self._give(self._offset_at(start, positions, ends))
        if backlog:  # only now: an attempt that fails is repeated, and must not wait for itself
            self._last_batch_s = self._clock()
        return planned

    def _may_wait(self, backlog: Mapping[QueueKey, tuple[int, int]], *, lost: bool) -> bool:
        """Whether the batch is delayed: by ``minOffsetsPerTrigger`` for less messages than that, at most for
        ``maxTriggerDelay`` since the batch before. AvailableNow reads all that is there, and lost messages are reported
        at once.
        """
        least = self._options.min_offsets_per_trigger
        if least is None or not backlog or lost or self._targets is not None or self._last_batch_s is None:
            return False
        if sum(end - at for at, end in backlog.values()) >= least:
            return False
        return self._clock() - self._last_batch_s < self._options.max_trigger_delay_s

    def _offset_at(self, start: StreamOffset, positions: Positions, ends: Mapping[QueueKey, int]) -> StreamOffset:
        """The offset that ends a batch in which the queues of ``ends`` are read up to there."""
        offsets = {**positions.kept, **positions.next, **ends}
        fences = {key: fence for key, fence in start.fences.items() if key in offsets}
        for key in positions.next:
            if key in positions.moved or ends.get(key, -1) > positions.next[key]:
                fence = self._reader.fence(*key, offsets[key] - 1) if offsets[key] else None
                if fence is None:
                    fences.pop(key, None)
                else:
                    fences[key] = fence
        unclear = positions.next if start.initial else positions.moved & positions.next.keys()
        return StreamOffset(offsets=offsets, fences=fences, batch_starts={key: positions.next[key] for key in unclear})

    def _admit(self, backlog: Mapping[QueueKey, tuple[int, int]], positions: Positions) -> dict[QueueKey, int]:
        """The end of each queue in the next batch, within the limits of the options."""
        max_rows, max_bytes = self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger
        rows_bind = max_rows is not None and sum(end - at for at, end in backlog.values()) > max_rows
        if not rows_bind and max_bytes is None:
            return {key: end for key, (_, end) in backlog.items()}
        places = self._next_places(backlog, positions)
        keys, heads = list(places), list(places.values())
        starts = [positions.next[key] for key in keys]
        waiting = [backlog[key][1] - positions.next[key] for key in keys]
        if max_rows is not None and rows_bind:
            waiting = admit_rows(waiting, heads, max_rows)
        if max_bytes is None:
            return {key: start + count for key, start, count in zip(keys, starts, waiting, strict=True)}
        walkers = [
            SizeWalker(self._reader, *key, start, start + count)
            for key, start, count in zip(keys, starts, waiting, strict=True)
        ]
        admit_bytes(walkers, waiting, heads, max_bytes)
        return {key: walker.position for key, walker in zip(keys, walkers, strict=True)}

    def _next_places(self, backlog: Mapping[QueueKey, tuple[int, int]], positions: Positions) -> dict[QueueKey, int]:
        """The physical offset of each queue's next message: its age.

        A queue whose file is missing there is moved to the offset after that file, and left out if no message follows.
        """
        places: dict[QueueKey, int] = {}
        for key in sorted(backlog):
            end = backlog[key][1]
            while (at := positions.next[key]) < end:
                try:
                    places[key] = int(next(self._reader.units(*key, at, at + 1))["physical_offset"][0])
                    break
                except FileMissing as missing:
                    fail = self._options.fail_on_data_loss
                    positions.next[key] = loss.file_missing(missing, (at, end), fail=fail)
                    positions.moved.add(key)
        return places

    def partitions(self, start_json: dict[str, Any], end_json: dict[str, Any]) -> list[RangePartition]:
        """The partitions of the batch between two offsets. The same two give the same messages, in any process."""
        if start_json == end_json:
            return []
        start, end = self._parse(start_json), self._parse(end_json)
        wanted = [
            QueueRange(*key, begin, stop)
            for key, stop in sorted(end.offsets.items())
            if (begin := end.batch_starts.get(key, start.offsets.get(key, stop))) < stop
        ]
        # An end that this process has just planned was checked then; one from the checkpoint was not.
        just_planned = self._given is not None and self._given[0] == end_json

        def plan(*, check: bool) -> list[RangePartition]:
            ranges = self._check(wanted, start, end) if check else wanted
            partitions = plan_partitions(
                self._reader,
                ranges,
                max_bytes=self._options.max_bytes_per_partition,
                min_partitions=self._options.min_partitions,
                fail_on_data_loss=self._options.fail_on_data_loss,
            )
            return limit_records(partitions, self._options.max_records_per_partition)

        if just_planned:
            try:
                return plan(check=False)
            except STORE_CHANGED:
                pass  # the store changed in between: look again, and report the loss
        return retry_while_store_changes(lambda: plan(check=True), fail=self._options.fail_on_data_loss)

    def _check(self, wanted: Sequence[QueueRange], start: StreamOffset, end: StreamOffset) -> list[QueueRange]:
        """The ranges that the store still has, with the same messages; a loss is handled as failOnDataLoss says."""
        left: list[QueueRange] = []
        for one in wanted:
            key = (one.topic, one.queue_id)
            available = loss.queue_bounds(self._reader, *key)
            known_start = start.fences.get(key) if start.offsets.get(key) == one.start else None
            recorded = [(one.stop, end.fences.get(key)), (one.start, known_start)]
            replaced = loss.replaced_position(self._reader, *key, available, recorded)
            losses = loss.find_losses((one.start, one.stop), available, replaced)
            loss.report_losses(*key, losses, fail=self._options.fail_on_data_loss)
            left.append(QueueRange(*key, *losses.left))
        return left

    def _look(self) -> dict[QueueKey, QueueInfo]:
        """The bounds of all subscribed queues that exist now."""
        return self._options.subscription.bounds(self._reader)

    def _within_targets(self, bounds: dict[QueueKey, QueueInfo], start: StreamOffset) -> dict[QueueKey, QueueInfo]:
        """Without the queues that came after an AvailableNow run began."""
        targets = self._targets
        if targets is None:
            return bounds
        return {key: info for key, info in bounds.items() if key in targets or key in start.offsets}

    def _end_of(self, key: QueueKey, bounds: Mapping[QueueKey, QueueInfo]) -> int:
        end = bounds[key].max_offset
        return end if self._targets is None else min(end, self._targets.get(key, 0))

    def _give(self, offset: StreamOffset) -> dict[str, Any]:
        given = offset.to_json()
        self._given = (given, offset)
        return given

    def _parse(self, value: dict[str, Any]) -> StreamOffset:
        for known in (self._given, self._parsed):
            if known is not None and known[0] == value:
                return known[1]
        self._parsed = (value, StreamOffset.from_json(value))
        return self._parsed[1]
