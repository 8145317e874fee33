"""Real stores whose messages have sizes a test chooses, and an independent record of where each message lies.

A record takes 91 bytes, its topic, its properties and its body, so a size is reached by choosing the body.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store import Fence, QueueInfo, StoreReader
from commitlog_store.files.store_paths import StorePaths
from pyspark_commitlog.source.units_of_ranges import QueueRange
from tests.support.store_builder import StoreBuilder

_TAGS = "paid"
_BARE_RECORD = 91 + len(f"TAGS\x01{_TAGS}\x02")
_LONGEST_TOPIC = 18
MIN_SIZE = _BARE_RECORD + _LONGEST_TOPIC
"""Messages of this size and above can be written to any topic of at most 18 letters."""


class CountingReader(StoreReader):
    """A reader that counts what it is asked for, so that tests can keep planning cheap.

    Methods ask one another: ``units`` asks for the bounds first and counts as both.
    """

    def __init__(self, path: str) -> None:
        super().__init__(StorePaths.of(path))
        self.calls: Counter[str] = Counter()

    def queue_infos(
        self, queues: Iterable[tuple[str, int]] | Callable[[], Iterable[tuple[str, int]]]
    ) -> list[QueueInfo]:
        self.calls["queue_infos"] += 1
        return super().queue_infos(queues)

    def units(
        self, topic: str, queue_id: int, start: int, stop: int, *, chunk: int = 1_000_000
    ) -> Iterator[npt.NDArray[Any]]:
        self.calls["units"] += 1
        return super().units(topic, queue_id, start, stop, chunk=chunk)

    def units_of(
        self, ranges: Sequence[tuple[str, int, int, int]], *, chunk: int = 1_000_000
    ) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        self.calls["units"] += 1
        return super().units_of(ranges, chunk=chunk)

    def first_offsets_from(self, wanted: Sequence[tuple[str, int, int, int, int]]) -> list[int]:
        self.calls["first_offsets_from"] += 1
        return super().first_offsets_from(wanted)

    def fences(self, positions: Sequence[tuple[str, int, int]]) -> list[Fence | None]:
        self.calls["fences"] += 1
        return super().fences(positions)


class SizedStore:
    """A store that grows, expires and loses its tail. ``places`` and ``sizes`` say where each queue's messages lie."""

    def __init__(self, path: Path, *, log_file_size: int = 1 << 20, queue_file_units: int = 1000) -> None:
        self.builder = StoreBuilder(path, log_file_size=log_file_size, queue_file_units=queue_file_units)
        self.places: dict[tuple[str, int], list[int]] = {}
        self.sizes: dict[tuple[str, int], list[int]] = {}
        self.reader = CountingReader(str(path))

    @property
    def path(self) -> Path:
        return self.builder.path

    def reopen(self) -> CountingReader:
        """What a new process has: a reader that has not seen anything yet."""
        self.close()
        self.reader = CountingReader(str(self.path))
        return self.reader

    def close(self) -> None:
        self.reader.close()

    def append(self, topic: str, queue_ids: int | Sequence[int], sizes: Sequence[int]) -> None:
        """Write messages of these sizes to one queue, or each to the queue named at its place."""
        self._append(topic, np.broadcast_to(np.array(queue_ids, np.int64), len(sizes)), np.array(sizes, np.int64))

    def _append(self, topic: str, queue_of: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> None:
        body_sizes = sizes - _BARE_RECORD - len(topic)
        assert len(queue_of) == len(sizes)
        assert (body_sizes >= 0).all(), f"the smallest message of topic {topic} has {_BARE_RECORD + len(topic)} bytes"
        if len(sizes):
            places = self.builder.append(topic, queue_of.tolist(), _bodies(body_sizes), tags=_TAGS)
            for queue_id in np.unique(queue_of).tolist():
                its = queue_of == queue_id
                self.places.setdefault((topic, queue_id), []).extend(places[its].tolist())
                self.sizes.setdefault((topic, queue_id), []).extend(sizes[its].tolist())

    def append_queues(self, topic: str, sizes: Sequence[Sequence[int]], *, in_turns: bool) -> None:
        """Write queues 0, 1, ..: one message of each in turns, as several producers would, or one after the other."""
        for queue_id in range(len(sizes)):
            self.add_queue(topic, queue_id)
        queue_of = np.repeat(np.arange(len(sizes)), [len(queue) for queue in sizes])
        flat = np.array([size for queue in sizes for size in queue], np.int64)
        if in_turns and len(flat):
            turns = np.concatenate([np.arange(len(queue)) for queue in sizes])
            order = np.lexsort((queue_of, turns))
            queue_of, flat = queue_of[order], flat[order]
        self._append(topic, queue_of, flat)

    def add_queue(self, topic: str, queue_id: int) -> None:
        """A queue without a message."""
        self.builder.pad_queue(topic, queue_id, 0)
        self.places[topic, queue_id] = []
        self.sizes[topic, queue_id] = []

    def expire(self, topic: str, queue_id: int, minimum: int) -> None:
        """Retention: the log begins with that message, which must be the first of its file."""
        before, inside = divmod(self.places[topic, queue_id][minimum], self.builder.log_file_size)
        assert inside == 0, "retention removes whole files, and this message does not begin one"
        gone = sum(int(path.name) < before * self.builder.log_file_size for path in self._log_files())
        self.builder.delete_log_files(gone)

    def truncate(self, topic: str, queue_id: int, maximum: int) -> None:
        """A crash: that message is lost, and all that was written after it to any queue."""
        place = self.places[topic, queue_id][maximum]
        self.builder.truncate(place)
        for key, places in self.places.items():
            left = sum(one < place for one in places)
            del places[left:], self.sizes[key][left:]

    def delete_queue(self, topic: str, queue_id: int) -> None:
        self.builder.delete_queue(topic, queue_id)
        del self.places[topic, queue_id], self.sizes[topic, queue_id]

    def whole(self) -> list[QueueRange]:
        """All that was ever written, by queue."""
        return [QueueRange(*key, 0, len(sizes)) for key, sizes in sorted(self.sizes.items())]

    def size_of(self, ranges: Iterable[QueueRange]) -> int:
        """Bytes of the messages of all the ranges."""
        return sum(sum(self.sizes[topic, queue_id][start:stop]) for topic, queue_id, start, stop in ranges)

    def _log_files(self) -> list[Path]:
        return sorted((self.path / "commitlog").iterdir())


NewStore = Callable[..., SizedStore]
"""The fixture ``new_store``: gives an empty store, with the keywords of ``SizedStore``, and closes the one before."""


def _bodies(sizes: npt.NDArray[np.int64]) -> pa.BinaryArray:
    bounds = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=bounds[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(sizes), [None, pa.py_buffer(bounds), pa.py_buffer(b"x" * int(bounds[-1]))]
    )
