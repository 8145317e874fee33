"""Deletion of topics whose messages are all gone: their queues, their entry in topics.json, positions of groups.

A topic with messages in the log is not deleted: the queues are derived from the log (invariant 1), and would come back
with the next rebuild. And the next put would give queue offsets again that messages of the log have.

Source: RocketMQ ``store/DefaultMessageStore.java`` (``cleanUnusedTopic``, ``cleanExpiredConsumerQueue``), which deletes
the queues of any topic.
"""

from __future__ import annotations

from commitlog.errors import InvalidValue, TopicInUse, TopicNotFound
from commitlog.paths import is_system_topic, validate_topic
from commitlog.queue.topic_config import TopicConfig
from commitlog.recovery.open import OpenedLog
from commitlog.services.flush_consumer_offset import FlushConsumerOffsetService
from commitlog.services.store_flush import StoreFlush

__all__ = ["TopicDeletion"]


class TopicDeletion:
    """Deletes topics of one open store. On its job thread."""

    def __init__(
        self,
        path: str,
        log: OpenedLog,
        store_flush: StoreFlush,
        topics: TopicConfig,
        consumer_offsets: FlushConsumerOffsetService,
    ) -> None:
        self._path = path
        self._log = log
        self._store_flush = store_flush
        self._topics = topics
        self._consumer_offsets = consumer_offsets

    def expired_topics(self) -> list[str]:
        """The topics that have queues, and no message in the log any more; not RocketMQ's own."""
        queues, log_start = self._log.queues, self._log.files.min_offset
        topics = dict.fromkeys(topic for topic, _ in queues.known_queues())
        return [topic for topic in topics if not is_system_topic(topic) and queues.last_place(topic) < log_start]

    def delete(self, topic: str) -> None:
        """Delete one topic. ``InvalidValue``, ``TopicInUse``, ``TopicNotFound``, ``CorruptConfig``, ``StoreIOError``.

        After an error it can be repeated.
        """
        validate_topic(topic)
        if is_system_topic(topic):
            raise InvalidValue(f"Topic {topic!r} holds records of RocketMQ or of the store itself; it is not deleted.")
        self._store_flush.flush_log()
        self._store_flush.dispatch()
        has_queues = self._log.queues.highest_id(topic) >= 0
        if has_queues:
            # No put may take an offset of the topic until its queues are gone.
            with self._log.writer.lock:
                self._delete_queues(topic)
        listed = self._topics.remove_topic(topic)
        self._forget_positions(topic)
        if not has_queues and not listed:
            raise TopicNotFound(f"{self._path} has no topic {topic!r}.")

    def _delete_queues(self, topic: str) -> None:
        log_start, place = self._log.files.min_offset, self._log.queues.last_place(topic)
        if place >= log_start or not self._log.writer.forget_topic(topic, self._log.queues.ends_of(topic)):
            raise TopicInUse(
                f"Topic {topic!r} has messages in the log of {self._path}: the log begins at physical offset "
                f"{log_start}, and the topic's last message is at {place}. Nothing was deleted. Delete the topic "
                "when retention has deleted these: commitlog clean.",
            )
        self._log.queues.discount_topic(topic)
        self._store_flush.write_checkpoint()
        self._log.queues.remove_topic(topic)

    def _forget_positions(self, topic: str) -> None:
        """Remove the positions of groups in the topic: its next messages have offsets from 0 on."""
        # In memory too: what the open store knows is written over the file at the next flush.
        offsets = self._consumer_offsets.offsets
        for group in offsets.groups():
            offsets.remove(group, [topic])
        self._consumer_offsets.flush()
