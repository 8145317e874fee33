"""TimerMessageService: delivers timer messages to their topics at their time, each exactly once.

Their queue is read on and each message gets a unit in the timer log. What is due goes out in the order of time, then of
the log, as frames: batches of the application ``rmq-timer``, whose fingerprint says what is delivered.
docs/decisions/0037 has the argument.

Source: RocketMQ ``store/timer/TimerMessageStore.java``.
"""

from __future__ import annotations

import heapq
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from commitlog_store.batch_id import TIMER_APPLICATION, BatchId
from commitlog_store.columnar.delivery import Undeliverable, WaitingRecords, count_by_topic
from commitlog_store.columnar.timer_times import TIMER_QUEUE, TimerTimes, timer_times
from commitlog_store.delayed.frame_delivery import FrameDelivery
from commitlog_store.delayed.timer_check import TimerCheckFile, delivered_of, fingerprint_of
from commitlog_store.delayed.timer_counts import TimerCounts
from commitlog_store.delayed.timer_log import (
    NONE,
    NOTHING_DELIVERED,
    Delivered,
    Key,
    TimerLog,
    TimerLogWriter,
    is_cancelling,
)
from commitlog_store.delayed.timer_waiting import (
    TIMER_HOLDER,
    InTimerLog,
    agreeing_check,
    judged_with,
    next_offset,
    units_that_wait,
)
from commitlog_store.delayed.waiting_records import (
    LONGEST_SECONDS,
    MOST_FRAME_BYTES,
    MOST_FRAME_UNITS,
    PIECE_BYTES,
    REFUSED_SECONDS,
    DeliveryService,
    end_to_deliver,
    report_undeliverable,
    scattered_records,
    waiting_records,
)
from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.engine.subject import Hold
from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.timer_log import MAGIC_DEFAULT, MAGIC_DELETE, OwnCheck, slot_of
from commitlog_store.format.timer_messages import PRECISION_MS, TIMER_TOPIC
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.paths import TIMER_WHEEL
from commitlog_store.queue.expired_units import count_before
from commitlog_store.threads.wakeup import Wakeup

_LOG = logging.getLogger(__name__)

# Messages that are taken into the timer log at once.
_MOST_READ_UNITS = 1 << 13
# Slots are read together, when many are overdue, up to so many messages.
_ENOUGH = 1 << 14
_MS = 1000.0


class _Due(NamedTuple):
    """Messages in the order of their delivery: times in ms, physical offsets, sizes."""

    dues: Int64Array
    physical_offsets: Int64Array
    sizes: Int64Array

    @property
    def messages(self) -> int:
        """How many there are."""
        return len(self.dues)

    def part(self, start: int, stop: int | None = None) -> _Due:
        return _Due(*(values[start:stop] for values in self))

    @classmethod
    def ordered(cls, *parts: tuple[Int64Array, ...]) -> _Due:
        dues, physical, sizes = (np.concatenate(one) for one in zip(*parts, strict=True))
        order = np.lexsort((physical, dues))
        return cls(dues[order], physical[order], sizes[order])


def _messages(due: _Due) -> int:
    return due.messages


_NOTHING = _Due(*(np.zeros(0, np.int64) for _ in range(3)))


