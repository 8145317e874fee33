"""Queue choice: the queue of its topic for each of many messages, as RocketMQ's producers choose it.

========================  =============================================================================================
a message has             its queue
========================  =============================================================================================
a queue id                that one
a sharding key            Java's hash code of the key, without sign, modulo the topic's number of queues
neither                   the queues in turn
========================  =============================================================================================

Source: RocketMQ ``client/producer/selector/SelectMessageQueueByHash.java``. It takes the remainder first and its sign
away after, which gives the same as here, where the hash code has 64 bits when its sign is taken away.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.hash_codes import string_hash_codes
from commitlog_store.columnar.input import MessageColumns
from commitlog_store.columnar.input_properties import illegible_rows
from commitlog_store.errors import InvalidValue
from commitlog_store.format.arrays import Int64Array


def choose_queues(
    columns: MessageColumns, queue_count: Callable[[str], int], *, round_robin_start: int = 0
) -> npt.NDArray[np.int32]:
    """A queue for each row; -1 for a row that is refused because of its topic.

    ``queue_count`` gives a topic's number of queues; it is called only where a row names no queue. Rows with neither
    queue id nor sharding key take the queues in turn, the first of them the one numbered ``round_robin_start``, modulo
    the number of queues. ``InvalidValue`` for a topic with less than one queue.
    """
    given = columns.queue_ids
    if given is not None and not (given < 0).any():
        return given
    # The last number is that of rows without a topic, whose code is -1.
    counts = np.array([*(_checked_count(name, queue_count(name)) for name in columns.topics), 0], np.int64)
    if given is None and columns.sharding_keys is None and len(columns.topics) == 1 and not columns.refusals:
        in_turn = (round_robin_start + np.arange(columns.count)) % counts[0]
        return np.asarray(in_turn, np.int32)
    of_rows = counts[columns.topic_codes]
    queue_ids = np.full(columns.count, -1, np.int32) if given is None else given.copy()
    is_open = queue_ids < 0
    chosen = _sharding_hashes(columns.sharding_keys, columns.count)
    in_turn = np.flatnonzero(is_open & (chosen < 0))
    chosen[in_turn] = round_robin_start + np.arange(len(in_turn))
    rows = np.flatnonzero(is_open & (of_rows > 0))
    queue_ids[rows] = chosen[rows] % of_rows[rows]
    return queue_ids


def highest_queues(columns: MessageColumns, queue_ids: npt.NDArray[np.int32]) -> list[tuple[str, int]]:
    """The highest queue of each topic among the rows that are not refused. ``queue_ids`` are those of all rows."""
    kept = columns.refusals.kept & (columns.topic_codes >= 0)
    highest = np.full(len(columns.topics), -1, np.int32)
    np.maximum.at(highest, columns.topic_codes[kept], queue_ids[kept])
    return [(name, top) for name, top in zip(columns.topics, highest.tolist(), strict=True) if top >= 0]


def _checked_count(topic: str, count: int) -> int:
    if count < 1:
        raise InvalidValue(f"Topic {topic!r} has at least one queue, not {count}.")
    return count


def _sharding_hashes(keys: pa.LargeBinaryArray | None, count: int) -> Int64Array:
    """The hash codes of sharding keys without their sign, 0 to 2**31; -1 for none and for text that is not UTF-8."""
    if keys is None:
        return np.full(count, -1, np.int64)
    illegible = illegible_rows(keys)
    if illegible.any():
        keys = keys.take(pa.array(np.arange(len(keys)), mask=illegible))
    hashes = np.abs(string_hash_codes(keys.cast(pa.string())).astype(np.int64))
    return np.where(keys.is_valid().to_numpy(zero_copy_only=False), hashes, -1) if keys.null_count else hashes
