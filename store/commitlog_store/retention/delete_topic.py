"""Deletion of topics: their queues, their entry in topics.json, positions of groups.

Messages of the topic that the log still has are deleted only when that is asked for. They stay in the log until
retention takes its files, so a note of the deletion comes first (``queue/deleted_topics.py``). From then on the topic
is deleted: a crash leaves queues that the next opening removes. docs/decisions/0019-retention.md has the reasons.

Source: RocketMQ ``store/DefaultMessageStore.java`` (``deleteTopics``, ``cleanUnusedTopic``,
``cleanExpiredConsumerQueue``), ``broker/processor/AdminBrokerProcessor.java`` (``deleteTopic``).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property

from commitlog_store.engine.store_engine import StoreEngine
from commitlog_store.errors import CorruptConsumeQueue, InvalidValue, TopicInUse, TopicNotFound
from commitlog_store.groups.group_positions import GroupPositions
from commitlog_store.paths import is_system_topic, validate_topic
from commitlog_store.queue.topic_config import unused_topics

_LOG = logging.getLogger(__name__)


class TopicDeletion:
    """One deletion of topics in an open store. On its job thread."""

    def __init__(self, engine: StoreEngine, groups: GroupPositions, count_delayed: Callable[[], Counter[str]]) -> None:
        """``count_delayed`` returns the number of delayed messages that wait, by the topic that they go to."""
        self._path = engine.path
        self._log = engine.log
        self._store_flush = engine.store_flush
        self._topics = engine.topics
        self._groups = groups
        self._count_delayed = count_delayed

    @cached_property
    def _delayed(self) -> Counter[str]:
        return self._count_delayed()

    def expired_topics(self) -> list[str]:
        """The topics that have queues, and no message in the log any more; not RocketMQ's own."""
        return [topic for topic in self._known_topics() if self._has_expired(topic) and not self._delayed[topic]]

    def _has_expired(self, topic: str) -> bool:
        try:
            return self._log.queues.last_place(topic) < self._log.files.min_offset
        except CorruptConsumeQueue as damage:
            _LOG.warning("Topic %s may have messages: %s", topic, damage)
            return False

    def unused_topics(self, retain: Iterable[str]) -> list[str]:
        """``unused_topics`` of the store. ``CorruptConfig``."""
        return unused_topics(self._topics.content().get("topicConfigTable", {}), self._known_topics(), retain)

    def _known_topics(self) -> list[str]:
        topics = dict.fromkeys(topic for topic, _ in self._log.queues.known_queues())
        return [topic for topic in topics if not is_system_topic(topic)]

    def delete(self, topic: str, *, with_messages: bool) -> None:
        """Delete one topic. ``InvalidValue``, ``TopicInUse``, ``TopicNotFound``, ``CorruptConfig``, ``StoreIOError``.

        After an error it can be repeated.
        """
        validate_topic(topic)
        if is_system_topic(topic):
            raise InvalidValue(f"Topic {topic!r} holds records of RocketMQ or of the store itself; it is not deleted.")
        self._store_flush.flush_log()
        self._store_flush.dispatch()
        has_queues = self._log.queues.highest_id(topic) >= 0
        delayed = self._delayed[topic]
        if delayed and not with_messages:
            raise self._in_use(topic, f"{delayed} delayed messages wait for their delivery to it")
        # No put may take an offset of the topic until its queues are gone, nor find it listed until it is not.
        with self._log.writer.lock:
            if has_queues or delayed:
                self._delete_queues(topic, delayed, with_messages=with_messages)
            elif not self._log.writer.forget_topic(topic, self._log.queues.ends_of(topic)):
                raise self._in_use(topic, "messages are being put into it")
            listed = self._topics.remove_topic(topic)
        self._groups.forget_topic(topic)
        if not (has_queues or delayed or listed):
            raise TopicNotFound(f"{self._path} has no topic {topic!r}.")

    def _delete_queues(self, topic: str, delayed: int, *, with_messages: bool) -> None:
        queues, files, ends = self._log.queues, self._log.files, self._log.queues.ends_of(topic)
        place = queues.last_place(topic)
        in_log = place >= files.min_offset
        if in_log and not with_messages:
            where = f"which begins at physical offset {files.min_offset}; the last one is at {place}"
            raise self._in_use(topic, f"it has messages in the log, {where}")
        if not self._log.writer.forget_topic(topic, ends):
            raise self._in_use(topic, "messages are being put into it")
        if in_log or delayed:
            # First the messages: a log that ended before this place would get new ones there.
            self._store_flush.flush_log()
            queues.deleted.add(topic, files.max_wrote, ends)
        queues.discount_topic(topic)
        self._store_flush.write_checkpoint()
        queues.remove_topic(topic)

    def _in_use(self, topic: str, why: str) -> TopicInUse:
        return TopicInUse(
            f"Topic {topic!r} of {self._path} was not deleted, since {why}. Delete the topic when these are gone "
            "(commitlog clean), or with them: with_messages=True, --with-messages."
        )
