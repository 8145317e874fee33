"""ConsumerAdminProcessor: positions are reset, also those of connected consumers, and requests go on to consumers.

RocketMQ lets connected consumers move their positions, and without any it answers CONSUMER_NOT_ONLINE. Here the store's
positions are set in any case. Connected consumers get the request, too, and drop what they have read before.

Source: RocketMQ ``broker/processor/AdminBrokerProcessor.java`` (``resetOffset``, ``resetOffsetInner``,
``getConsumerRunningInfo``, ``consumeMessageDirectly``, ``callConsumer``), ``broker/client/net/Broker2Client.java``
(``resetOffset``, ``callClient``), ``remoting/protocol/body/ResetOffsetBody.java``, ``ResetOffsetBodyForC.java``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.errors import MessageNotFound
from commitlog_store.format.message_id import decode_message_id
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.reader import stored_record
from commitlog_store.serve.rocketmq.answering import (
    InThread,
    RequestFault,
    answer_of,
    flag_field,
    int_field,
    long_field,
    system_error,
    text_field,
)
from commitlog_store.serve.rocketmq.broker_identity import BrokerIdentity
from commitlog_store.serve.rocketmq.client_calls import ClientCalls, one_way
from commitlog_store.serve.rocketmq.clients import ClientRegistry
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.consumer_groups import NO_POSITION, ConsumerGroups
from commitlog_store.serve.rocketmq.fastjson import encode_body, object_names
from commitlog_store.serve.rocketmq.processor import Connection, Handler, Processor
from commitlog_store.serve.rocketmq.processors.consumer_manage import offset_at
from commitlog_store.serve.rocketmq.processors.topic_admin import queues_of
from commitlog_store.store import MessageStore, owned_by

_CPP = "CPP"
_NOT_GIVEN = -1


class ConsumerAdminProcessor(Processor):
    """INVOKE_BROKER_TO_RESET_OFFSET, which sends RESET_CONSUMER_CLIENT_OFFSET; GET_CONSUMER_RUNNING_INFO and
    CONSUME_MESSAGE_DIRECTLY, which go on to a consumer."""

    def __init__(
        self,
        store: MessageStore,
        identity: BrokerIdentity,
        clients: ClientRegistry,
        calls: ClientCalls,
        groups: ConsumerGroups,
        readers: LentReaders,
        in_thread: InThread,
    ) -> None:
        self._engine = owned_by(store).engine
        self._identity = identity
        self._clients = clients
        self._calls = calls
        self._groups = groups
        self._readers = readers
        self._in_thread = in_thread

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset,
            RequestCode.GET_CONSUMER_RUNNING_INFO: lambda request, _: self._pass_on(request),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: lambda request, _: self._consume_directly(request),
        }

    def connection_lost(self, connection: Connection) -> None:
        """Calls that wait for the client's answer end."""
        self._calls.connection_lost(connection)

    async def _reset(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """Set the group's positions in a topic to a time (ms), to the end (-1), or one queue's to an offset.

        Without ``isForce`` a position moves back only.
        """
        offsets: dict[int, int] = {}

        def reset() -> RemotingCommand:
            offsets.update(self._set_positions(request))
            return request.answer(ResponseCode.SUCCESS, body=self._offsets_body(request.fields["topic"], offsets))

        answer = await self._in_thread(lambda: answer_of(request, reset))
        if not answer.code:
            self._send_to_consumers(request, offsets)
        return answer

    def _set_positions(self, request: RemotingCommand) -> dict[int, int]:
        topic, group = text_field(request, "topic"), text_field(request, "group")
        wanted, offset = int_field(request, "queueId", _NOT_GIVEN), long_field(request, "offset", _NOT_GIVEN)
        time_ms, forced = long_field(request, "timestamp", _NOT_GIVEN), flag_field(request, "isForce")
        self._engine.state.refuse_on_replica()
        self._groups.make_ready(group)
        entry = self._engine.topics.content().get("topicConfigTable", {}).get(topic)
        found = {}
        with self._readers.lent() as reader:
            for queue_id in queues_of(reader, topic, entry, "readQueueNums"):
                if wanted in (_NOT_GIVEN, queue_id):
                    end = offset_at(reader, topic, queue_id, -1)
                    at = offset_at(reader, topic, queue_id, time_ms) if offset == _NOT_GIVEN else offset
                    if not 0 <= at <= end:
                        raise system_error(f"queue {queue_id} of {topic} has offsets up to {end}, not {at}")
                    position = self._groups.position(group, topic, queue_id)
                    found[queue_id] = at if forced or position == NO_POSITION else min(at, position)
        if not found:
            raise RequestFault(
                ResponseCode.TOPIC_NOT_EXIST, f"[reset-offset] no queue {wanted} of topic {topic} in this broker"
            )
        for queue_id, at in found.items():
            self._groups.commit(group, topic, queue_id, at)
        self._groups.forget_pulled(group, topic, found)
        return found

    def _offsets_body(self, topic: str, offsets: Mapping[int, int], *, for_c: bool = False) -> bytes:
        queues = [(self._identity.queue(topic, queue_id), offset) for queue_id, offset in offsets.items()]
        if for_c:
            return encode_body({"offsetTable": [{**queue, "offset": offset} for queue, offset in queues]})
        return encode_body({"offsetTable": object_names(queues)})

    def _send_to_consumers(self, request: RemotingCommand, offsets: Mapping[int, int]) -> None:
        group, topic = request.fields["group"], request.fields["topic"]
        info = self._clients.consumers(group)
        # Clients of 5.x drop a reset without isForce.
        fields = {
            "topic": topic,
            "group": group,
            "timestamp": request.fields.get("timestamp", str(_NOT_GIVEN)),
            "isForce": "true" if flag_field(request, "isForce") else "false",
        }
        for connection, client in list(info.clients.items()) if info else ():
            body = self._offsets_body(topic, offsets, for_c=client.language == _CPP)
            connection.send(one_way(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body))

    async def _pass_on(
        self, request: RemotingCommand, more: Mapping[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Send the request to the consumer that it names, and its answer back."""
        try:
            group, client_id = text_field(request, "consumerGroup"), text_field(request, "clientId")
        except RequestFault as fault:
            return request.answer(fault.code, str(fault))
        found = self._clients.consumer(group, client_id)
        if found is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        fields = {**request.fields, **(more or {})}
        try:
            answer = await self._calls.call(found[0], request.code, fields, body)
        except TimeoutError:
            return request.answer(ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer <{group}> <{client_id}> Timeout")
        except ConnectionError as error:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"consumer <{group}> <{client_id}>: {error}")
        return request.answer(answer.code, answer.remark, fields=answer.fields, body=answer.body)

    def _consume_directly(self, request: RemotingCommand) -> Awaitable[RemotingCommand]:
        """With the message that its id names."""

        def read() -> RemotingCommand:
            place = decode_message_id(text_field(request, "msgId")).physical_offset
            try:
                with self._readers.lent() as reader:
                    size = reader.message_at(place, verify_crc=False).store_size
                    return request.answer(ResponseCode.SUCCESS, body=stored_record(reader, place, size))
            except MessageNotFound as error:
                raise system_error(str(error)) from None

        async def pass_on() -> RemotingCommand:
            message = await self._in_thread(lambda: answer_of(request, read))
            if message.code:
                return message
            return await self._pass_on(request, {"brokerName": self._identity.name}, message.body)

        return pass_on()