class TimerMessageService(DeliveryService):
    """Takes timer messages into the timer log and delivers what is due. For one thread, and the job thread."""

    def __init__(
        self,
        engine: StoreEngine,
        wakeup: Wakeup,
        *,
        frame_bytes: int = MOST_FRAME_BYTES,
        read_units: int = _MOST_READ_UNITS,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``wakeup`` is set when a timer message has come. ``frame_bytes`` and ``read_units``: the most that is
        delivered in one frame, and taken into the timer log at once."""
        super().__init__(engine, wakeup, TIMER_TOPIC, "Timer messages", clock, monotonic)
        config = engine.config
        self.counts = TimerCounts()
        self._delivery = FrameDelivery(engine, frame_bytes, lambda frame: self.counts.delivered(frame.by_topic()))
        self._stats = engine.stats
        self._file_size = config.mapped_file_size_timer_log
        self._flush_interval_s = config.timer_flush_interval_ms / _MS
        self._read_units = read_units
        self._check = TimerCheckFile(engine.path)
        # None until the service has begun.
        self._timer_log: TimerLogWriter | None = None
        self._delivered = NOTHING_DELIVERED
        self._frames = 0
        # The offset of the next message of the queue to take in, and the physical offset of the one before it.
        self._next = 0
        self._last_physical = NONE
        # The position of the last unit of each slot, by its second; the seconds after ``_loaded``, as a heap; and those
        # before, which may still get messages.
        self._wheel: dict[int, int] = {}
        self._slots: list[int] = []
        self._past: set[int] = set()
        # The messages of slots up to ``_loaded`` that wait.
        self._ready = _NOTHING
        self._loaded = NONE
        # No unit before this position waits, and no message before this physical offset (None: none that is taken in).
        self._start = 0
        self._first_physical: int | None = None
        self._saved: OwnCheck | None = None

    def _step(self) -> float:
        """Take in some messages and deliver one frame. The seconds until there may be more to do."""
        if self._timer_log is None:
            self._run_job(self._begin)
        took_in = self._take_in()
        # No key passes before all messages that were judged by an earlier one are in the timer log.
        pause = self._deliver_due(int(self._clock() * _MS)) if self._has_caught_up() else REFUSED_SECONDS
        if self._monotonic() - self._saved_at >= self._flush_interval_s and self._saved != self._own():
            self._run_job(self._save_flushed)
        return 0.0 if took_in else pause

    def _has_caught_up(self) -> bool:
        return self._last_physical + 1 >= self._delivered.judged or self._next >= self._bounds()[1]

    # Beginning

    def _begin(self) -> None:
        """Find out what waits, from ledger, checkpoint and timer log. On the job thread."""
        bounds = self._bounds()
        last = self._batches.last_batch(TIMER_APPLICATION)
        self._frames = 0 if last is None else last.version
        self._delivered = delivered_of(last)
        if self._delivered.judged > self._log.files.max_wrote:
            self._delivered = NOTHING_DELIVERED  # another log, or one that has lost its end
        check = self._check.read()
        own = agreeing_check(check, self._frames, bounds, self._place)
        self._delivered = judged_with(self._delivered, own)
        log = TimerLogWriter(self._store_path, self._file_size)
        if own is not None and not (log.covers(own.end) and self._fill_wheel(log, own)):
            own = None
            self._wheel.clear()
        self._next = next_offset(check, own, bounds)
        if own is not None:
            log.begin_at(own.end)
            self._start, self._last_physical = own.start, own.last_physical
            if check is not None and not check.repeats:
                self._saved = own
            self._slots = sorted(self._wheel)
        elif check is not None and check.own is None:
            self._take_over(log, units_that_wait(log, check, None, self._delivered), check.read_time)
        else:
            _LOG.info("The timer log of %s is made from the timer's queue.", self._store_path)
            self._next = bounds[0]
            log.begin_at(0)
        self._timer_log = log
        self._first_physical = self._first_that_waits()

    def _fill_wheel(self, log: TimerLogWriter, own: OwnCheck) -> bool:
        """Read the slots of what waits. False where the timer log has anything but units."""
        end = own.start
        for positions, units in log.blocks(own.start, own.end):
            dues = units["due"].astype(np.int64)
            waits = self._delivered.waiting(dues, units["physical_offset"].astype(np.int64))
            waits &= units["magic"] & MAGIC_DELETE == 0
            slots = ((dues[waits] - 1) // PRECISION_MS).tolist()
            self._wheel.update(zip(slots, positions[waits].tolist(), strict=True))
            end = log.following(int(positions[-1]))
        return end == own.end

    def _take_over(self, log: TimerLogWriter, waiting: Iterator[InTimerLog], read_time: int) -> None:
        """Continue after a broker: what it has not delivered gets new units, in a file of its own."""
        found = [units for units in waiting if len(units.dues)]
        judged = self._place(self._next) if self._next < self._bounds()[1] else self._log.files.max_wrote
        due, physical = self._delivered.key
        key = max(Key(due, physical), Key(read_time, MAX_LONG))
        self._delivered = Delivered(key, max(self._delivered.judged, judged or 0))
        self._last_physical = self._place(self._next - 1) if self._next > self._bounds()[0] else NONE  # type: ignore[assignment]
        log.begin_file()
        self._start = log.end
        if found:
            physicals, first = np.unique(np.concatenate([one.physical_offsets for one in found]), return_index=True)
            sizes = np.concatenate([one.sizes for one in found])[first]
            skipped: list[Undeliverable] = []
            for start in range(0, len(physicals), self._read_units):
                part = slice(start, start + self._read_units)
                records = self._records(_Due(sizes[part], physicals[part], sizes[part]), skipped)
                times = TimerTimes.joined([timer_times(one, skipped) for one in records])
                times = times.rows(self._delivered.after(times.dues, times.physical_offsets))
                log.append(times, self._wheel, int(self._clock() * _MS))
            self._report(skipped)
            self._slots = sorted(self._wheel)
        _LOG.info("%s: %d timer messages are taken over from a broker.", self._store_path, sum(map(_count, found)))
        self._timer_log = log
        self._save_flushed()
        wheel = os.path.join(self._store_path, TIMER_WHEEL)
        if disk.exists(wheel):  # its slots would lead a broker into units that are not there any more
            disk.unlink(wheel)

    def _bounds(self) -> tuple[int, int]:
        return self._log.queues.written_bounds(*TIMER_QUEUE) or (0, 0)

    def _place(self, queue_offset: int) -> int | None:
        return self._log.queues.place(*TIMER_QUEUE, queue_offset)

    # Taking in

    def _take_in(self) -> bool:
        """Take the next messages of the queue into the timer log. False when there is none."""
        assert self._timer_log is not None
        low, high = self._bounds()
        first = max(self._next, low)
        if first >= high:
            return False
        units = self._log.queues.read_units(*TIMER_QUEUE, first, min(high, first + self._read_units))
        physical, sizes = units["physical_offset"].astype(np.int64), units["size"].astype(np.int64)
        skipped: list[Undeliverable] = []
        offsets = np.arange(first, first + len(units))
        gone = count_before(units, self._log.files.min_offset)
        times = self._times(physical, sizes, offsets, skipped, gone)
        waits = self._delivered.waiting(times.dues, times.physical_offsets)
        on_time = self._delivered.after(times.dues, times.physical_offsets)
        late = times.rows(waits & ~on_time)
        if not self._deliver_late(late):
            return False
        self._report(skipped)
        waiting = times.rows(waits & on_time)
        self._append(waiting)
        if self._first_physical is None and waiting.messages:
            self._first_physical = int(waiting.physical_offsets.min())
        if len(units):
            self._last_physical = int(physical[-1])
            self._judge(self._last_physical + 1)
        self._next = first + len(units)
        return True

    def _judge(self, physical_offset: int) -> None:
        self._delivered = Delivered(self._delivered.key, max(self._delivered.judged, physical_offset))

    def _append(self, times: TimerTimes) -> None:
        """Give each message a unit; those of a slot that was read join what is ready."""
        assert self._timer_log is not None
        slots = (times.dues - 1) // PRECISION_MS
        new = [slot for slot in np.unique(slots).tolist() if slot > self._loaded and slot not in self._wheel]
        self._timer_log.append(times, self._wheel, int(self._clock() * _MS))
        self.counts.taken_in(times)
        for slot in new:
            heapq.heappush(self._slots, slot)
        now = times.rows(slots <= self._loaded)
        if now.messages:
            self._past.update(slots[slots <= self._loaded].tolist())
            self._ready = _Due.ordered(self._ready, now[:3])

    def _times(
        self,
        physical: Int64Array,
        sizes: Int64Array,
        offsets: Int64Array,
        skipped: list[Undeliverable],
        gone: int,
    ) -> TimerTimes:
        is_gone = np.arange(len(physical)) < gone
        records = waiting_records(self._log.files, physical, sizes, offsets, is_gone, PIECE_BYTES, skipped)
        return TimerTimes.joined([timer_times(one, skipped, self.counts.topics) for one in records])

    # Delivering

    def _deliver_late(self, late: TimerTimes) -> bool:
        """Deliver messages whose key has passed, in the order of the log, frame by frame. False if they wait on."""
        while late.messages:
            part = self._fitting(_Due(*late[:3]), end_to_deliver(self._state, self._log.files))
            count = part.messages
            if not count:
                return False
            judged = max(self._delivered.judged, int(part.physical_offsets[-1]) + 1)
            if not self._deliver(_Due.ordered(part), Delivered(self._delivered.key, judged)):
                continue
            self.counts.taken_in(late.rows(slice(count)))
            late = late.rows(slice(count, None))
        return True

    def _deliver_due(self, now_ms: int) -> float:
        """Deliver one frame of what is due. The seconds until more may be."""
        if not self._ready.messages and not self._read_slots(now_ms):
            wait_ms = self._slots[0] * PRECISION_MS - now_ms if self._slots else LONGEST_SECONDS * _MS
            return min(max(wait_ms, 1) / _MS, LONGEST_SECONDS)
        count = int(np.searchsorted(self._ready.dues, now_ms, side="right"))
        if not count:
            return min((int(self._ready.dues[0]) - now_ms) / _MS, LONGEST_SECONDS)
        part = self._fitting(self._ready.part(0, count), end_to_deliver(self._state, self._log.files))
        if not part.messages:
            return REFUSED_SECONDS
        key = Key(int(part.dues[-1]), int(part.physical_offsets[-1]))
        if self._deliver(part, Delivered(key, self._delivered.judged)):
            self._ready = self._ready.part(part.messages)
        return 0.0

    def _read_slots(self, now_ms: int) -> bool:
        """Read the slots whose second has begun, as many as make a frame worth while. False without a message."""
        found = [_NOTHING]
        try:
            while self._slots and self._slots[0] * PRECISION_MS < now_ms and sum(map(_messages, found)) < _ENOUGH:
                slot = self._slots[0]
                found.append(self._in_slot(slot))
                heapq.heappop(self._slots)
                self._forget_past(slot)
                self._loaded = slot
        finally:
            self._ready = _Due.ordered(*found)
        return self._ready.messages > 0

    def _in_slot(self, slot: int) -> _Due:
        """The messages of a slot that wait."""
        assert self._timer_log is not None
        units = self._timer_log.slot(self._wheel[slot], self._start)
        units = [unit for unit in units if not is_cancelling(unit) and slot_of(unit.due) == slot]
        found = _Due(*(np.array([unit[at] for unit in units], np.int64) for at in range(3)))
        waits = self._delivered.after(found.dues, found.physical_offsets)
        return _Due(*(values[waits] for values in found))

    def _forget_past(self, slot: int) -> None:
        """Forget the slots that no message comes into any more: one with their times is late. ``slot`` was read."""
        self._past.add(slot)
        done = slot_of(self._delivered.key.due)
        for past in [past for past in self._past if past < done]:
            self._past.discard(past)
            self._wheel.pop(past, None)

    def _fitting(self, due: _Due, end: int) -> _Due:
        """The first of them that fit one frame, up to one that lies at ``end`` or after."""
        after = (due.physical_offsets >= end) & (due.physical_offsets < self._log.files.max_wrote)
        count = int(np.argmax(after)) if after.any() else len(after)
        return due.part(0, min(count, self._delivery.fitting(due.sizes), MOST_FRAME_UNITS))

    def _deliver(self, due: _Due, after: Delivered) -> bool:
        """Append the copies as one frame, after which so much is delivered. False to do it again."""
        batch = BatchId(TIMER_APPLICATION, self._frames + 1, fingerprint_of(after))
        size = int(due.sizes.sum())
        skipped = self._delivery.deliver(partial(self._records, due), TIMER_QUEUE, size, batch, self._count_frame)
        if skipped is None:
            return False
        self._delivered = after
        self._report(skipped, counted=True)
        return True

    def _count_frame(self) -> None:
        self._frames += 1

    def _records(self, due: _Due, skipped: list[Undeliverable]) -> Iterator[WaitingRecords]:
        return scattered_records(self._log.files, due.physical_offsets, due.sizes, PIECE_BYTES, skipped)

    def _report(self, skipped: Sequence[Undeliverable], *, counted: bool = False) -> None:
        if skipped:
            if not counted:
                self._stats.delivered(0, len(skipped))
            report_undeliverable(self._store_path, "timer message", TIMER_TOPIC, skipped)

    # What others ask

    def _own(self) -> OwnCheck:
        end = 0 if self._timer_log is None else self._timer_log.end
        return OwnCheck(end, self._start, self._next, self._last_physical, self._frames)

    def _first_that_waits(self) -> int | None:
        """The physical offset of the first message of the timer log that waits; moves ``_start`` up to its unit."""
        assert self._timer_log is not None
        for positions, units in self._timer_log.blocks(self._start, self._timer_log.end):
            physical = units["physical_offset"].astype(np.int64)
            waits = self._delivered.waiting(units["due"].astype(np.int64), physical)
            waits &= units["magic"] & MAGIC_DELETE == 0
            if waits.any():
                row = int(np.argmax(waits))
                self._start = int(positions[row])
                return int(physical[row])
        self._start = self._timer_log.end
        return None

    def _save_flushed(self) -> None:
        """Write the checkpoint. On the job thread: what it counts is on the device before."""
        self._store_flush.flush_log()
        self._save(repeats=True)

    def _save(self, *, repeats: bool) -> None:
        assert self._timer_log is not None
        self._saved_at = self._monotonic()
        self._first_physical = self._first_that_waits()
        self._timer_log.sync()
        own = self._own()
        self._check.write(self._read_time(), own, repeats=repeats)
        self._saved = own
        self._timer_log.delete_before(own.start)

    def _read_time(self) -> int:
        """For a broker, in ms: all slots before it are delivered, and none after it in part."""
        done = slot_of(self._delivered.key.due) if self._delivered.key.due > 0 else 0
        waiting = [slot_of(int(due)) for due in self._ready.dues[:1]] + self._slots[:1]
        now = slot_of(int(self._clock() * _MS))
        found = max(min([now, *waiting]), done if done in waiting else done + 1)
        # A broker would not deliver before it. After the clock was set back, let it repeat rather than wait.
        return min(found, now + 1) * PRECISION_MS

    def save(self) -> None:
        """Write the checkpoint when the store is closed, so that a broker continues where this owner stops."""
        if self._timer_log is None or (self._saved == self._own() and not self._ready.messages):
            return
        try:
            self._hand_over()
            self._save(repeats=False)
        except CommitLogError as error:
            _LOG.warning("%s lacks deliveries, which a broker would repeat: %s", self._check.path, error)

    def _hand_over(self) -> None:
        """Let no slot be delivered in part: what is left of one gets units of its own, in a chain of its own."""
        assert self._timer_log is not None
        if self._ready.messages:
            records = self._records(self._ready, [])
            times = TimerTimes.joined([timer_times(one, []) for one in records])
            self._timer_log.append(times, {}, int(self._clock() * _MS))
        # A broker continues after the message of the last unit, whatever its time: of one that no broker acts upon.
        units = self._log.queues.read_units(*TIMER_QUEUE, self._next - 1, self._next)
        if len(units):
            place, size = int(units["physical_offset"][0]), int(units["size"][0])
            past = TimerTimes(*(np.array([value], np.int64) for value in (1, place, size, 0, 1)))
            self._timer_log.append(past, {}, 1, MAGIC_DEFAULT | MAGIC_DELETE)

    def close(self) -> None:
        if self._timer_log is not None:
            self._timer_log.close()

    def _outside(self) -> tuple[TimerLog, Iterator[InTimerLog], int]:
        """What waits in the timer log, and the offset of the first message after it. On the job thread."""
        log = TimerLog(self._store_path, self._file_size)
        if self._timer_log is not None:
            own = self._own()
            return log, units_that_wait(log, None, own, self._delivered), self._next
        bounds = self._bounds()
        last = self._batches.last_batch(TIMER_APPLICATION)
        check = self._check.read()
        own_check = agreeing_check(check, 0 if last is None else last.version, bounds, self._place)
        waiting = units_that_wait(log, check, own_check, judged_with(delivered_of(last), own_check))
        return log, waiting, next_offset(check, own_check, bounds)

    def holds(self) -> Sequence[Hold]:
        """The messages that wait, also where this service delivers nothing. ``ReadFailed``."""
        queues = self._log.queues
        if queues.highest_id(TIMER_TOPIC) < 0:
            return []
        if self._timer_log is not None:
            # The queue's place first: a message that is taken in afterwards is counted before ``_next`` moves.
            place = queues.place_left(*TIMER_QUEUE, self._next, self._log.files.min_offset)
            first = self._first_physical
        else:
            log, waiting, following = self._outside()
            try:
                firsts = [int(units.physical_offsets.min()) for units in waiting if len(units.dues)]
            finally:
                log.close()
            place = queues.place_left(*TIMER_QUEUE, following, self._log.files.min_offset)
            first = min(firsts, default=None)
        places = [one for one in (place, first) if one is not None]
        return [Hold(from_offset=min(places), holder=TIMER_HOLDER)] if places else []

    def to_take_in(self) -> range | None:
        """The offsets of the messages that are not in the timer log yet. In any thread.

        None while that is not known: the service has not begun, or leaves its messages to a broker.
        """
        if self._log.queues.highest_id(TIMER_TOPIC) < 0:
            return range(0)
        if self._timer_log is None:
            return None
        low, high = self._bounds()
        return range(max(self._next, low), high)

    def waiting_topics(self) -> Counter[str]:
        """The number of messages that wait for their delivery to each topic. It reads all of them. On the job thread.

        Errors: ``holds``.
        """
        found: Counter[str] = Counter()
        if self._log.queues.highest_id(TIMER_TOPIC) < 0:
            return found
        log, waiting, following = self._outside()
        high = self._bounds()[1]
        try:
            for units in waiting:
                for start in range(0, len(units.dues), self._read_units):
                    part = _Due(*units[:3]).part(start, start + self._read_units)
                    for records in self._records(part, []):
                        found += count_by_topic(records, TIMER_QUEUE, self._delivery.rules)
        finally:
            log.close()
        while following < high:
            units_there = self._log.queues.read_units(*TIMER_QUEUE, following, min(high, following + self._read_units))
            if not len(units_there):
                break
            physical, sizes = (units_there[name].astype(np.int64) for name in ("physical_offset", "size"))
            for records in self._records(_Due(physical, physical, sizes), []):
                found += count_by_topic(records, TIMER_QUEUE, self._delivery.rules)
            following += len(units_there)
        return found


def _count(units: InTimerLog) -> int:
    return len(units.dues)
