"""Search from the end: the newest messages that match a filter, over several queues, for ``commitlog tail``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa

from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.queries.body_pattern import BodyPattern
from commitlog_store.queries.scan import Range, count_of, merged, place_of
from commitlog_store.reader import StoreReader

MOST_LOOKED_AT = 1_000_000
"""So many messages are looked at, unless the caller says how far back to look."""

# Messages of a window: few at first, since most filters match soon, and more where they do not.
_FIRST_WINDOW, _LARGEST_WINDOW = 1024, 262_144
_LEAST_OF_A_QUEUE = 16


class Found(NamedTuple):
    """The newest messages that match, in the order of the log. ``left`` older ones were not looked at."""

    tables: Sequence[pa.Table]
    looked_at: int
    left: int


def newest_matching(
    reader: StoreReader,
    wanted: Sequence[Range],
    count: int,
    columns: Sequence[str],
    chosen: MessageFilter,
    pattern: BodyPattern,
    *,
    verify_crc: bool,
    most: int | None = MOST_LOOKED_AT,
    advance: Callable[[int], None] = lambda _: None,
) -> Found:
    """The newest ``count`` messages of ranges that the filter and the pattern choose.

    Walks backwards in windows of the log, until so many are found, or ``most`` messages were looked at, or a window
    more. Each window is read forwards, as ``merged`` does it, and of its matches only the last are kept.
    """
    names = [*columns, *pattern.columns]
    left = [one for one in wanted if one[2] < one[3]]
    found: list[pa.Table] = []
    looked_at, active, size = 0, len(left), _FIRST_WINDOW
    back = _Backwards(reader)
    while left and count and (most is None or looked_at < most):
        window, left = back.window(left, max(size // max(active, 1), _LEAST_OF_A_QUEUE))
        active, size = len(window), min(2 * size, _LARGEST_WINDOW)
        looked_at += count_of(window)
        last: deque[pa.Table] = deque()
        rows = 0
        for table in merged(reader, window, names, chosen, advance, verify_crc):
            last.append(pattern.apply(table))
            rows += last[-1].num_rows
            while rows - last[0].num_rows >= count:
                rows -= last.popleft().num_rows
        if rows > count:
            last[0] = last[0].slice(rows - count)
        found = [*last, *found]
        count -= min(rows, count)
    return Found(found, looked_at, count_of(left))


class _Backwards:
    """Windows of ranges, from the end of the log to its start."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        # The physical offset of the last message of each queue that is left, by topic, queue id and offset.
        self._last: dict[tuple[str, int, int], int] = {}

    def window(self, left: Sequence[Range], rows: int) -> tuple[list[Range], list[Range]]:
        """The newest part of the ranges and the rest, whose messages are all before it in the log.

        It has ``rows`` messages of the queue that has grown fastest there, or all; of no queue more than that.
        """
        low = -1
        newest_first = sorted(left, key=self._last_place, reverse=True)
        for topic, queue_id, start, stop in newest_first:
            if self._last_place((topic, queue_id, start, stop)) < low:
                break  # nothing of this queue is in the window, nor of the others
            if stop - rows > start:
                low = max(low, place_of(self._reader, topic, queue_id, stop - rows))
        window, rest = [], []
        for one in left:
            topic, queue_id, start, stop = one
            first = stop
            if self._last_place(one) >= low:
                first = self._reader.first_offset_from(topic, queue_id, low, max(start, stop - rows), stop)
            if first < stop:
                window.append((topic, queue_id, first, stop))
            if start < first:
                rest.append((topic, queue_id, start, first))
        return window, rest

    def _last_place(self, one: Range) -> int:
        topic, queue_id, _, stop = one
        place = self._last.get((topic, queue_id, stop))
        if place is None:
            place = self._last[topic, queue_id, stop] = place_of(self._reader, topic, queue_id, stop - 1)
        return place
