"""SendMessageProcessor: messages of producers: single ones, batches and half messages.

A message gets no property of the broker's own (RocketMQ adds MSG_REGION, TRACE_ON and CLUSTER), but a unique key if its
client gave it none.

Source: RocketMQ ``broker/processor/SendMessageProcessor.java``, ``AbstractSendMessageProcessor.java`` (``msgCheck``),
``broker/topic/TopicConfigManager.java`` (``createTopicInSendMessageMethod``).
"""

from __future__ import annotations

import random
import secrets
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from commitlog_store.engine.async_puts import Outcome
from commitlog_store.engine.produced_message import ProducedMessage
from commitlog_store.engine.put_message import EncodedMessage, PutMessageResult
from commitlog_store.errors import InvalidValue, PutNotConfirmed, PutRefused
from commitlog_store.format.message_batch import decode_batch
from commitlog_store.format.message_rules import no_producers_fault
from commitlog_store.format.properties import DELAY, PGROUP, TRAN_MSG, UNIQ_KEY, decode_properties
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.message import PutMessageStatus
from commitlog_store.paths import DLQ_TOPIC_PREFIX, RETRY_TOPIC_PREFIX, validate_topic
from commitlog_store.queue.topic_config import (
    FLAG_UNIT,
    FLAG_UNIT_SUB,
    PERM_INHERIT,
    PERM_WRITE,
    TopicConfig,
    TopicSettings,
)
from commitlog_store.serve.rocketmq.answering import (
    InThread,
    RequestFault,
    flag_field,
    int_field,
    long_field,
    status_code,
    text_field,
)
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processor import Answered, Connection, Deferred, Handler, Processor, Take
from commitlog_store.serve.rocketmq.processors.route import AUTO_CREATE_TOPIC
from commitlog_store.serve.rocketmq.store_puts import StorePuts

# Names of the fields in requests of code 310 and 320, which clients send to be short.
_SHORT_NAMES = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
}
_LONG_NAMES = {name: name for name in _SHORT_NAMES}
_LONGEST_TOPIC = 127
_LONGEST_PROPERTIES = 32_767
# Fields of every answer: RocketMQ's regionId and traceOn.
_ANSWER_FIELDS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


