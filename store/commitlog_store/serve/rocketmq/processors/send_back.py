"""SendBackProcessor: messages that a consumer could not consume, to be consumed again later, or dead letters.

Source: RocketMQ ``broker/processor/AbstractSendMessageProcessor.java`` (``consumerSendMsgBack``).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.consumers.retry import put_for_retry, retry_topic
from commitlog_store.errors import MessageNotFound
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.owned_store.owned_store import OwnedStore
from commitlog_store.put_status import PutMessageStatus
from commitlog_store.queue.topic_config import FLAG_UNIT_SUB
from commitlog_store.serve.rocketmq.answering import (
    InThread,
    answered_in_thread,
    flag_field,
    int_field,
    long_field,
    text_field,
)
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.consumer_groups import ConsumerGroups
from commitlog_store.serve.rocketmq.processor import Connection, Handler, Processor

# ``MQVersion.Version.V3_4_9``: clients before it send no maxReconsumeTimes that counts.
_SENDS_MAX_RECONSUME_TIMES = 121


class SendBackProcessor(Processor):
    """CONSUMER_SEND_MSG_BACK."""

    def __init__(self, owned: OwnedStore, groups: ConsumerGroups, readers: LentReaders, in_thread: InThread) -> None:
        self._engine = owned.engine
        self._groups = groups
        self._readers = readers
        self._in_thread = in_thread

    def handlers(self) -> Mapping[int, Handler]:
        return {RequestCode.CONSUMER_SEND_MSG_BACK: answered_in_thread(self._in_thread, self._send_back)}

    def _send_back(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """Put the copy into ``%RETRY%group``, or ``%DLQ%group`` after the last time, or with a negative level."""
        offset, group = long_field(request, "offset"), text_field(request, "group")
        delay_level = int_field(request, "delayLevel")
        self._groups.make_ready(group)
        settings = self._groups.settings(group)
        if settings.retry_queue_nums <= 0:
            return request.answer(ResponseCode.SUCCESS)  # a group whose messages are not consumed again
        if request.version >= _SENDS_MAX_RECONSUME_TIMES and "maxReconsumeTimes" in request.fields:
            most = int_field(request, "maxReconsumeTimes")
            settings = msgspec.structs.replace(settings, retry_max_times=most)
        if fault := self._engine.topics.put_fault(retry_topic(group)):
            return request.answer(ResponseCode.NO_PERMISSION, f"{fault}.")
        try:
            with self._readers.lent() as reader:
                message = reader.message_at(offset, verify_crc=False)
        except MessageNotFound:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        sys_flag = FLAG_UNIT_SUB if flag_field(request, "unitMode") else 0
        result = put_for_retry(self._engine, message, settings, delay_level, retry_sys_flag=sys_flag)
        if result.status is not PutMessageStatus.PUT_OK:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"{result.status.value}: {result.reason}")
        return request.answer(ResponseCode.SUCCESS)
