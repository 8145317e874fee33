"""Places in queues: by store time, by physical offset, and which message is at one (fence, store time)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import partial
from typing import Literal, Protocol, TypeVar, get_args

import numpy as np

from commitlog_store.batch.log_snapshot import LogSnapshot
from commitlog_store.errors import CommitLogError
from commitlog_store.format.checksum import crc32
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.paths import checked_choice
from commitlog_store.queue.fence import Fence, fence_at, fence_of
from commitlog_store.queue.skipped import Skips
from commitlog_store.queue.store_times import StoreTimes, stored_at
from commitlog_store.queue.views import CatalogView, QueueInfo, ReaderView
from commitlog_store.reading.arguments import (
    checked_bounds,
    checked_places,
    checked_searches,
    checked_times,
    repeatable,
)
from commitlog_store.reading.ranges import checked_range
from commitlog_store.reading.settled_answers import SettledAnswers
from commitlog_store.timestamps import GivenTime, milliseconds_of

_T = TypeVar("_T")
Boundary = Literal["lower", "upper"]

# Fewer places in the log are read one by one.
_READ_TOGETHER = 64


class TimeBounds(Protocol):
    """The offsets between which the first message of a queue stored at or after a time is: ``_time_bounds``."""

    def __call__(self, info: QueueInfo, wanted_ms: int, *, after: bool) -> tuple[int, int]: ...


class Places:
    """Answers about places in the queues of a reader. ``StoreReader`` has the meanings, under the same names."""

    def __init__(
        self,
        reader: ReaderView,
        commit_log: CommitLog,
        catalog: CatalogView,
        settled: SettledAnswers,
        snapshot: LogSnapshot | None,
        *,
        tolerant: bool,
    ) -> None:
        """``tolerant``: a damaged record counts as no message. With a snapshot, lost messages are skipped silently."""
        self._reader = reader
        self._commit_log = commit_log
        self._catalog = catalog
        self._settled = settled
        self._snapshot = snapshot
        self._tolerant = tolerant

    def first_offsets_from(self, wanted: Sequence[tuple[str, int, int, int, int]]) -> list[int]:
        wanted = repeatable(wanted)

        def look() -> list[int]:
            return [self._first_offset_from(*one) for one in checked_searches(wanted)]

        return self._reader.consistently(look, one_moment=False)

    def _first_offset_from(self, topic: str, queue_id: int, physical_offset: int, start: int, stop: int) -> int:
        self._catalog.bounds(topic, queue_id)  # lists the queue's files
        return self._catalog.queue(topic, queue_id).first_offset_from(physical_offset, start, stop)

    def fences(self, positions: Sequence[tuple[str, int, int]]) -> list[Fence | None]:
        positions = repeatable(positions)
        given: object = positions  # what is not a list is refused where it is gone through
        asked = len(given) if isinstance(given, Sized) else 0

        def look() -> list[Fence | None]:
            settled, places = self._settled.now(asked), list(checked_places(positions))
            if settled is None:
                return self._fences(places, None)
            missing = [one for one in places if one not in settled.fences]
            found = zip(missing, self._fences(missing, settled), strict=True)
            settled.fences.update((one, fence) for one, fence in found if fence is not None)
            return list(map(settled.fences.get, places))

        return self._reader.consistently(look, one_moment=False)

    def _fences(self, places: Sequence[tuple[str, int, int]], settled: SettledAnswers | None) -> list[Fence | None]:
        """Many messages whose places in the log are known, as those of last ones, are read there together."""
        if self._tolerant or len(places) < _READ_TOGETHER:
            return [self._fence_by_unit(one, settled) for one in places]
        at = self._catalog.known_places(places)
        for number in np.flatnonzero(at < 0).tolist():
            at[number] = self._place_of(places[number], settled)
        heads = self._commit_log.headers(at)
        return [
            self._fence(*one) if head is None else Fence(place, crc32(head))
            for one, place, head in zip(places, at.tolist(), heads, strict=True)
        ]

    def _place_of(self, place: tuple[str, int, int], settled: SettledAnswers | None) -> int:
        """The physical offset of a message whose unit was read; -1 for others."""
        known = None if settled is None else settled.place(*place)
        if known is not None:
            return known
        topic, queue_id, offset = place
        last, physical_offset = self._catalog.last_unit(topic, queue_id)
        return physical_offset if last == offset >= 0 else -1

    def _fence_by_unit(self, place: tuple[str, int, int], settled: SettledAnswers | None) -> Fence | None:
        known = None if settled is None else settled.place(*place)
        return self._fence(*place) if known is None else fence_at(self._commit_log, known, tolerant=self._tolerant)

    def _fence(self, topic: str, queue_id: int, offset: int) -> Fence | None:
        last_unit = self._catalog.last_unit(topic, queue_id)
        if last_unit[0] < offset:  # not read yet, or not that far
            self._reader.queue_info(topic, queue_id)
            last_unit = self._catalog.last_unit(topic, queue_id)
        if offset >= 0 and offset == last_unit[0]:
            return fence_at(self._commit_log, last_unit[1], tolerant=self._tolerant)
        return fence_of(self._commit_log, self._catalog.queue(topic, queue_id), offset, tolerant=self._tolerant)

    def store_timestamp(self, topic: str, queue_id: int, offset: int) -> int:
        ((topic, queue_id, offset),) = checked_places([(topic, queue_id, offset)])

        def look() -> int:
            checked_range(self._reader, topic, queue_id, offset, offset + 1)
            return stored_at(self._commit_log, self._catalog.queue(topic, queue_id), offset, tolerant=self._tolerant)

        return self._reader.consistently(look, one_moment=False)

    def store_timestamps(self, positions: Sequence[tuple[str, int, int]]) -> list[int | CommitLogError]:
        places = list(checked_places(positions))
        keys = list(dict.fromkeys((topic, queue_id) for topic, queue_id, _ in places))
        try:  # the bounds of all queues at once: half of what a time takes is to ask for those of its queue
            bounds = dict(zip(keys, self._reader.queue_infos(keys), strict=True))
        except CommitLogError:
            bounds = {}
        found = self._known_times(places, bounds)
        return [
            answer_or_error(partial(self._stored_within, bounds.get(one[:2]), *one)) if time < 0 else time
            for one, time in zip(places, found, strict=True)
        ]

    def _known_times(
        self, places: Sequence[tuple[str, int, int]], bounds: Mapping[tuple[str, int], QueueInfo]
    ) -> list[int]:
        """The store times of messages whose places are known without their units, read together; -1 for others."""
        if len(places) < _READ_TOGETHER or not bounds:
            return [-1] * len(places)
        limits = [bounds[one[:2]] for one in places]
        within = [of.min_offset <= one[2] < of.max_offset for one, of in zip(places, limits, strict=True)]
        known = np.where(within, self._catalog.known_places(places), -1)
        times: list[int] = self._commit_log.store_times(known).tolist()
        return times

    def _stored_within(self, bounds: QueueInfo | None, topic: str, queue_id: int, offset: int) -> int:
        """``store_timestamp``, with the queue's bounds of just now; what they do not explain is looked at again."""
        if bounds is not None and bounds.min_offset <= offset < bounds.max_offset:
            with contextlib.suppress(CommitLogError, OSError):
                queue = self._catalog.uncached_queue(topic, queue_id)
                return stored_at(self._commit_log, queue, offset, tolerant=self._tolerant)
        return self.store_timestamp(topic, queue_id, offset)

    def offset_by_time(
        self,
        place: tuple[str, int],
        timestamp_ms: GivenTime,
        boundary: Boundary,
        bounds: QueueInfo | None,
        within: TimeBounds,
        skips: Callable[[], Skips | None],
    ) -> int:
        """``skips`` returns the collector to which a search reports damage; None where damage is an error."""
        wanted_ms = checked_time(timestamp_ms, boundary)

        def find(info: QueueInfo) -> int:
            return self._offset_within(info, wanted_ms, boundary, within, skips())

        if bounds is not None:
            return find(checked_bounds(bounds))
        return self._reader.consistently(lambda: find(self._reader.queue_info(*place)), one_moment=False)

    def _offset_within(
        self, info: QueueInfo, wanted_ms: int, boundary: Boundary, within: TimeBounds, skips: Skips | None
    ) -> int:
        """The offset in a queue with these bounds."""
        queue = self._catalog.queue(info.topic, info.queue_id)
        if queue.last_unit()[0] < info.max_offset - 1:  # another reader has seen these bounds
            self._reader.queue_info(info.topic, info.queue_id)
        times, after = StoreTimes(self._commit_log, queue, whole=skips is not None), boundary == "upper"
        first, at = times.first_from(wanted_ms, *within(info, wanted_ms, after=after), after=after)
        if first < at and self._snapshot is None:
            times.refuse_or_skip(first, at, skips, wanted_ms, self._reader.for_shell)
        return at if boundary == "lower" else max(first - 1, info.min_offset)


def checked_time(timestamp_ms: GivenTime, boundary: Boundary) -> int:
    """The time in milliseconds. ``InvalidValue`` for a time in seconds, and for another boundary."""
    checked_choice("boundary", boundary, get_args(Boundary))
    return milliseconds_of(timestamp_ms, "timestamp_ms")


def answer_or_error(ask: Callable[[], _T]) -> _T | CommitLogError:
    """The answer, or the error that the question raises."""
    try:
        return ask()
    except CommitLogError as error:
        return error


class _AskOffset(Protocol):
    """``StoreReader.offset_by_time`` with a boundary."""

    def __call__(self, topic: str, queue_id: int, timestamp_ms: GivenTime, *, bounds: QueueInfo) -> int: ...


def offsets_by_time(ask: _AskOffset, wanted: Sequence[tuple[QueueInfo, GivenTime]]) -> list[int | CommitLogError]:
    """``StoreReader.offsets_by_time``: the answer of ``ask`` for each queue, with its bounds, and a time."""
    return [
        answer_or_error(partial(ask, one.topic, one.queue_id, time, bounds=one)) for one, time in checked_times(wanted)
    ]
