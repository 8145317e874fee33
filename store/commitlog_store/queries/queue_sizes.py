"""Sizes of queues' messages in the log: exact for short queues, else by the mean of the first and the last messages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commitlog_store.format.consume_queue_unit import FILLER_SIZE
from commitlog_store.reader import QueueInfo, StoreReader

# So many units are read at either end of a queue.
SAMPLE = 64


def queue_sizes(reader: StoreReader, infos: Sequence[QueueInfo]) -> list[float]:
    """About how many bytes the records of each queue's messages have. The errors of ``StoreReader.units_of``.

    A filler takes a queue offset and has no bytes.
    """
    ranges: list[tuple[str, int, int, int]] = []
    queues: list[int] = []
    for place, info in enumerate(infos):
        low, high = info.min_offset, info.max_offset
        parts = [(low, high)] if high - low <= 2 * SAMPLE else [(low, low + SAMPLE), (high - SAMPLE, high)]
        for start, stop in parts:
            if start < stop:
                ranges.append((info.topic, info.queue_id, start, stop))
                queues.append(place)
    sums, counts = np.zeros(len(infos)), np.zeros(len(infos))
    for number, units in reader.units_of(ranges):
        sizes = units["size"]
        sums[queues[number]] += sizes[(sizes > 0) & (sizes < FILLER_SIZE)].sum()
        counts[queues[number]] += len(sizes)
    offsets = np.array([info.max_offset - info.min_offset for info in infos], float)
    return [float(size) for size in sums / np.maximum(counts, 1) * offsets]
