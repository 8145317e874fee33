"""Units of many ranges: read with few questions to a server, around files of queues that are missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from commitlog_store import FILLER_SIZE, StoreReader
from commitlog_store.errors import FileMissing

Units = npt.NDArray[Any]
Sizes = npt.NDArray[np.int64]


class QueueRange(NamedTuple):
    """The queue offsets ``[start, stop)`` of one queue."""

    topic: str
    queue_id: int
    start: int
    stop: int


def message_sizes(units: Units) -> Sizes:
    """Bytes of each unit's message in the CommitLog; 0 for a filler, which stands for no message."""
    sizes = units["size"].astype(np.int64)
    sizes[sizes == FILLER_SIZE] = 0
    return sizes


def units_around_holes(
    reader: StoreReader, ranges: Sequence[QueueRange], *, chunk: int = 262_144
) -> Iterator[tuple[QueueRange, Units | FileMissing]]:
    """The units of each range in arrays, in order, then the error of a missing file, if the range comes to one.

    The ranges are those of different queues. Raises the other errors of ``StoreReader.units_of``.
    """
    left = list(ranges)
    while left:
        at = 0
        try:
            for at, units in reader.units_of(left, chunk=chunk):
                yield left[at], units
            return
        except FileMissing as missing:
            queue = (missing.topic, missing.queue_id)
            at = next(number for number in range(at, len(left)) if left[number][:2] == queue)
            yield left[at], missing
            left = left[at + 1 :]
