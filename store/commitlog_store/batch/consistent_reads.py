"""Consistent reads: an answer of a reader is that of one moment, beside an owner that dispatches batches and deletes
files.

One rule holds for everything that a reader asks. What it asks is asked as a whole, and as a whole again

- when the log's first file went during it: retention removes log files before the queue and index files that lead to
  them, so an answer that saw none go rests on files of one moment;
- when several batches were dispatched during it, and the gate does not tell where the first of them begins;
- when it failed by something that a file's removal explains. The same failure twice in a row is how the store is.
  A question within another one takes the outer one's last failure for its own first.

Source of the order of removals: RocketMQ ``store/DefaultMessageStore.java`` (``CleanConsumeQueueService`` compares with
the log's first byte), and ``retention/clean.py``.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from commitlog_store.batch.frames import StoredFrames
from commitlog_store.batch.visibility import NOTHING_HIDDEN, GateReader, GateState, hidden_from
from commitlog_store.errors import (
    CommitLogError,
    CorruptStoreError,
    Damaged,
    FileChanged,
    FileMissing,
    NotFoundError,
    OffsetOutOfRange,
    StoreBusy,
    StoreOpenError,
)
from commitlog_store.files import disk
from commitlog_store.format.record import RECORD_PREFIX_SIZE
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.store_checkpoint import read_mark
from commitlog_store.paths import ABORT, BATCH_TOPIC, CHECKPOINT, CONSUME_QUEUE
from commitlog_store.queue.settled_queues import SettledTurn, settled_turn

_Found = TypeVar("_Found")
_Shown = TypeVar("_Shown")

# Seconds to wait after each look at a store that changed during it; then StoreBusy.
_PAUSES = (0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
# What a reader raises when a file, a queue or a message went between two of its calls; and for damage.
_MAY_PASS = (Damaged, FileChanged, FileNotFoundError, NotADirectoryError, NotFoundError, OffsetOutOfRange)


class _SeveralBatches(Exception):
    """Several batches were dispatched during a look, and it is not known where the first of them begins."""


class _GateSnapshot(NamedTuple):
    """How many batches had begun to be dispatched (-1 when that is not known), and the gate just after."""

    batches: int
    gate: GateState


class BrokersChanges(NamedTuple):
    """What shows that a broker takes a store over, deletes a topic, or deletes log files."""

    log_start: int
    abort: tuple[int, ...] | None
    topics: tuple[int, ...] | None


class SettledState(NamedTuple):
    """A state in which no queue changes: ``StoreReader.settled_state``."""

    turn: SettledTurn
    gate_turn: int
    by_brokers: BrokersChanges


class ConsistentReads:
    """Asks a store as the module's docstring says, and leaves out batches that are still being dispatched."""

    def __init__(self, store_path: str, commit_log: CommitLog, frames: StoredFrames) -> None:
        self.gate = GateReader(store_path)
        self._store_path = store_path
        self._commit_log = commit_log
        self._frames = frames
        self._checkpoint = os.path.join(store_path, CHECKPOINT)
        # Of most stores there is none, which one call of the system shows.
        self._batches = os.path.join(store_path, CONSUME_QUEUE, BATCH_TOPIC)
        # By thread: the failure for which the current question is asked again.
        self._asked_again = threading.local()
        self._looked_at = [os.path.join(store_path, name) for name in (ABORT, CONSUME_QUEUE)]

    def read(self, ask: Callable[[], _Found], show: Callable[[_Found, int], _Shown]) -> _Shown:
        """What ``show`` makes of the answer to ``ask``, both of one moment.

        ``show`` also gets the physical offset from which on the answer may have a part of a batch, which it leaves out;
        ``NOTHING_HIDDEN`` when it has none. ``StoreBusy``, and the errors of both.
        """

        def ask_once() -> _Shown:
            before = self._now()
            found = ask()
            hidden = self._hidden_since(before)
            if hidden is None:
                raise _SeveralBatches
            return show(found, hidden)

        return self.repeat(ask_once)

    def settled_state(self) -> SettledState | None:
        """``StoreReader.settled_state``."""
        turn = settled_turn(self._store_path)
        gate = self.gate.look()
        if turn is None or not gate.is_open or read_mark(self._checkpoint) is None:
            return None
        try:
            self._commit_log.refresh()
            file = self._commit_log.find(turn.dispatched_to)
            if file is not None and any(file.read(turn.dispatched_to - file.base, RECORD_PREFIX_SIZE)):
                return None  # a broker has put messages, or the owner has not dispatched them
            return SettledState(turn, gate.turn, self.by_brokers())
        except (CommitLogError, OSError):
            return None  # the caller that asks the queues gets the error

    def by_brokers(self) -> BrokersChanges:
        """What is to be compared, in a log whose files were listed just now. ``CommitLogError``, OSError."""
        return BrokersChanges(self._commit_log.min_offset, *map(_signature_of, self._looked_at))

    def repeat(self, ask: Callable[[], _Shown], *, one_moment: bool = True) -> _Shown:
        """The answer to ``ask``, which is asked again while the store changes. ``StoreBusy``, and its own errors.

        Without ``one_moment``, an answer stands even if files went during it: for long questions whose parts all rest
        on bounds that were asked for first.
        """
        outer: Exception | None = getattr(self._asked_again, "failure", None)
        failure = outer
        for pause in _PAUSES:
            log_start = self._log_start() if one_moment else 0
            self._asked_again.failure = failure
            try:
                found = ask()
            except (*_MAY_PASS, _SeveralBatches) as error:
                if isinstance(error, _MAY_PASS) and failure is not None and _said(error) == _said(failure):
                    raise
                failure = error
            else:
                if not one_moment or self._log_start() == log_start:
                    return found
                failure = None
            finally:
                self._asked_again.failure = outer
            time.sleep(pause)
        raise StoreBusy(
            f"The store {self._store_path} changed during each of {len(_PAUSES)} looks at it: retention deleted files, "
            "or several batches were dispatched, of which its list of batches does not say where the first one begins. "
            "Ask again; if it stays so, run `commitlog verify`."
        ) from failure

    def _log_start(self) -> int:
        """The log's first byte now. Without files, one that no log begins with."""
        self._commit_log.refresh()
        return self._commit_log.min_offset if self._commit_log.file_count else -1

    def _now(self) -> _GateSnapshot:
        """The state to give to ``_hidden_since``."""
        batches = -1
        # A damaged frame queue must not fail a question about other queues.
        with contextlib.suppress(CorruptStoreError, FileMissing, StoreOpenError):
            batches = self._frames.queue_end() if disk.exists(self._batches) else 0
        return _GateSnapshot(batches, self.gate.look())

    def _hidden_since(self, before: _GateSnapshot) -> int | None:
        """The physical offset from which on messages seen since then may be a part of a batch; None: look again."""
        if not before.gate.is_open and read_mark(self._checkpoint) is None:
            return NOTHING_HIDDEN  # a broker, which has no gate, took the store over from an owner that was killed
        hidden = hidden_from(before.gate, self.gate.look())
        if hidden is None and before.batches >= 0:
            # Several since. The gate was open, so batches that had begun were shown, and the next was the first hidden.
            hidden = self._frames.place(before.batches)
        # Retention keeps a batch that is being dispatched: a gate before the log's beginning is that of an older copy.
        return hidden if hidden is None or hidden >= self._commit_log.min_offset else NOTHING_HIDDEN

    def close(self) -> None:
        self.gate.close()


def _said(error: Exception) -> object:
    """What makes a failure the same one: all that it says, but for the end of a queue, which grows as messages come."""
    if isinstance(error, OffsetOutOfRange):
        return error.topic, error.queue_id, error.start, error.stop, error.min_offset
    return type(error), str(error)


def _signature_of(path: str) -> tuple[int, ...] | None:
    try:
        return disk.file_signature(path)
    except FileNotFoundError:
        return None
