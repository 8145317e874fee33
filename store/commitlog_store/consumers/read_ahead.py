"""ReadAhead: what a consumer has pulled and not handed out, as messages or as rows of record batches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

import pyarrow as pa

from commitlog_store.columnar.columns import BODY_COLUMN
from commitlog_store.consumers.queue_progress import QueueProgress
from commitlog_store.errors import Damaged
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.message import MessageExt
from commitlog_store.queue.get_message import GetMessageResult, GetMessageStatus, Pulled, PullLimits, ReadCounts
from commitlog_store.reader import StoreReader, pulls_of

_T = TypeVar("_T")

# Messages and bytes that are read ahead of ``poll``; units that are looked at for a filter in one step.
_READ_AHEAD = PullLimits(messages=256, size=1 << 20, window=16_384)


class Moved(NamedTuple):
    """A pull that has looked at messages: its status, how many it gave, and where to continue."""

    status: GetMessageStatus
    messages: int
    next_begin_offset: int


class _Rows(NamedTuple):
    """A batch that was pulled and not handed out."""

    progress: QueueProgress
    batch: pa.RecordBatch


class ReadAhead:
    """Pulls from queues, and hands out what was pulled in its order: messages, or rows, not both at a time."""

    def __init__(self, reader: StoreReader, filters: Mapping[str, MessageFilter], counts: ReadCounts) -> None:
        """``filters`` are those of each topic; ``counts`` counts the rows that are pulled."""
        self._reader = reader
        self._filters = filters
        self._counts = counts
        self._messages: deque[tuple[QueueProgress, MessageExt]] = deque()
        self._rows: deque[_Rows] = deque()

    @property
    def message_count(self) -> int:
        return len(self._messages)

    @property
    def has_rows(self) -> bool:
        return bool(self._rows)

    def has_rows_of(self, names: Sequence[str]) -> bool:
        """Whether rows wait that have these columns."""
        return bool(self._rows) and set(names).issubset(self._rows[0].batch.schema.names)

    def pull_messages(self, progress: QueueProgress) -> Moved | None:
        """Pull messages of a queue; None at its end. Damage at the position itself is raised."""
        topic, queue_id = progress.key
        at, wanted = progress.fetched, self._filters[topic]

        def pull(units: int) -> GetMessageResult:
            return pulls_of(self._reader).messages(topic, queue_id, at, replace(_READ_AHEAD, most_units=units), wanted)

        result = before_damage(_READ_AHEAD.units, pull)
        if result.next_begin_offset == progress.fetched:
            return None
        self._messages.extend((progress, message) for message in result.messages)
        return Moved(result.status, len(result.messages), result.next_begin_offset)

    def pull_rows(self, progress: QueueProgress, limits: PullLimits, names: Sequence[str]) -> Moved | None:
        """Pull rows of a queue with these columns, and ``queueOffset``; None at its end. Damage as above."""
        topic, queue_id = progress.key
        columns = list(dict.fromkeys([*names, "queueOffset"]))
        at, wanted = progress.fetched, self._filters[topic]
        check = BODY_COLUMN in columns

        def pull(units: int) -> Pulled:
            most = replace(limits, most_units=units)
            return pulls_of(self._reader).rows(topic, queue_id, at, most, wanted, columns, verify_crc=check)[0]

        started = time.perf_counter()
        pulled = before_damage(limits.units, pull)
        rows, size = (sum(getattr(batch, name) for batch in pulled.batches) for name in ("num_rows", "nbytes"))
        self._counts.pull(topic, rows, size, time.perf_counter() - started)
        if pulled.next_begin_offset == progress.fetched:
            return None
        self._rows.extend(_Rows(progress, batch) for batch in pulled.batches)
        return Moved(pulled.status, rows, pulled.next_begin_offset)

    def hand_out_messages(self, count: int) -> list[MessageExt]:
        found: list[MessageExt] = []
        while self._messages and len(found) < count:
            progress, message = self._messages[0]
            progress.hand_out(message.queue_offset)
            found.append(message)
            self._messages.popleft()
        return found

    def hand_out_rows(self, most: int, names: Sequence[str]) -> pa.RecordBatch:
        """The first rows that wait, at most so many, of one queue. Only where some wait."""
        progress, rest = self._rows[0]
        batch = rest.slice(0, most)
        offsets = batch.column("queueOffset")
        progress.hand_out(offsets[0].as_py(), batch.num_rows, offsets[-1].as_py())
        if batch.num_rows < rest.num_rows:
            self._rows[0] = _Rows(progress, rest.slice(batch.num_rows))
        else:
            self._rows.popleft()
        return batch.select(names)

    def forget(self, of: Collection[QueueProgress] | None = None) -> None:
        """Forget what waits of these queues, or of all."""
        self._messages = deque(one for one in self._messages if of is not None and one[0] not in of)
        self._rows = deque(one for one in self._rows if of is not None and one.progress not in of)


def before_damage(count: int, read: Callable[[int], _T]) -> _T:
    """So many messages, and where damage lies ahead, those before it. Damage of the first one is raised."""
    while True:
        try:
            return read(count)
        except Damaged:
            if count == 1:
                raise
            count //= 2
