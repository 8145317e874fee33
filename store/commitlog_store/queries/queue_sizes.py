"""Sizes of queues' messages in the log: exact for short queues, else by the mean of the first and the last messages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from commitlog_store.format.consume_queue_unit import FILLER_SIZE
from commitlog_store.reader import QueueInfo, StoreReader

# So many units are read at either end of a queue.
SAMPLE = 64


def mean_sizes(reader: StoreReader, infos: Sequence[QueueInfo]) -> list[float]:
    """The mean size in bytes of each queue's messages, as records; 0 for an empty one. The errors of ``units_of``."""
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
        sizes = sizes[(sizes > 0) & (sizes < FILLER_SIZE)]
        sums[queues[number]] += sizes.sum()
        counts[queues[number]] += len(sizes)
    return [float(mean) for mean in sums / np.maximum(counts, 1)]
