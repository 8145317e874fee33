"""ConsumerManageProcessor: the consumers of a group, its positions, and the bounds of queues.

Source: RocketMQ ``broker/processor/ConsumerManageProcessor.java``, ``AdminBrokerProcessor.java`` (``getMaxOffset``,
``getMinOffset``, ``searchOffsetByTimestamp``, ``getEarliestMsgStoretime``), ``store/DefaultMessageStore.java``
(``checkInMemByConsumeOffset``).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping

from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.errors import OffsetOutOfRange, QueueNotFound, TopicNotFound
from commitlog_store.format.message_rules import check_queue_place
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.queue.views import QueueInfo
from commitlog_store.reader import StoreReader
from commitlog_store.serve.rocketmq.answering import (
    RequestFault,
    ThreadsOf,
    Work,
    answer_of,
    answered_here,
    answered_in_thread,
    flag_field,
    int_field,
    long_field,
    text_field,
)
from commitlog_store.serve.rocketmq.clients import ClientRegistry
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.consumer_groups import NO_POSITION, ConsumerGroups
from commitlog_store.serve.rocketmq.fastjson import encode_body
from commitlog_store.serve.rocketmq.processor import Answered, Connection, Handler, Processor

# RocketMQ's accessMessageInMemoryMaxRatio: so much of the machine's memory holds the log's end.
_IN_MEMORY_RATIO = 0.4
_IN_MEMORY_SIZE = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _IN_MEMORY_RATIO)


class ConsumerManageProcessor(Processor):
    """GET_CONSUMER_LIST_BY_GROUP, QUERY_ and UPDATE_CONSUMER_OFFSET, GET_MAX_ and GET_MIN_OFFSET,
    SEARCH_OFFSET_BY_TIMESTAMP, GET_EARLIEST_MSG_STORETIME."""

    def __init__(
        self,
        clients: ClientRegistry,
        groups: ConsumerGroups,
        readers: LentReaders,
        log_end: Callable[[], int],
        threads_of: ThreadsOf,
    ) -> None:
        """``log_end`` returns the end of the log, a physical offset."""
        self._clients = clients
        self._groups = groups
        self._readers = readers
        self._log_end = log_end
        self._of_positions = threads_of("consumer_manager")
        # A broker answers what it has registered no processor for as administration.
        self._of_offsets = threads_of("admin")

    def handlers(self) -> Mapping[int, Handler]:
        of_offsets = self._of_offsets
        return {
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: answered_here(self._consumers),
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_position,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_position,
            RequestCode.GET_MAX_OFFSET: answered_in_thread(
                of_offsets, lambda request, _: _offset(request, self._bounds(request).max_offset)
            ),
            RequestCode.GET_MIN_OFFSET: answered_in_thread(
                of_offsets, lambda request, _: _offset(request, self._bounds(request).min_offset)
            ),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: answered_in_thread(of_offsets, self._search),
            RequestCode.GET_EARLIEST_MSG_STORETIME: answered_in_thread(of_offsets, self._earliest),
        }

    def _consumers(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        group = text_field(request, "consumerGroup")
        found = self._clients.consumers(group)
        if found is None:
            return request.answer(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        ids = [client.client_id for client in found.clients.values()]
        return request.answer(ResponseCode.SUCCESS, body=encode_body({"consumerIdList": ids}))

    def _query_position(self, request: RemotingCommand, _: Connection) -> Answered:
        """A position of a group that is known is answered at once."""
        group, topic = request.fields.get("consumerGroup", ""), request.fields.get("topic", "")

        def known() -> RemotingCommand:
            position = self._groups.position(group, topic, int_field(request, "queueId"))
            return request.answer(ResponseCode.SUCCESS, fields={"offset": str(position)})

        if self._groups.is_ready(group):
            found = answer_of(request, known)
            if found.fields.get("offset") != str(NO_POSITION):
                return found
        return self._later(request, lambda: self._look_up_position(request))

    def _look_up_position(self, request: RemotingCommand) -> RemotingCommand:
        group, topic = text_field(request, "consumerGroup"), text_field(request, "topic")
        queue_id = int_field(request, "queueId")
        if self._groups.has_group(group):
            self._groups.make_ready(group)
        position = self._groups.position(group, topic, queue_id)
        if position == NO_POSITION and flag_field(request, "setZeroIfNotFound", default=True):
            with contextlib.suppress(RequestFault), self._readers.lent() as reader:
                self._groups.refuse_missing_queue(topic, queue_id)
                if _begins_here(reader, topic, queue_id, self._log_end()):
                    position = 0
        if position == NO_POSITION:
            return request.answer(ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first")
        return request.answer(ResponseCode.SUCCESS, fields={"offset": str(position)})

    def _update_position(self, request: RemotingCommand, _: Connection) -> Answered:
        """At once, if group and queue are known."""

        def commit() -> RemotingCommand:
            place = text_field(request, "consumerGroup"), text_field(request, "topic"), int_field(request, "queueId")
            self._groups.commit(*place, long_field(request, "commitOffset"))
            return request.answer(ResponseCode.SUCCESS)

        def look_and_commit() -> RemotingCommand:
            self._groups.make_ready(text_field(request, "consumerGroup"))
            self._groups.refuse_missing_queue(text_field(request, "topic"), int_field(request, "queueId"))
            return commit()

        return answer_of(request, commit) if self._is_known(request) else self._later(request, look_and_commit)

    def _is_known(self, request: RemotingCommand) -> bool:
        """Whether group and queue are known to exist, or the queue's number is none, which is answered at once."""
        try:
            queue_id = int_field(request, "queueId")
        except RequestFault:
            return True
        is_ready = self._groups.is_ready(request.fields.get("consumerGroup", ""))
        return is_ready and self._groups.lists_queue(request.fields.get("topic", ""), queue_id)

    def _later(self, request: RemotingCommand, work: Work) -> Awaitable[RemotingCommand]:
        return self._of_positions(lambda: answer_of(request, work))

    def _bounds(self, request: RemotingCommand) -> QueueInfo:
        topic, queue_id = _queue_of(request)
        with self._readers.lent() as reader:
            return _bounds_of(reader, topic, queue_id)

    def _search(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        topic, queue_id = _queue_of(request)
        time_ms = long_field(request, "timestamp")
        boundary = "upper" if request.fields.get("boundaryType", "").upper() == "UPPER" else "lower"
        with self._readers.lent() as reader:
            return _offset(request, offset_at(reader, topic, queue_id, time_ms, upper=boundary == "upper"))

    def _earliest(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        topic, queue_id = _queue_of(request)
        with self._readers.lent() as reader:
            found = _bounds_of(reader, topic, queue_id)
            time_ms = -1
            if found.min_offset < found.max_offset:
                with contextlib.suppress(OffsetOutOfRange):  # deleted since
                    time_ms = reader.store_timestamp(topic, queue_id, found.min_offset)
        return request.answer(ResponseCode.SUCCESS, fields={"timestamp": str(time_ms)})


def offset_at(reader: StoreReader, topic: str, queue_id: int, time_ms: int, *, upper: bool = False) -> int:
    """The first offset stored at a time or later; a negative time is the queue's end, and so is any of no queue."""
    found = _bounds_of(reader, topic, queue_id)
    if time_ms < 0 or found.min_offset == found.max_offset:
        return found.max_offset
    return reader.offset_by_time(topic, queue_id, time_ms, boundary="upper" if upper else "lower")


def _queue_of(request: RemotingCommand) -> tuple[str, int]:
    topic, queue_id = text_field(request, "topic"), int_field(request, "queueId")
    check_queue_place(topic, queue_id, 0)
    return topic, queue_id


def _bounds_of(reader: StoreReader, topic: str, queue_id: int) -> QueueInfo:
    """The bounds of a queue; 0 and 0 for one without messages."""
    try:
        return reader.queue_info(topic, queue_id)
    except (TopicNotFound, QueueNotFound):
        return QueueInfo(topic, queue_id, 0, 0)


def _begins_here(reader: StoreReader, topic: str, queue_id: int, log_end: int) -> bool:
    """Whether the queue is empty, or has its first message still, near the log's end: a new group starts at 0 there.

    Without that, a group that starts with its topic would miss the messages before its first heartbeat.
    """
    found = _bounds_of(reader, topic, queue_id)
    if found.min_offset > 0 or not found.max_offset:
        return not found.max_offset
    for units in reader.units(topic, queue_id, 0, 1):
        return log_end - int(units["physical_offset"][0]) <= _IN_MEMORY_SIZE
    return False


def _offset(request: RemotingCommand, offset: int) -> RemotingCommand:
    return request.answer(ResponseCode.SUCCESS, fields={"offset": str(offset)})
