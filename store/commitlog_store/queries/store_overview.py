"""The overview of a store, looked at again and again: topics by rate, groups by lag, log, disk.

For a directory and for the address of a server. What takes long is asked for less often.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from commitlog_store.errors import CommitLogError
from commitlog_store.paths import is_system_topic
from commitlog_store.queries.group_summary import GroupSummary, group_summaries
from commitlog_store.reader import QueueInfo, StoreReader

_T = TypeVar("_T")
# Rates are means over so many seconds, or as long as the looks are apart.
_WINDOW_S = 10.0
# A question is asked again when so many times as long as it took has passed: a twentieth of the time at most.
_REST = 20.0
# All files of a store are listed for it.
_FACTS_S = 30.0


@dataclass(frozen=True, kw_only=True)
class TopicLook:
    """A topic: messages that its queues have, and those stored a second; None at the first look."""

    topic: str
    queues: int
    messages: int
    rate: float | None


@dataclass(frozen=True, kw_only=True)
class StoreOverview:
    """``disk_used``, a share, and ``disk_free`` are those of the log's disk, ``files_size`` what the files take.

    None is what is not known. ``bytes_rate`` is how many bytes a second the log grows by. ``problems`` are the errors
    of the questions that could not be answered now; their last answers stay.
    """

    log_start: int | None = None
    log_end: int | None = None
    bytes_rate: float | None = None
    files_size: int | None = None
    disk_used: float | None = None
    disk_free: int | None = None
    topics: Sequence[TopicLook] = ()
    groups: Sequence[GroupSummary] = ()
    problems: Sequence[str] = field(default=())

    @property
    def rate(self) -> float | None:
        """Messages stored a second in topics that are not the store's own."""
        known = [one.rate for one in self.topics if one.rate is not None and not is_system_topic(one.topic)]
        return sum(known) if known else None


class OverviewLooks:
    """Looks at one store. One thread."""

    def __init__(self, reader: StoreReader, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._topics = _Question(lambda: _topics(reader), clock)
        self._groups = _Question(lambda: group_summaries(reader.groups()), clock)
        self._log = _Question(reader.physical_bounds, clock)
        self._facts = _Question(lambda: reader.facts(assessed=False), clock, pause_s=_FACTS_S)
        self._ends: _Rates[str] = _Rates()
        self._log_ends: _Rates[str] = _Rates()

    def look(self) -> StoreOverview:
        """The store now, as far as it can be read: errors of this package are among the ``problems``."""
        questions: tuple[_Question[Any], ...] = (self._topics, self._groups, self._log, self._facts)
        problems = [problem for one in questions if (problem := one.ask())]
        found = self._topics.answer or {}
        rates = self._ends.of({topic: end for topic, (_, _, end) in found.items()}, self._topics.at)
        log = self._log.answer
        log_rates = self._log_ends.of({"": log[1]} if log else {}, self._log.at)
        facts = self._facts.answer
        return StoreOverview(
            log_start=None if log is None else log[0],
            log_end=None if log is None else log[1],
            bytes_rate=log_rates.get(""),
            files_size=None if facts is None else facts.disk_size,
            disk_used=None if facts is None else facts.log_disk_used,
            disk_free=None if facts is None else facts.log_disk_free,
            topics=[
                TopicLook(topic=topic, queues=queues, messages=messages, rate=rates.get(topic))
                for topic, (queues, messages, _) in found.items()
            ],
            groups=self._groups.answer or (),
            problems=list(dict.fromkeys(problems)),
        )


class _Question(Generic[_T]):
    """The last answer to a question, and when it was asked; ``pause_s`` at least until it is asked again."""

    def __init__(self, ask: Callable[[], _T], clock: Callable[[], float], *, pause_s: float = 0.0) -> None:
        self._ask, self._clock, self._pause_s = ask, clock, pause_s
        self._next = 0.0
        self._problem = ""
        self.answer: _T | None = None
        self.at = 0.0

    def ask(self) -> str:
        """Ask if it is time; what went wrong the last time, nothing if nothing did."""
        began = self._clock()
        if began < self._next:
            return self._problem
        try:
            self.answer = self._ask()
            self.at, self._problem = began, ""
        except CommitLogError as error:
            self._problem = str(error)
        ended = self._clock()
        pause = 0.0 if self._problem else self._pause_s
        self._next = max(began + pause, ended + (ended - began) * _REST)
        return self._problem


class _Rates(Generic[_T]):
    """Counters of the last seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Mapping[_T, int]]] = deque()

    def of(self, counts: Mapping[_T, int], at: float) -> dict[_T, float]:
        """How much each counter grows a second."""
        samples = self._samples
        if not samples or samples[-1][0] < at:
            samples.append((at, counts))
        while len(samples) > 2 and samples[1][0] <= at - _WINDOW_S:
            samples.popleft()
        began, before = samples[0]
        if began >= at:
            return {}
        return {name: max(count - before.get(name, 0), 0) / (at - began) for name, count in counts.items()}


def _topics(reader: StoreReader) -> dict[str, tuple[int, int, int]]:
    """Queues, messages and the sum of the queues' ends of each topic that can be read."""
    names = reader.topics()
    ids = [one if isinstance(one, list) else [] for one in reader.queue_ids_of(names)]
    infos = reader.queue_infos([(topic, queue) for topic, queues in zip(names, ids, strict=True) for queue in queues])
    by_topic: dict[str, list[QueueInfo]] = {topic: [] for topic in names}
    for info in infos:
        by_topic[info.topic].append(info)
    return {
        topic: (
            len(queues),
            sum(one.max_offset - one.min_offset for one in queues),
            sum(one.max_offset for one in queues),
        )
        for topic, queues in by_topic.items()
    }
