"""Holes in the queue offsets of a damaged log.

A record whose TOPIC or QUEUEID is damaged leaves one, and fits into it.
"""

from __future__ import annotations

from typing import NamedTuple


class OffsetHole(NamedTuple):
    """Offsets ``[start, stop)`` of a queue that no record of the log has, and no unreadable bytes of it explain.

    ``after`` and ``before`` are where the records before and after the hole begin in the log.
    """

    start: int
    stop: int
    after: int
    before: int

    def is_filled_by(self, offset: int, place: int) -> bool:
        """Whether a record with that queue offset, at that place in the log, can be a missing one of the queue.

        A single record that does not fit into the queue it names, and fits here, has a damaged TOPIC or QUEUEID.
        """
        return self.start <= offset < self.stop and self.after < place < self.before
