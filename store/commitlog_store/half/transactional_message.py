"""TransactionalMessageService: half messages of an open store, from prepare to commit or rollback, and their check.

A half message ends by one frame of the log: what takes its place (the committed message, a copy that was put back or
given up, or nothing) and the op message that ends it. So it ends once, however often the machine stops;
docs/decisions/0021-half-messages.md compares that with RocketMQ.

Source: RocketMQ ``broker/transaction/queue/TransactionalMessageServiceImpl.java``, ``TransactionalMessageBridge.java``,
``DefaultTransactionalMessageCheckListener.java``, ``broker/transaction/TransactionalMessageCheckService.java``,
``broker/processor/EndTransactionProcessor.java``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias, get_args

import numpy as np

from commitlog_store.batch_id import BatchId, CommittedBatch
from commitlog_store.columnar.records import EncodedRecords
from commitlog_store.columnar.staged_block import StagedBlock
from commitlog_store.config import FlushDiskType
from commitlog_store.engine.stats import CountedValues, Histogram
from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.engine.subject import Subject
from commitlog_store.errors import (
    CommitLogError,
    CorruptRecord,
    HalfMessageEnded,
    HalfMessageNotFound,
    InvalidValue,
    MessageNotFound,
    StoreClosed,
)
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.checksum import crc32
from commitlog_store.format.half_messages import (
    CHECK_IMMUNITY_TIME_IN_SECONDS,
    CHECK_MAX_TIME_TOPIC,
    HALF_QUEUE_ID,
    HALF_TOPIC,
    OP_TOPIC,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_GROUP,
    check_times,
    commit_record,
    half_message,
    immunity_ms,
    op_record,
    real_place,
    renewed_record,
)
from commitlog_store.format.message_id import decode_message_id, parse_host
from commitlog_store.format.properties import PGROUP, UNIQ_KEY, PropertiesTooLarge, decode_properties
from commitlog_store.format.record import HOST_FLAGS, Record, field_offset
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.groups.group_positions import GroupPositions
from commitlog_store.half.pending import (
    HalfPlace,
    HalfQueues,
    PendingHalfMessages,
    committed_messages,
    half_positions,
    is_commit_of,
    read_pending,
)
from commitlog_store.half_message import Answer, HalfMessageHandle, HalfMessagesChecked, PendingHalfMessage
from commitlog_store.index.service import IndexService
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.message import Message, MessageExt
from commitlog_store.paths import INDEX
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.skipped import SkippedRange, Skips
from commitlog_store.threads.jobs import JobThreadEnded
from commitlog_store.threads.worker import Worker
from commitlog_store.unpicklable import Unpicklable

_LOG = logging.getLogger(__name__)

# RocketMQ's MAX_PROCESS_TIME_LIMIT: a round of checks takes no longer.
_LONGEST_ROUND_S = 60.0
_HOUR_MS = 3_600_000
_MS = 1000.0
_GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
# Half messages that are known without reading the queue: of the prepared ones and of those that have ended.
_MOST_PREPARED = 10_000
_MOST_ENDED_AHEAD = 1_000
# RocketMQ's (BrokerMetricsManager.registerMetricsView).
_FINISH_BUCKETS_S: tuple[float, ...] = (5, 60, 600, 3_600, 43_200, 86_400)
# A batch of no application: whole, and not in the ledger.
_NO_BATCH = BatchId("")
_SYS_FLAG_AT = field_offset("sys_flag")


# Asked for the outcome of a half message; the message has the topic and queue that it is meant for.
CheckCallback: TypeAlias = Callable[[MessageExt], Answer]


class NoAnswerYet(Exception):
    """Raised by a callback that cannot answer now: the half message stays as it is, and counts as left."""


def ask_outcome(callback: CheckCallback, message: MessageExt) -> tuple[Answer, tuple[str, ...]]:
    """The callback's answer, and the counts that it belongs to: a callback that fails does not know.

    ``InvalidValue`` for another answer; ``NoAnswerYet``.
    """
    try:
        answer = callback(message)
    except NoAnswerYet:
        raise
    except Exception:  # noqa: BLE001 - the message counts as unknown, and the others are still asked for
        _LOG.exception("The callback of a check failed for the half message at %d", message.physical_offset)
        return "unknown", ("failed",)
    if answer not in get_args(Answer):
        raise InvalidValue(f"A check is answered by one of {get_args(Answer)}, not {answer!r}.")
    return answer, ()


class _QueueEnds(NamedTuple):
    """The offsets after the last half message and the last op message; None for a queue that cannot be read."""

    half: int | None
    op: int | None


class TransactionalMessageService(Subject, Unpicklable):
    """The half messages of an open store: ``MessageStore.half_messages``.

    A half message is stored at once, and no consumer sees it. ``commit`` puts its message into the topic that it is
    meant for, ``rollback`` drops it; each ends it exactly once, whenever the machine stops. A program that stopped in
    between finds it among ``pending``, or lets ``check`` ask for the outcome of all that are left. Any number of
    threads may call. RocketMQ's brokers store the same, and either may finish what the other has begun.

    ::

        with MessageStore.open("/data/store") as store:
            half = store.half_messages
            handle = half.prepare(Message(topic="orders", body=b"paid 12.50"), producer_group="payments")
            ...  # the work that decides, such as a database's transaction
            half.commit(handle)  # or half.rollback(handle)
            half.check(lambda message: "commit" if message.body.startswith(b"paid") else "unknown")

    A half message that cannot be read is reported (``unreadable``, and a warning) and skipped.
    """

    _INSTEAD = "Send the handle of a half message here instead, which may be pickled."

    def __init__(
        self,
        engine: StoreEngine,
        groups: GroupPositions,
        *,
        clock: Callable[[], float] = time.time,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """Use ``MessageStore.half_messages``."""
        config = engine.config
        self._engine = engine
        self._groups = groups
        self._store_path = engine.path
        self._config = config
        self._putter = engine.putter
        engine.after_removal.append(self._release_removed_files)
        self._batches = engine.batches
        self._store_flush = engine.store_flush
        self._topics = engine.topics
        self._run = engine.run
        # Before the first put.
        self._ends_at_open = _QueueEnds(_end(engine, HALF_TOPIC), _end(engine, OP_TOPIC))
        self._clock = clock
        self._elapsed = elapsed
        self._host = parse_host(config.store_host)
        # Whether bytes of a put may not be readable yet: under SYNC_FLUSH its dispatch waits for the device.
        self._buffered = config.transient_store_pool_enable or config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        # On the job thread only, from the first use on.
        self._log: CommitLog | None = None
        self._index = IndexService(os.path.join(engine.path, INDEX))
        self._queues: HalfQueues | None = None
        self._pending: PendingHalfMessages | None = None
        self._unreadable: list[SkippedRange] = []
        self._skips = Skips(self._unreadable)
        # How many have ended here, by the topic that they were meant for; the job thread counts.
        self._committed: Counter[str] = Counter()
        self._rolled_back: Counter[str] = Counter()
        self._finish_times: dict[str, CountedValues] = {}
        # The thread of ``start_checks``.
        self._checks: Worker | None = None
        # What was prepared here lately, for a commit that comes before the queue is read up to it.
        self._prepared: deque[HalfPlace] = deque(maxlen=_MOST_PREPARED)

    def prepare(self, message: Message, producer_group: str) -> HalfMessageHandle:
        """Store a half message, and return the handle that ends it. Under SYNC_FLUSH it is on the device then.

        It gets a unique key unless the message has one (property ``UNIQ_KEY``). ``producer_group`` names the program
        that decides; its handles are refused for half messages of others.

        ``InvalidValue`` for a delayed message, and for a group that RocketMQ has no name for; ``PutRefused`` for a
        message that the store refuses; ``CorruptConfig`` for a damaged ``consumerOffset.json``: nothing was written.
        ``PutNotConfirmed`` if it may be stored: then it is among ``pending``.
        """
        group = checked_producer_group(producer_group)
        if self._log is None:
            self._run(self._loaded)  # before the first one: positions after the queue's end would hide it
        return self._engine.call(lambda: self._prepare(message, group))

    def _prepare(self, message: Message, producer_group: str) -> HalfMessageHandle:
        self._putter.refuse_when_unwritable()
        encoded = self._putter.encode(message)  # refuses what the store would refuse at the commit
        half = half_message(message, encoded.queue_id, producer_group, secrets.token_hex(16).upper())
        born = int(self._clock() * 1000) if half.born_timestamp is None else half.born_timestamp
        unique_key = half.properties[UNIQ_KEY]
        if any(character.isspace() for character in unique_key):
            raise InvalidValue(f"The unique key of a half message has no spaces: {unique_key!r}.")
        self._topics.list_queues([(encoded.topic, encoded.queue_id)])  # a broker may commit it
        result = self._putter.put_message(replace(half, born_timestamp=born)).raise_for_status()
        if not self._config.transient_store_pool_enable:  # whose bytes cannot be read back yet
            place = (result.queue_offset, result.physical_offset, unique_key, born, 0, -1)
            self._prepared.append(HalfPlace(*place, encoded.topic, producer_group))
        return HalfMessageHandle(result.physical_offset, result.queue_offset, producer_group, unique_key)

    def commit(self, handle: HalfMessageHandle) -> None:
        """Put the message into its topic, and end the half message. On the device under SYNC_FLUSH when it returns.

        The message keeps body, keys, tags, properties, times and hosts; its ``prepared_transaction_offset`` is the half
        message's physical offset.

        ``HalfMessageNotFound``, ``HalfMessageEnded`` (``committed`` says how), ``InvalidValue`` if the message's topic
        cannot exist, ``PutRefused``, ``DiskFull``: nothing was written. ``StoreIOError``: open the store again, and
        commit again. ``PutNotConfirmed``: it is committed, and slaves have not acknowledged that in time.
        """
        self._engine.commit(lambda: self._commit(handle))

    def _commit(self, handle: HalfMessageHandle) -> CommittedBatch:
        half = self._half(handle)
        topic, queue_id = real_place(decode_properties(half.properties))
        if fault := self._topics.kind_fault(topic):
            raise InvalidValue(f"{fault}.")
        committed = self._end(half, commit_record(half), (topic, queue_id))
        self._count_ended(self._committed, half)
        age_s = max(self._clock() - half.born_timestamp / _MS, 0.0)
        self._finish_times.setdefault(topic, CountedValues(_FINISH_BUCKETS_S)).add(age_s)
        return committed

    def rollback(self, handle: HalfMessageHandle) -> None:
        """End the half message; its message is never seen. Errors as ``commit``."""
        self._engine.commit(lambda: self._rollback(handle))

    def _rollback(self, handle: HalfMessageHandle) -> CommittedBatch:
        half = self._half(handle)
        ended = self._end(half)
        self._count_ended(self._rolled_back, half)
        return ended

    def _count_ended(self, counts: Counter[str], half: Record) -> None:
        """Count a half message that has ended by the topic that it was meant for, if that can exist."""
        with contextlib.suppress(InvalidValue):
            counts[real_place(decode_properties(half.properties))[0]] += 1

    def counts(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """How many were committed, and how many rolled back, since the opening, by the topic that they were meant for.

        In any thread. Those that were meant for a topic that cannot exist are left out.
        """
        return self._committed.copy(), self._rolled_back.copy()

    def finish_times(self) -> Mapping[str, Histogram]:
        """For how many seconds the committed ones were half messages, by topic as ``counts``: from their birth on.

        In any thread.
        """
        return {topic: times.snapshot() for topic, times in list(self._finish_times.items())}

    def pending(self) -> list[PendingHalfMessage]:
        """The half messages that have not ended, in the order of the half queue, as far as they can be read.

        ``CorruptConfig`` for a damaged ``consumerOffset.json``.
        """
        return self._run(self._list)

    def _list(self) -> list[PendingHalfMessage]:
        self._read_on()
        assert self._pending is not None
        found = [self._read(place) for place in self._pending]
        return [one[1] for one in found if one is not None]

    def pending_count(self) -> int:
        """The number of ``pending`` messages; none of them is read. Errors as ``pending``."""
        return 0 if self._engine.log.queues.highest_id(HALF_TOPIC) < 0 else self._run(self._count)

    def _count(self) -> int:
        self._read_on()
        assert self._pending is not None
        return len(self._pending)

    @property
    def unreadable(self) -> list[SkippedRange]:
        """The half messages and op messages that could not be read since the store was opened.

        A half message among them is neither listed nor checked. What a damaged op message has ended looks pending:
        that it was committed is then known from the index; a callback is asked again for what was rolled back.
        """
        return list(self._unreadable)

    def check(self, callback: CheckCallback) -> HalfMessagesChecked:
        """One round of checks: ask ``callback`` for the outcome of each half message that is old enough.

        It returns ``"commit"``, ``"rollback"`` or ``"unknown"``, and may use the store. A message that is unknown, or
        whose callback raises an exception, which is logged, is put back at the queue's end. One that was put back
        ``transaction_check_max`` times, or is older than ``file_reserved_time``, is given up: moved to
        ``TRANS_CHECK_MAX_TIME_TOPIC``, from where ``resume`` brings it back. A message is old enough after
        ``transaction_time_out``, or after the seconds in its own property ``CHECK_IMMUNITY_TIME_IN_SECONDS``. A round
        ends after 60 seconds.

        At its end, the positions of the group ``CID_RMQ_SYS_TRANS`` are written. RocketMQ does a round every 30
        seconds (``transactionCheckInterval``), which ``start_checks`` does. ``InvalidValue`` for another answer.
        """
        places = self._run(self._places)
        begun = self._elapsed()
        counts = dict.fromkeys(vars(HalfMessagesChecked()), 0)
        for done, place in enumerate(places):
            if self._elapsed() - begun > _LONGEST_ROUND_S:
                counts["left"] = len(places) - done
                break
            for name in self._check(place, callback):
                counts[name] += 1
        self._run(self._save_flushed)
        counts["unreadable"] = sum(one.messages for one in self._unreadable if one.topic == HALF_TOPIC)
        return HalfMessagesChecked(**counts)

    def start_checks(self, callback: CheckCallback) -> None:
        """Check now and every ``transaction_check_interval``, on a thread of its own, until the store is closed.

        ``callback`` is that of ``check``. A round that fails is logged, and the next one comes in its time. Closing the
        store waits for a callback under way; a callback that closes the store itself does not wait. ``InvalidValue`` if
        the checks were started before: a store has one callback.
        """
        if not callable(callback):
            raise InvalidValue(f"A callback for checks takes a message and returns one of {get_args(Answer)}.")
        self._run(lambda: self._start_checks(callback))

    def _start_checks(self, callback: CheckCallback) -> None:
        if self._checks is not None:
            raise InvalidValue("The checks of this store were started before: one callback decides for all groups.")
        interval_s = self._config.transaction_check_interval / _MS
        self._checks = self._engine.worker(TransactionalMessageCheckService(self.check, callback, interval_s))
        self._checks.start()

    def resume(self, message_id: str) -> HalfMessageHandle:
        """Make a half message pending again that was given up, and return its new handle.

        ``message_id`` is that of its copy in ``TRANS_CHECK_MAX_TIME_TOPIC``. Checks ask for it again as often as for a
        new one. One that is older than ``file_reserved_time`` is given up again by the next check: end it by the handle
        before that. RocketMQ: RESUME_CHECK_HALF_MESSAGE.

        ``InvalidValue`` for another id or a message of another topic, and if its message is pending or was committed;
        ``MessageNotFound``, ``CorruptRecord``; ``PutRefused``, ``StoreIOError`` as ``commit``.
        """
        place = decode_message_id(message_id).physical_offset
        return self._run(lambda: self._resume(message_id, place))

    def _resume(self, message_id: str, physical_offset: int) -> HalfMessageHandle:
        log = self._read_on()
        assert self._pending is not None
        given_up = log.read_record(physical_offset)
        key = decode_properties(given_up.properties).get(UNIQ_KEY, "")
        if given_up.topic != CHECK_MAX_TIME_TOPIC.encode():
            topic = given_up.topic.decode(errors="replace")
            raise InvalidValue(
                f"The message {message_id} is in {topic}: only one in {CHECK_MAX_TIME_TOPIC} is resumed."
            )
        same = [str(place.queue_offset) for place in self._pending if key and place.unique_key == key]
        if same:
            raise InvalidValue(f"The message {message_id} is pending, at offset {same[0]} of {HALF_TOPIC}.")
        if self._config.message_index_enable and committed_messages(self._index, log, given_up):
            raise InvalidValue(f"The message {message_id} was resumed and committed before.")
        copy = renewed_record(given_up, HALF_TOPIC, {TRANSACTION_CHECK_TIMES: "0"})
        frame = self._batches.commit_blocks(_NO_BATCH, [_block(copy, (HALF_TOPIC, HALF_QUEUE_ID))])
        half = self._read_on().read_record(frame.end - len(copy))
        group = decode_properties(half.properties).get(PGROUP, "")
        return HalfMessageHandle(half.physical_offset, half.queue_offset, group, key)

    def _places(self) -> list[HalfPlace]:
        self._read_on()
        return list(self._pending or ())

    def _check(self, place: HalfPlace, callback: CheckCallback) -> tuple[str, ...]:
        """Check one message. Returns the counts that it belongs to; none if it has ended since the round began."""
        found = self._run(lambda: self._if_pending(place))
        if found is None:
            return ()
        half, message = found
        properties = decode_properties(half.properties)
        age = int(self._clock() * 1000) - half.born_timestamp
        longest_ms = self._config.file_reserved_time * _HOUR_MS
        if check_times(properties) >= self._config.transaction_check_max or age > longest_ms:
            _LOG.error("The half message %s is given up: it goes to %s.", message.handle, CHECK_MAX_TIME_TOPIC)
            return self._ended("given_up", lambda: self._give_up(message.handle))
        immune = immunity_ms(properties, self._config.transaction_time_out)
        if age < immune and (age >= 0 or CHECK_IMMUNITY_TIME_IN_SECONDS in properties):
            return ("too_young",)
        try:
            answer, failed = ask_outcome(callback, message.message)
        except NoAnswerYet:
            return ("left",)
        if answer == "rollback":
            return self._ended("rolled_back", lambda: self._rollback(message.handle))
        try:
            if answer == "commit":
                return self._ended("committed", lambda: self._commit(message.handle))
        except InvalidValue:  # its topic cannot take it: it is asked for again, and given up in the end
            _LOG.exception("The half message %s cannot be committed", message.handle)
            failed = ("failed",)
        try:
            return failed + self._ended("put_back", lambda: self._put_back(message.handle))
        except PropertiesTooLarge as error:
            _LOG.warning(
                "The half message %s stays in its place, and its checks are not counted: %s", message.handle, error
            )
            return ("failed",)

    def _ended(self, how: str, step: Callable[[], object]) -> tuple[str, ...]:
        """Do a step that ends a message; another thread may have been quicker, or retention."""
        try:
            self._run(step)
        except (HalfMessageEnded, HalfMessageNotFound):
            return ()
        return (how,)

    def _if_pending(self, place: HalfPlace) -> tuple[Record, PendingHalfMessage] | None:
        log, pending = self._loaded()
        if place.queue_offset not in pending:
            return None
        found = self._read(place)
        return None if found is None or self._was_committed(log, found[0]) else found

    def _read(self, place: HalfPlace) -> tuple[Record, PendingHalfMessage] | None:
        """A pending half message; None for one that cannot be read, which is reported and not pending any more."""
        log, pending = self._loaded()
        found = read_pending(log, place, self._skips)
        if found is None:
            pending.leave_out(place.queue_offset)
            self._report_unreadable(len(self._unreadable) - 1)
        return found

    def _was_committed(self, log: CommitLog, half: Record) -> bool:
        """Whether a pending half message was committed without an op message, which is then written.

        Only a broker leaves such ones, and a damaged op message: they were there when the store was opened.
        """
        end = self._ends_at_open.half
        if not self._config.message_index_enable or (end is not None and half.queue_offset >= end):
            return False
        if not any(is_commit_of(one, half) for one in committed_messages(self._index, log, half) or ()):
            return False
        self._end(half)
        return True

    def _put_back(self, handle: HalfMessageHandle) -> CommittedBatch:
        """Let a copy at the queue's end stand for the half message, with one check more."""
        half = self._half(handle)
        times = check_times(decode_properties(half.properties)) + 1
        copy = renewed_record(half, HALF_TOPIC, {TRANSACTION_CHECK_TIMES: str(times)})
        return self._end(half, copy, (HALF_TOPIC, HALF_QUEUE_ID))

    def _give_up(self, handle: HalfMessageHandle) -> CommittedBatch:
        half = self._half(handle)
        copy = renewed_record(half, CHECK_MAX_TIME_TOPIC, {})
        return self._end(half, copy, (CHECK_MAX_TIME_TOPIC, HALF_QUEUE_ID))

    def _end(self, half: Record, instead: bytearray | None = None, queue: tuple[str, int] = ("", 0)) -> CommittedBatch:
        """End a half message: one frame of the record that takes its place, if any, and of the op message."""
        assert self._pending is not None
        op = op_record(
            half.queue_offset,
            self._host,
            int(self._clock() * 1000),
            trailing_separator=self._config.properties_trailing_separator,
        )
        blocks = [] if instead is None else [_block(instead, queue)]
        committed = self._batches.commit_blocks(_NO_BATCH, [*blocks, _block(op, (OP_TOPIC, HALF_QUEUE_ID))])
        self._pending.end(half.queue_offset)
        return committed

    def _half(self, handle: HalfMessageHandle) -> Record:
        """The record of a pending half message. ``HalfMessageNotFound``, ``HalfMessageEnded``."""
        checked_handle(handle)
        log, pending = self._loaded()
        while self._prepared:
            pending.note(self._prepared.popleft())
        if handle.queue_offset not in pending or pending.ended_ahead > _MOST_ENDED_AHEAD:
            self._read_on()
        first = _checked(handle, self._record_at(log, handle))
        place = pending.current(handle, first.born_timestamp)
        if place is None:
            raise HalfMessageEnded(handle, committed=self._is_committed(log, first))
        half = first if place.physical_offset == handle.physical_offset else log.read_record(place.physical_offset)
        if self._was_committed(log, half):
            raise HalfMessageEnded(handle, committed=True)
        return half

    def _record_at(self, log: CommitLog, handle: HalfMessageHandle) -> Record:
        log.refresh()
        try:
            return log.read_record(handle.physical_offset)
        except (MessageNotFound, CorruptRecord) as error:
            raise HalfMessageNotFound(
                handle,
                expected="a message at its physical offset",
                found=str(error).rstrip("."),
                advice="Retention may remove it; `commitlog half ls` shows the handles of all pending ones.",
            ) from error

    def _is_committed(self, log: CommitLog, half: Record) -> bool | None:
        """Whether the message of a half message that has ended is in the store; None where no index says so."""
        if not self._config.message_index_enable:
            return None
        committed = committed_messages(self._index, log, half)
        return None if committed is None else bool(committed)

    def _loaded(self) -> tuple[CommitLog, PendingHalfMessages]:
        """The state, read at first use: all earlier messages are in their queues then."""
        if self._log is None or self._pending is None:
            log = CommitLog(StorePaths.of(self._store_path, self._config.store_path_commit_log).commit_log)
            queues = HalfQueues(log, QueueCatalog(self._store_path, log), self._skips)
            offsets = self._offsets
            # Not their ends by now: positions after the ends at opening hide what was put since.
            half, op = queues.half_bounds(), queues.op_bounds()
            half = half[0], half[1] if self._ends_at_open.half is None else self._ends_at_open.half
            op = op[0], op[1] if self._ends_at_open.op is None else self._ends_at_open.op
            self._queues = queues
            self._pending = PendingHalfMessages(*half_positions(offsets, half, op))
            self._log = log
            noted = {
                topic: offsets.get(TRANSACTION_GROUP, topic).get(HALF_QUEUE_ID, 0) for topic in (HALF_TOPIC, OP_TOPIC)
            }
            if noted[HALF_TOPIC] > half[1] or noted[OP_TOPIC] > op[1]:
                # The end of the log was lost: messages that get these offsets again must not count as read.
                self._save()
        return self._log, self._pending

    def _read_on(self) -> CommitLog:
        """Read all messages that were put before."""
        if self._buffered:
            self._store_flush.flush_log()
        self._store_flush.dispatch()
        log, pending = self._loaded()
        assert self._queues is not None
        reported = len(self._unreadable)
        op_bounds = self._queues.op_bounds()
        pending.read_up_to(self._queues, self._queues.half_bounds(), op_bounds)
        self._report_unreadable(reported)
        return log

    def _report_unreadable(self, reported: int) -> None:
        """Say what follows from the damage that was found, beyond the first ``reported`` ranges."""
        for one in self._unreadable[reported:]:
            what = (
                "This half message is neither listed nor checked"
                if one.topic == HALF_TOPIC
                else "Half messages that ended by it look pending; a callback is asked again for those rolled back"
            )
            _LOG.warning(
                "%s: %s, queue %d, offset %d. %s. `commitlog verify` shows the damage; `commitlog salvage` takes what "
                "is whole.",
                self._store_path,
                one.topic,
                one.queue_id,
                one.start,
                what,
            )

    def _save_flushed(self) -> None:
        self._read_on()
        self._store_flush.flush_log_and_note()  # a position must not survive an op message that it stands for
        self._save()

    def _save(self) -> None:
        """Write the positions of the group if they have moved. Everything that was put is on the device."""
        if self._pending is None:
            return
        offsets = self._offsets
        for topic, position in ((HALF_TOPIC, self._pending.half_position), (OP_TOPIC, self._pending.op_position)):
            if position != offsets.get(TRANSACTION_GROUP, topic).get(HALF_QUEUE_ID, 0):
                offsets.commit(TRANSACTION_GROUP, {(topic, HALF_QUEUE_ID): position})
        offsets.flush()

    @property
    def _offsets(self) -> ConsumerOffsets:
        return self._groups.offsets

    def workers(self) -> Sequence[Worker]:
        return () if self._checks is None else (self._checks,)

    def save(self) -> None:
        """Write the positions when the store is closed. Without them, the next open reads more: a failure is logged."""
        try:
            self._save()
        except CommitLogError:
            _LOG.warning("The positions of half messages were not written", exc_info=True)

    def _release_removed_files(self) -> None:
        if self._log is not None:
            self._log.refresh()

    def close(self) -> None:
        self._index.close()
        if self._log is not None:
            self._log.close()


