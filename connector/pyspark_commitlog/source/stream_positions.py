"""Positions of a stream: the next offset of each queue, from the checkpoint, checked against the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from commitlog_store import QueueInfo, StoreReader
from pyspark_commitlog.loss import find_losses, replaced_position, report_losses
from pyspark_commitlog.options.subscription import QueueKey, Subscription
from pyspark_commitlog.source.stream_offset import StreamOffset

__all__ = ["Positions", "find_positions"]


@dataclass(frozen=True, kw_only=True)
class Positions:
    """Positions of the queues. ``next``: the next offset to read; ``moved``: those that differ from the checkpoint.

    A queue that has moved was new, or has lost messages. ``kept`` are positions of queues that exist but are not
    subscribed (any more): they are kept, so that subscribing again continues at the query's last position.
    """

    next: dict[QueueKey, int] = field(default_factory=dict)
    moved: set[QueueKey] = field(default_factory=set)
    kept: dict[QueueKey, int] = field(default_factory=dict)


def find_positions(
    reader: StoreReader,
    start: StreamOffset,
    bounds: Mapping[QueueKey, QueueInfo],
    subscription: Subscription,
    *,
    check_idle: bool,
    fail: bool,
) -> Positions:
    """Check every position of ``start`` against ``bounds`` (of the subscribed queues that exist), and add new queues.

    The fence of a queue is compared whenever messages will be read after it, so a replaced tail never stays unnoticed.
    ``check_idle`` compares those of idle queues as well. ``DataLossError`` or ``TailLostError`` with ``fail``.
    """
    found = Positions()
    for key, position in start.offsets.items():
        info = bounds.get(key)
        if info is None and not subscription.covers(*key):
            found.kept[key] = position
            continue
        if info is not None and position == info.max_offset and not check_idle:
            found.next[key] = position
            continue
        available = None if info is None else (info.min_offset, info.max_offset)
        wanted = (position, position if available is None else max(position, available[1]))
        replaced = replaced_position(reader, *key, available, [(position, start.fences.get(key))])
        losses = find_losses(wanted, available, replaced)
        report_losses(*key, losses, fail=fail)
        if info is not None:
            found.next[key] = losses.left[0]
        if losses.kinds:
            found.moved.add(key)
    for key in bounds.keys() - start.offsets.keys():
        info = bounds[key]
        # An empty queue needs no batch. It is still new when its first message comes.
        if info.min_offset < info.max_offset:
            found.next[key] = info.min_offset
            found.moved.add(key)
    return found
