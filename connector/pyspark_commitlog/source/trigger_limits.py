"""``TriggerLimits``: the limits of a stream's batches, and the delay of small ones by ``minOffsetsPerTrigger``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.source.admission import WaitingQueue, admit

__all__ = ["TriggerLimits"]


class TriggerLimits:
    """The limits of one run of one query; they hold over all its queues, and over all its stores."""

    def __init__(self, options: SourceOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        # When the last batch with messages was planned, by the clock in seconds; None before the first of this run.
        self._last_batch_s: float | None = None

    def may_wait(self, rows: int, *, lost: bool) -> bool:
        """Whether the batch is delayed: by ``minOffsetsPerTrigger`` for less messages than that, at most for
        ``maxTriggerDelay`` since the batch before. Lost messages are reported at once.
        """
        least = self._options.min_offsets_per_trigger
        if least is None or not rows or lost or self._last_batch_s is None or rows >= least:
            return False
        return self._clock() - self._last_batch_s < self._options.max_trigger_delay_s

    def batch_planned(self) -> None:
        """A batch with messages was planned, and no attempt will be repeated: the next delay begins."""
        self._last_batch_s = self._clock()

    def bind(self, rows: int) -> bool:
        """Whether a batch may have to leave some of the ``rows`` for later."""
        most = self._options.max_offsets_per_trigger
        return self._options.max_bytes_per_trigger is not None or (most is not None and rows > most)

    def admit(self, queues: Sequence[WaitingQueue]) -> list[int]:
        """Where the next batch ends in each queue."""
        return admit(
            queues, max_rows=self._options.max_offsets_per_trigger, max_bytes=self._options.max_bytes_per_trigger
        )
