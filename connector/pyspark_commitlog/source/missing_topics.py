"""Named topics and queues that do not exist: they fail the query, or a warning names them: ``failOnMissingTopic``."""

from __future__ import annotations

from collections.abc import Mapping

from commitlog_store import StoreReader
from commitlog_store.errors import QueueNotFound, TopicNotFound
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.options.subscription import Subscription

_WAYS_OUT = "To read the others without it, set the option failOnMissingTopic to false."


def check_topics(options: SourceOptions, readers: Mapping[str, StoreReader], *, ends: bool) -> None:
    """``ends``: the query reads what exists now, so that what comes later would come too late.

    ``TopicNotFound`` or ``QueueNotFound`` for the first named topic or queue that none of the stores has, or a warning.
    An unavailable store may have them: unless failOnMissingTopic is given, they are a warning then.
    """
    if "" in readers:
        if not options.fails_on_missing_topic(ends=ends):
            options.subscription.warn_of_missing(readers[""], waits=not ends)
            return
        try:
            options.subscription.require_all(readers[""])
        except (TopicNotFound, QueueNotFound) as error:
            error.advised(_WAYS_OUT)
            raise
        return
    ends = ends and readers.keys() == options.stores.keys()
    found = {key for reader in readers.values() for key in options.subscription.find_queues(reader)}
    topics = {topic for topic, _ in found}
    for part in options.subscription.parts() if readers else ():
        if part.is_among(found, topics):
            continue
        if options.fails_on_missing_topic(ends=ends):
            _require_somewhere(part, readers)
        else:
            part.warn_of_missing(next(iter(readers.values())), waits=not ends)


def _require_somewhere(part: Subscription, readers: Mapping[str, StoreReader]) -> None:
    first: TopicNotFound | QueueNotFound | None = None
    for reader in readers.values():
        try:
            part.require_all(reader)
            return
        except (TopicNotFound, QueueNotFound) as error:
            first = first or error
    if first is not None:
        raise first.advised(f"None of the stores {', '.join(readers)} has it. {_WAYS_OUT}")