class TransactionalMessageCheckService:
    """Rounds of checks, each of which may call the program's callback many times."""

    def __init__(
        self,
        check: Callable[[CheckCallback], HalfMessagesChecked],
        callback: CheckCallback,
        interval_s: float,
    ) -> None:
        self._check = check
        self._callback = callback
        self._interval_s = interval_s

    def run_once(self) -> float:
        try:
            checked = self._check(self._callback)
        except (StoreClosed, JobThreadEnded):
            pass  # no round comes after this
        except Exception as error:  # noqa: BLE001 - whatever it is, the next round comes in its time
            expected = isinstance(error, CommitLogError)
            _LOG.error(
                "A round of checks of half messages failed; the next one begins in %.0f s: %s",
                self._interval_s,
                error,
                exc_info=None if expected else error,
            )
        else:
            if checked != HalfMessagesChecked(too_young=checked.too_young, unreadable=checked.unreadable):
                _LOG.info("A round of checks of half messages: %s", checked)
        return self._interval_s


def _end(engine: StoreEngine, topic: str) -> int | None:
    """The end of queue 0 of a topic, 0 without it; None where it cannot be read: the store opens nevertheless."""
    try:
        bounds = engine.log.queues.written_bounds(topic, HALF_QUEUE_ID)
    except (CommitLogError, OSError):
        return None
    return 0 if bounds is None else bounds[1]


