"""Where each queue of a stream stands: the checkpointed position, held against what the store holds now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from commitlog import Fence, QueueInfo, StoreReader
from pyspark_commitlog import loss as data_loss
from pyspark_commitlog.options.subscription import QueueKey, Subscription
from pyspark_commitlog.source.offsets import StreamOffset

__all__ = ["Positions", "checked_position", "find_positions", "passed_by"]


@dataclass(frozen=True, kw_only=True)
class Positions:
    """``next`` is the offset each queue is to be read from; ``moved`` are those where the checkpoint says otherwise.

    A queue that has moved was new, or has lost messages. ``kept`` are positions of queues that exist but are not
    subscribed (any more): they are carried along, so that subscribing again goes on where the query had left off.
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
    """Check every position of ``start`` against ``bounds`` (of the subscribed queues that are there), add new queues.

    The fence of a queue is compared whenever messages will be read behind it, so a replaced tail is never read over.
    ``check_idle`` compares those of idle queues as well. ``DataLossError`` or ``TailLostError`` with ``fail``.
    """
    found = Positions()
    for key, position in start.offsets.items():
        info = bounds.get(key)
        if info is None:
            if subscription.covers(*key):
                data_loss.queue_gone(*key, position, fail=fail)
                found.moved.add(key)
            else:
                found.kept[key] = position
            continue
        idle = position == info.max_offset
        if idle and not check_idle:
            found.next[key] = position
            continue
        now_at = checked_position(reader, info, position, start.fences.get(key), fail=fail)
        found.next[key] = position if now_at is None else now_at
        if now_at is not None:
            found.moved.add(key)
    for key in bounds.keys() - start.offsets.keys():
        info = bounds[key]
        # An empty queue is not worth a batch. It is as new when its first message comes.
        if info.min_offset < info.max_offset:
            found.next[key] = info.min_offset
            found.moved.add(key)
    return found


def checked_position(
    reader: StoreReader, info: QueueInfo, position: int, fence: Fence | None, *, fail: bool
) -> int | None:
    """Where to go on instead, when messages before or behind ``position`` were lost; None when all is well."""
    available = (info.min_offset, info.max_offset)
    if info.max_offset < position:
        data_loss.tail_lost(info.topic, info.queue_id, position, available, fail=fail)
        return info.max_offset
    if info.min_offset > position:
        data_loss.head_lost(info.topic, info.queue_id, (position, info.max_offset), available, fail=fail)
        return info.min_offset
    if passed_by(reader, info, position, fence):
        data_loss.tail_replaced(info.topic, info.queue_id, position, available, fail=fail)
        return position
    return None


def passed_by(reader: StoreReader, info: QueueInfo, position: int, fence: Fence | None) -> bool:
    """Whether the message before ``position`` is another one than ``fence`` says.

    When retention has taken that message there is nothing to compare, and nothing wrong.
    """
    if fence is None or position <= info.min_offset:
        return False
    found = reader.fence(info.topic, info.queue_id, position - 1)
    return found is not None and found != fence
