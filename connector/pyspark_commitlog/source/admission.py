"""How much of each queue goes into the next batch: ``maxOffsetsPerTrigger`` and ``maxBytesPerTrigger``.

Planning keeps no memory between triggers, and yet no queue may be starved. What makes up for memory is age: where not
every queue can have its turn, those whose next message is oldest (lies first in the CommitLog) go first. A message
that had to wait is older than all that come after it, so its turn comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["Walker", "admit_bytes", "admit_rows"]


class Walker(Protocol):
    """The messages waiting in one queue, taken from the front: see ``SizeWalker``."""

    def next_size(self) -> int | None: ...

    def take(self, budget: int) -> int: ...

    def take_one(self) -> None: ...


def admit_rows(waiting: Sequence[int], heads: Sequence[int], limit: int) -> list[int]:
    """How many messages of each queue to read, ``limit`` in total or all there are.

    ``waiting`` is the number of messages of each queue, ``heads`` the physical offset of its next one. A queue gets at
    least one message if the limit reaches that far, and beyond that its share in proportion to what waits in it;
    what rounding leaves over, and a limit smaller than the number of queues, goes to the oldest first.
    """
    if sum(waiting) <= limit:
        return list(waiting)
    oldest_first = sorted((i for i, count in enumerate(waiting) if count), key=lambda i: (heads[i], i))
    admitted = [0] * len(waiting)
    for i in oldest_first[:limit]:
        admitted[i] = 1
    left = limit - sum(admitted)
    more = sum(waiting) - sum(admitted)
    for i in oldest_first if left else ():
        admitted[i] += left * (waiting[i] - 1) // more
    left = limit - sum(admitted)
    # Rounding leaves less than one message a queue, and there is a queue with more for each of them: one round does.
    for i in oldest_first:
        if left and admitted[i] < waiting[i]:
            admitted[i] += 1
            left -= 1
    return admitted


def admit_bytes(walkers: Sequence[Walker], waiting: Sequence[int], heads: Sequence[int], limit: int) -> None:
    """Move each walker as far as the next batch goes, at most ``limit`` bytes in total.

    First one message of each queue, oldest first, as far as they fit; then the rest in proportion to what waits;
    then what is left of the limit, oldest first. The oldest message of all is always admitted: if it alone is larger
    than the limit it goes alone, since it would block its queue for ever otherwise.
    """
    left = limit
    open_queues: list[int] = []
    for i in sorted((i for i, count in enumerate(waiting) if count), key=lambda i: (heads[i], i)):
        size = walkers[i].next_size()
        if size is None:
            continue
        if size > left:
            if not open_queues and left == limit:
                walkers[i].take_one()
                return
            continue
        walkers[i].take_one()
        left -= size
        open_queues.append(i)
    more = sum(waiting[i] - 1 for i in open_queues)
    share_of = {i: left * (waiting[i] - 1) // more for i in open_queues} if more else {}
    for i, share in share_of.items():
        left -= walkers[i].take(share)
    for i in share_of:
        left -= walkers[i].take(left)
