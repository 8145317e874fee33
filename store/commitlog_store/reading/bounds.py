"""Bounds of queues and of the log, each those of one moment, also beside the store's owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from commitlog_store.batch.consistent_reads import ConsistentReads
from commitlog_store.batch.log_snapshot import LogSnapshot
from commitlog_store.batch.visibility import NOTHING_HIDDEN
from commitlog_store.errors import CommitLogError
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.queue.catalog import log_end_by_queues
from commitlog_store.queue.views import CatalogView, QueueInfo
from commitlog_store.reading.arguments import checked_queues
from commitlog_store.reading.settled_answers import MOST_BOUNDS, SettledAnswers

_T = TypeVar("_T")

# More queues are asked for as ``ConsistentReads`` asks: their bounds may be kept.
_FEW = 15


@dataclass(frozen=True, slots=True)
class QueuesOfTopic:
    """Lists the queues of one topic, most often a few: for ``Bounds.of_queues``."""

    topic: str
    queue_ids: Callable[[str], list[int]]

    def __call__(self) -> list[tuple[str, int]]:
        return [(self.topic, queue_id) for queue_id in self.queue_ids(self.topic)]


class Bounds:
    """The bounds of a store; with a snapshot those of the log when it was opened. ``StoreReader`` has the meanings."""

    def __init__(
        self,
        commit_log: CommitLog,
        catalog: CatalogView,
        reads: ConsistentReads,
        snapshot: LogSnapshot | None,
        settled: SettledAnswers,
    ) -> None:
        self._commit_log = commit_log
        self._catalog = catalog
        self._reads = reads
        self._snapshot = snapshot
        self._settled = settled

    def of_queues(self, queues: Iterable[tuple[str, int]] | Callable[[], Iterable[tuple[str, int]]]) -> list[QueueInfo]:
        """``StoreReader.queue_infos``."""
        if self._snapshot is not None:
            return self._look(checked_queues(queues() if callable(queues) else queues))
        given = None if callable(queues) else checked_queues(queues)
        few = queues if isinstance(queues, QueuesOfTopic) else given
        if few is not None and (unchanged := self._of_unchanged(few)) is not None:
            return unchanged

        def look() -> list[QueueInfo]:
            wanted = checked_queues(queues()) if callable(queues) else given or []
            settled = self._settled.now(len(wanted), MOST_BOUNDS)
            if settled is None:
                return self._look(wanted)  # ``ConsistentReads`` has just listed the log's files
            if missing := [key for key in wanted if key not in settled.bounds]:
                settled.bounds.update(zip(missing, self._look(missing), strict=True))
            return [settled.bounds[key] for key in wanted]

        def show(infos: list[QueueInfo], hidden: int) -> list[QueueInfo]:
            return infos if hidden == NOTHING_HIDDEN else [self._without(info, hidden) for info in infos]

        return self._reads.read(look, show)

    def _of_unchanged(self, queues: Sequence[tuple[str, int]] | QueuesOfTopic) -> list[QueueInfo] | None:
        """The bounds of a few queues, if all of them are as they were at a clean close; else None.

        Their bounds are those of any moment since then, so that of the look at the log, and no batch is among them that
        is being dispatched: no second look is needed.
        """
        if not isinstance(queues, QueuesOfTopic) and len(queues) > _FEW:
            return None
        try:
            self._commit_log.refresh()
            wanted = checked_queues(queues()) if isinstance(queues, QueuesOfTopic) else queues
            bounds = self._catalog.unchanged_bounds(wanted) if 0 < len(wanted) <= _FEW else None
        except (CommitLogError, OSError):
            return None  # the usual look says whether it is so
        return None if bounds is None else [QueueInfo(*key, *one) for key, one in zip(wanted, bounds, strict=True)]

    def _look(self, queues: Sequence[tuple[str, int]]) -> list[QueueInfo]:
        bounds = self._catalog.bounds_of(queues)
        return [QueueInfo(*key, *limits) for key, limits in zip(queues, bounds, strict=True)]

    def _without(self, info: QueueInfo, physical_offset: int) -> QueueInfo:
        """The queue as if the log ended at a physical offset."""
        queue = self._catalog.queue(info.topic, info.queue_id)
        end = queue.first_offset_from(physical_offset, info.min_offset, info.max_offset)
        return QueueInfo(info.topic, info.queue_id, info.min_offset, end)

    def consistently(self, ask: Callable[[], _T], *, one_moment: bool) -> _T:
        """``StoreReader.consistently``."""
        return ask() if self._snapshot is not None else self._reads.repeat(ask, one_moment=one_moment)

    def settled_state(self) -> object | None:
        """``StoreReader.settled_state``."""
        return None if self._snapshot is not None else self._reads.settled_state()

    def log_start(self) -> int:
        """``StoreReader.log_start``."""
        if self._snapshot is not None:
            return self._snapshot.start
        self._commit_log.refresh()
        return self._commit_log.min_offset if self._commit_log.file_count else -1

    def of_log(self) -> tuple[int, int]:
        """``StoreReader.physical_bounds``."""
        if self._snapshot is not None:
            return self._snapshot.start, self._snapshot.end
        return self._reads.repeat(
            lambda: (
                self._commit_log.min_offset,
                self._commit_log.written_end(log_end_by_queues(self._catalog, self._commit_log)),
            ),
            one_moment=True,
        )
