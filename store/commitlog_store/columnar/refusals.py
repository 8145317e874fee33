"""Refused rows of a chunk: each a ``PutRefused`` that names the row and its fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import PutRefused
from commitlog_store.format.arrays import BoolArray
from commitlog_store.put_status import PutMessageStatus

__all__ = ["Refusals"]


class Refusals:
    """Collects the refused rows of one chunk on its way from columns to records; of several faults the first counts.

    ``kept`` says which rows are not refused. ``first_row`` is the number of the chunk's first row in what the caller
    gave; ``row_name`` makes a text of such a number.
    """

    def __init__(self, count: int, *, first_row: int = 0, row_name: Callable[[int], str] = "row {}".format) -> None:
        self.kept: BoolArray = np.ones(count, np.bool_)
        self.first_row = first_row
        self._row_name = row_name
        self._found: dict[int, PutRefused] = {}
        self._topics: Sequence[str] = ()
        self._topic_codes: npt.NDArray[np.int32] = np.full(count, -1, np.int32)
        self._queue_of: Callable[[int], int | None] = _no_queue

    def __bool__(self) -> bool:
        return bool(self._found)

    def name_places(
        self, topics: Sequence[str], topic_codes: npt.NDArray[np.int32], queue_of: Callable[[int], int | None]
    ) -> None:
        """Name each row's topic (code -1: none), and the queue that it gives itself, in the texts."""
        self._topics, self._topic_codes, self._queue_of = topics, topic_codes, queue_of

    def add(
        self,
        wrong: BoolArray,
        fault: Callable[[int], str],
        status: PutMessageStatus = PutMessageStatus.MESSAGE_ILLEGAL,
        queue_ids: npt.NDArray[np.int32] | None = None,
    ) -> None:
        """Refuse the rows where ``wrong`` is set; ``fault`` gives the end of a sentence for a row.

        ``queue_ids`` are the chosen queues, to be named where the row itself gives none.
        """
        if not wrong.any():
            return
        for row in np.flatnonzero(wrong & self.kept).tolist():
            number = self.first_row + row
            reason = f"Message in {self._row_name(number)} ({self._place(row, queue_ids)}): {fault(row)}."
            self._found[row] = PutRefused(status, reason, row=number)
        self.kept &= ~wrong

    def in_order(self) -> list[PutRefused]:
        """All of them, in the order of their rows."""
        return [self._found[row] for row in sorted(self._found)]

    def _place(self, row: int, chosen: npt.NDArray[np.int32] | None) -> str:
        code = self._topic_codes[row]
        topic = "no topic" if code < 0 else f"topic {self._topics[code]!r}"
        queue = self._queue_of(row)
        if queue is None and chosen is not None and chosen[row] >= 0:
            queue = int(chosen[row])
        return f"{topic}, no queue given" if queue is None else f"{topic}, queue {queue}"


def _no_queue(row: int) -> int | None:
    del row
    return None
