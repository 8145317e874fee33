"""``StreamPlanner``: plans the batches of a stream over one store or several: each one's end offset and partitions.

The only store of a plain path is planned as the first of several is: its name is empty, and its offset that of one
store (docs/decisions/0024-several-stores.md).

No necessary state is kept between calls, since the process may be killed between any two: everything that a batch needs
is in the offsets themselves. The state that is kept saves repeated reads, and delays small batches.
"""

from __future__ import annotations

import logging
import math
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from commitlog_store import StoreReader
from commitlog_store.errors import (
    CommitLogError,
    FileChanged,
    MessageNotFound,
    OffsetOutOfRange,
    QueueNotFound,
    StoreBusy,
    TopicNotFound,
)
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.loss import naming_store
from pyspark_commitlog.options.read import SourceOptions, rule_option
from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.source.admission import TriggerLimits, WaitingQueue
from pyspark_commitlog.source.missing_topics import check_topics
from pyspark_commitlog.source.open_stores import OpenStores, share_partitions
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.store_planner import Backlog, StorePlanner, planned_ranges
from pyspark_commitlog.source.stores_offset import StoresOffset, by_queue
from pyspark_commitlog.source.stream_offset import StreamOffset
from pyspark_commitlog.source.units_of_ranges import QueueRange

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")

# Errors of planning when a file or a queue is removed after the bounds were read.
_STORE_CHANGED = (FileChanged, MessageNotFound, OffsetOutOfRange, QueueNotFound, TopicNotFound)
_NOTHING_READ = StreamOffset(offsets={})
# Queues of a broker are asked again after so long though nothing came: after this many times as long as it took, and
# within these bounds.
_REST, _LEAST_REST_S, _MOST_REST_S = 20, 1.0, 10.0
# A broker's log is looked at for so many queues at least: for fewer, asking them costs hardly more.
_FEWEST_QUEUES = 32
_WAITS = "A batch that was planned before reads from it: the query can continue when the store is available again."


