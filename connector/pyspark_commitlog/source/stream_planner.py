"""``StreamPlanner``: plans the batches of a stream over one store: the end offset of each, and its partitions.

No necessary state is kept between calls, since the process may be killed between any two: everything that a batch needs
is in the offsets themselves. The state that is kept saves repeated looks, and delays small batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from commitlog_store import StoreReader
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.source.admission import WaitingQueue
from pyspark_commitlog.source.missing_topics import check_topics
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.replanning import STORE_CHANGED, plan_again
from pyspark_commitlog.source.store_planner import Backlog, StorePlanner, planned_ranges
from pyspark_commitlog.source.stream_offset import StreamOffset
from pyspark_commitlog.source.trigger_limits import TriggerLimits

__all__ = ["StreamPlanner"]


class StreamPlanner:
    """Plans one run of one query. Not for several threads; Spark has one process for each run."""

    def __init__(
        self, reader: StoreReader, options: SourceOptions, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = StorePlanner(reader, options)
        self._options = options
        self._limits = TriggerLimits(options, clock)
        # The last offset given to Spark and the last one parsed, as JSON and as value: Spark passes them back.
        self._given: tuple[dict[str, Any], StreamOffset] | None = None
        self._parsed: tuple[dict[str, Any], StreamOffset] | None = None
        # The state of the store and the offset after which nothing waited: while both stay, nothing does.
        self._idle: tuple[object, dict[str, Any]] | None = None

    @classmethod
    def open(cls, options: SourceOptions, *, ends: bool = False) -> StreamPlanner:
        """``ends``: the run is one of AvailableNow. ``StoreNotFound``, ``NotAStore``, ``StoreAccessDenied``,
        ``UnsupportedStore``; the errors of ``check_topics``.
        """
        reader = options.open_store()
        try:
            check_topics(options, reader, ends=ends)
        except BaseException:
            reader.close()
            raise
        return cls(reader, options)

    def close(self) -> None:
        self._store.close()

    def initial_offset(self) -> dict[str, Any]:
        """Start of a query without a checkpoint: ``startingOffsets`` or ``startingTimestamp``.

        Topics that do not exist yet are read as soon as they do.
        """
        return plan_again(self._store.reader, self._store.initial).to_json()

    def prepare_for_available_now(self) -> None:
        """Limit the run to messages written until now."""
        self._store.stop_at_present_end()

    def latest_offset(self, start_json: dict[str, Any], *, limited: bool) -> dict[str, Any]:
        """The end of the next batch; ``start_json`` itself if there is nothing to read.

        ``limited`` says whether the options' limits count. ``DataLossError``, ``TailLostError``, ``OffsetFormatError``.
        """
        return plan_again(self._store.reader, lambda: self._latest_offset(start_json, limited))

    def report_latest_offset(self) -> dict[str, Any] | None:
        """The ends of all queues as the last ``latest_offset`` saw them, without another look at the disk.

        ``from`` has the starts of queues with an expired head. None before the first ``latest_offset``: after a
        restart, Spark first repeats the batch that was not committed.
        """
        ends = self._store.ends()
        return None if ends is None else ends.to_json()

    def oldest_waiting(self, end_json: dict[str, Any]) -> dict[QueueKey, int]:
        """When messages after a batch's end were stored: ``StorePlanner.oldest_waiting``."""
        return self._store.oldest_waiting(self._parse(end_json).offsets)

    def _latest_offset(self, start_json: dict[str, Any], limited: bool) -> dict[str, Any]:
        settled = self._store.reader.settled_state()
        if settled is not None and self._idle == (settled, start_json):
            return start_json
        backlog = self._store.backlog(self._parse(start_json))
        if not backlog.needs_batch:
            self._idle = None if settled is None else (settled, start_json)
            return start_json
        all_available = not limited or self._store.targets is not None  # AvailableNow reads all that is there
        if not all_available and self._limits.may_wait(backlog.rows, lost=backlog.lost):
            return start_json
        ends = self._admit(backlog) if limited and self._limits.bind(backlog.rows) else backlog.ends()
        planned = self._give(self._store.offset_after(backlog, ends))
        if backlog.queues:  # only now: an attempt that fails is repeated, and must not wait for itself
            self._limits.batch_planned()
        return planned

    def _admit(self, backlog: Backlog) -> dict[QueueKey, int]:
        """The end of each queue in the next batch, within the limits of the options."""
        places = self._store.next_places(backlog)
        ends = self._limits.admit(
            [
                WaitingQueue(self._store.reader, *key, backlog.positions.next[key], backlog.queues[key][1], place)
                for key, place in places.items()
            ]
        )
        return dict(zip(places, ends, strict=True))

    def partitions(self, start_json: dict[str, Any], end_json: dict[str, Any]) -> list[RangePartition]:
        """The partitions of the batch between two offsets. The same two give the same messages, in any process."""
        if start_json == end_json:
            return []
        start, end = self._parse(start_json), self._parse(end_json)
        wanted = planned_ranges(start, end)
        # An end that this process has just planned was checked then; one from the checkpoint was not.
        just_planned = self._given is not None and self._given[0] == end_json

        def plan(*, check: bool) -> list[RangePartition]:
            ranges = self._store.existing(wanted, start, end) if check else wanted
            return self._store.partitions(ranges, min_partitions=self._options.min_partitions)

        if just_planned:
            try:
                return plan(check=False)
            except STORE_CHANGED:
                pass  # the store changed in between: look again, and report the loss
        return plan_again(self._store.reader, lambda: plan(check=True))

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
