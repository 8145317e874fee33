"""QueueProgress: how far a consumer has come in one queue.

Source: RocketMQ ``client/impl/consumer/ProcessQueue.java``.
"""

from __future__ import annotations

from collections import deque


class QueueProgress:
    """Positions in one queue, each the next offset: pulled up to ``fetched``, handed out up to ``position``.

    ``done_up_to`` is the smallest offset that was handed out and is not done, the one to commit.
    """

    __slots__ = (
        "_handed_out_from",
        "_open",
        "_outstanding",
        "_together",
        "buffered",
        "committed",
        "fetched",
        "in_transaction",
        "key",
        "position",
        "restart",
        "turn",
    )

    def __init__(self, key: tuple[str, int], turn: int, position: int, committed: int) -> None:
        self.key = key
        # The queue's turn in its group: it changes when another consumer has the queue.
        self.turn = turn
        self.fetched = self.position = position
        # The position that the group has in the store; -1 for none.
        self.committed = committed
        # Where the group continues after a crash.
        self.restart = position
        # Whether an open transaction is to commit a position.
        self.in_transaction = False
        # Messages that were pulled and not handed out.
        self.buffered = 0
        # Handed out and not done; in order, with those that are done though an earlier one is not.
        self._open: set[int] = set()
        self._outstanding: deque[int] = deque()
        # The first offsets of messages that were handed out as rows, and are done together.
        self._together: set[int] = set()
        # The first offset that may have been handed out since the last ``seek``.
        self._handed_out_from = position

    def note_pulled(self, messages: int, next_begin_offset: int) -> None:
        """Note a pull. Without a message, what it looked at counts as done."""
        self.fetched = next_begin_offset
        self.buffered += messages
        if not self.buffered:
            self.position = next_begin_offset

    def hand_out(self, offset: int, messages: int = 1, last: int | None = None) -> None:
        """Hand out the next buffered message, or several from ``offset`` to ``last``, which are done together."""
        self._outstanding.append(offset)
        self._open.add(offset)
        if last is not None:
            self._together.add(offset)
        self.buffered -= messages
        # With the last one, those after it that do not match are passed.
        self.position = self.fetched if not self.buffered else (offset if last is None else last) + 1

    def hand_out_nothing(self) -> None:
        """Forget what was pulled and not handed out."""
        self.fetched, self.buffered = self.position, 0

    def acknowledge(self, offset: int) -> None:
        """Note that a message is done. Another one than those that are outstanding changes nothing, nor does a row."""
        if offset in self._together:
            return
        self._open.discard(offset)
        while self._outstanding and self._outstanding[0] not in self._open:
            self._outstanding.popleft()

    def is_done(self, offset: int) -> bool:
        """Whether a message was handed out and is done, as far as is known here: ``seek`` forgets what was before."""
        if self._handed_out_from <= offset < self.done_up_to:
            return True
        return offset in self._outstanding and offset not in self._open

    def acknowledge_all(self) -> None:
        """Note that everything that was handed out is done."""
        self._open.clear()
        self._together.clear()
        self._outstanding.clear()

    def seek(self, offset: int) -> None:
        """Continue at an offset. What was handed out before is forgotten."""
        self.acknowledge_all()
        self.fetched = self.position = self._handed_out_from = offset
        self.buffered = 0

    def note_committed(self, position: int) -> None:
        """Note the position that the group has in the store now."""
        self.committed = self.restart = position

    @property
    def done_up_to(self) -> int:
        """The position to commit."""
        return self._outstanding[0] if self._outstanding else self.position

    @property
    def may_commit(self) -> bool:
        """Whether the position to commit is another one than the store's, and no transaction's affair."""
        return self.done_up_to != self.committed and not self.in_transaction

    @property
    def has_uncommitted(self) -> bool:
        """Whether messages were handed out whose positions are neither committed nor part of a transaction."""
        return not self.in_transaction and self.position not in (self.restart, self._handed_out_from)
