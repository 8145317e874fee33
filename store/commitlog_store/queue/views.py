"""Protocols of a queue and of a store's catalog of queues, whether they are files or derived from the log in memory.

``ReaderView`` is what the rooms below ``reader.py`` need of a ``StoreReader``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.errors import CommitLogError, OffsetOutOfRange
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.consume_queue_unit import Units
from commitlog_store.queue.saved_ends import SavedEnds
from commitlog_store.timestamps import GivenTime

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """The bounds of one queue: ``min_offset`` is the first message, ``max_offset`` the next one to be written.

    ::

        with StoreReader.open("/data/store") as reader:
            print(sum(queue.max_offset - queue.min_offset for queue in reader.queues("orders")), "messages")
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int


class QueueView(Protocol):
    """The places in the CommitLog of all messages of one queue; ``consume_queue.ConsumeQueue`` has the meanings."""

    topic: str
    queue_id: int
    # Whether a filler between messages stands for lost ones. RocketMQ writes fillers only before a queue's first one.
    fillers_are_lost: bool

    def bounds(self) -> tuple[int, int]:
        """``(min_offset, max_offset)``: the first message's offset, and the next one."""
        ...

    def last_unit(self) -> tuple[int, int]:
        """Queue offset and physical offset of the last message; ``(-1, 0)`` without any."""
        ...

    def first_offset_from(self, physical_offset: int, start: int, stop: int) -> int:
        """The first offset in ``[start, stop)`` whose message lies at or after ``physical_offset``, or ``stop``."""
        ...

    def place_of(self, offset: int) -> tuple[str, int]:
        """The file that holds a unit, and the unit's first byte in it."""
        ...

    def unit(self, offset: int) -> tuple[int, int] | None:
        """Physical offset and size of the message at a queue offset; None where no message is."""
        ...

    def units(self, start: int, stop: int, *, chunk: int = ..., check: bool = ...) -> Iterator[npt.NDArray[Any]]:
        """The units ``[start, stop)`` in arrays of at most ``chunk``, fillers included; impossible ones are refused
        only with ``check``."""
        ...


def out_of_range(
    queue: QueueView, start: int, stop: int, bounds: tuple[int, int], advice: str = ""
) -> OffsetOutOfRange:
    """The error of a range that a queue with these bounds does not hold."""
    low, high = bounds
    return OffsetOutOfRange(
        topic=queue.topic,
        queue_id=queue.queue_id,
        start=start,
        stop=stop,
        min_offset=low,
        max_offset=high,
        advice=advice,
    )


class CatalogView(Protocol):
    """Topics, queue ids and queues of a store; ``catalog.QueueCatalog`` has the meanings.

    A catalog that is derived from this protocol asks one queue after the other for bounds and last units.
    """

    def topics(self) -> list[str]:
        """All topics, sorted."""
        ...

    def queue_ids(self, topic: str) -> list[int]:
        """The topic's queue ids, sorted. ``TopicNotFound``, ``UnsupportedStore``, ``InvalidValue``."""
        ...

    def unchanged_ids(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """``queue_ids`` of those of many topics that can be asked together; the others are asked one by one."""
        del topics
        return {}

    def topics_and_ids(self) -> tuple[list[str], dict[str, list[int]]]:
        """``topics``, and ``unchanged_ids`` of them: one question for both."""
        topics = self.topics()
        return topics, self.unchanged_ids(topics)

    def queue(self, topic: str, queue_id: int) -> QueueView:
        """One queue. ``QueueNotFound``, and the errors of ``queue_ids``."""
        ...

    def uncached_queue(self, topic: str, queue_id: int) -> QueueView:
        """``queue``, for a read of very many queues, each once: it need not be kept."""
        return self.queue(topic, queue_id)

    def uncached_queues(self, queues: Sequence[tuple[str, int]]) -> list[QueueView]:
        """``uncached_queue`` of each of many queues."""
        return [self.uncached_queue(*key) for key in queues]

    def known_places(self, positions: Sequence[tuple[str, int, int]]) -> Int64Array:
        """The physical offset of each message ``(topic, queue_id, offset)``, within bounds that were asked for just
        now; -1 where its unit has to be read."""
        return np.full(len(positions), -1, np.int64)

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The queue's bounds now. The errors of ``queue``."""
        return self.queue(topic, queue_id).bounds()

    def bounds_of(self, queues: Sequence[tuple[str, int]]) -> list[tuple[int, int]]:
        """The bounds of each of these queues now. The errors of ``bounds``."""
        return [self.bounds(*key) for key in queues]

    def unchanged_bounds(self, queues: Sequence[tuple[str, int]]) -> list[tuple[int, int]] | None:
        """``bounds_of`` if all these queues are as they were at a clean close of the store; None if that is unknown."""
        del queues
        return None

    def last_unit(self, topic: str, queue_id: int) -> tuple[int, int]:
        """``QueueView.last_unit`` of a queue. The errors of ``queue``."""
        return self.queue(topic, queue_id).last_unit()

    def ask_in_state(self, settled_state: Callable[[], object | None], state: object, ask: Callable[[], _T]) -> _T:
        """The answer to a question about bounds, asked in a state of the store that ``take_compared`` compares."""
        del settled_state, state
        return ask()

    def take_compared(self, settled_state: Callable[[], object | None]) -> SavedEnds | None:
        """The saved ends, if the last question of ``ask_in_state`` was within a second and has compared all of them,
        and the store is still in that state. Only once: they are compared again for the question after that.
        """
        del settled_state
        return None


class ReaderView(Protocol):
    """Questions about a store that are consistent beside its owner; ``reader.StoreReader`` has the meanings."""

    path: str

    @property
    def config_home(self) -> str: ...
    @property
    def for_shell(self) -> str: ...
    def topics(self) -> list[str]: ...
    def queue_ids(self, topic: str) -> list[int]: ...
    def queues(self, topic: str) -> list[QueueInfo]: ...
    def queue_info(self, topic: str, queue_id: int) -> QueueInfo: ...
    def queue_infos(
        self, queues: Iterable[tuple[str, int]] | Callable[[], Iterable[tuple[str, int]]], /
    ) -> list[QueueInfo]: ...
    def first_offset_from(self, topic: str, queue_id: int, physical_offset: int, start: int, stop: int, /) -> int: ...
    def offsets_by_time(self, wanted: Sequence[tuple[QueueInfo, GivenTime]], /) -> list[int | CommitLogError]: ...
    def store_timestamp(self, topic: str, queue_id: int, offset: int) -> int: ...
    def store_timestamps(self, positions: Sequence[tuple[str, int, int]]) -> list[int | CommitLogError]: ...
    def wait_for_any(self, positions: Mapping[tuple[str, int], int], timeout_s: float | None, /) -> bool: ...
    def consistently(self, ask: Callable[[], _T], *, one_moment: bool = True) -> _T: ...
    def units(self, topic: str, queue_id: int, start: int, stop: int, /, *, chunk: int) -> Iterator[Units]: ...
    def read(
        self, topic: str, queue_id: int, start: int, stop: int, /, *, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]: ...
