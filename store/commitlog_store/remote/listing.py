"""Listing: the topics and queue ids that a server named last, with which a reader asks for bounds in one question.

To list topics, then their queues, then ask for bounds, and list again to see that no queue has come: five questions. A
reader assumes what it listed before, and the server's answer (``wire.ListedBounds``) names the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter

from commitlog_store.errors import CommitLogError, RemoteFailed
from commitlog_store.queue.views import QueueInfo
from commitlog_store.remote.wire import ListedBounds, names_digest

# The arguments of the question ``listed_bounds``, but for the first.
_Assumed = tuple[bytes | None, list[tuple[str, list[int] | None]], list[tuple[str, list[int]]] | None]


class Listing:
    """What was listed last, of the store of one reader."""

    def __init__(self) -> None:
        self._topics: list[str] | None = None
        self._queue_ids: dict[str, list[int]] = {}
        # What was asked for since ``begin``: whether all topics, and topics with their queue ids, None for an error.
        self._all_topics = False
        self._asked: dict[str, list[int] | None] = {}
        # The last answer: what was assumed, the state of the store, and the bounds.
        self._last: tuple[_Assumed, bytes, list[QueueInfo]] | None = None

    def begin(self) -> None:
        """Note from now on what is asked for."""
        self._all_topics = False
        self._asked = {}

    def forget(self) -> None:
        """Forget what was listed, and ``begin`` again."""
        self._topics, self._queue_ids, self._last = None, {}, None
        self.begin()

    def topics(self, ask: Callable[[], list[str]]) -> list[str]:
        """All topics, which are asked for the first time."""
        self._all_topics = True
        if self._topics is None:
            self._topics = ask()
        return list(self._topics)

    def queue_ids_of(
        self, topics: Sequence[str], ask: Callable[[Sequence[str]], list[list[int] | CommitLogError]]
    ) -> list[list[int] | CommitLogError]:
        """The queue ids of topics, or why there are none. Those that are not known are asked for."""
        unknown = [topic for topic in dict.fromkeys(topics) if topic not in self._queue_ids]
        errors: dict[str, CommitLogError] = {}
        for topic, found in zip(unknown, ask(unknown) if unknown else (), strict=True):
            if isinstance(found, CommitLogError):
                errors[topic] = found
            else:
                self._queue_ids[topic] = found
        self._asked |= {topic: self._queue_ids.get(topic) for topic in topics}
        return [errors[topic] if topic in errors else list(self._queue_ids[topic]) for topic in topics]

    def bounds(
        self, wanted: Sequence[tuple[str, int]], ask: Callable[[bytes, _Assumed], ListedBounds]
    ) -> tuple[list[QueueInfo], bytes | None] | None:
        """The bounds of queues that were listed since ``begin``, and the store's settled state before that.

        None if the list has changed: list them again. ``RemoteFailed``.
        """
        assumed = self._assumed(wanted)
        last = self._last if self._last is not None and self._last[0] == assumed else None
        found = ask(b"" if last is None else last[1], assumed)
        if last is not None and found.same:
            return list(last[2]), found.state
        if found.topics is not None or found.queue_ids:
            self._take(found, assumed)
            return None
        if len(found.bounds) != len(wanted):
            raise RemoteFailed(f"The server gave {len(found.bounds)} bounds of {len(wanted)} queues.")
        infos = [QueueInfo(*queue, *one) for queue, one in zip(wanted, found.bounds, strict=True)]
        self._last = (assumed, found.state, infos) if found.state else None
        return list(infos), found.state or None

    def _assumed(self, wanted: Sequence[tuple[str, int]]) -> _Assumed:
        listed = list(self._asked.items())
        names = names_digest(self._topics or ()) if self._all_topics else None
        if wanted == [(topic, one) for topic, ids in listed for one in ids or ()]:
            return names, listed, None
        return names, listed, in_topics(wanted)

    def _take(self, found: ListedBounds, assumed: _Assumed) -> None:
        if found.topics is not None:
            self._topics = found.topics
            self._queue_ids = {topic: ids for topic, ids in self._queue_ids.items() if topic in set(found.topics)}
        for place, ids in found.queue_ids:
            if not 0 <= place < len(assumed[1]):
                raise RemoteFailed(f"The server named topic {place} of {len(assumed[1])}.")
            topic = assumed[1][place][0]
            self._queue_ids.pop(topic, None)
            if ids is not None:
                self._queue_ids[topic] = ids


def in_topics(queues: Sequence[tuple[str, int]]) -> list[tuple[str, list[int]]]:
    """Queues with each topic once, for the queues that follow there."""
    return [(topic, [one for _, one in found]) for topic, found in groupby(queues, key=itemgetter(0))]