@dataclass(slots=True, kw_only=True)
class _SendHeader:
    """SendMessageRequestHeader. Topic and queue become those that the message is stored in."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    reconsume_times: int
    max_reconsume_times: int | None
    is_batch: bool
    is_unit_mode: bool

    @classmethod
    def of(cls, request: RemotingCommand, names: Mapping[str, str]) -> _SendHeader:
        """``RequestFault`` for a missing field or one of another type."""
        retries = names["maxReconsumeTimes"]
        return cls(
            producer_group=text_field(request, names["producerGroup"]),
            topic=text_field(request, names["topic"]),
            default_topic=text_field(request, names["defaultTopic"], ""),
            default_topic_queue_nums=int_field(request, names["defaultTopicQueueNums"], 4),
            queue_id=int_field(request, names["queueId"]),
            sys_flag=int_field(request, names["sysFlag"]),
            born_timestamp=long_field(request, names["bornTimestamp"]),
            flag=int_field(request, names["flag"]),
            properties=text_field(request, names["properties"], ""),
            reconsume_times=int_field(request, names["reconsumeTimes"], 0),
            max_reconsume_times=int_field(request, retries) if retries in request.fields else None,
            is_batch=request.code == RequestCode.SEND_BATCH_MESSAGE or flag_field(request, names["batch"]),
            is_unit_mode=flag_field(request, names["unitMode"]),
        )


class SendMessageProcessor(Processor):
    """Puts what producers send. Topics that do not exist are made in another thread, since that writes a file."""

    def __init__(
        self,
        puts: StorePuts,
        topics: TopicConfig,
        retry_max_times: Callable[[str], int],
        in_thread: InThread,
        *,
        models: Mapping[str, TopicSettings],
        has_locks: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """``retry_max_times``: of a consumer group. ``in_thread`` does work in another thread.

        ``models``: the broker's own topics, whose settings new topics get; without TBW102, none is created after it.
        ``has_locks``: whether consumers of a group have locked queues, as those do that consume in order.
        """
        self._models = models
        self._has_locks = has_locks
        self._puts = puts
        self._topics = topics
        self._retry_max_times = retry_max_times
        self._in_thread = in_thread

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: lambda request, connection: self._send(request, connection, _LONG_NAMES),
            RequestCode.SEND_MESSAGE_V2: lambda request, connection: self._send(request, connection, _SHORT_NAMES),
            RequestCode.SEND_BATCH_MESSAGE: lambda request, connection: self._send(request, connection, _SHORT_NAMES),
        }

    def _send(self, request: RemotingCommand, connection: Connection, names: Mapping[str, str]) -> Answered:
        header = _SendHeader.of(request, names)
        _check(header)
        properties = decode_properties(header.properties.encode())
        if (settings := self._topics.settings(header.topic)) is None:
            return self._send_to_new_topic(request, connection, header, properties)
        return self._send_to(request, connection, header, properties, settings)

    async def _send_to_new_topic(
        self, request: RemotingCommand, connection: Connection, header: _SendHeader, properties: dict[str, str]
    ) -> RemotingCommand:
        await self._in_thread(lambda: self._make_topic(header.topic, header))
        settings = self._topics.settings(header.topic)
        if settings is None:
            raise _no_topic(header.topic)
        outcome = self._send_to(request, connection, header, properties, settings)
        return outcome if isinstance(outcome, RemotingCommand) else await outcome

    def _make_topic(self, topic: str, header: _SendHeader) -> None:
        """The topic of a first message. ``RequestFault`` if it may not be made so."""
        flag = FLAG_UNIT_SUB if topic.startswith(RETRY_TOPIC_PREFIX) else FLAG_UNIT
        sys_flag = flag if header.is_unit_mode else 0
        if topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX)):
            self._topics.list_queues([(topic, 0)], sys_flag=sys_flag)
            return
        model = self._models.get(header.default_topic)
        if header.default_topic != AUTO_CREATE_TOPIC:  # a store that a broker had may list TBW102, whatever is set here
            model = self._topics.settings(header.default_topic) or model
        if model is None or not model.perm & PERM_INHERIT:
            raise _no_topic(topic)
        try:
            queue_nums = max(min(header.default_topic_queue_nums, model.write_queue_nums), 1)
            self._topics.create_topic(topic, queue_nums, sys_flag=sys_flag)
        except InvalidValue as error:
            raise RequestFault(ResponseCode.INVALID_PARAMETER, str(error)) from error

    def _send_to(
        self,
        request: RemotingCommand,
        connection: Connection,
        header: _SendHeader,
        properties: dict[str, str],
        settings: TopicSettings,
    ) -> Answered:
        """Put the message or messages into a topic that is listed."""
        if header.queue_id >= max(settings.write_queue_nums, settings.read_queue_nums):
            raise RequestFault(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{header.queue_id}] is illegal, {settings} of topic {header.topic}",
            )
        if not settings.perm & PERM_WRITE:
            raise RequestFault(ResponseCode.NO_PERMISSION, f"sending to the topic[{header.topic}] is forbidden")
        if (fault := self._topics.kind_fault(header.topic)) is not None:
            raise RequestFault(ResponseCode.MESSAGE_ILLEGAL, f"{fault}.")
        if header.queue_id < 0:
            header.queue_id = random.randrange(max(settings.write_queue_nums, 1))
        host = _host(*connection.address)
        if header.is_batch:
            return self._put_batch(request, header, properties, host)
        if header.topic.startswith(RETRY_TOPIC_PREFIX) and self._is_dead(header):
            return self._put_dead_letter(request, header, properties, host)
        return self._put(request, header, properties, host)

    def _is_dead(self, header: _SendHeader) -> bool:
        """Whether a message that a consumer sends back was consumed too often.

        Consumers in order try again themselves, and send back what they give up.
        """
        group, most = header.topic.removeprefix(RETRY_TOPIC_PREFIX), header.max_reconsume_times
        if most is None:
            most = self._retry_max_times(group)
        return header.reconsume_times > most or self._has_locks(group)

    async def _put_dead_letter(
        self, request: RemotingCommand, header: _SendHeader, properties: dict[str, str], host: tuple[bytes, int]
    ) -> RemotingCommand:
        group = header.topic.removeprefix(RETRY_TOPIC_PREFIX)
        header.topic, header.queue_id = DLQ_TOPIC_PREFIX + group, 0
        properties.pop(DELAY, None)
        if self._topics.settings(header.topic) is None:
            await self._in_thread(lambda: self._topics.list_queues([(header.topic, 0)]))
        outcome = self._put(request, header, properties, host)
        return outcome if isinstance(outcome, RemotingCommand) else await outcome

    def _put(
        self, request: RemotingCommand, header: _SendHeader, properties: dict[str, str], host: tuple[bytes, int]
    ) -> Answered:
        if not properties.get(UNIQ_KEY):
            properties[UNIQ_KEY] = secrets.token_hex(16).upper()
        message = _message(header, properties, host, request.body)
        if properties.get(TRAN_MSG, "").lower() == "true" and not (
            header.reconsume_times > 0 and properties.get(DELAY, "0") != "0"
        ):
            return self._prepare(request, header, message)
        try:
            encoded = self._puts.encode(message)
        except PutRefused as refusal:
            return _refused(request, header, refusal, properties[UNIQ_KEY])
        return self._append(request, header, encoded, properties[UNIQ_KEY])

    def _put_batch(
        self, request: RemotingCommand, header: _SendHeader, properties: dict[str, str], host: tuple[bytes, int]
    ) -> Answered:
        """Messages of one queue. Those of the batch itself are properties of each."""
        if header.topic.startswith(RETRY_TOPIC_PREFIX):
            raise RequestFault(
                ResponseCode.MESSAGE_ILLEGAL, f"batch request does not support retry group {header.topic}"
            )
        try:
            batch = decode_batch(request.body)
        except InvalidValue as error:
            raise RequestFault(ResponseCode.MESSAGE_ILLEGAL, str(error)) from error
        unique_key = properties.get(UNIQ_KEY)
        try:
            encoded = self._puts.encode_batch(_message(header, properties, host, b""), batch)
        except PutRefused as refusal:
            return _refused(request, header, refusal, unique_key)
        return self._append(request, header, encoded, unique_key)

    def _append(
        self, request: RemotingCommand, header: _SendHeader, encoded: EncodedMessage, unique_key: str | None
    ) -> Answered:
        if (result := self._puts.put_at_once(encoded)) is not None:
            return put_answer(request, header.queue_id, result, unique_key)

        def start(take: Take) -> None:
            def receive(outcome: Outcome) -> None:
                take(
                    outcome
                    if isinstance(outcome, Exception)
                    else put_answer(request, header.queue_id, outcome, unique_key)
                )

            self._puts.put_for(encoded, receive)

        return Deferred(start)

    async def _prepare(
        self, request: RemotingCommand, header: _SendHeader, message: ProducedMessage
    ) -> RemotingCommand:
        """A half message. Its producer group is that of its properties, as clients set it."""
        group = message.properties.get(PGROUP) or header.producer_group

        def prepare() -> PutMessageResult:
            try:
                return self._puts.prepare(message, group)
            except (PutRefused, PutNotConfirmed) as error:
                return PutMessageResult(error.status, reason=error.reason)
            except InvalidValue as error:
                return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, reason=str(error))

        result = await self._in_thread(prepare)
        return put_answer(request, header.queue_id, result, message.properties[UNIQ_KEY])


def _check(header: _SendHeader) -> None:
    """``RequestFault`` for a topic that no producer may send to, and for what is longer than a record has room for."""
    topic = header.topic
    if (fault := no_producers_fault(topic)) is not None:
        raise RequestFault(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden. {fault}.")
    if len(topic) > _LONGEST_TOPIC:
        raise RequestFault(ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(topic)}")
    if len(header.properties) > _LONGEST_PROPERTIES:
        raise RequestFault(ResponseCode.MESSAGE_ILLEGAL, f"message properties length too long {len(header.properties)}")
    if (fault := _name_fault(topic)) is not None:
        raise RequestFault(ResponseCode.INVALID_PARAMETER, fault)


@lru_cache(maxsize=4096)
def _name_fault(topic: str) -> str | None:
    """Why this is not the name of a topic."""
    try:
        validate_topic(topic)
    except InvalidValue as error:
        return str(error)
    return None


def _no_topic(topic: str) -> RequestFault:
    return RequestFault(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")


def _message(
    header: _SendHeader, properties: Mapping[str, str], host: tuple[bytes, int], body: bytes
) -> ProducedMessage:
    return ProducedMessage(
        *(header.topic, header.queue_id, body, properties, header.flag, header.sys_flag, header.born_timestamp, host),
        header.reconsume_times,
    )


@lru_cache(maxsize=4096)
def _host(ip: str, port: int) -> tuple[bytes, int]:
    """A client's address as records have it."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return socket.inet_pton(family, ip.partition("%")[0]), port


def _refused(
    request: RemotingCommand, header: _SendHeader, refusal: PutRefused, unique_key: str | None
) -> RemotingCommand:
    result = PutMessageResult(refusal.status, reason=refusal.reason)
    return put_answer(request, header.queue_id, result, unique_key)


def put_answer(
    request: RemotingCommand, queue_id: int, result: PutMessageResult, unique_key: str | None
) -> RemotingCommand:
    """The answer to a send, by the result of its put.

    ``queue_id`` is the message's own, also for a delayed one, whose offset is in its level's queue.
    """
    code = status_code(result.status)
    if result.physical_offset < 0:
        return request.answer(code, f"{result.status.value}: {result.reason}", fields=_ANSWER_FIELDS)
    fields = {
        "msgId": result.message_id,
        "queueId": str(queue_id),
        "queueOffset": str(result.queue_offset),
        **_ANSWER_FIELDS,
    }
    if unique_key is not None:
        fields["transactionId"] = unique_key
    return request.answer(code, result.reason or None, fields=fields)