def _block(record: bytearray, queue: tuple[str, int]) -> StagedBlock:
    """One record as a block of a frame."""
    data = np.frombuffer(record, np.uint8)
    records = EncodedRecords(data, np.array([0, len(record)], np.int64))
    return StagedBlock(records, _host_flags(record), [queue], np.zeros(1, np.int64), None, crc32(record))


def _host_flags(record: bytearray) -> int:
    return int.from_bytes(record[_SYS_FLAG_AT : _SYS_FLAG_AT + 4], "big") & HOST_FLAGS


def checked_handle(handle: HalfMessageHandle) -> HalfMessageHandle:
    """``InvalidValue`` for what is not one."""
    if not isinstance(handle, HalfMessageHandle):
        raise InvalidValue(f"A half message is named by the handle that prepare returned, not by {handle!r}.")
    return handle


def checked_producer_group(group: object) -> str:
    """``InvalidValue``."""
    if not isinstance(group, str) or not _GROUP.fullmatch(group):
        raise InvalidValue(f"A producer group has 1 to 255 letters, digits, '_', '-', '%' and '|', not {group!r}.")
    return group


def _checked(handle: HalfMessageHandle, record: Record) -> Record:
    """The record if it is the half message that the handle names. ``HalfMessageNotFound``."""
    properties = decode_properties(record.properties)
    differences = (
        ("the half topic", HALF_TOPIC, record.topic.decode("utf-8", "replace")),
        ("its queue offset", handle.queue_offset, record.queue_offset),
        ("its producer group", handle.producer_group, properties.get(PGROUP, "")),
        ("its unique key", handle.unique_key, properties.get(UNIQ_KEY, "")),
    )
    for what, expected, found in differences:
        if expected != found:
            raise HalfMessageNotFound(handle, expected=f"{what} {expected!r} there", found=repr(found))
    return record
