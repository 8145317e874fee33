"""Arrivals: wakes the threads and tasks that wait for messages of a topic, a queue or tags when these are dispatched.

Source: RocketMQ ``broker/longpolling/PullRequestHoldService.java`` (``notifyMessageArriving``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple, TypeVar

import numpy as np

from commitlog_store.columnar.dispatch import DispatchRequests
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.threads.wakeup import Settable, Waiters

_Wakeup = TypeVar("_Wakeup", bound=Settable)


class Interest(NamedTuple):
    """Messages that a waiter is woken for: of a topic, or one of its queues, and of tags codes that may match.

    ``may_match`` is that of a ``MessageFilter``: messages whose properties do not match wake too. ``besides`` are
    queues of the topic that others read; a queue that is new is in none of these.
    """

    topic: str
    queue_id: int | None = None
    may_match: Callable[[Int64Array], BoolArray] | None = None
    besides: frozenset[int] = frozenset()

    def is_in(self, queue_ids: Set[int]) -> bool:
        """Whether messages that wake may be in one of these queues of the topic."""
        return self.queue_id in queue_ids if self.queue_id is not None else not queue_ids <= self.besides


class Arrivals(Waiters):
    """The threads and tasks that wait for messages of an open store."""

    def __init__(self) -> None:
        super().__init__()
        self._by_topic: dict[str, dict[Settable, Interest]] = {}

    @contextlib.contextmanager
    def waiting_for(self, wakeup: _Wakeup, interests: Sequence[Interest]) -> Iterator[_Wakeup]:
        """``waiting``, but ``arrived`` sets the wakeup for these messages only; one interest for each topic."""
        with self.waiting(wakeup, of_all=False):
            try:
                for interest in interests:
                    self._by_topic.setdefault(interest.topic, {})[wakeup] = interest
                yield wakeup
            finally:
                # A topic's table stays: another thread may be about to enter it.
                for interest in interests:
                    self._by_topic.get(interest.topic, {}).pop(wakeup, None)

    def arrived(self, requests: DispatchRequests) -> None:
        """Messages have come into their queues, and readers see them."""
        self.wake_general()
        for code, topic in enumerate(requests.topics):
            if interested := self._by_topic.get(topic):
                self._wake(list(interested.items()), requests, code)

    def shown(self, queues: Mapping[str, set[int]]) -> None:
        """The end of a batch shows messages that came into these queues before, by topic. Their tags are not known."""
        self.wake_general()
        for topic, interested in list(self._by_topic.items()):
            ids = queues.get(topic)
            if ids is None:
                continue
            for wakeup, interest in list(interested.items()):
                if interest.is_in(ids):
                    wakeup.set()

    def _wake(self, interested: Sequence[tuple[Settable, Interest]], requests: DispatchRequests, code: int) -> None:
        rows = requests.topic_codes == code
        # Once for all: thousands may wait for queues of one topic.
        queues = frozenset(requests.queue_ids[rows].tolist())
        for wakeup, interest in interested:
            # Light queues have no rows of their own.
            if not queues or (interest.is_in(queues) and _may_match(interest, requests, rows)):
                wakeup.set()


def _may_match(interest: Interest, requests: DispatchRequests, rows: BoolArray) -> bool:
    """Whether tags of one of the messages may match."""
    if interest.may_match is None:
        return True
    if interest.queue_id is not None:
        rows = rows & (requests.queue_ids == interest.queue_id)
    elif interest.besides:
        rows = rows & ~np.isin(requests.queue_ids, list(interest.besides))
    return bool(interest.may_match(requests.tags_codes[rows]).any())
