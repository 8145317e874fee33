"""PutMessageService: puts of single messages and of message batches, from the message to the result.

A message that is refused and a full disk are answered by a status, RocketMQ's own, and a sentence. A mistake of the
program, such as a body that is a text, raises ``InvalidValue``.

Source: RocketMQ ``store/DefaultMessageStore.java`` (``asyncPutMessage``, ``checkStoreStatus``),
``store/CommitLog.java`` (``asyncPutMessage``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, takewhile
from operator import index
from typing import NamedTuple

from commitlog_store.config import MessageStoreConfig
from commitlog_store.delay_level import shown_delay_levels
from commitlog_store.engine.durability import Durability
from commitlog_store.engine.queue_turns import QueueTurns
from commitlog_store.engine.running_state import RunningState
from commitlog_store.engine.stats import StoreStatsService
from commitlog_store.errors import (
    CommitLogError,
    Damaged,
    FileCreationFailed,
    InvalidValue,
    PutNotConfirmed,
    PutRefused,
    Refused,
    StoreOpenError,
    TooManyOpenFiles,
    put_error,
)
from commitlog_store.format.message_id import encode_message_id, encode_message_ids, parse_host
from commitlog_store.format.message_rules import (
    SCHEDULE_TOPIC,
    refusal_of,
    shown,
)
from commitlog_store.format.properties import (
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    KEY_SEPARATOR,
    KEYS,
    SHARDING_KEY,
    TAGS,
    TIMER_DEL_UNIQKEY,
    WAIT,
    PropertiesTooLarge,
    encode_properties,
    is_waiting,
)
from commitlog_store.format.record import own_sys_flag
from commitlog_store.format.single_record import (
    PlainRecords,
    StoredPlace,
    encode_message,
    message_properties,
    plain_message,
    stored_place,
)
from commitlog_store.format.sys_flag import INNER_BATCH_FLAG, has_queue_unit
from commitlog_store.format.timer_messages import (
    TIMER_QUEUE_ID,
    TIMER_TOPIC,
    asks_for_timer,
    given_properties,
    timer_properties,
)
from commitlog_store.format.timestamps import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, is_timestamp
from commitlog_store.log.commit_log_writer import Appended, CommitLogWriter, RecordsOfQueue
from commitlog_store.message import Message, MessageExtBrokerInner, PutMessageStatus
from commitlog_store.paths import (
    MAX_QUEUE_ID,
    RETRY_TOPIC_PREFIX,
    refuse_batch_topic,
    validate_new_topic,
    validate_topic,
)
from commitlog_store.put_status import OK_STATUS
from commitlog_store.queue.topic_config import TopicConfig
from commitlog_store.slow_steps import SLOW_S

_MS = 1000.0
# The checksum of a larger body takes as long as a hand-over to another thread.
_SMALL_BODY = 16 << 10
_LOG = logging.getLogger(__name__)


class PutMessageResult(NamedTuple):
    """Result of a put: its status, and the position of the message.

    Offsets and the store time (ms) are -1 for a message that is not in the log. A batch has one result: its first
    message's offsets, and ``message_num`` messages. ``reason`` says in a sentence why the status is not PUT_OK.
    ``record_offsets`` are the physical offsets of all its records, ``store_hosts`` the ip and port in each.
    ``queue_id`` is the queue that it is stored in; for a delayed message that of its level in SCHEDULE_TOPIC_XXXX, or
    0 of rmq_sys_wheel_timer.

    ::

        with MessageStore.open("/data/store") as store:
            result = store.put_message(Message(topic="orders", body=b"x"))
            print(result.status, result.message_id, result.queue_offset)
    """

    status: PutMessageStatus
    physical_offset: int = -1
    queue_offset: int = -1
    store_timestamp: int = -1
    message_num: int = 1
    reason: str = ""
    record_offsets: tuple[int, ...] = ()
    store_hosts: tuple[tuple[bytes, int], ...] = ()
    queue_id: int = -1

    @property
    def message_id(self) -> str:
        """The offset message id; those of a batch are separated by commas. Empty for a message that is not stored."""
        if len(self.record_offsets) == 1:
            return encode_message_id(*self.store_hosts[0], self.record_offsets[0])
        hosts = set(self.store_hosts)
        if len(hosts) == 1:
            return ",".join(encode_message_ids(*hosts.pop(), self.record_offsets))
        places = zip(self.store_hosts, self.record_offsets, strict=True)
        return ",".join(encode_message_id(ip, port, offset) for (ip, port), offset in places)

    @property
    def ok(self) -> bool:
        """Whether the status is PUT_OK."""
        return self.status is PutMessageStatus.PUT_OK

    def raise_for_status(self) -> PutMessageResult:
        """This result if it is PUT_OK; else ``PutRefused``, or ``PutNotConfirmed`` if the message may be stored."""
        if self.status is not PutMessageStatus.PUT_OK:
            raise put_error(self.status, self.reason)
        return self


class EncodedMessage:
    """A record without its offsets, with the facts of its message that append and result need."""

    __slots__ = ("queue_id", "record", "store_host", "sys_flags", "topic", "wait")

    def __init__(
        self, record: bytearray, topic: str, queue_id: int, sys_flags: int, store_host: tuple[bytes, int], wait: bool
    ) -> None:
        self.record = record
        self.topic = topic
        self.queue_id = queue_id
        self.sys_flags = sys_flags
        self.store_host = store_host
        self.wait = wait

    @property
    def sizes(self) -> tuple[int, ...]:
        """The size of each record."""
        return (len(self.record),)


class EncodedBatch(EncodedMessage):
    """Records of one topic and queue with these sizes, which are appended in one piece."""

    __slots__ = ("_sizes",)

    def __init__(
        self,
        records: bytearray,
        sizes: tuple[int, ...],
        topic: str,
        queue_id: int,
        sys_flags: int,
        store_host: tuple[bytes, int],
        *,
        wait: bool,
    ) -> None:
        super().__init__(records, topic, queue_id, sys_flags, store_host, wait)
        self._sizes = sizes

    @property
    def sizes(self) -> tuple[int, ...]:
        return self._sizes


class PutMessageService:
    """Puts single messages and batches. Any number of threads may call it."""

    def __init__(
        self,
        config: MessageStoreConfig,
        log: CommitLogWriter,
        durability: Durability,
        state: RunningState,
        stats: StoreStatsService,
        topics: TopicConfig,
        on_appended: Callable[[], None],
    ) -> None:
        self._config = config
        self._log = log
        self._durability = durability
        self._state = state
        self._stats = stats
        self._topics = topics
        self._on_appended = on_appended
        self._store_host = parse_host(config.store_host)
        self._levels = len(config.delay_levels_ms)
        self._largest_body = config.max_message_size
        self._waits = durability.waits
        self._busy = config.os_page_cache_busy_time_out / _MS
        self._turns = QueueTurns(self._queue_count)
        self._known_topics: set[str] = set()
        self._plain = PlainRecords(
            self._store_host,
            largest_body=config.max_message_size,
            trailing_separator=config.properties_trailing_separator,
        )

    def put_message(self, message: Message) -> PutMessageResult:
        """Append one message. ``InvalidValue`` for a field of a wrong type."""
        started = time.perf_counter()
        try:
            if self._state.refusal is not None or self._log.locked_at:
                self.refuse_when_unwritable()
            properties = self._plain_properties(message)
            if properties is None:
                encoded = self._encode_unusual(message, None)
                record, topic, queue_id = encoded.record, encoded.topic, encoded.queue_id
                flags, host, wait = encoded.sys_flags, encoded.store_host, encoded.wait
            else:  # as ``encode``, without an EncodedMessage, which takes a tenth of a put
                topic, flags, host, wait = message.topic, 0, self._store_host, True
                queue_id = self._turns.in_turn(topic) if message.queue_id is None else message.queue_id
                record = self._plain.encode(message, properties, queue_id, int(time.time() * _MS))
            size = len(record)
            appended = self._append(record, (size,), flags, topic, queue_id)
        except (PutRefused, PutNotConfirmed) as refusal:
            self._stats.failed()
            return PutMessageResult(refusal.status, reason=refusal.reason)
        status, reason = self._await(appended, wait) if self._waits else OK_STATUS
        self._on_appended()
        offset, queue_offset, now, _, _ = appended
        # The same as PutMessageResult(...), in less than half the time.
        fields = (status, offset, queue_offset, now, 1, reason, (offset,), (host,), queue_id)
        result = tuple.__new__(PutMessageResult, fields)
        elapsed = time.perf_counter() - started
        self._stats.put(topic, 1, size, elapsed)
        if elapsed > SLOW_S:
            _report_slow(elapsed, topic, 1, size)
        return result

    def put_together(self, messages: Sequence[Message | EncodedMessage]) -> list[PutMessageResult | Exception]:
        """Put messages of several callers, each by itself, and wait for device and slaves once for all of them.

        In place of a result stands what ``put_message`` would raise for the message.
        """
        started = time.perf_counter()
        outcomes: list[PutMessageResult | Exception] = []
        put: list[tuple[str, int, int, float]] = []
        waiting: list[int] = []
        end = 0
        for place, message in enumerate(messages):
            try:
                self.refuse_when_unwritable()
                encoded = message if isinstance(message, EncodedMessage) else self.encode(message)
                appended = self._append_encoded(encoded.record, encoded.sizes, encoded)
            except (PutRefused, PutNotConfirmed) as refusal:
                self._stats.failed()
                outcomes.append(PutMessageResult(refusal.status, reason=refusal.reason))
                continue
            except CommitLogError as error:
                outcomes.append(error)
                continue
            end = appended.end
            outcomes.append(_result(encoded, appended))
            waits = encoded.wait and self._waits
            if waits:
                waiting.append(place)
            # How long one that waits takes is known after the wait.
            elapsed = -1.0 if waits else time.perf_counter() - started
            put.append((encoded.topic, appended.rows, len(encoded.record), elapsed))
        self._on_appended()
        if waiting:
            status, reason = self._durability.wait(end)
            if status is not PutMessageStatus.PUT_OK:
                for place in waiting:
                    self._stats.failed()
                    result = outcomes[place]
                    assert isinstance(result, PutMessageResult)
                    outcomes[place] = result._replace(status=status, reason=reason)
        elapsed = time.perf_counter() - started
        for topic, rows, size, took in put:
            self._stats.put(topic, rows, size, elapsed if took < 0 else took)
        if elapsed > SLOW_S:
            _LOG.warning("%d puts of asyncio tasks took %.0f ms together.", len(messages), elapsed * 1000)
        return outcomes

    def put_at_once(self, messages: Sequence[EncodedMessage]) -> list[PutMessageResult]:
        """Put messages of several callers together, up to the first one that is not a copy into memory: one that would
        wait for a device, slaves or another put.

        For event loops, which must not block: most messages of a store with ASYNC_FLUSH go in this way, and a hand-over
        to another thread costs several times as much as the append.
        """
        if self._state.refusal is not None or self._log.locked_at:
            return []
        started = time.perf_counter()
        if self._waits:
            messages = tuple(takewhile(lambda one: not one.wait, messages))
        appended = self._log.append_at_once([_to_append(one) for one in messages])
        if not appended:
            return []
        self._on_appended()
        elapsed = time.perf_counter() - started
        results = []
        for encoded, one in zip(messages, appended, strict=False):
            if isinstance(one, Exception):
                self._stats.failed()
                status, reason = self.status_of(one)
                results.append(PutMessageResult(status, reason=reason))
            else:
                self._stats.put(encoded.topic, one.rows, len(encoded.record), elapsed)
                results.append(_result(encoded, one))
        return results

    def put_batch(self, messages: Sequence[Message]) -> PutMessageResult:
        """RocketMQ's MessageExtBatch: messages of one queue, in the log together or not at all until a crash.

        They lie in one piece of one file and get one status; the first one's offsets are the result's.
        """
        started = time.perf_counter()
        try:
            self.refuse_when_unwritable()
            encoded = self._encode_batch(messages)
            sizes = [len(one.record) for one in encoded]
            appended = self._append_encoded(bytearray().join(one.record for one in encoded), sizes, encoded[0])
        except (PutRefused, PutNotConfirmed) as refusal:
            self._stats.failed()
            return PutMessageResult(refusal.status, reason=refusal.reason)
        status, reason = self._await(appended, self._waits and any(one.wait for one in encoded))
        self._on_appended()
        offsets = accumulate(sizes[:-1], initial=appended.physical_offset)
        elapsed = time.perf_counter() - started
        self._stats.put(encoded[0].topic, len(encoded), sum(sizes), elapsed)
        if elapsed > SLOW_S:
            _report_slow(elapsed, encoded[0].topic, len(encoded), sum(sizes))
        return PutMessageResult(
            status,
            appended.physical_offset,
            appended.queue_offset,
            appended.store_timestamp,
            len(encoded),
            reason,
            tuple(offsets),
            tuple(one.store_host for one in encoded),
            encoded[0].queue_id,
        )

    def refuse_when_unwritable(self) -> None:
        """``StoreClosed``; ``PutRefused`` while no message is accepted, or another put hangs in the page cache."""
        self._state.refuse_puts()
        locked_at = self._log.locked_at
        if locked_at and self._log.lock.locked() and time.monotonic() - locked_at > self._busy:
            raise PutRefused(
                PutMessageStatus.OS_PAGECACHE_BUSY,
                f"Another put has been writing for more than {self._busy:g} s: the disk does not keep up.",
            )

    def _encode_batch(self, messages: Sequence[Message]) -> list[EncodedMessage]:
        if not isinstance(messages, Sequence):
            raise InvalidValue(f"A batch is a list of messages, not {shown(messages)}.")
        if not messages:
            raise PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, "A batch has at least one message.")
        queue_id = _queue_of_all(messages)
        encoded = []
        for message in messages:
            one = self.encode(message, queue_id)
            encoded.append(one)
            queue_id = queue_id if queue_id is not None or one.topic != message.topic else one.queue_id
        first = encoded[0]
        if first.topic.startswith(RETRY_TOPIC_PREFIX):
            raise PutRefused(
                PutMessageStatus.MESSAGE_ILLEGAL, f"RocketMQ takes no batch for {first.topic!r}: put one by one."
            )
        for place, (one, message) in enumerate(zip(encoded, messages, strict=True)):
            if one.topic != message.topic:
                raise PutRefused(
                    PutMessageStatus.MESSAGE_ILLEGAL, f"Message {place} of the batch is delayed; in a batch none is."
                )
            if (one.topic, one.queue_id, one.sys_flags) != (first.topic, first.queue_id, first.sys_flags):
                raise PutRefused(
                    PutMessageStatus.MESSAGE_ILLEGAL,
                    f"A batch goes to one queue: message {place} is for topic {one.topic!r}, queue {one.queue_id}, the "
                    f"first one for topic {first.topic!r}, queue {first.queue_id}.",
                )
        return encoded

    def encode(self, message: Message, queue_id: int | None = None) -> EncodedMessage:
        """The message as a record without its offsets. ``PutRefused``; ``InvalidValue`` for a field of a wrong type.

        ``queue_id`` is that of a message with neither queue nor sharding key; None lets the queues take turns.
        """
        properties = self._plain_properties(message) if queue_id is None else None
        if properties is not None:
            chosen = message.queue_id
            return self._encode_plain(
                message, properties, self._turns.in_turn(message.topic) if chosen is None else chosen
            )
        return self._encode_unusual(message, queue_id)

    def _encode_unusual(self, message: Message, queue_id: int | None) -> EncodedMessage:
        """``encode`` of a message that ``PlainRecords`` does not take."""
        try:
            return self._encode(self._checked(plain_message(message)), queue_id)
        except PropertiesTooLarge as error:
            raise PutRefused(
                PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
                f"{error} ({_place(message)}.)",
            ) from error
        except (InvalidValue, TypeError, AttributeError, ValueError, LookupError) as error:
            raise refusal_of(message, error) from error

    def encode_at_once(self, message: Message) -> EncodedMessage | None:
        """``encode`` where that takes microseconds: of a small message of the usual kind; else None."""
        properties = self._plain_properties(message)
        if properties is None or len(message.body) > _SMALL_BODY:
            return None
        chosen = self._turns.in_turn_at_once(message.topic) if message.queue_id is None else message.queue_id
        return None if chosen is None else self._encode_plain(message, properties, chosen)

    def _plain_properties(self, message: Message) -> bytes | None:
        """The properties of a message that ``PlainRecords`` encodes."""
        if type(message) is not Message:
            return None
        try:
            return self._plain.properties(message)
        except (TypeError, ValueError):
            return None

    def _encode_plain(self, message: Message, properties: bytes, queue_id: int) -> EncodedMessage:
        record = self._plain.encode(message, properties, queue_id, int(time.time() * _MS))
        return EncodedMessage(record, message.topic, queue_id, 0, self._store_host, True)

    def _checked(self, message: Message) -> Message:
        """The message, if its body and queue id are within their limits. ``PutRefused``."""
        if isinstance(message.keys, str):
            raise InvalidValue("The keys are a list of texts.")  # a text would count as the list of its characters
        if len(message.body) > self._largest_body:
            reason = (
                f"The body has {len(message.body)} bytes, the limit (maxMessageSize) is {self._largest_body} "
                f"({_place(message)})."
            )
        elif message.queue_id is not None and not 0 <= message.queue_id <= MAX_QUEUE_ID:
            reason = f"A queue id is 0 to {MAX_QUEUE_ID}, not {message.queue_id}."
        elif message.delay_level is not None and not 0 <= message.delay_level <= self._levels:
            known = shown_delay_levels(self._config.message_delay_level)
            reason = f"A delay_level is one of {known}, not {message.delay_level} ({_place(message)})."
        else:
            return message
        raise PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, reason)

    def _encode(self, message: Message, default_queue: int | None) -> EncodedMessage:
        if isinstance(message, MessageExtBrokerInner):
            return self._encode_inner(message)
        self._check_topic(message.topic)
        given = message_properties(message)
        chosen = self._queue_id(message, given.get(SHARDING_KEY), default_queue)
        place = self.place_of(message.topic, chosen, given)
        return self._encoded(message, place, self._store_host, self._store_host)

    def place_of(self, topic: str, queue_id: int, given: Mapping[str, str]) -> StoredPlace:
        """Where a message is stored: in its own topic, or where delayed ones wait. ``PutRefused``, ``InvalidValue``."""
        place = stored_place(topic, queue_id, given, self._levels)
        if place.topic == topic and asks_for_timer(place.properties):
            now = int(time.time() * _MS)
            waiting = timer_properties(topic, queue_id, place.properties, now, self._config.timer_max_delay_sec)
            if waiting is not None:
                place = StoredPlace(TIMER_TOPIC, TIMER_QUEUE_ID, waiting)
        if place.topic != topic:
            self._topics.list_queues([(topic, queue_id)])  # a broker may deliver it
        return place

    def _encoded(
        self, message: Message, place: StoredPlace, born_host: tuple[bytes, int], store_host: tuple[bytes, int],
        *, sys_flag: int = 0, reconsume_times: int = 0, prepared_transaction_offset: int = 0,
    ) -> EncodedMessage:  # fmt: skip
        topic, queue_id, properties = place
        record = encode_message(
            topic.encode(),
            message.body,
            encode_properties(properties, self._config.properties_trailing_separator),
            queue_id=queue_id,
            flag=message.flag,
            sys_flag=sys_flag,
            born_timestamp=_born(message),
            born_host=born_host,
            store_host=store_host,
            reconsume_times=reconsume_times,
            prepared_transaction_offset=prepared_transaction_offset,
        )
        waits = is_waiting(properties.get(WAIT))
        return EncodedMessage(record, topic, queue_id, own_sys_flag(record), store_host, waits)

    def _queue_id(self, message: Message, sharding_key: str | None, default: int | None) -> int:
        """The queue that the message names; else that of its sharding key; else ``default``, or the next in turn."""
        if message.queue_id is not None:
            return message.queue_id
        if sharding_key is not None:
            return self._turns.of_sharding_key(message.topic, sharding_key)
        return self._turns.in_turn(message.topic) if default is None else default

    def _queue_count(self, topic: str) -> int:
        try:
            return self._topics.queue_count(topic)
        except InvalidValue:
            raise
        except (CommitLogError, OSError) as error:  # the list of topics cannot be read
            raise put_error(*self.status_of(error)) from error

    def _encode_inner(self, message: MessageExtBrokerInner) -> EncodedMessage:
        """A message with a broker's own properties. Fields win over properties of the same meaning."""
        given = dict(given_properties(message))
        if message.keys:
            given[KEYS] = KEY_SEPARATOR.join(message.keys)
        if message.tags:
            given[TAGS] = message.tags
        for name in (INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET):
            if name in given:
                # Offsets that another store gave would leave gaps in the light queues of this one.
                raise InvalidValue(
                    f"The message has the property {name!r}; this store gives no light queues: leave it out."
                )
        if message.sys_flag & INNER_BATCH_FLAG or INNER_NUM in given or INNER_BASE in given:
            raise InvalidValue(
                "The message is a batch of several messages (INNER_BATCH of the system flag, or INNER_NUM): these need "
                "batch consume queues, which this store does not keep. Put the messages one by one."
            )
        topic, queue_id = message.topic, message.queue_id
        # Messages of another store may be longer than those that an application may create.
        validate_topic(topic)
        refuse_batch_topic(topic)
        if fault := self._topics.kind_fault(topic):
            raise InvalidValue(f"{fault}.")
        place = StoredPlace(topic, queue_id, given)
        # A half message is delayed only when it is committed; the copy of a delayed message stays as it is.
        if has_queue_unit(message.sys_flag) and topic not in (SCHEDULE_TOPIC, TIMER_TOPIC):
            if TIMER_DEL_UNIQKEY in given:
                raise InvalidValue(f"The message has the property {TIMER_DEL_UNIQKEY!r}: no message is cancelled here.")
            place = self.place_of(topic, queue_id, given)
        return self._encoded(
            message,
            place,
            parse_host(message.born_host) if message.born_host else self._store_host,
            parse_host(message.store_host) if message.store_host else self._store_host,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )

    def _check_topic(self, topic: str) -> None:
        if topic not in self._known_topics:
            validate_new_topic(topic)
            if fault := self._topics.producers_fault(topic):
                raise InvalidValue(f"{fault}.")
            self._known_topics.add(topic)
            self._plain.learn_topic(topic)

    def _append_encoded(self, records: bytearray, sizes: Sequence[int], first: EncodedMessage) -> Appended:
        """Append records to the queue of the first one. ``PutRefused``, ``PutNotConfirmed``."""
        return self._append(records, sizes, first.sys_flags, first.topic, first.queue_id)

    def _append(self, records: bytearray, sizes: Sequence[int], flags: int, topic: str, queue_id: int) -> Appended:
        """Append records of one queue. ``PutRefused``, ``PutNotConfirmed``."""
        try:
            has_unit = not flags or bool(has_queue_unit(flags))
            return self._log.append(records, sizes, flags, topic, queue_id, has_unit=has_unit)
        except PutRefused:
            raise
        except (CommitLogError, OSError) as error:
            raise put_error(*self.status_of(error)) from error

    def status_of(self, error: Exception) -> tuple[PutMessageStatus, str]:
        """The status and reason of a put whose append raised ``error``; halts the store if the outcome is unknown."""
        if isinstance(error, PutRefused):
            return error.status, error.reason
        reason = str(error)
        if self._log.failure is not error:
            if isinstance(error, FileCreationFailed | TooManyOpenFiles | StoreOpenError | TimeoutError):
                # The next file could not be created or opened; at most the filler of the last one was written.
                return PutMessageStatus.CREATE_MAPEDFILE_FAILED, reason
            if isinstance(error, Refused | Damaged):
                return PutMessageStatus.SERVICE_NOT_AVAILABLE, reason
            if isinstance(error, CommitLogError | OSError):
                self._state.halt(error)
        if not isinstance(error, CommitLogError | OSError):
            reason = f"The put failed with {error!r}."
        return PutMessageStatus.UNKNOWN_ERROR, reason

    def _await(self, appended: Appended, wait: bool) -> tuple[PutMessageStatus, str]:
        """Status and reason of the put. Unless WAIT is false, it waits for the device, the slaves, or both."""
        if not wait:
            return OK_STATUS
        status, reason = self._durability.wait(appended.end)
        if status is not PutMessageStatus.PUT_OK:
            self._stats.failed()
        return status, reason


