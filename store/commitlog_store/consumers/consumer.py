"""Consumer: a program's view of a consumer group: polls messages, acknowledges them, commits positions.

Source: RocketMQ ``client/consumer/DefaultLitePullConsumer.java``, ``client/impl/consumer/RebalanceImpl.java``.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from operator import index
from typing import Literal, NamedTuple, TypeVar

import pyarrow as pa

from commitlog_store.columnar.columns import DEFAULT_COLUMNS, arrow_schema
from commitlog_store.consumers.group import ConsumerGroup, MemberClient, Queue, Share
from commitlog_store.consumers.queue_progress import QueueProgress
from commitlog_store.consumers.read_ahead import Moved, ReadAhead
from commitlog_store.consumers.retry import put_for_retry, retry_topic
from commitlog_store.consuming import Consuming, check_one_message
from commitlog_store.delay_level import delay_level
from commitlog_store.engine.arrivals import Interest
from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.errors import ConsumerClosed, Damaged, InvalidValue, NotFoundError, TopicNotFound
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.format.message_rules import check_queue_place
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.log.store_directory import check_store_directory
from commitlog_store.message import MessageExt
from commitlog_store.owned_store.owned_store import OwnedStore
from commitlog_store.paths import LIGHT_QUEUE_PREFIX, validate_group, validate_topic
from commitlog_store.queue.get_message import (
    DEFAULT_PULL_MESSAGES,
    GetMessageStatus,
    PullLimits,
    checked_count,
    checked_int,
)
from commitlog_store.queue.log_blocks import DEFAULT_ROWS, DEFAULT_SIZE
from commitlog_store.reader import StoreReader
from commitlog_store.reading.arguments import checked_places
from commitlog_store.threads.calls import Calls
from commitlog_store.threads.wakeup import LoopWakeup, Settable, Wakeup
from commitlog_store.timestamps import GivenTime, checked_seconds, milliseconds_of
from commitlog_store.transaction import Transaction, check_transaction_of

_T = TypeVar("_T")
_Wakeup = TypeVar("_Wakeup", bound=Settable)
_LOG = logging.getLogger(__name__)

ConsumeFrom = Literal["earliest", "latest"] | GivenTime

# The longest wait in one piece. Messages and changes of shares end it at once; a seek in another thread is seen then.
_LONGEST_WAIT_S = 0.5

_NONE: frozenset[int] = frozenset()


class _Ended(NamedTuple):
    """A transaction that has ended: the positions that it was to commit, and whether it did."""

    parts: list[QueueProgress]
    positions: dict[Queue, int]
    is_committed: bool


def open_consumer(
    user: object,
    owned: OwnedStore,
    groups: dict[str, ConsumerGroup],
    group: str,
    topics: str | Sequence[str],
    *,
    wanted: str | MessageFilter | None,
    tags: str | None,
    consume_from: ConsumeFrom,
) -> Consumer:
    """``MessageStore.consumer``. ``groups`` are those of this process, by name."""
    engine = owned.engine
    engine.state.refuse_on_replica()
    validate_group(group)
    names = _checked_topics(topics)
    for name in names:
        engine.topics.refuse_consumers(name)
    found = wanted if isinstance(wanted, MessageFilter) else MessageFilter.parse(tags=tags, filter=wanted)
    if not isinstance(consume_from, str) or consume_from not in ("earliest", "latest"):
        try:
            consume_from = milliseconds_of(consume_from, "consume_from")
        except InvalidValue as error:
            raise InvalidValue(f"consume_from is 'earliest', 'latest' or a time: {error}") from None
    settings = engine.run(lambda: owned.groups.settings(group))
    if not settings.consume_enable:
        raise InvalidValue(f"Group {group!r} may not consume: consumeEnable is false in subscriptionGroup.json.")
    engine.run(lambda: owned.groups.restore(group))
    members = groups.setdefault(group, ConsumerGroup(group, owned.groups.pulled))
    return Consumer(user, owned, members, settings, names, found, consume_from)


class Consumer(Consuming):
    """Reads the messages of topics for a consumer group. Made by ``MessageStore.consumer``.

    Meant for one thread or task; calls of others take turns, and ``close`` ends a poll that waits. A task that is
    cancelled while it polls takes no message with it.

    The consumers of one group in this process share the queues. What was polled is not done until it is acknowledged
    (``ack``, one message) or committed (``commit``, everything that was polled): after a crash it comes again. The
    group's position in a queue is the smallest offset that is not done; positions are written to
    ``config/consumerOffset.json`` every 5 seconds, when the store is closed, and by ``commit(sync=True)``::

        with MessageStore.open("/data/store") as store, store.consumer("billing", ["orders"]) as consumer:
            while messages := consumer.poll(100):
                for message in messages:
                    try:
                        print(message.body)
                        consumer.ack(message)
                    except ValueError:
                        consumer.retry(message)  # comes again after a while, and at last is a dead letter
            while (batch := consumer.poll_batch(columns=["queueOffset", "body"])) is not None:
                print(batch.num_rows)
                consumer.commit()
    """

    _WAIT_S = _LONGEST_WAIT_S

    def __init__(
        self,
        user: object,
        owned: OwnedStore,
        group: ConsumerGroup,
        settings: SubscriptionGroupConfig,
        topics: Sequence[str],
        wanted: MessageFilter,
        consume_from: ConsumeFrom,
    ) -> None:
        """Use ``MessageStore.consumer``. ``user`` is the ``MessageStore``: it is not dropped before this."""
        self.group = group.name
        self.topics = tuple(topics)
        self._user = user
        self._engine = owned.engine
        self._groups = owned.groups
        self._offsets = owned.groups.offsets
        self._settings = settings
        self._retry_topic = retry_topic(group.name)
        # The retry topic has no filter, since another consumer may have given a message back.
        filters = dict.fromkeys(self.topics, wanted) | {self._retry_topic: MessageFilter()}
        self._closed = False
        # Each call takes this for as long as it works, and not while it waits for messages.
        self._lock = threading.Lock()
        self._calls = Calls()
        # The transaction that has positions of this consumer, until it ends.
        self._transaction: Transaction | None = None
        # The queues, with their turns, that were lost (to other consumers, or with their topic) with messages that were
        # polled here and not committed: a transaction may have output of these messages, and does not commit then.
        self._lost: dict[Queue, int] = {}
        # Added by the store's job thread, on which transactions end; the next call acts upon it.
        self._ended: deque[_Ended] = deque()
        self._generation = -1
        self._progress: dict[Queue, QueueProgress] = {}
        # The queues in the order in which they are asked next.
        self._turns: deque[Queue] = deque()
        self._members = group
        # The messages that end a wait: those of queues that no other consumer of the group reads.
        self._interests = [
            Interest(topic, may_match=None if one.is_all else one.may_match) for topic, one in filters.items()
        ]
        check_store_directory(owned.path)
        self._reader = StoreReader(owned.engine.paths, counts=owned.engine.stats)
        self._ahead = ReadAhead(self._reader, filters, owned.engine.stats)
        self._member = group.join([*self.topics, self._retry_topic])
        try:
            self._note_queues()
            self._set_first_positions(consume_from)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        if hasattr(self, "_member") and not self._engine.state.forked:
            self._members.leave(self._member)

    def close(self) -> None:
        """Leave the group: its other consumers take the queues over. What is not committed comes again.

        From any thread; a poll that waits then raises ``ConsumerClosed``, and iterations end.
        """
        self._closed = True
        if self._engine.state.forked:
            return
        self._members.leave(self._member)  # which wakes a poll that waits
        if not self._calls.is_within():  # else a signal handler has interrupted a call, which still reads
            with self._lock:
                self._reader.close()

    def poll(self, max_messages: int = DEFAULT_PULL_MESSAGES, timeout_s: float = 0.0) -> list[MessageExt]:
        """Up to ``max_messages`` messages of all queues, those of one queue in order; waits for the first one.

        Empty after ``timeout_s`` seconds. A message of the retry topic names the original one as ``original_topic``.
        ``ConsumerClosed``, ``StoreClosed``, ``InvalidValue``. Damage is raised as by ``StoreReader.read``: when the
        messages before it in its queue were given, and again at later polls, until ``seek`` passes it.
        """
        count = checked_count("max_messages", max_messages)
        deadline = time.monotonic() + checked_seconds("timeout_s", timeout_s)
        if self._ahead.message_count >= count and (found := self._hand_out(count)):
            return found  # the way of most

        def take() -> list[MessageExt] | None:
            while self._read_ahead(count):
                pass
            return self._hand_out(count) or None

        return self._wait_for(take, deadline) or []

    def poll_batch(
        self, max_rows: int = DEFAULT_ROWS, timeout_s: float = 0.0, *, columns: Sequence[str] = DEFAULT_COLUMNS
    ) -> pa.RecordBatch | None:
        """Messages of one queue as a record batch: the quick way, and done only by ``commit``.

        None after ``timeout_s`` seconds without a message. Errors as ``poll``; ``InvalidValue`` for other columns.
        """
        names = arrow_schema(columns).names
        rows = checked_count("max_rows", max_rows)
        limits = PullLimits(messages=rows, size=DEFAULT_SIZE, window=max(rows, DEFAULT_ROWS))
        deadline = time.monotonic() + checked_seconds("timeout_s", timeout_s)

        def take() -> pa.RecordBatch | None:
            while True:
                moved, batch = self._next_rows(limits, names)
                if batch is not None or not moved:
                    return batch

        return self._wait_for(take, deadline)

    def _wait_for(self, take: Callable[[], _T | None], deadline: float) -> _T | None:
        """What ``take`` gives as soon as messages are there; None at the deadline, on the clock ``time.monotonic``."""
        while True:
            # Before looking, so that a message that comes between look and wait is not missed.
            with self._waiting(Wakeup()) as (wakeup, interests):
                found = take()
                if found is not None:
                    return found
                self._engine.state.refuse_failed()
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                if interests is self._interests:
                    wakeup.wait(min(left, _LONGEST_WAIT_S))

    @contextmanager
    def _waiting(self, wakeup: _Wakeup) -> Iterator[tuple[_Wakeup, list[Interest]]]:
        """Have messages that concern this consumer, and other shares of the queues, set the wakeup. With the interests
        that it waits with: after a look that has changed the share, they are others."""
        interests = self._interests
        with self._members.changes.waiting(wakeup), self._engine.waiters.waiting_for(wakeup, interests):
            yield wakeup, interests

    async def apoll(self, max_messages: int = DEFAULT_PULL_MESSAGES, timeout_s: float = 0.0) -> list[MessageExt]:
        """``poll`` for asyncio: another thread reads, and no thread waits. A task that is cancelled takes no message
        with it: what was read ahead for it is there for the next poll."""
        import asyncio  # programs without it do not import it

        count = checked_count("max_messages", max_messages)
        deadline = time.monotonic() + checked_seconds("timeout_s", timeout_s)
        while True:
            with self._waiting(LoopWakeup()) as (wakeup, interests):
                while self._ahead.message_count < count and await asyncio.to_thread(self._read_ahead, count):
                    pass
                # The result is taken here, after the last place where the task may be cancelled.
                if found := self._hand_out(count):
                    return found
                self._engine.state.refuse_failed()
                left = deadline - time.monotonic()
                if left <= 0:
                    return []
                if interests is self._interests:
                    await wakeup.wait(min(left, _LONGEST_WAIT_S))

    def ack(self, message: MessageExt) -> None:
        """Note that a message of ``poll`` is done. ``StoreClosed``, ``ConsumerClosed``; ``InvalidValue`` for a list."""
        check_one_message("ack", message)
        self.acknowledge([(message.topic, message.queue_id, message.queue_offset)])

    def acknowledge(self, places: Iterable[tuple[str, int, int]]) -> None:
        """``ack`` of the messages at these places: topic, queue id and queue offset. ``StoreClosed``,
        ``ConsumerClosed``, ``InvalidValue``."""
        wanted = list(checked_places(places))
        with self._enter(), self._lock:
            self._begin()
            self._take_share()
            changed = {}
            for topic, queue_id, offset in wanted:
                progress = self._progress.get((topic, queue_id))
                if progress is not None:
                    progress.acknowledge(offset)
                    changed[progress.key] = progress
            self._commit(changed.values())

    def commit(self, *, sync: bool = False, in_transaction: Transaction | None = None) -> None:
        """Note that everything that was polled so far is done; with ``sync`` the positions are on the device then.

        With a transaction, positions and messages of the transaction are in the store together or not at all: each
        message that was polled counts in its output once. If the transaction fails, the consumer goes back to the
        positions before it::

            with store.transaction("billing", version=version) as batch:
                orders = consumer.poll_batch()
                consumer.commit(in_transaction=batch)  # first: if what follows fails, the consumer goes back
                batch.put_messages(invoices_of(orders))

        Until the transaction ends, positions of its queues change with nothing else, neither ``ack`` nor ``commit``.

        A transaction does not commit either once another consumer has a queue of which messages were polled here since
        the last ``commit``, or the topic of one was deleted.

        ``StoreClosed``, ``ConsumerClosed``; with ``sync`` also ``StoreIOError``; with a transaction also
        ``TransactionEnded``, and ``InvalidValue`` for one of another store, for a version that was committed before,
        and while another transaction has positions of this consumer.
        """
        if in_transaction is not None:
            check_transaction_of(self._engine, in_transaction)
        with self._enter(), self._lock:
            self._begin()
            self._take_share()
            if in_transaction is not None:
                self._commit_in(in_transaction)
                return
            self._lost.clear()
            for progress in self._progress.values():
                progress.acknowledge_all()
            self._commit(self._progress.values())
        if sync:
            self._engine.run(self._groups.flush)

    def _commit_in(self, transaction: Transaction) -> None:
        if self._transaction not in (None, transaction):
            raise InvalidValue(
                f"Positions of this consumer are part of {self._transaction!r}; end that transaction before the next."
            )
        parts = [one for one in self._progress.values() if one.position != one.committed]
        positions = {one.key: one.position for one in parts}

        def ended(is_committed: bool) -> None:
            self._ended.append(_Ended(parts, positions, is_committed))

        turns = {one.key: one.turn for one in parts} | self._lost
        if not turns:
            return
        self._lost.clear()
        try:
            transaction.add_positions(self.group, positions, lambda: self._members.has(self._member, turns), ended)
        except BaseException:
            ended(False)
            raise
        self._transaction = transaction
        for part in parts:
            part.acknowledge_all()
            part.in_transaction = True

    def _settle(self) -> None:
        """Act upon transactions that have ended."""
        while self._ended:
            parts, positions, is_committed = self._ended.popleft()
            self._transaction = None
            for part in parts:
                part.in_transaction = False
                if is_committed:
                    part.note_committed(positions[part.key])
            if not is_committed:
                self._go_back(parts)

    def rewind(self) -> None:
        """Go back to the positions of the group: what was polled and is not committed comes again."""
        with self._enter(), self._lock:
            self._begin()
            parts = list(self._progress.values())
            self._refuse_in_transaction(parts)
            self._lost.clear()
            self._go_back(parts)

    def _refuse_in_transaction(self, parts: Sequence[QueueProgress]) -> None:
        if any(part.in_transaction for part in parts):
            raise InvalidValue(
                f"Positions of this consumer are part of {self._transaction!r}; go elsewhere when that has ended."
            )

    def _go_back(self, parts: Sequence[QueueProgress]) -> None:
        self._give_back(parts)
        for part in parts:
            part.seek(part.restart)

    def _give_back(self, parts: Sequence[QueueProgress]) -> None:
        """Give back what was pulled, also what was handed out: it is not in flight any more."""
        self._forget_read_ahead(parts)
        self._members.forget_pulled(self._member, {part.key: part.turn for part in parts})

    def retry(self, message: MessageExt, delay_level: int | str | timedelta = 0) -> PutMessageResult:
        """Give a message of ``poll`` back: it is done, and its copy comes again later, to any consumer of the group.

        The copy goes to ``%RETRY%<group>``, with RocketMQ's delay: level 3 for the first time, one more for each
        further time, or ``delay_level``, a level or its time such as ``"10s"``, if that is above 0. After
        ``retryMaxTimes`` (16) times, and at once with a negative level, it goes to ``%DLQ%<group>``, from where
        ``MessageStore.redrive`` gives it again.

        ``InvalidValue`` for a delay that is none of the levels', for a message that is done (acknowledged, committed,
        or given back before), and for a list of messages; ``PutRefused``: nothing was done; ``PutNotConfirmed``.
        """
        check_one_message("retry", message)
        level = self._checked_level(delay_level)
        with self._enter(), self._lock:
            self._begin()
            self._take_share()
            self._refuse_done(message)
        result = put_for_retry(self._engine, message, self._settings, level).raise_for_status()
        self.ack(message)
        return result

    def _checked_level(self, delay: int | str | timedelta) -> int:
        if isinstance(delay, str | timedelta):
            return delay_level(delay, self._engine.config.message_delay_level) or 0
        level = checked_int("delay_level", delay)
        return level if level < 0 else delay_level(level, self._engine.config.message_delay_level) or 0

    def _refuse_done(self, message: MessageExt) -> None:
        progress = self._progress.get((message.topic, message.queue_id))
        if progress is not None and progress.is_done(message.queue_offset):
            raise InvalidValue(
                f"The message at offset {message.queue_offset} of topic {message.topic!r}, queue {message.queue_id}, "
                "was acknowledged (by ack, commit or retry), so it is done and cannot be given back: call retry in "
                "place of ack."
            )

    def seek(self, topic: str, queue_id: int, offset: int) -> None:
        """Continue at this offset. The group's position moves with the next ``ack`` or ``commit``, and when messages
        that do not match are passed.

        ``InvalidValue`` for a queue that this consumer does not read (at the moment), and while its position is part of
        an open transaction.
        """
        check_queue_place(topic, queue_id, offset)
        with self._enter(), self._lock:
            self._begin()
            self._note_queues()
            self._take_share()
            progress = self._progress.get((topic, queue_id))
            if progress is None:
                reads = sorted(self._progress)
                raise InvalidValue(
                    f"This consumer does not read queue {queue_id} of topic {topic!r}; it reads {reads}."
                )
            self._refuse_in_transaction([progress])
            self._give_back([progress])
            progress.seek(index(offset))

    def positions(self) -> dict[tuple[str, int], int]:
        """The next offset to be polled of each queue that this consumer reads, by topic and queue id."""
        with self._enter(), self._lock:
            self._begin()
            self._note_queues()
            self._take_share()
            return {key: progress.position for key, progress in sorted(self._progress.items())}

    def _enter(self) -> threading.Lock:
        """This thread's lock of a call. ``StoreForked``: another thread of the parent may have held the other lock."""
        if self._engine.state.forked:
            self._engine.state.refuse_closed()
        return self._calls.enter()

    def _begin(self) -> None:
        """Begin a call, under the lock. ``ConsumerClosed``, ``StoreClosed``."""
        if self._closed:
            self._reader.close()
            raise ConsumerClosed(f"The consumer of group {self.group!r} is closed; make another one.")
        self._engine.state.refuse_closed()
        if self._ended:
            self._settle()

    def _read_ahead(self, count: int) -> bool:
        """Pull once more, unless so many messages are there. Whether to call it again: a pull may find none."""
        with self._enter(), self._lock:
            self._begin()
            if self._ahead.has_rows:
                self._forget_read_ahead()
            self._take_share()
            return self._ahead.message_count < count and self._pull_next(self._ahead.pull_messages)

    def _hand_out(self, count: int) -> list[MessageExt]:
        """Up to so many of the messages that were read ahead."""
        with self._enter(), self._lock:
            self._begin()
            self._take_share()
            return self._ahead.hand_out_messages(count)

    def _next_rows(self, limits: PullLimits, names: Sequence[str]) -> tuple[bool, pa.RecordBatch | None]:
        """Whether a queue has moved, and the next batch that was read ahead, if any."""
        with self._enter(), self._lock:
            self._begin()
            self._take_share()
            moved = False
            if not self._ahead.has_rows_of(names):
                self._forget_read_ahead()
                moved = self._pull_next(lambda progress: self._ahead.pull_rows(progress, limits, names))
            if not self._ahead.has_rows:
                return moved, None
            return True, self._ahead.hand_out_rows(limits.messages, names)

    def _pull_next(self, pull: Callable[[QueueProgress], Moved | None]) -> bool:
        """Ask the queues in turn until one has moved."""
        self._note_queues()
        self._take_share()
        for _ in range(len(self._turns)):
            self._turns.rotate(-1)
            progress = self._progress[self._turns[-1]]
            try:
                moved = pull(progress)
                if moved is not None:
                    self._note_pulled(progress, moved)
                    return True
            except Damaged:
                if not progress.buffered:  # else these come before it
                    raise
            except BaseException:
                # An interrupt may have come between what was pulled and the note of it.
                self._forget_read_ahead([progress])
                raise
        return False

    def _note_pulled(self, progress: QueueProgress, moved: Moved) -> None:
        """Note a pull. The group's position passes messages that do not match, and one that does not exist is
        corrected, both in the store too, as RocketMQ's clients do."""
        status, messages, next_begin_offset = moved
        wrong = progress.fetched
        progress.note_pulled(messages, next_begin_offset)
        self._members.note_pulled(self._member, progress.key, progress.turn, next_begin_offset)
        if status is GetMessageStatus.FOUND:
            return
        if status is not GetMessageStatus.NO_MATCHED_MESSAGE:
            topic, queue_id = progress.key
            _LOG.warning(
                "Group %r continues at %d in queue %d of topic %r: its position %d is %s",
                *(self.group, next_begin_offset, queue_id, topic, wrong, status.name),
            )
        self._commit([progress])

    def _forget_read_ahead(self, of: Sequence[QueueProgress] | None = None) -> None:
        """Give back what was pulled and not handed out: other columns, or other positions, are wanted now."""
        self._ahead.forget(of)
        for progress in self._progress.values() if of is None else of:
            progress.hand_out_nothing()

    def _note_queues(self) -> None:
        for topic in (*self.topics, self._retry_topic):
            try:
                queue_ids = self._reader.queue_ids(topic)
            except TopicNotFound:
                queue_ids = []
            self._members.note_queues(topic, queue_ids)

    def _take_share(self) -> None:
        """Take over the queues of this consumer's share, and release the others."""
        if self._generation == self._members.generation:
            return
        # On the thread that commits transactions: the last consumer's have either ended, or will be refused.
        share, positions = self._engine.run(self._look_up_share)
        kept = {key: one for key, one in self._progress.items() if share.turns.get(key) == one.turn}
        lost = [one for one in self._progress.values() if one.key not in kept]
        if lost:
            self._forget_read_ahead(lost)
            self._lost |= {one.key: one.turn for one in lost if one.has_uncommitted}
        for queue, turn in share.turns.items():
            if queue not in kept:
                committed = positions.get(queue, -1)
                begin = committed if committed >= 0 else self._first_offset(queue)
                kept[queue] = QueueProgress(queue, turn, begin, committed)
        self._progress = kept
        self._turns = deque(kept)
        self._interests = [one._replace(besides=share.of_others.get(one.topic, _NONE)) for one in self._interests]
        # Last: what fails before is done again.
        self._generation = share.generation

    def _first_offset(self, queue: Queue) -> int:
        """Where a queue without a position is read from: it is newer than the group, so from its first message on."""
        try:
            return self._reader.queue_info(*queue).min_offset
        except (Damaged, NotFoundError):
            return 0  # reading from there names the damage, or finds that the queue was deleted

    def _look_up_share(self) -> tuple[Share, dict[Queue, int]]:
        """This consumer's share, and the group's positions in its queues."""
        share = self._members.share_of(self._member)
        offsets = {topic: self._offsets.get(self.group, topic) for topic, _ in share.turns}
        return share, {
            (topic, queue_id): offsets[topic][queue_id] for topic, queue_id in share.turns if queue_id in offsets[topic]
        }

    def _set_first_positions(self, consume_from: ConsumeFrom) -> None:
        """Give the group a position in topics that it has none in; at once, or a crash would lose messages."""
        if consume_from == "earliest":
            return
        first: dict[Queue, int] = {}
        for topic in self.topics:
            if not self._offsets.get(self.group, topic):
                first.update(self._first_positions(topic, consume_from))
        if first:
            self._store_positions(first)
            self._engine.run(self._groups.flush)

    def _first_positions(self, topic: str, consume_from: ConsumeFrom) -> dict[Queue, int]:
        def look() -> dict[Queue, int]:
            infos = self._reader.queues(topic)
            if consume_from == "latest":
                return {(topic, info.queue_id): info.max_offset for info in infos}
            by_time = partial(self._reader.offset_by_time, topic, timestamp_ms=consume_from)
            return {(topic, info.queue_id): by_time(info.queue_id, bounds=info) for info in infos}

        try:
            return self._reader.consistently(look, one_moment=False)
        except TopicNotFound:
            return {(topic, 0): 0}  # so that the group is known to have begun before the first message

    def _commit(self, changed: Iterable[QueueProgress]) -> None:
        moved = {one.key: one.done_up_to for one in changed if one.may_commit}
        if moved:
            self._store_positions(moved)
            for key, position in moved.items():
                self._progress[key].note_committed(position)

    def _store_positions(self, positions: Mapping[Queue, int]) -> None:
        # As a call of the store: a close waits for it, and a signal handler is refused instead of waiting for itself.
        with self._engine.calls.enter():
            self._engine.state.refuse_closed()
            self._offsets.commit(self.group, positions)


def note_client(consumer: Consumer, client: MemberClient) -> None:
    """Note the client of a server, for which a consumer is open."""
    consumer._members.note_client(consumer._member, client)


def _checked_topics(topics: str | Sequence[str]) -> list[str]:
    """The topics of a consumer. ``InvalidValue``."""
    if not isinstance(topics, Iterable):
        raise InvalidValue(f"topics is a name, or a list of names, not {topics!r}.")
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise InvalidValue("A consumer reads at least one topic.")
    for topic in names:
        validate_topic(topic)
        if topic.startswith(LIGHT_QUEUE_PREFIX):
            raise InvalidValue(f"Topic {topic!r} is a light queue, whose messages belong to other queues; name those.")
    return list(dict.fromkeys(names))
