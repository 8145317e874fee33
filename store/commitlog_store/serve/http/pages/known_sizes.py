"""KnownSizes: about how many bytes queues have, for open pages. Mean sizes of messages are remembered for a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from commitlog_store.queries.queue_sizes import mean_sizes
from commitlog_store.reader import QueueInfo, StoreReader

_AGE_S = 60.0


class KnownSizes:
    """Of one store. Any number of threads: what two of them ask at once is asked twice."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        # By topic and queue id.
        self._means: dict[tuple[str, int], float] = {}

    def of(self, reader: StoreReader, infos: Sequence[QueueInfo]) -> list[int]:
        """The bytes of each queue's messages. The errors of ``StoreReader.units_of``."""
        now = self._clock()
        if now - self._since >= _AGE_S:
            self._since, self._means = now, {}
        known = self._means
        missing = [one for one in infos if one.min_offset < one.max_offset and (one.topic, one.queue_id) not in known]
        for info, mean in zip(missing, mean_sizes(reader, missing), strict=True):
            known[info.topic, info.queue_id] = mean
        return [round(known.get((one.topic, one.queue_id), 0.0) * (one.max_offset - one.min_offset)) for one in infos]
