"""ScheduleMessageService: delivers delayed messages to their topics when their time has come, each exactly once.

A level of delay has a queue of ``SCHEDULE_TOPIC_XXXX``, whose units hold the times of delivery. What is due of a level
goes out as one frame of the log, a batch of the application ``rmq-schedule/<level>`` with the next offset as its
version: after a crash it is in the log wholly, and noted as delivered, or not at all. docs/decisions/0020 has the
argument.

Source: RocketMQ ``schedule/ScheduleMessageService.java``.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from commitlog_store.batch_id import BatchId, schedule_application
from commitlog_store.columnar.delivery import Undeliverable, WaitingRecords, count_by_topic
from commitlog_store.delayed.broker_marks import broker_mark
from commitlog_store.delayed.frame_delivery import FrameDelivery
from commitlog_store.delayed.levels import DelayOffsetFile, delay_hold, start_position
from commitlog_store.delayed.waiting_records import (
    LONGEST_SECONDS,
    MOST_FRAME_BYTES,
    MOST_FRAME_UNITS,
    PIECE_BYTES,
    REFUSED_SECONDS,
    DeliveryService,
    end_to_deliver,
    report_undeliverable,
    waiting_records,
)
from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.engine.subject import Hold
from commitlog_store.errors import CommitLogError
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, LAST_HASH_CODE, Units
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from commitlog_store.format.record import HEADER_SIZE, field_offset
from commitlog_store.queue.expired_units import count_before
from commitlog_store.threads.wakeup import Wakeup

_LOG = logging.getLogger(__name__)

# A time of delivery that lies further ahead than its level's delay and this is not believed: the clock was set back.
_CLOCK_TOLERANCE_MS = 1_000
# The delay of a level that has none, as in RocketMQ.
_UNKNOWN_DELAY_MS = 1_000
_MS = 1000.0


class _Waiting(NamedTuple):
    """Units of one level that are due: the offset of the first, and the units."""

    first: int
    units: Units

    @property
    def stop(self) -> int:
        """The offset after them."""
        return self.first + len(self.units)

    @property
    def bytes(self) -> int:
        """The bytes of their records."""
        return int(_sizes(self.units).sum())

    def before(self, end: int, log_end: int) -> _Waiting:
        """The first of them, up to one whose message lies at a physical offset of ``end`` or more, within the log."""
        places = self.units["physical_offset"]
        after = (places >= end) & (places < log_end)  # a damaged unit has no message that could wait
        return _Waiting(self.first, self.units[: int(np.argmax(after))]) if after.any() else self


def _sizes(units: Units) -> Int64Array:
    """The bytes of each unit's record; 0 for a filler."""
    return np.where(units["size"] == FILLER_SIZE, 0, np.maximum(units["size"], 0)).astype(np.int64)


def _nothing() -> None:
    pass


