"""A put from beginning to end: checked, encoded, appended, flushed, answered.

A put never raises for what a message or the disk is like: the answer is a status, RocketMQ's own, and a sentence.

Source: RocketMQ ``store/DefaultMessageStore.java`` (``asyncPutMessage``, ``checkStoreStatus``),
``store/CommitLog.java`` (``asyncPutMessage``, ``handleDiskFlush``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from commitlog.config import FlushDiskType, MessageStoreConfig
from commitlog.errors import (
    CommitLogError,
    Damaged,
    DiskFull,
    InvalidValue,
    PutNotConfirmed,
    PutRefused,
    Refused,
    StoreIOError,
    StoreOpenError,
    put_error,
)
from commitlog.format.message_id import encode_message_id, parse_host
from commitlog.format.message_rules import SCHEDULE_TOPIC, message_fault, shown
from commitlog.format.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    KEY_SEPARATOR,
    KEYS,
    TAGS,
    WAIT,
    PropertiesTooLarge,
    encode_properties,
    is_waiting,
)
from commitlog.format.single_record import encode_message, message_properties, plain_message, stored_place
from commitlog.format.sys_flag import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG, has_queue_unit
from commitlog.log.append_results import Appended
from commitlog.log.commit_log_writer import CommitLogWriter
from commitlog.message import Message, MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from commitlog.paths import MAX_QUEUE_ID, refuse_batch_topic, validate_new_topic, validate_topic
from commitlog.services.flush import GroupCommitService
from commitlog.services.running_state import RunningState
from commitlog.services.stats import StoreStatsService

__all__ = ["EncodedMessage", "PutMessageService"]

_OK = PutMessageStatus.PUT_OK
_MS = 1000.0


class EncodedMessage:
    """A record that waits for its place, and what the store must know of it."""

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


class PutMessageService:
    """Puts single messages and batches. Any number of threads may call it."""

    def __init__(
        self,
        config: MessageStoreConfig,
        log: CommitLogWriter,
        group_commit: GroupCommitService,
        state: RunningState,
        stats: StoreStatsService,
        on_appended: Callable[[], None],
    ) -> None:
        self._config = config
        self._log = log
        self._group_commit = group_commit
        self._state = state
        self._stats = stats
        self._on_appended = on_appended
        self._store_host = parse_host(f"{config.broker_ip}:{config.listen_port}")
        self._levels = len(config.delay_levels_ms)
        self._largest_body = config.max_message_size
        self._sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._busy = config.os_page_cache_busy_time_out / _MS
        self._known_topics: dict[str, bytes] = {}

    def put_message(self, message: Message) -> PutMessageResult:
        started = time.perf_counter()
        try:
            self.refuse_when_unwritable()
            encoded = self.encode(message)
            length = len(encoded.record)
            appended = self._append([encoded])
        except (PutRefused, PutNotConfirmed) as refusal:
            self._stats.failed()
            return PutMessageResult(refusal.status, reason=refusal.reason)
        result = self._answer(appended, encoded.store_host, 1, wait=encoded.wait)
        self._stats.put(encoded.topic, 1, length, time.perf_counter() - started)
        return result

    def put_batch(self, messages: Sequence[Message]) -> PutMessageResult:
        """RocketMQ's MessageExtBatch: messages of one queue, in the log together or not at all until a crash.

        They lie in one piece of one file and get one status; the first one's offsets are the result's.
        """
        started = time.perf_counter()
        try:
            self.refuse_when_unwritable()
            encoded = self._encode_batch(messages)
            size = sum(len(one.record) for one in encoded)
            appended = self._append(encoded)
        except (PutRefused, PutNotConfirmed) as refusal:
            self._stats.failed()
            return PutMessageResult(refusal.status, reason=refusal.reason)
        wait = any(one.wait for one in encoded)
        result = self._answer(appended, encoded[0].store_host, len(encoded), wait=wait)
        ids, place = [], appended.physical_offset
        for one in encoded:
            ids.append(encode_message_id(*one.store_host, place))
            place += len(one.record)
        self._stats.put(encoded[0].topic, len(encoded), size, time.perf_counter() - started)
        return result._replace(message_id=",".join(ids))

    def refuse_when_unwritable(self) -> None:
        """``StoreClosed``; ``PutRefused`` while no message is accepted, or another put hangs in the page cache."""
        self._state.refuse_puts()
        locked_at = self._log.locked_at
        if locked_at and time.monotonic() - locked_at > self._busy:
            raise PutRefused(
                PutMessageStatus.OS_PAGECACHE_BUSY,
                f"Another put has been writing for more than {self._busy:g} s: the disk does not keep up.",
            )

    def _encode_batch(self, messages: Sequence[Message]) -> list[EncodedMessage]:
        if not isinstance(messages, Sequence):
            raise PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, f"A batch is a list of messages, not {shown(messages)}.")
        if not messages:
            raise PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, "A batch has at least one message.")
        encoded = [self.encode(message) for message in messages]
        first = encoded[0]
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

    def encode(self, message: Message) -> EncodedMessage:
        """The message as a record without its place. ``PutRefused``."""
        try:
            body, queue_id = message.body, message.queue_id
            if type(body) is not bytes or type(queue_id) is not int:
                message = plain_message(message)
                body, queue_id = message.body, message.queue_id
            if len(body) > self._largest_body or not 0 <= queue_id <= MAX_QUEUE_ID or isinstance(message.keys, str):
                raise self._refusal_at_sight(message)
            return self._encode(message)
        except PropertiesTooLarge as error:
            raise PutRefused(
                PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
                f"{error} (Topic {message.topic!r}, queue {message.queue_id}.)",
            ) from error
        except InvalidValue as error:
            raise PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, message_fault(message) or str(error)) from error
        except (TypeError, AttributeError, ValueError, LookupError) as error:
            reason = message_fault(message) or f"The message cannot be encoded: {error!r}."
            raise PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, reason) from error

    def _refusal_at_sight(self, message: Message) -> PutRefused:
        reason = f"The keys are a list of texts, not the text {message.keys!r}."
        if len(message.body) > self._largest_body:
            reason = (
                f"The body has {len(message.body)} bytes, at most {self._largest_body} are taken "
                f"(maxMessageSize; topic {message.topic!r}, queue {message.queue_id})."
            )
        elif not 0 <= message.queue_id <= MAX_QUEUE_ID:
            reason = f"A queue id is 0 to {MAX_QUEUE_ID}, not {message.queue_id}."
        return PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, reason)

    def _encode(self, message: Message) -> EncodedMessage:
        if isinstance(message, MessageExtBrokerInner):
            return self._encode_inner(message)
        known = self._topic_bytes(message.topic)
        topic, queue_id, properties = stored_place(
            message.topic, message.queue_id, message_properties(message), self._levels
        )
        record = encode_message(
            known if topic == message.topic else topic.encode(),
            message.body,
            self._property_bytes(properties),
            queue_id=queue_id,
            flag=message.flag,
            sys_flag=0,
            born_timestamp=int(time.time() * _MS),
            born_host=self._store_host,
            store_host=self._store_host,
        )
        flags = 0 if len(self._store_host[0]) == 4 else BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG
        return EncodedMessage(record, topic, queue_id, flags, self._store_host, _waits(properties))

    def _encode_inner(self, message: MessageExtBrokerInner) -> EncodedMessage:
        """A message whose properties are a broker's own business. Fields win over properties of the same meaning."""
        given = dict(message.properties)
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
        properties: Mapping[str, str] = given
        topic, queue_id = message.topic, message.queue_id
        # What a store holds already may be longer than what an application may create.
        validate_topic(topic)
        refuse_batch_topic(topic)
        # A half message is delayed only once it is whole; what is a copy of a delayed message stays as it is.
        if has_queue_unit(message.sys_flag) and topic != SCHEDULE_TOPIC:
            topic, queue_id, properties = stored_place(topic, queue_id, properties, self._levels)
        born_host = parse_host(message.born_host) if message.born_host else self._store_host
        store_host = parse_host(message.store_host) if message.store_host else self._store_host
        born = message.born_timestamp
        record = encode_message(
            topic.encode(),
            message.body,
            self._property_bytes(properties),
            queue_id=queue_id,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_timestamp=int(time.time() * _MS) if born is None else born,
            born_host=born_host,
            store_host=store_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )
        flags = message.sys_flag & ~(BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG)
        flags |= BORNHOST_V6_FLAG if len(born_host[0]) == 16 else 0
        flags |= STOREHOSTADDRESS_V6_FLAG if len(store_host[0]) == 16 else 0
        return EncodedMessage(record, topic, queue_id, flags, store_host, _waits(properties))

    def _topic_bytes(self, topic: str) -> bytes:
        known = self._known_topics.get(topic)
        if known is None:
            validate_new_topic(topic)
            known = self._known_topics[topic] = topic.encode()
        return known

    def _property_bytes(self, properties: Mapping[str, str]) -> bytes:
        return encode_properties(properties, self._config.properties_trailing_separator)

    def _append(self, encoded: list[EncodedMessage]) -> Appended:
        first = encoded[0]
        try:
            return self._log.append_batch(
                [one.record for one in encoded],
                first.sys_flags,
                first.topic,
                first.queue_id,
                has_unit=bool(has_queue_unit(first.sys_flags)),
            )
        except PutRefused:
            raise
        except (CommitLogError, OSError) as error:
            raise put_error(*self.status_of(error)) from error

    def status_of(self, error: Exception) -> tuple[PutMessageStatus, str]:
        """The status and reason of a put whose append raised ``error``; fences the store if the outcome is unknown."""
        if isinstance(error, PutRefused):
            return error.status, error.reason
        reason = str(error)
        if self._log.failure is not error:
            if isinstance(error, DiskFull | StoreOpenError | TimeoutError):
                # The next file could not be made or opened; the last one may have got its filler, and nothing more.
                return PutMessageStatus.CREATE_MAPEDFILE_FAILED, reason
            if isinstance(error, Refused | Damaged):
                return PutMessageStatus.SERVICE_NOT_AVAILABLE, reason
            if isinstance(error, CommitLogError | OSError):
                self._state.fence(error)
        if not isinstance(error, CommitLogError | OSError):
            reason = f"The put failed with {error!r}."
        return PutMessageStatus.UNKNOWN_ERROR, reason

    def _answer(self, appended: Appended, store_host: tuple[bytes, int], count: int, *, wait: bool) -> PutMessageResult:
        status, reason = self.await_flush(appended.end) if self._sync and wait else (_OK, "")
        if status is not _OK:
            self._stats.failed()
        self._on_appended()
        return PutMessageResult(
            status,
            encode_message_id(*store_host, appended.physical_offset),
            appended.physical_offset,
            appended.queue_offset,
            appended.store_timestamp,
            count,
            reason,
        )

    def await_flush(self, end: int) -> tuple[PutMessageStatus, str]:
        """Wait until everything up to ``end`` is on the device: how that ended, and why it did not end well."""
        timeout = self._config.sync_flush_timeout / _MS
        try:
            if self._group_commit.flush_to(end, timeout):
                return _OK, ""
        except StoreIOError as error:
            self._state.fence(error)
            return PutMessageStatus.UNKNOWN_ERROR, str(error)
        if self._state.failure is not None:
            return PutMessageStatus.UNKNOWN_ERROR, str(self._state.failure)
        return (
            PutMessageStatus.FLUSH_DISK_TIMEOUT,
            f"The message is in the log, but was not on the device within {timeout:g} s (sync_flush_timeout).",
        )


def _waits(properties: Mapping[str, str]) -> bool:
    return is_waiting(properties.get(WAIT))
