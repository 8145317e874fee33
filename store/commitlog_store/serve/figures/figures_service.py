"""FiguresService: adds what the served store did within the last minute to its ring, in a thread of its own."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.engine.stats import StoreStats
from commitlog_store.errors import CommitLogError
from commitlog_store.files.limits import disk_size, used_bytes
from commitlog_store.format.figures_record import INTERVALS_S, Figures, name_hash
from commitlog_store.groups.lag import group_lags
from commitlog_store.paths import is_system_group, is_system_topic
from commitlog_store.reader import OnDamage, StoreReader
from commitlog_store.serve.figures.figure_ring import FigureRing
from commitlog_store.store import MessageStore, owned_by
from commitlog_store.threads.wakeup import Wakeup
from commitlog_store.threads.worker import Worker

_LOG = logging.getLogger(__name__)
_MINUTE_S = INTERVALS_S[0]
# Lags are asked for in a hundredth of the time.
_REST = 100
# At the end, a step under way asks the disk and the groups' queues at most.
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class _Counted:
    """What was counted since the store was opened: by topic messages and bytes stored, and messages read; and when."""

    at: float
    numbers: Mapping[str, int]
    topics: Mapping[str, tuple[int, int, int]]


class FiguresService:
    """From ``start`` to ``stop``. One use. The store stays the caller's to close, after ``stop``."""

    def __init__(
        self,
        store: MessageStore,
        open_reader: Callable[[OnDamage], StoreReader],
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``open_reader`` opens a reader of the store, from which lags are."""
        self._store = store
        self._ring = FigureRing(store.path)
        self._clock, self._monotonic = clock, monotonic
        self._before = self._counted()
        self._due = self._next_minute()
        self._lags_at = monotonic()
        self._failure = ""
        self._stopped = False
        self._wakeup = Wakeup()
        self._worker = Worker("FiguresService", self, lambda _: None, self._wakeup, patience_s=_PATIENCE_S)
        # The last step: it registers the readers at the store. Between two minutes the reader is idle, with log files
        # that retention may delete.
        self._readers = LentReaders(owned_by(store).engine, lambda: open_reader("skip"))

    def start(self) -> None:
        self._worker.start()

    def stop(self) -> None:
        """End the thread, and add the minute that has begun. A second call does nothing."""
        if self._stopped:
            return
        self._stopped = True
        self._worker.stop()
        self._add(int(self._clock()) // _MINUTE_S * _MINUTE_S)
        self._readers.close()

    def run_once(self) -> float:
        """Add the minute that has ended, if one has; the seconds until the next one ends."""
        now = self._clock()
        if now >= self._due:
            self._add(int(now) // _MINUTE_S * _MINUTE_S - _MINUTE_S)
            self._due = self._next_minute()
        elif self._due - now > _MINUTE_S:  # the clock was set back
            self._due = self._next_minute()
        return max(self._due - self._clock(), 0.01)

    def _next_minute(self) -> int:
        return (int(self._clock()) // _MINUTE_S + 1) * _MINUTE_S

    def _add(self, begin: int) -> None:
        """Add what was counted since the last call to the minute that begins then. A failure is logged once."""
        try:
            counted = self._counted()
            self._ring.add(self._figures(begin, self._before, counted))
        except (CommitLogError, OSError) as error:
            if str(error) != self._failure:
                _LOG.warning("%s: figures are not kept: %s", self._ring.path, error)
            self._failure = str(error)
            return
        if self._failure:
            _LOG.warning("%s: figures are kept again", self._ring.path)
        self._failure, self._before = "", counted

    def _counted(self) -> _Counted:
        stats = self._store.stats()
        topics = {
            topic: (count, stats.topic_stored_sizes.get(topic, 0), stats.topic_get_times.get(topic, 0))
            for topic, count in stats.topic_stored_times.items()
        }
        for topic, read in stats.topic_get_times.items():
            topics.setdefault(topic, (0, 0, read))
        return _Counted(self._monotonic(), _numbers(stats), topics)

    def _figures(self, begin: int, before: _Counted, now: _Counted) -> Figures:
        log_begin, log_end = self._store.physical_bounds()
        log = owned_by(self._store).engine.paths.commit_log
        states = {"log_begin": log_begin, "log_end": log_end}
        states |= {"disk_used": used_bytes(log), "disk_size": disk_size(log)}
        states["not_dispatched"] = now.numbers["not_dispatched"]
        counts = {name: value - before.numbers[name] for name, value in now.numbers.items() if name != "not_dispatched"}
        topics = {}
        for topic, (messages, size, read) in now.topics.items():
            if not is_system_topic(topic):
                old = before.topics.get(topic, (0, 0, 0))
                topics[name_hash(topic)] = (messages - old[0], size - old[1], read - old[2])
        return Figures(
            begin=begin,
            seconds=_MINUTE_S,
            measured_ms=max(int((now.at - before.at) * 1000), 1),
            numbers=counts | states,
            topics=topics,
            lags=self._lags(),
        )

    def _lags(self) -> dict[int, int] | None:
        """What waits for each group, in all its topics; None while it may not be asked, or cannot be read."""
        began = self._monotonic()
        if began < self._lags_at:
            return None
        found: dict[int, int] = {}
        try:
            with self._readers.lent() as reader:
                for one in group_lags(reader, owned_by(self._store).groups.offsets):
                    if not is_system_group(one.group):
                        name = name_hash(one.group)
                        found[name] = found.get(name, 0) + one.messages
        except (CommitLogError, OSError) as error:
            _LOG.debug("Lags are not known now: %s", error)
            return None
        took = self._monotonic() - began
        if took * _REST > _MINUTE_S:
            self._lags_at = began + took * _REST
        return found


def _numbers(stats: StoreStats) -> dict[str, int]:
    return {
        "stored": sum(stats.topic_stored_times.values()),
        "stored_bytes": sum(stats.topic_stored_sizes.values()),
        "failed_puts": stats.put_message_failed_times,
        "read": stats.get_message_transferred_msg_count,
        "read_bytes": stats.get_message_size_total,
        "not_dispatched": stats.dispatch_behind_bytes,
    }
