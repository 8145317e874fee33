"""TopicAdminProcessor: topics as ``mqadmin`` and clients create, change, list, look at and delete them.

Source: RocketMQ ``broker/processor/AdminBrokerProcessor.java`` (``updateAndCreateTopic``, ``deleteTopic``,
``getAllTopicConfig``, ``getTopicConfig``, ``getTopicStatsInfo``), ``namesrv/processor/DefaultRequestProcessor.java``
(``deleteTopicInNamesrv``, ``getAllTopicListFromNameserver``, ``getUnitTopicList``),
``common/attribute/AttributeParser.java``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.errors import CommitLogError, TopicNotFound
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.paths import RETRY_TOPIC_PREFIX, is_system_topic, validate_topic
from commitlog_store.queue.topic_config import FLAG_UNIT, FLAG_UNIT_SUB, sys_flag_in
from commitlog_store.reader import StoreReader
from commitlog_store.serve.rocketmq.answering import (
    InThread,
    RequestFault,
    answered_here,
    answered_in_thread,
    flag_field,
    int_field,
    text_field,
)
from commitlog_store.serve.rocketmq.broker_identity import BrokerIdentity
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.consumer_groups import ConsumerGroups
from commitlog_store.serve.rocketmq.fastjson import NO_VERSION, encode_body, object_names
from commitlog_store.serve.rocketmq.processor import Connection, Handler, Processor
from commitlog_store.serve.rocketmq.request_times import CreationTimes
from commitlog_store.store import MessageStore, owned_by

# Attributes of topics that this store does not keep in plain queues.
_OTHER_KINDS = {("queue.type", "BatchCQ"), ("cleanup.policy", "COMPACTION")}
# Of topicSysFlag, by request: the bits that are looked at, and which of them are set.
_LISTS: Mapping[int, tuple[int, int]] = {
    RequestCode.GET_UNIT_TOPIC_LIST: (FLAG_UNIT, FLAG_UNIT),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: (FLAG_UNIT_SUB, FLAG_UNIT_SUB),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: (FLAG_UNIT | FLAG_UNIT_SUB, FLAG_UNIT_SUB),
}


class TopicAdminProcessor(Processor):
    """UPDATE_AND_CREATE_TOPIC, DELETE_TOPIC_IN_BROKER and _NAMESRV, GET_ALL_TOPIC_CONFIG, GET_TOPIC_CONFIG,
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER, GET_TOPIC_STATS_INFO, and the lists of topics with flags of unit mode."""

    def __init__(
        self,
        store: MessageStore,
        identity: BrokerIdentity,
        groups: ConsumerGroups,
        readers: LentReaders,
        in_thread: InThread,
        times: CreationTimes,
    ) -> None:
        self._store = store
        self._engine = owned_by(store).engine
        self._identity = identity
        self._groups = groups
        self._readers = readers
        self._in_thread = in_thread
        self._times = times

    def handlers(self) -> Mapping[int, Handler]:
        in_thread = self._in_thread
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: answered_in_thread(in_thread, self._create),
            RequestCode.DELETE_TOPIC_IN_BROKER: answered_in_thread(in_thread, self._delete),
            # One process is both: the broker's part has deleted it.
            RequestCode.DELETE_TOPIC_IN_NAMESRV: answered_here(lambda request, _: request.answer(ResponseCode.SUCCESS)),
            RequestCode.GET_ALL_TOPIC_CONFIG: answered_in_thread(in_thread, self._all_settings),
            RequestCode.GET_TOPIC_CONFIG: answered_in_thread(in_thread, self._settings),
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: answered_in_thread(in_thread, self._names),
            RequestCode.GET_TOPIC_STATS_INFO: answered_in_thread(in_thread, self._stats),
            **dict.fromkeys(_LISTS, answered_in_thread(in_thread, self._names_by_flags)),
        }

    def _create(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        topic = text_field(request, "topic")
        with self._times.of_topic(topic):
            _refuse_system_topic(topic)
            is_multi_tag = request.fields.get("topicFilterType") == "MULTI_TAG"
            members: dict[str, Any] = {
                "readQueueNums": int_field(request, "readQueueNums"),
                "writeQueueNums": int_field(request, "writeQueueNums"),
                "perm": int_field(request, "perm"),
                "topicFilterType": "MULTI_TAG" if is_multi_tag else "SINGLE_TAG",
                "topicSysFlag": int_field(request, "topicSysFlag", 0),
                "order": flag_field(request, "order"),
            }
            changes = _attributes(request.fields.get("attributes", ""))
            self._engine.run(lambda: self._set(topic, members, changes))
        return request.answer(ResponseCode.SUCCESS)

    def _set(self, topic: str, members: Mapping[str, Any], changes: Mapping[str, str | None]) -> None:
        """On the job thread, so that two requests do not change one topic at once."""
        self._engine.state.refuse_on_replica()
        old = self._table().get(topic, {}).get("attributes") or {}
        attributes = {name: value for name, value in {**old, **changes}.items() if value is not None}
        self._engine.topics.set_topic(topic, {**members, "attributes": attributes})

    def _delete(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """With its messages, as RocketMQ does. A topic that does not exist is deleted already."""
        topic = text_field(request, "topic")
        _refuse_system_topic(topic)
        with contextlib.suppress(TopicNotFound):
            self._store.delete_topic(topic, with_messages=True)
        if topic.startswith(RETRY_TOPIC_PREFIX):
            self._groups.forget(topic.removeprefix(RETRY_TOPIC_PREFIX))
        return request.answer(ResponseCode.SUCCESS)

    def _table(self) -> Mapping[str, dict[str, Any]]:
        """The listed topics' entries by name."""
        return self._engine.topics.content().get("topicConfigTable", {})  # type: ignore[no-any-return]

    def _all_settings(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        content = self._engine.topics.content()
        table = content.get("topicConfigTable", {})
        body = {
            "dataVersion": content.get("dataVersion", NO_VERSION),
            "mappingDataVersion": NO_VERSION,
            "topicConfigTable": table,
            "topicQueueMappingDetailMap": {},
        }
        fields = {"totalTopicNum": str(len(table))}
        return request.answer(ResponseCode.SUCCESS, fields=fields, body=encode_body(body))

    def _settings(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        topic = text_field(request, "topic")
        entry = self._table().get(topic)
        if entry is None:
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        return request.answer(ResponseCode.SUCCESS, body=encode_body(entry))

    def _names(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        return request.answer(ResponseCode.SUCCESS, body=encode_body({"topicList": sorted(self._table())}))

    def _names_by_flags(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        looked_at, expected = _LISTS[request.code]
        flags = {topic: sys_flag_in(entry.get("topicSysFlag")) for topic, entry in self._table().items()}
        found = sorted(topic for topic, flag in flags.items() if flag & looked_at == expected)
        return request.answer(ResponseCode.SUCCESS, body=encode_body({"topicList": found}))

    def _stats(self, request: RemotingCommand, _: Connection) -> RemotingCommand:
        """The bounds of each queue, and when its last message was stored, ms; 0 for an empty one."""
        topic = text_field(request, "topic")
        validate_topic(topic)
        entry = self._table().get(topic)
        with self._readers.lent() as reader:
            queue_ids = queues_of(reader, topic, entry)
            if not queue_ids:
                return request.answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
            rows = [(self._identity.queue(topic, one), _stats_of(reader, topic, one)) for one in queue_ids]
        # The store has no rates by topic.
        body = encode_body({"offsetTable": object_names(rows), "topicPutTps": 0.0})
        return request.answer(ResponseCode.SUCCESS, body=body)


def queues_of(reader: StoreReader, topic: str, entry: Mapping[str, Any] | None, *names: str) -> list[int]:
    """The queues of a topic: those that its entry in the list counts, and those that it has; none if it has neither.

    ``names`` are the numbers in the entry that count, by default both.
    """
    present: list[int] = []
    with contextlib.suppress(TopicNotFound):
        present = reader.queue_ids(topic)
    listed = 0 if entry is None else max(entry.get(name, 16) for name in names or ("readQueueNums", "writeQueueNums"))
    return sorted({*range(listed), *present})


def _stats_of(reader: StoreReader, topic: str, queue_id: int) -> dict[str, int]:
    found = {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    with contextlib.suppress(CommitLogError):  # without a message yet, or one that cannot be read
        info = reader.queue_info(topic, queue_id)
        found |= {"maxOffset": info.max_offset, "minOffset": info.min_offset}
        if info.max_offset > info.min_offset:
            found["lastUpdateTimestamp"] = reader.store_timestamp(topic, queue_id, info.max_offset - 1)
    return found


def _refuse_system_topic(topic: str) -> None:
    if not topic or is_system_topic(topic):
        raise RequestFault(ResponseCode.INVALID_PARAMETER, f"The topic[{topic}] is conflict with system topic.")


def _attributes(text: str) -> dict[str, str | None]:
    """The changes of ``+name=value,-name``; None removes an attribute. ``RequestFault``."""
    changes: dict[str, str | None] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part[1:].partition("=")
        if part[0] not in "+-" or not name or (part[0] == "+") != bool(equals):
            raise RequestFault(
                ResponseCode.INVALID_PARAMETER, f"attributes are +name=value and -name, with commas, not {part[:100]!r}"
            )
        if (name, value) in _OTHER_KINDS:
            raise RequestFault(ResponseCode.INVALID_PARAMETER, f"this store keeps no topics with {name}={value}")
        changes[name] = value if equals else None
    return changes