class StreamPlanner:
    """Plans one run of one query. Not for several threads; Spark has one process for each run."""

    def __init__(self, options: SourceOptions, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._names = sorted(options.stores) or [""]
        self._open = OpenStores(options, clock)
        self._limits = TriggerLimits(options, clock)
        self._planners: dict[str, StorePlanner] = {}
        # Where AvailableNow stops, by store; None for the other triggers.
        self._targets: dict[str, dict[QueueKey, int]] | None = None
        self._warned_of: set[str] = set()
        # The start of a query without a checkpoint, and the state of the stores that it was found in: Spark asks for it
        # twice in the first batch.
        self._initial: tuple[object, dict[str, Any]] | None = None
        # The last offset given to Spark, and the last ones given or parsed, as JSON and as value: Spark passes back the
        # start and the end of each batch.
        self._given: tuple[dict[str, Any], StoresOffset] | None = None
        self._known: deque[tuple[dict[str, Any], StoresOffset]] = deque(maxlen=2)
        # The state of the stores and the offset after which nothing waited: while both stay, nothing does. And when to
        # ask again all the same, by the clock, if queues may change in that state.
        self._idle: tuple[object, dict[str, Any], float] | None = None
        self._nothing_waits = False
        # How often queues were asked for what waits.
        self.looks = 0

    @classmethod
    def open(cls, options: SourceOptions, *, ends: bool = False) -> StreamPlanner:
        """``ends``: the run is one of AvailableNow. Errors of ``OpenStores.look`` and ``check_topics``."""
        planner = cls(options)
        try:
            check_topics(options, planner._open.look(), ends=ends)
        except BaseException:
            planner.close()
            raise
        return planner

    def close(self) -> None:
        self._open.close()
        self._planners.clear()

    def initial_offset(self) -> dict[str, Any]:
        """Start of a query without a checkpoint. Topics that do not exist yet are read as soon as they do.

        A store that is unavailable is left out, and joins when it is available.
        """
        stores: dict[str, StreamOffset] = {}
        available = self._available()
        state = self._settled_state(available)
        if self._initial is not None and self._initial[0] == state:
            return self._initial[1]
        for name in self._names:
            rule = self._options.start_rule
            if name not in available and name in rule.stores:
                option = rule_option("starting", rule.of_store(name))
                self._open.require(name, f"A new query needs it, since {option} names it.")
            if name in available:
                with naming_store(name):
                    stores[name] = available[name].reader.consistently(available[name].initial, one_moment=False)
        start = StoresOffset(stores=stores)
        start_json = start.to_json()
        self._known.append((start_json, start))
        self._initial = None if state is None else (state, start_json)
        return start_json

    def prepare_for_available_now(self) -> None:
        """Limit the run to messages written until now, in the stores that are available now."""
        targets: dict[str, dict[QueueKey, int]] = {}
        for name, planner in self._available().items():
            planner.stop_at_present_end()
            targets[name] = planner.targets or {}
        self._targets = targets

    def latest_offset(self, start_json: dict[str, Any], *, limited: bool) -> dict[str, Any]:
        """The end of the next batch; ``start_json`` itself if there is nothing to read.

        ``limited`` says whether the options' limits count. ``DataLossError``, ``TailLostError``, ``OffsetFormatError``;
        ``OptionError`` for a store that is not in ``path`` any more; the errors of ``OpenStores.look``.
        """
        start = self._parse(start_json)
        state, is_settled = self._state(start)
        began_s = self._clock()
        if self._idle is not None and self._idle[:2] == (state, start_json) and began_s < self._idle[2]:
            return start_json
        for name in sorted(start.stores.keys() - set(self._names)):
            self._report_removed(name)
        while True:
            available = self._available()
            try:
                readers = {name: planner.reader for name, planner in available.items()}
                found, lost = _planned_consistently(readers, partial(self._after, start, available, limited))
            except (CommitLogError, OSError):
                if self._available().keys() >= available.keys():
                    raise
                continue  # a store became unavailable during planning: its messages are not lost
            # Each repetition has a store less than the one before.
            if not lost or self._available().keys() >= available.keys():
                break
        if found is None:
            if not self._options.stores or "stores" in start_json:
                self._idle = None
                if state is not None and self._nothing_waits:
                    now_s = self._clock()
                    rest_s = math.inf if is_settled else _rest_s(now_s - began_s)
                    self._idle = state, start_json, now_s + rest_s
                return start_json
            # An empty batch writes down the name of a store that had none before.
            found = replace(start, stores={name: _unchanged(offset) for name, offset in start.stores.items()})
        self._given = found.to_json(), found
        self._known.append(self._given)
        return self._given[0]

    def report_latest_offset(self) -> dict[str, Any] | None:
        """The ends of all queues as the last ``latest_offset`` saw them, without reading the disk again.

        ``from`` has the starts of queues with an expired head. None before the first ``latest_offset``: after a
        restart, Spark first repeats the batch that was not committed.
        """
        ends = {name: end for name, planner in self._planners.items() if (end := planner.ends()) is not None}
        return StoresOffset(stores=ends).to_json() if ends else None

    def oldest_waiting(self, end_json: dict[str, Any]) -> dict[QueueKey, int]:
        """When messages after a batch's end were stored: ``StorePlanner.oldest_waiting``.

        The topics of named stores are ``store/topic``.
        """
        end = self._parse(end_json)
        oldest: dict[QueueKey, int] = {}
        for name, planner in self._planners.items():
            oldest |= by_queue(name, planner.oldest_waiting(end.stores.get(name, _NOTHING_READ).offsets))
        return oldest

    def partitions(self, start_json: dict[str, Any], end_json: dict[str, Any]) -> list[RangePartition]:
        """The partitions of the batch between two offsets, each of one store, those of a store after another's.

        The same two offsets give the same messages, in any process.
        """
        if start_json == end_json:
            return []
        start, end = self._parse(start_json), self._parse(end_json)
        wanted: dict[str, list[QueueRange]] = {}
        for name in sorted(end.stores):
            ranges = planned_ranges(start.stores.get(name, _NOTHING_READ), end.stores[name])
            if ranges and name not in self._names:
                self._report_removed(name)
            elif ranges:
                wanted[name] = ranges
        for name in wanted:
            self._open.require(name, _WAITS)
        available = self._available()
        # An end that this process has just planned was checked then; one from the checkpoint was not.
        just_planned = self._given is not None and self._given[0] == end_json
        shares = share_partitions(wanted, self._options.min_partitions)
        return [
            replace(partition, store=name or None)
            for name, ranges in wanted.items()
            for partition in self._partitions_of(
                name,
                available[name],
                ranges,
                (start.stores.get(name, _NOTHING_READ), end.stores[name]),
                min_partitions=shares[name],
                just_planned=just_planned,
            )
        ]

    def _partitions_of(
        self,
        name: str,
        planner: StorePlanner,
        wanted: list[QueueRange],
        offsets: tuple[StreamOffset, StreamOffset],
        *,
        min_partitions: int | None,
        just_planned: bool,
    ) -> list[RangePartition]:
        def plan() -> list[RangePartition]:
            return planner.partitions(planner.existing(wanted, *offsets), min_partitions=min_partitions)

        with naming_store(name):
            if just_planned:
                try:
                    return planner.partitions(wanted, min_partitions=min_partitions)
                except _STORE_CHANGED:
                    pass  # the store changed in between: look again, and report the loss
            return planner.reader.consistently(plan, one_moment=False)

    def _parse(self, value: dict[str, Any]) -> StoresOffset:
        for known, offset in self._known:
            if known == value:
                return offset
        parsed = StoresOffset.from_json(value, self._names)
        self._known.append((value, parsed))
        return parsed

    def _available(self) -> dict[str, StorePlanner]:
        """The planners of the stores that are available now, by name."""
        available: dict[str, StorePlanner] = {}
        for name, reader in self._open.look().items():
            known = self._planners.get(name)
            if known is None or known.reader is not reader:
                # Of a store that was unavailable when a run of AvailableNow began, nothing is read.
                targets = None if self._targets is None else self._targets.get(name, {})
                known = StorePlanner(reader, self._options.of_store(name), targets)
            available[name] = known
        self._planners = available
        return available

    def _settled_state(self, available: Mapping[str, StorePlanner]) -> object | None:
        """A state of all stores in which no queue changes, to be compared; None if it is not known of one."""
        states = {name: planner.reader.settled_state() for name, planner in available.items()}
        is_known = len(states) == len(self._names) and None not in states.values()
        return states if is_known else None

    def _state(self, start: StoresOffset) -> tuple[object | None, bool]:
        """A state of all stores in which nothing comes, to be compared, None if it is not known of one; and whether no
        queue changes in it at all.
        """
        states: dict[str, object] = {}
        is_settled = True
        available = self._available()
        queues = sum(len(one.offsets) for one in start.stores.values())
        # A record takes a third of what a queue does: a tenth of the time at most, in all stores.
        most_records = queues // (4 * len(self._names)) + 1
        for name in self._names if len(available) == len(self._names) else ():
            reader = available[name].reader
            state = reader.settled_state()
            if state is None:
                is_settled = False
                known = start.stores.get(name, _NOTHING_READ).newest_read
                if known is not None and queues >= _FEWEST_QUEUES:
                    state = reader.dispatched_state(known, most_records)
            if state is None:
                break
            states[name] = state
        return (states if len(states) == len(self._names) else None), is_settled

    def _after(
        self, start: StoresOffset, available: Mapping[str, StorePlanner], limited: bool
    ) -> tuple[StoresOffset | None, bool]:
        """The offset after the next batch, None without one; and whether messages are lost."""
        self.looks += 1
        backlogs: dict[str, Backlog] = {}
        for name, planner in available.items():
            if self._targets is None or name in self._targets:
                with naming_store(name):
                    backlogs[name] = planner.backlog(start.stores.get(name, _NOTHING_READ))
        lost = any(one.lost for one in backlogs.values())
        rows = sum(one.rows for one in backlogs.values())
        self._nothing_waits = not any(one.needs_batch for one in backlogs.values())
        if self._nothing_waits:
            return None, lost
        if limited and self._targets is None and self._limits.may_wait(rows, lost=lost):
            return None, lost
        turn = start.turn
        ends = {name: backlog.ends() for name, backlog in backlogs.items()}
        if limited and self._limits.bind(rows):
            ends, turn = self._admit(backlogs, available, start.turn)
        offsets = {name: _unchanged(offset) for name, offset in start.stores.items()}
        for name, backlog in backlogs.items():
            offsets[name] = available[name].offset_after(backlog, ends.get(name, {}))
        if rows:  # only now: an attempt that fails is repeated, and must not wait for itself
            self._limits.batch_planned()
        return StoresOffset(stores=offsets, turn=turn), lost

    def _admit(
        self, backlogs: Mapping[str, Backlog], available: Mapping[str, StorePlanner], turn: str | None
    ) -> tuple[dict[str, dict[QueueKey, int]], str | None]:
        """The end of each queue in the next batch, within the limits, and the store that begins the next one.

        Queues go in rounds over the stores: the oldest of each, then the second oldest of each, and so on. The store
        that begins changes from batch to batch, so that none waits indefinitely; within a store, age sees to it.
        """
        names = sorted(backlogs)
        first = bisect_left(names, turn or "")
        in_rounds: list[tuple[int, int, str, QueueKey]] = []
        for number, name in enumerate(names[first:] + names[:first]):
            with naming_store(name):
                places = available[name].next_places(backlogs[name])
            oldest_first = sorted(places, key=lambda key: (places[key], key))  # used in this round alone
            in_rounds += [(age, number, name, key) for age, key in enumerate(oldest_first)]
        in_rounds.sort()
        queues = [
            WaitingQueue(
                available[name].reader, *key, backlogs[name].positions.next[key], backlogs[name].queues[key][1], rank
            )
            for rank, (_, _, name, key) in enumerate(in_rounds)
        ]
        ends: dict[str, dict[QueueKey, int]] = {}
        for (_, _, name, key), end in zip(in_rounds, self._limits.admit(queues), strict=True):
            ends.setdefault(name, {})[key] = end
        if not in_rounds:
            return ends, turn
        served = in_rounds[0][2]
        return ends, names[(names.index(served) + 1) % len(names)]

    def _report_removed(self, name: str) -> None:
        """A store that was read before is not in ``path`` any more."""
        text = f"Option path does not name the store {name!r} any more, which this query has read before."
        if self._options.fail_on_data_loss:
            raise OptionError(
                f"{text} Name it again, with onMissingStore=skip if it is unavailable. To continue without its "
                "remaining messages, set the option failOnDataLoss to false.",
                option="path",
                value=self._options.path,
            )
        if name not in self._warned_of:
            self._warned_of.add(name)
            _logger.warning("%s Its position is kept: should it be named again, it is read on from there.", text)


def _planned_consistently(readers: Mapping[str, StoreReader], plan: Callable[[], _T]) -> _T:
    """The result of ``plan``, which reads the bounds and is called again while the owners of stores change files."""
    if not readers:
        return plan()
    try:
        # Any of several stores: it reads its own files in ``plan`` only.
        return next(iter(readers.values())).consistently(plan, one_moment=False)
    except StoreBusy as error:
        if "" in readers:
            raise
        raise StoreBusy(
            f"One of the stores {', '.join(readers)} changed during each of many looks at them: retention deletes "
            "files, or several batches were dispatched. Start the query again."
        ) from error


def _rest_s(look_s: float) -> float:
    """How long queues of a broker are not asked after a look that found nothing."""
    return min(max(_REST * look_s, _LEAST_REST_S), _MOST_REST_S)


def _unchanged(offset: StreamOffset) -> StreamOffset:
    """The offset of a store from which a batch reads nothing; where the first batch began is in its end."""
    return StreamOffset(
        offsets=offset.offsets, fences=offset.fences, batch_starts=offset.offsets if offset.initial else {}
    )