def _to_append(encoded: EncodedMessage) -> RecordsOfQueue:
    flags = encoded.sys_flags
    has_unit = not flags or bool(has_queue_unit(flags))
    # The same as RecordsOfQueue(...), in less than half the time.
    return tuple.__new__(
        RecordsOfQueue, (encoded.record, encoded.sizes, flags, (encoded.topic, encoded.queue_id), has_unit)
    )


def _result(encoded: EncodedMessage, appended: Appended) -> PutMessageResult:
    offset, queue_offset, now, _, count = appended
    offsets = (offset,) if count == 1 else tuple(accumulate(encoded.sizes[:-1], initial=offset))
    hosts = (encoded.store_host,) * count
    # The same as PutMessageResult(...), in less than half the time.
    fields = (PutMessageStatus.PUT_OK, offset, queue_offset, now, count, "", offsets, hosts, encoded.queue_id)
    return tuple.__new__(PutMessageResult, fields)


def _report_slow(elapsed_s: float, topic: str, messages: int, size: int) -> None:
    _LOG.warning(
        "A put of %d messages, %d bytes, into topic %r took %.0f ms, waiting for the device included.",
        messages, size, topic, elapsed_s * 1000,
    )  # fmt: skip


def _place(message: Message) -> str:
    queue = "no queue given" if message.queue_id is None else f"queue {message.queue_id}"
    return f"topic {message.topic!r}, {queue}"


def _born(message: Message) -> int:
    """The born time in ms: the message's, or now. ``InvalidValue`` for one that readers could not show."""
    born = message.born_timestamp
    if born is None:
        return int(time.time() * _MS)
    if isinstance(born, bool):
        raise InvalidValue(f"The field born_timestamp is an int, not {shown(born)}.")
    if not is_timestamp(born):
        raise InvalidValue(
            f"The field born_timestamp is {MIN_TIMESTAMP_MS} to {MAX_TIMESTAMP_MS} (the years 1 to 9999, in ms), "
            f"not {born}: readers could not show it."
        )
    return index(born)


def _queue_of_all(messages: Sequence[Message]) -> int | None:
    """The queue that the first message with a queue names: that of the others in the batch, too."""
    # What is not a Message is refused when it is encoded.
    return next((queue_id for one in messages if (queue_id := getattr(one, "queue_id", None)) is not None), None)
