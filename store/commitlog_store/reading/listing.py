"""Queue ids of many topics: those of unchanged ones together, and an error for each topic that has one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from commitlog_store.errors import CommitLogError
from commitlog_store.queue.views import CatalogView
from commitlog_store.reading.arguments import checked_topic, checked_topics
from commitlog_store.reading.places import answer_or_error


def queue_ids_of(
    catalog: CatalogView, queue_ids: Callable[[str], list[int]], topics: Iterable[str]
) -> list[list[int] | CommitLogError]:
    """``StoreReader.queue_ids_of``; ``queue_ids`` answers for one topic."""
    topics = checked_topics(topics)
    unchanged = catalog.unchanged_ids(topics)

    def ids_of(topic: str) -> list[int]:
        return queue_ids(checked_topic(topic))

    return [
        list(ids)
        if type(topic) is str and (ids := unchanged.get(topic)) is not None
        else answer_or_error(partial(ids_of, topic))
        for topic in topics
    ]
