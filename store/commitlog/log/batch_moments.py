"""What a reader leaves out while batches are dispatched, so that all that it sees in one call is of one moment."""

from __future__ import annotations

import contextlib
import os
from typing import NamedTuple

from commitlog.errors import CorruptStoreError, FileMissing, StoreOpenError
from commitlog.log.batch_gate import NOTHING_HIDDEN, GateReader, GateState, hidden_from
from commitlog.log.store_checkpoint import read_mark
from commitlog.log.stored_frames import StoredFrames
from commitlog.paths import CHECKPOINT

__all__ = ["BatchMoments", "Moment"]


class Moment(NamedTuple):
    """How many batches had begun to be dispatched (-1 when that is not known), and the gate after that was asked."""

    batches: int
    gate: GateState


class BatchMoments:
    """The gate and the frames of a store, looked at before and after whatever a reader asks of queues or index."""

    def __init__(self, store_path: str, frames: StoredFrames) -> None:
        self.gate = GateReader(store_path)
        self._frames = frames
        self._checkpoint = os.path.join(store_path, CHECKPOINT)

    def now(self) -> Moment:
        """The moment from which on ``hidden_since`` tells."""
        batches = -1
        # Who asks for other queues has nothing to do with what is wrong with this one.
        with contextlib.suppress(CorruptStoreError, FileMissing, StoreOpenError):
            batches = self._frames.queue_end()
        return Moment(batches, self.gate.look())

    def hidden_since(self, moment: Moment) -> int | None:
        """From which physical offset on what was seen since then may be a part of a batch; None: look again."""
        batches, before = moment
        if not before.is_open and read_mark(self._checkpoint) is None:
            return NOTHING_HIDDEN  # a broker took the store over from an owner that was killed, and knows no gate
        hidden = hidden_from(before, self.gate.look())
        if hidden is None and batches >= 0:
            # Several since. The gate stood open, so those that had begun were there, and the next was the first hidden.
            hidden = self._frames.place(batches)
        return hidden

    def close(self) -> None:
        self.gate.close()
