"""Which queue of its topic each of many messages goes to, where the message does not say.

========================  =============================================================================================
a message has             its queue
========================  =============================================================================================
a queue id                that one
a sharding key            Java's hash code of the key, without sign, modulo the topic's number of queues
neither                   the queues in turn
========================  =============================================================================================

Source: RocketMQ ``client/producer/selector/SelectMessageQueueByHash.java``. It takes the remainder first and its sign
away after, which comes to the same as here, where the hash code has 64 bits when its sign is taken away.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog.columnar.hash_codes import string_hash_codes
from commitlog.columnar.input import Rows, queue_columns
from commitlog.columnar.input_properties import illegible_rows
from commitlog.errors import InvalidValue
from commitlog.format.arrays import Int64Array

__all__ = ["resolve_queue_ids", "sharding_hashes"]


def sharding_hashes(keys: pa.LargeBinaryArray | None, count: int) -> Int64Array:
    """The hash codes of sharding keys without their sign, 0 to 2**31; -1 for none and for what is no UTF-8 text."""
    if keys is None:
        return np.full(count, -1, np.int64)
    illegible = illegible_rows(keys)
    if illegible.any():
        keys = keys.take(pa.array(np.arange(len(keys)), mask=illegible))
    hashes = np.abs(string_hash_codes(keys.cast(pa.string())).astype(np.int64))
    return np.where(keys.is_valid().to_numpy(zero_copy_only=False), hashes, -1) if keys.null_count else hashes


def resolve_queue_ids(
    table: Rows, *, topic: str | None, queue_counts: Mapping[str, int], round_robin_start: int = 0
) -> npt.NDArray[np.int32]:
    """A queue for each row, of the columns that ``message_columns`` describes.

    ``queue_counts`` is how many queues each topic has; a row without a queue id whose topic it does not name, or that
    has no legal topic or queue id, gets -1. Rows with neither queue id nor sharding key take the queues in turn, the
    first of them the one numbered ``round_robin_start``, modulo the number of queues.
    ``InvalidValue`` for columns that cannot be, and for a topic with less than one queue.
    """
    columns = queue_columns(table, topic=topic)
    for name in columns.topics:
        if queue_counts.get(name, 1) < 1:
            raise InvalidValue(f"Topic {name!r} has at least one queue, not {queue_counts[name]}.")
    # The last number is that of rows without a topic, whose code is -1.
    counts = np.array([*(queue_counts.get(name, 0) for name in columns.topics), 0], np.int64)[columns.topic_codes]
    hashes = sharding_hashes(columns.sharding_keys, table.num_rows)
    queue_ids = columns.queue_ids.copy()
    open_rows = queue_ids < 0
    chosen = hashes.copy()
    in_turn = np.flatnonzero(open_rows & (hashes < 0))
    chosen[in_turn] = round_robin_start + np.arange(len(in_turn))
    rows = np.flatnonzero(open_rows & (counts > 0))
    queue_ids[rows] = chosen[rows] % counts[rows]
    return queue_ids
