"""Subscription: the queues that a query reads, by the options ``subscribe``, ``subscribePattern`` and ``assign``."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TypeAlias

from commitlog_store import QueueInfo, StoreReader
from commitlog_store.columnar.columns import nearest_names
from commitlog_store.errors import CommitLogError, QueueNotFound, TopicNotFound, UnsupportedStore
from commitlog_store.paths import is_system_topic

_logger = logging.getLogger(__name__)

QueueKey: TypeAlias = tuple[str, int]
"""Topic and queue id."""


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """The topics or queues that a query reads. Exactly one of the three fields is set.

    System topics (SCHEDULE_TOPIC_XXXX, rmq_sys_*, ...) are never matched by a pattern: the broker's own messages are
    read only by a query that names the topic. Nor are topics that cannot be read (compaction topics, batch consume
    queues): a pattern skips them with a warning, naming one is an error.
    """

    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    queues: Mapping[str, tuple[int, ...]] | None = None
    # The topics that were skipped so far: each is reported once, not at every trigger.
    _warned_of: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    def covers(self, topic: str, queue_id: int) -> bool:
        """Whether the queue, if it exists, belongs to the subscription."""
        if self.topics is not None:
            return topic in self.topics
        if self.queues is not None:
            return queue_id in self.queues.get(topic, ())
        return self._matches(topic)

    def _matches(self, topic: str) -> bool:
        return self.pattern is not None and re.fullmatch(self.pattern, topic) is not None and not is_system_topic(topic)

    def parts(self) -> list[Subscription]:
        """A subscription for each named topic or queue; for a pattern only itself."""
        if self.topics is not None:
            return [Subscription(topics=(topic,)) for topic in self.topics]
        if self.queues is not None:
            return [Subscription(queues={topic: (one,)}) for topic, ids in self.queues.items() for one in ids]
        return [self]

    def is_among(self, queues: Collection[QueueKey], topics: Collection[str]) -> bool:
        """Whether one of the named topics or queues is among those that were found; for a pattern, whether any was."""
        if self.queues is not None:
            return any((topic, one) in queues for topic, ids in self.queues.items() for one in ids)
        return bool(topics) if self.topics is None else any(topic in topics for topic in self.topics)

    def find_topics(self, reader: StoreReader) -> list[str]:
        """The subscription's topics, also named ones that the store does not have."""
        if self.topics is not None:
            return list(self.topics)
        if self.queues is not None:
            return list(self.queues)
        matches = re.compile(self.pattern or "").fullmatch
        return [topic for topic in reader.topics() if matches(topic) is not None and not is_system_topic(topic)]

    def find_queues(self, reader: StoreReader) -> Iterator[QueueKey]:
        """The queues that exist now, by topic and queue id. Topics and queues that do not exist (yet) are left out.

        ``UnsupportedStore`` for a named topic in a format that cannot be read.
        """
        for topic, queue_ids in sorted(self._listed(reader), key=itemgetter(0)):
            if isinstance(queue_ids, UnsupportedStore):
                if self.pattern is None:
                    raise queue_ids
                self._warn_unreadable(topic, queue_ids)
                continue
            if isinstance(queue_ids, TopicNotFound):
                continue
            wanted = None if self.queues is None else self.queues[topic]
            for queue_id in queue_ids:
                if wanted is None or queue_id in wanted:
                    yield topic, queue_id

    def _listed(self, reader: StoreReader) -> Iterator[tuple[str, list[int] | TopicNotFound | UnsupportedStore]]:
        """The subscription's topics with their queue ids, or why there are none. Raises other errors."""
        topics = self.find_topics(reader)
        for topic, found in zip(topics, reader.queue_ids_of(topics), strict=True):
            if isinstance(found, CommitLogError) and not isinstance(found, TopicNotFound | UnsupportedStore):
                raise found
            yield topic, found

    def _warn_unreadable(self, topic: str, error: UnsupportedStore) -> None:
        if topic not in self._warned_of:
            self._warned_of.add(topic)
            _logger.warning("%s It matches subscribePattern and is skipped.", error)

    def bounds(self, reader: StoreReader) -> dict[QueueKey, QueueInfo]:
        """The bounds of the queues that exist now, all of one moment."""
        return self.settled_bounds(reader)[0]

    def settled_bounds(self, reader: StoreReader) -> tuple[dict[QueueKey, QueueInfo], object | None]:
        """``bounds``, and the store's state before that: ``StoreReader.settled_queue_infos``."""
        infos, state = reader.settled_queue_infos(lambda: self.find_queues(reader))
        return {(info.topic, info.queue_id): info for info in infos}, state

    def warn_of_missing(self, reader: StoreReader, *, waits: bool = True) -> None:
        """Log one warning with the named topics and queues that the store does not have: perhaps they are misspelled.

        A stream ``waits`` for them. Topics that cannot be read are left to ``find_queues``.
        """
        if self.pattern is not None:
            if not self.find_topics(reader):
                _logger.warning("No topic of the store %s matches subscribePattern yet.", reader.path)
            return
        missing: list[str] = []
        for topic, there in self._listed(reader):
            if isinstance(there, TopicNotFound):
                missing.append(f"Topic {topic!r} is not in the store {reader.path} yet.{_about_missing(topic, reader)}")
                continue
            if isinstance(there, UnsupportedStore):
                continue
            wanted = set((self.queues or {}).get(topic, ()))
            missing += [
                f"Topic {topic!r} has no queue {queue_id} in the store {reader.path} yet."
                for queue_id in sorted(wanted.difference(there))
            ]
        if missing:
            rest = "The query reads what comes there, from its first message on." if waits else "It is not read."
            _logger.warning("%s %s", " ".join(missing), rest)

    def require_all(self, reader: StoreReader) -> None:
        """``TopicNotFound`` or ``QueueNotFound`` for the first named topic or queue that the store does not have."""
        if self.pattern is not None:
            return
        for topic, queue_ids in self._listed(reader):
            if isinstance(queue_ids, TopicNotFound):
                raise TopicNotFound(
                    f"Topic {topic!r} is not in the store {reader.path}.{_about_missing(topic, reader)}"
                ) from queue_ids
            if isinstance(queue_ids, UnsupportedStore):
                raise queue_ids
            for queue_id in (self.queues or {}).get(topic, ()):
                if queue_id not in queue_ids:
                    listed = ", ".join(map(str, queue_ids))
                    raise QueueNotFound(
                        f"Topic {topic!r} has no queue {queue_id} in the store {reader.path}; it has {listed}."
                    )


def _about_missing(topic: str, reader: StoreReader) -> str:
    """The topics with similar names, or the queues that the store has lost: sentences to follow others; often none."""
    near, lost = nearest_names(topic, reader.topics()), reader.lost_ends()
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return (
        f"{hint} The store lacks messages at its end: {' '.join(lost)} Run: commitlog doctor {reader.for_shell}."
        if lost
        else hint
    )