class ScheduleMessageService(DeliveryService):
    """Delivers what is due, level after level. For one thread, and the job thread."""

    def __init__(
        self,
        engine: StoreEngine,
        wakeup: Wakeup,
        *,
        frame_bytes: int = MOST_FRAME_BYTES,
        piece_bytes: int = PIECE_BYTES,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``wakeup`` is set when a message with a delay has come: ``WakeScheduleService``.

        ``frame_bytes`` and ``piece_bytes``: the most that is delivered in one frame, and encoded at once.
        """
        super().__init__(engine, wakeup, SCHEDULE_TOPIC, "Delayed messages", clock, monotonic)
        config = engine.config
        self._delays = config.delay_levels_ms
        self._delivery = FrameDelivery(engine, frame_bytes)
        self._flush_interval_s = config.flush_delay_offset_interval / _MS
        self._piece_bytes = piece_bytes
        self._file = DelayOffsetFile(engine.path)
        # Where the queues ended when the store was opened: no position is after that, whatever the file says. A later
        # end would not do: it counts messages that were not delivered.
        self._ends_at_open = self._ends()
        # What ledger and file said when the service began; None before.
        self._begun: tuple[dict[int, int], dict[int, int]] | None = None
        # The offset of the next message of each level whose queue exists.
        self._positions: dict[int, int] = {}
        # What delayOffset.json holds.
        self._saved: dict[int, int] = {}

    def _ends(self) -> dict[int, int | None]:
        """The end of each level's queue now; None for one that cannot be read."""
        queues = self._log.queues
        ends: dict[int, int | None] = {}
        for level in range(1, queues.highest_id(SCHEDULE_TOPIC) + 2):
            try:
                bounds = queues.written_bounds(SCHEDULE_TOPIC, level - 1)
            except (CommitLogError, OSError):
                ends[level] = None  # the store opens nevertheless; the level's own step reports it
            else:
                ends[level] = 0 if bounds is None else bounds[1]
        return ends

    def _end_at_open(self, level: int, high: int) -> int:
        end = self._ends_at_open.get(level, 0)
        return high if end is None else min(end, high)

    def correct_positions(self) -> None:
        """Let no position stand for messages or deliveries that the log has lost; before the first message is put.

        Also where a broker delivers: it would move such a position to the queue's end only when it starts, and the
        queue may have grown beyond the position by then. A failure is logged: while this owner runs, it goes by the
        ends at opening.
        """
        if self._is_replica:  # whose positions are its master's
            return
        try:
            saved = self._file.read()
            if not saved and self._log.recovered is None:
                return
            ledger = self._batches.delivered_offsets() if self._log.recovered is not None else {}
            for level in [level for level, at in ledger.items() if at > self._end_at_open(level, at)]:
                self._batches.forget(schedule_application(level))
            corrected = {level: self._corrected(level, at, ledger) for level, at in saved.items()}
            changed = {level: at for level, at in corrected.items() if at != saved[level]}
            for level, at in changed.items():
                _LOG.warning(
                    "Level %d of the delayed messages continues at offset %d: its position %d in %s stands for "
                    "messages, or for deliveries, that the log has lost.",
                    *(level, at, saved[level], self._file.path),
                )
            if changed:
                self._file.write(changed)
        except CommitLogError as error:
            _LOG.warning("%s: the positions of delayed messages are not corrected: %s", self._store_path, error)

    def _corrected(self, level: int, position: int, ledger: Mapping[int, int]) -> int:
        """The position of a level in delayOffset.json as the log has it."""
        end = self._end_at_open(level, position)
        # Deliveries are frames. Those that are lost happen again, unless a broker may have made them. A level that the
        # ledger does not have has lost all of them.
        may_be_lost = self._log.lost_flushed or self._batches.frames_were_lost
        if may_be_lost and broker_mark(self._store_path) is None:
            end = min(end, ledger.get(level, 0))
        return min(position, end)

    def _step(self) -> float:
        """Deliver a frame of each level. When a level fails, later steps repeat it, and the others continue."""
        if self._begun is None:
            self._begun = self._run_job(self._batches.delivered_offsets), self._file.read()
            self._saved = dict(self._begun[1])
        levels = range(1, self._log.queues.highest_id(SCHEDULE_TOPIC) + 2)
        pauses = [self._guarded(f"{self._kind} of level {one}", partial(self._deliver_due, one)) for one in levels]
        if self._monotonic() - self._saved_at >= self._flush_interval_s and self._unsaved():
            self._guarded("Positions of delayed messages", self._save_flushed)
        return min(pauses, default=LONGEST_SECONDS)

    def _deliver_due(self, level: int) -> float:
        """Deliver one frame of what is due. The seconds until more may be due."""
        bounds = self._log.queues.written_bounds(SCHEDULE_TOPIC, level - 1)
        if bounds is None or bounds[0] == bounds[1]:
            return LONGEST_SECONDS
        position = self._position(level, *bounds)
        now = int(self._clock() * _MS)
        wait_ms = self._wait_ms(level, position, bounds[1], now)
        if wait_ms:
            return min(wait_ms / _MS, LONGEST_SECONDS)
        due = self._due(level, position, bounds[1], now).before(
            end_to_deliver(self._state, self._log.files), self._log.files.max_wrote
        )
        if not len(due.units):
            return REFUSED_SECONDS
        skipped = self._delivery.deliver(
            partial(self._records, due),
            (SCHEDULE_TOPIC, level - 1),
            due.bytes,
            BatchId(schedule_application(level), due.stop),
            _nothing,
        )
        if skipped is None:
            return 0.0
        self._positions[level] = due.stop
        if skipped:
            self._report(level, sorted(skipped))
        return 0.0

    def _position(self, level: int, low: int, high: int) -> int:
        position = self._positions.get(level)
        if position is None:
            assert self._begun is not None
            ledger, file = self._begun
            end = self._end_at_open(level, high)
            if ledger.get(level, 0) > end:
                # The queue was removed and begun again. The ledger would take its deliveries for earlier ones.
                _LOG.warning(
                    "Level %d of the delayed messages was delivered up to offset %d, and its queue ends at %d: "
                    "delivery continues there.",
                    level,
                    ledger[level],
                    end,
                )
                self._run_job(lambda: self._batches.forget(schedule_application(level)))
            position = start_position(level, ledger, file, 0, end)
        if position < low:
            if position:
                _LOG.warning(
                    "Level %d of the delayed messages: those at the offsets [%d, %d) were removed before their time.",
                    level,
                    position,
                    low,
                )
            position = low
        self._positions[level] = position
        return position

    def _wait_ms(self, level: int, position: int, high: int, now: int) -> int:
        """Milliseconds until the level's first message is due; 0 when it is."""
        if position >= high:
            return int(LONGEST_SECONDS * _MS)
        units = self._log.queues.read_units(SCHEDULE_TOPIC, level - 1, position, position + 1)
        times = self._times(level, units)
        return 0 if self._are_due(level, times, now)[0] else int(times[0]) - now

    def _due(self, level: int, position: int, high: int, now: int) -> _Waiting:
        """The units from ``position`` on that are due, and fit one frame; at least one."""
        stop = min(high, position + MOST_FRAME_UNITS)
        units = self._log.queues.read_units(SCHEDULE_TOPIC, level - 1, position, stop)
        due = self._are_due(level, self._times(level, units), now)
        count = len(due) if due.all() else int(np.argmin(due))
        return _Waiting(position, units[: max(min(count, self._delivery.fitting(_sizes(units))), 1)])

    def _times(self, level: int, units: Units) -> Int64Array:
        """The times of delivery, in milliseconds: the tags codes of the units."""
        times = units["tags_code"].astype(np.int64)
        for row in np.flatnonzero(times <= LAST_HASH_CODE).tolist():
            # The code lies in consumequeue_ext; or RocketMQ 4, which knows no delays while it recovers, wrote the hash
            # code of the tags, and would deliver the message at once. The record says when it is due.
            delay = self._delay(level)
            delay = _UNKNOWN_DELAY_MS if delay is None else delay
            times[row] = self._stored_at(int(units["physical_offset"][row])) + delay
        return times

    def _stored_at(self, physical_offset: int) -> int:
        """The store time of a record; 0 where it is gone."""
        file = self._log.files.find(physical_offset)
        head = b"" if file is None else file.read(physical_offset - file.base, HEADER_SIZE + 24)
        flags = int.from_bytes(head[field_offset("sys_flag") :][:4], "big")
        return int.from_bytes(head[field_offset("store_timestamp", flags) :][:8], "big", signed=True)

    def _delay(self, level: int) -> int | None:
        """The delay of a level in milliseconds; None when the settings have none for it."""
        return self._delays[level - 1] if level <= len(self._delays) else None

    def _are_due(self, level: int, times: Int64Array, now: int) -> BoolArray:
        """Which messages are due; also those whose time lies too far ahead: clock or delays were changed since."""
        delay = self._delay(level)
        is_due = times <= now
        if delay is not None:
            is_due |= times > now + delay + _CLOCK_TOLERANCE_MS
        return np.asarray(is_due, np.bool_)

    def _records(self, due: _Waiting, skipped: list[Undeliverable]) -> Iterator[WaitingRecords]:
        offsets = np.arange(due.first, due.stop)
        physical, sizes = due.units["physical_offset"].astype(np.int64), due.units["size"].astype(np.int64)
        is_gone = np.arange(len(physical)) < count_before(due.units, self._log.files.min_offset)
        return waiting_records(self._log.files, physical, sizes, offsets, is_gone, self._piece_bytes, skipped)

    def _report(self, level: int, skipped: Sequence[Undeliverable]) -> None:
        report_undeliverable(self._store_path, f"delayed message of level {level}", SCHEDULE_TOPIC, skipped)

    def waiting_from(self) -> dict[int, int]:
        """By level, the physical offset of the first message that still waits. On the job thread. Errors: ``holds``."""
        queues, log_start = self._log.queues, self._log.files.min_offset
        places = {
            level: queues.place_left(SCHEDULE_TOPIC, level - 1, position, log_start)
            for level, (position, _) in self._waiting_offsets().items()
        }
        return {level: place for level, place in places.items() if place is not None}

    def holds(self) -> Sequence[Hold]:
        """The messages that wait, also where this service delivers nothing. What was delivered just now may still be
        counted. ``CorruptConfig``, ``CorruptConsumeQueue``, ``ReadFailed``."""
        return [delay_hold(level, place) for level, place in self.waiting_from().items()]

    def waiting_topics(self) -> Counter[str]:
        """The number of messages that wait for their delivery to each topic. It reads all of them. On the job thread.

        Errors: ``holds``.
        """
        found: Counter[str] = Counter()
        for level, (position, high) in self._waiting_offsets().items():
            for first in range(position, high, MOST_FRAME_UNITS):
                stop = min(first + MOST_FRAME_UNITS, high)
                units = self._log.queues.read_units(SCHEDULE_TOPIC, level - 1, first, stop)
                for waiting in self._records(_Waiting(first, units), []):
                    found += count_by_topic(waiting, (SCHEDULE_TOPIC, level - 1), self._delivery.rules)
        return found

    def _waiting_offsets(self) -> dict[int, tuple[int, int]]:
        """By level, the offset of the first message that waits, and the queue's end."""
        queues = self._log.queues
        highest = queues.highest_id(SCHEDULE_TOPIC)
        if highest < 0:
            return {}
        ledger, file = self._begun or (self._batches.delivered_offsets(), self._file.read())
        found = {}
        for level in range(1, highest + 2):
            low, high = queues.written_bounds(SCHEDULE_TOPIC, level - 1) or (0, 0)
            begin = start_position(level, ledger, file, 0, self._end_at_open(level, high))
            found[level] = max(self._positions.get(level, begin), low), high
        return found

    def _unsaved(self) -> dict[int, int]:
        """The positions that delayOffset.json lacks."""
        return {level: at for level, at in self._positions.items() if at != self._saved.get(level, 0)}

    def _save_flushed(self) -> float:
        # A position in the file stands for deliveries on the device: a broker would not repeat them.
        positions = self._unsaved()
        self._store_flush.flush_log_and_note()
        self._write(positions)
        return 0.0

    def save(self) -> None:
        """Write delayOffset.json if it lacks anything, when everything is on the device. The ledger has it anyway."""
        try:
            if positions := self._unsaved():
                self._write(positions)
        except CommitLogError as error:
            _LOG.warning("%s lacks deliveries, which a broker would repeat: %s", self._file.path, error)

    def _write(self, positions: dict[int, int]) -> None:
        self._saved_at = self._monotonic()
        self._file.write(positions)
        self._saved.update(positions)
