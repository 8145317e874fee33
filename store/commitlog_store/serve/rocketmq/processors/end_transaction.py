"""EndTransactionProcessor: producers commit and roll back their half messages, and are asked for those they forgot.

The store's rounds of checks ask a connected producer of the message's group (CHECK_TRANSACTION_STATE), and put the
message back with one check more. The producer's answer is an END_TRANSACTION that comes later, with the place that it
was asked for; the service finds the copy that has taken that place by then. A half message whose group has no producer
here stays as it is, and the check is not counted. (A broker counts it, and gives the message up after 15 checks.)

Source: RocketMQ ``broker/processor/EndTransactionProcessor.java``,
``broker/transaction/AbstractTransactionalMessageCheckListener.java``, ``broker/client/net/Broker2Client.java``,
``remoting/protocol/header/EndTransactionRequestHeader.java``, ``CheckTransactionStateRequestHeader.java``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.errors import HalfMessageEnded, MessageNotFound, PutNotConfirmed
from commitlog_store.format.half_messages import CHECK_IMMUNITY_TIME_IN_SECONDS, immunity_ms
from commitlog_store.format.message_id import parse_host
from commitlog_store.format.properties import PGROUP, UNIQ_KEY, encode_properties
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.format.single_record import encode_message, patch_late
from commitlog_store.format.sys_flag import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK
from commitlog_store.half.transactional_message import NoAnswerYet
from commitlog_store.half_message import Answer, HalfMessageHandle
from commitlog_store.message import MessageExt
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
from commitlog_store.serve.rocketmq.client_calls import one_way
from commitlog_store.serve.rocketmq.clients import ClientRegistry
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processor import Answered, Connection, Handler, Processor
from commitlog_store.store import MessageStore

# The type of a transaction in a system flag, as commitOrRollback has it.
_UNKNOWN, _COMMIT, _ROLLBACK = 0, 8, 12


class EndTransactionProcessor(Processor):
    """END_TRANSACTION; sends CHECK_TRANSACTION_STATE."""

    def __init__(
        self,
        store: MessageStore,
        clients: ClientRegistry,
        readers: LentReaders,
        in_thread: InThread,
    ) -> None:
        self._store = store
        self._clients = clients
        self._readers = readers
        self._in_thread = in_thread

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.END_TRANSACTION: self._end}

    def start_checks(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ask producers every ``transaction_check_interval``, until the store is closed. ``InvalidValue`` if the
        program has started checks of its own. ``loop`` is that of the connections."""
        self._store.half_messages.start_checks(lambda message: self.ask_producer(message, loop))

    def ask_producer(self, message: MessageExt, loop: asyncio.AbstractEventLoop) -> Answer:
        """The callback of a check: asks a producer, and knows nothing yet. ``NoAnswerYet`` without one.

        ``message`` has the topic and queue that the half message is meant for, and its place. In any thread.
        ``NoAnswerYet`` also for one without a unique key, by which its copy would be found: it is not put back.
        """
        connection = self._clients.producer_of(message.properties.get(PGROUP, ""))
        if connection is None:
            raise NoAnswerYet
        question = _question(message)
        try:
            loop.call_soon_threadsafe(connection.send, question)
        except RuntimeError:  # the loop has ended, and the connections with it
            raise NoAnswerYet from None
        if not message.unique_key:
            raise NoAnswerYet
        return "unknown"

    def _end(self, request: RemotingCommand, _: Connection) -> Answered:
        """A producer that does not know its outcome says so, which changes nothing."""
        outcome = request.fields.get("commitOrRollback")
        if outcome == str(_UNKNOWN):
            return request.answer(ResponseCode.SUCCESS)
        return self._in_thread(lambda: answer_of(request, lambda: self._commit_or_roll_back(request)))

    def _commit_or_roll_back(self, request: RemotingCommand) -> RemotingCommand:
        outcome = int_field(request, "commitOrRollback")
        if outcome not in (_COMMIT, _ROLLBACK):
            raise system_error(
                f"the custom field <commitOrRollback> is {_COMMIT}, {_ROLLBACK} or {_UNKNOWN}, not {outcome}"
            )
        handle = self._handle(request)
        half_messages = self._store.half_messages
        try:
            if outcome == _COMMIT:
                half_messages.commit(handle)
            else:
                half_messages.rollback(handle)
        except HalfMessageEnded as ended:
            # A repeated request, and one whose answer to a check has overtaken it.
            if ended.committed is not (outcome == _COMMIT):
                return request.answer(ResponseCode.SYSTEM_ERROR, str(ended))
        except PutNotConfirmed:
            pass  # it has ended here, and slaves are late: success for RocketMQ too
        return request.answer(ResponseCode.SUCCESS)

    def _handle(self, request: RemotingCommand) -> HalfMessageHandle:
        """The handle of the half message that the header names. ``RequestFault``: there is none, or it is too late."""
        offset, queue_offset = long_field(request, "commitLogOffset"), long_field(request, "tranStateTableOffset")
        message = self._message_at(offset)
        properties = message.properties
        handle = HalfMessageHandle(
            offset, queue_offset, text_field(request, "producerGroup"), properties.get(UNIQ_KEY, "")
        )
        if CHECK_IMMUNITY_TIME_IN_SECONDS in properties and not flag_field(request, "fromTransactionCheck"):
            immune = immunity_ms(properties, self._store.config.transaction_time_out)
            if time.time() * 1000 - message.born_timestamp > immune:
                raise RequestFault(
                    ResponseCode.ILLEGAL_OPERATION,
                    f"The half message {handle} is older than its {CHECK_IMMUNITY_TIME_IN_SECONDS}: a check decides.",
                )
        return handle

    def _message_at(self, offset: int) -> MessageExt:
        if self._store.config.transient_store_pool_enable:
            self._store.flush()  # its bytes may lie in a buffer
        try:
            with self._readers.lent() as reader:
                return reader.message_at(offset, verify_crc=False)
        except MessageNotFound:
            raise system_error(f"Find prepared transaction message failed: none at physical offset {offset}") from None


def _question(message: MessageExt) -> RemotingCommand:
    """CHECK_TRANSACTION_STATE for a half message."""
    key = message.unique_key or ""
    fields = {
        "topic": message.topic,
        "tranStateTableOffset": str(message.queue_offset),
        "commitLogOffset": str(message.physical_offset),
        "msgId": key or message.message_id,
        "transactionId": key,
        "offsetMsgId": message.message_id,
    }
    return one_way(RequestCode.CHECK_TRANSACTION_STATE, fields, _record_of(message))


def _record_of(message: MessageExt) -> bytes:
    """The half message as a record of the topic that it is meant for, which clients decode."""
    record = encode_message(
        message.topic.encode(),
        message.body,
        encode_properties(message.properties),
        queue_id=message.queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag & ~(COMPRESSED_FLAG | COMPRESSION_TYPE_MASK),  # the body is not compressed any more
        born_timestamp=message.born_timestamp,
        born_host=parse_host(message.born_host),
        store_host=parse_host(message.store_host),
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )
    patch_late(record, message.sys_flag, message.queue_offset, message.physical_offset, message.store_timestamp)
    return bytes(record)
