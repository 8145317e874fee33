"""Sides: which part of a queue the live store has, which one its archive has, and which one neither has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from commitlog_store.archive_reader.reader import ArchiveReader
from commitlog_store.batch.visibility import NOTHING_HIDDEN
from commitlog_store.errors import (
    CommitLogError,
    FileMissing,
    HistoryGap,
    NotFoundError,
    OffsetOutOfRange,
    TopicNotFound,
)
from commitlog_store.reader import QueueInfo, StoreReader

QueueKey = tuple[str, int]

# What the live store raises for messages that the archive may have.
GONE = (FileMissing, NotFoundError, OffsetOutOfRange)


@dataclass(frozen=True, slots=True)
class Part:
    """The offsets ``[start, stop)`` of a queue, and the reader that has them; None for a gap."""

    reader: StoreReader | None
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Sides:
    """The bounds of one queue in the archive and in the live store; None where it is not."""

    past: tuple[int, int] | None
    live: tuple[int, int] | None

    @property
    def bounds(self) -> tuple[int, int]:
        """Those of both together: the archive's beginning, and the live store's end."""
        if self.live is None:
            return self.past or (0, 0)
        low, high = self.live
        if self.past is not None and self.past[0] < min(self.past[1], low):
            low = self.past[0]
        return low, high

    @property
    def archived(self) -> tuple[int, int]:
        """What comes before the live store's part, as far as the archive has it."""
        if self.past is None:
            return 0, 0
        start, stop = self.past
        return (start, stop) if self.live is None else (min(start, self.live[0]), min(stop, self.live[0]))

    @property
    def has_gap(self) -> bool:
        """Whether messages between the archive's part and the live one are in neither."""
        start, stop = self.archived
        return self.live is not None and start < stop < self.live[0]

    @property
    def may_lack_archived(self) -> bool:
        """Whether a newer manifest may have messages that are in neither: those before the live part, or all."""
        return self.live is None or self.archived[1] < self.live[0]


class BothSides:
    """Asks both readers for bounds; the archive is looked at again where it seems to end too early."""

    def __init__(self, past: ArchiveReader, live: StoreReader) -> None:
        self.past = past
        self.live = live
        # Queues of which the archive was looked at again, and where their live part began then; -1 without one.
        self._sought: dict[QueueKey, int] = {}

    def of(self, queues: Iterable[QueueKey] | Callable[[], Iterable[QueueKey]]) -> list[tuple[QueueKey, Sides]]:
        """The sides of queues, in the order given; those of the live store are of one moment.

        ``TopicNotFound``, ``QueueNotFound`` for one that neither has.
        """
        wanted: list[QueueKey] = [] if callable(queues) else list(queues)

        def of_live() -> list[QueueKey]:
            if callable(queues):
                wanted[:] = queues()
            return _known(self.live, wanted)

        live = _bounds(self.live.queue_infos(of_live if callable(queues) else of_live()))
        found = self._paired(wanted, live)
        # What retention deletes was archived before: one look after it is enough.
        seek = {key: live[key][0] if key in live else -1 for key, sides in found if sides.may_lack_archived}
        if any(sides.has_gap for _, sides in found) or not seek.items() <= self._sought.items():
            self.past.look_again()
            self._sought.update(seek)
            found = self._paired(wanted, live)
        for key, sides in found:
            if sides.live is None and sides.past is None:
                self.live.queue_info(*key)  # raises
        return found

    def of_one(self, topic: str, queue_id: int) -> Sides:
        """The sides of one queue. ``TopicNotFound``, ``QueueNotFound``."""
        return self.of([(topic, queue_id)])[0][1]

    def parts(self, sides: Sides, start: int, stop: int, *, bridged: int = 0) -> list[Part]:
        """The offsets ``[start, stop)`` of a queue by the reader that has them, in order.

        ``bridged``: up to this offset the archive is to have what the live store should have.
        """
        at, parts = start, []
        border = stop if sides.live is None else max(sides.live[0], bridged)
        low, high = sides.past or (0, 0)
        if low <= at < min(high, border, stop):
            parts.append(Part(self.past, at, min(high, border, stop)))
            at = parts[-1].stop
        if at < min(border, stop):
            parts.append(Part(None, at, min(border, stop)))
            at = parts[-1].stop
        if at < stop:
            parts.append(Part(self.live, at, stop))
        return parts

    def gap(self, key: QueueKey, sides: Sides, part: Part) -> CommitLogError:
        """The error of a part that neither has."""
        low, high = sides.bounds
        if part.start < low or part.stop > high:
            return OffsetOutOfRange(
                topic=key[0], queue_id=key[1], start=part.start, stop=part.stop, min_offset=low, max_offset=high
            )
        return HistoryGap(
            topic=key[0],
            queue_id=key[1],
            start=part.start,
            stop=part.stop,
            archive=self.past.path,
            store=self.live.path,
        )

    def archived_to(self, key: QueueKey, offset: int) -> int:
        """The end of what the archive has from an offset on, also after another look at it; -1 for nothing."""
        for looks_again in (False, True):
            if looks_again:
                self.past.look_again()
            low, high = _bounds(self.past.queue_infos(_known(self.past, [key]))).get(key, (0, 0))
            if low <= offset < high:
                return high
        return -1

    def _paired(
        self, wanted: Sequence[QueueKey], live: dict[QueueKey, tuple[int, int]]
    ) -> list[tuple[QueueKey, Sides]]:
        """The sides of queues by their live bounds; of one that neither has, without any."""
        past = _bounds(self.past.queue_infos(lambda: _known(self.past, wanted)))
        hidden = self.past.hidden_from
        if (new := past.keys() - live.keys()) and 0 <= self.live.log_start() <= hidden < NOTHING_HIDDEN:
            # The live log has all of the batch within which the archive ends, and shows it when it is dispatched.
            for key in new:
                past[key] = past[key][0], self.past.first_offset_from(*key, hidden, *past[key])
        return [(key, Sides(past.get(key), live.get(key))) for key in wanted]


def _known(reader: StoreReader, queues: Sequence[QueueKey]) -> list[QueueKey]:
    """Those of the queues that a reader has. ``UnsupportedStore`` for a topic that is kept another way."""
    topics = list(dict.fromkeys(topic for topic, _ in queues))
    ids: dict[str, set[int]] = {}
    for topic, found in zip(topics, reader.queue_ids_of(topics), strict=True):
        if isinstance(found, CommitLogError) and not isinstance(found, TopicNotFound):
            raise found
        ids[topic] = set() if isinstance(found, CommitLogError) else set(found)
    return [(topic, queue_id) for topic, queue_id in queues if queue_id in ids[topic]]


def _bounds(infos: Sequence[QueueInfo]) -> dict[QueueKey, tuple[int, int]]:
    return {(info.topic, info.queue_id): (info.min_offset, info.max_offset) for info in infos}
