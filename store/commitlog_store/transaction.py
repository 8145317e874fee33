"""Transaction: a batch of messages that a Python program puts in a ``with`` block and commits by leaving it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import NamedTuple

import pyarrow as pa

from commitlog_store.batch.staging import StagedWriter, remove_files
from commitlog_store.batch_id import BatchId, CommittedBatch, StagedFile
from commitlog_store.columnar.message_rows import MessageRows
from commitlog_store.errors import InvalidValue, TransactionEnded
from commitlog_store.format.positions_message import encode_positions
from commitlog_store.owned_store.owned_store import OwnedStore
from commitlog_store.paths import POSITIONS_TOPIC
from commitlog_store.unpicklable import Unpicklable


class _Positions(NamedTuple):
    """Positions of a consumer group that are committed with the batch, and the consumer's part in that."""

    group: str
    offsets: Mapping[tuple[str, int], int]
    still_holds: Callable[[], bool]
    ended: Callable[[bool], None]


class Transaction(Unpicklable):
    """Messages that will be in the store together or not at all. Use it as a context manager.

    Leaving the block commits; an exception in it, or the end of the process, discards everything. Until the commit its
    messages are staged on disk, so a transaction may be larger than memory, and other puts run concurrently. Any number
    of threads may put into it, one after the other, as long as the block lasts.

    Under SYNC_MASTER, leaving the block waits for slaves. ``PutNotConfirmed`` when they do not acknowledge it in time:
    it is committed; the same version again stores nothing twice, and waits again.

    ::

        with MessageStore.open("/data/store") as store, store.transaction("loader", version=1) as batch:
            if not batch.already_there:  # a version is stored at most once
                batch.put_messages(pa.table({"topic": ["orders", "audit"], "body": [b"a", b"b"]}))
    """

    _INSTEAD = "Put its messages here, or stage them there with BatchStager and commit them with commit_batch."

    def __init__(self, user: object, batch: BatchId, store: OwnedStore, committed: CommittedBatch | None) -> None:
        """Use ``MessageStore.transaction``. ``user`` is the ``MessageStore``: it is not dropped before this."""
        self._user = user
        self.batch = batch
        # The committed batch, from the end of the block on; from the start if it was committed before.
        self.result = committed
        self._store_path = store.path
        self._engine = store.engine
        self._groups = store.groups
        self._lock = threading.Lock()
        self._writer: StagedWriter | None = None
        self._ended = False
        # Taken once, for good: by the job that commits, or by a block that ends without it.
        self._outcome = threading.Lock()
        self._process = os.getpid()
        # The error of a failed put: a part of the messages is missing.
        self._failure: BaseException | None = None
        self._positions: list[_Positions] = []
        self._positions_committed = False

    def __repr__(self) -> str:
        state = "failed" if self._failure is not None else "ended" if self._ended else "open"
        return f"<Transaction of {self.batch}, {state}>"

    @property
    def already_there(self) -> bool:
        """Whether this version was committed before: puts write nothing, and the block may be skipped."""
        return self.result is not None and self.result.already_there

    def put_messages(self, table: MessageRows, *, topic: str | None = None, first_row: int = 0) -> None:
        """Add the rows of a table, a data frame or a list, as ``MessageStore.put_messages`` takes them.

        ``InvalidValue`` for wrong columns, ``PutRefused`` for the first row that no store accepts,
        ``StagingFailed``, ``StoreClosed``.
        """
        self._refuse_ended()
        self._refuse_failed()
        if self.already_there:
            return
        with self._engine.calls.enter():
            self._engine.state.refuse_closed()
            try:
                self._stage(table, topic, first_row)
            except BaseException as error:
                # A part of the table may be staged. A put that came too late is not a part of the transaction.
                if self._failure is None and not self._ended:
                    self._failure = error
                raise

    def add_positions(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        still_holds: Callable[[], bool],
        ended: Callable[[bool], None],
    ) -> None:
        """Commit positions of a consumer group with the batch: ``Consumer.commit(in_transaction=...)``.

        ``still_holds`` says at the commit whether the queues are the consumer's. ``ended`` is called at the end of the
        block, with whether the positions are committed. ``InvalidValue`` for a version that was committed before;
        ``TransactionEnded``.
        """
        self._refuse_ended()
        self._refuse_failed()
        if self.already_there:
            raise InvalidValue(
                f"{self.batch} was committed before, with the positions of then. Begin the next version for others."
            )
        self._positions.append(_Positions(group, offsets, still_holds, ended))

    def _stage_positions(self, writer: StagedWriter | None) -> StagedWriter | None:
        """The staged file with a message for the positions at its end; the same one without any."""
        if not self._positions:
            return writer
        writer = writer or StagedWriter(self._store_path, self.batch)
        bodies = [encode_positions(one.group, one.offsets) for one in self._positions]
        table = pa.table({"body": bodies, "queueId": pa.array([0] * len(bodies), pa.int32())})
        for encoded in self._engine.bulk.encoded(table, POSITIONS_TOPIC, from_store=True):
            writer.append(encoded)
        return writer

    def _stage(self, table: MessageRows, topic: str | None, first_row: int) -> None:
        with self._lock:
            # Another thread may have ended it, or failed, while this one waited for the lock.
            self._refuse_ended()
            self._refuse_failed()
            try:
                self._engine.state.refuse_on_replica()  # whose list of topics is its master's
                if self._writer is None:
                    self._writer = StagedWriter(self._store_path, self.batch)
                for encoded in self._engine.bulk.encoded(table, topic, first_row=first_row):
                    self._writer.append(encoded)
            except BaseException as error:
                self._failure = error
                raise

    def _refuse_ended(self) -> None:
        if self._ended:
            raise TransactionEnded(f"The transaction of {self.batch} has ended; begin another one.")

    def _refuse_failed(self) -> None:
        if self._failure is not None:
            raise TransactionEnded(
                f"A put into the transaction of {self.batch} failed ({self._failure}), so a part of it is missing. "
                "Nothing was written; begin another one."
            ) from self._failure

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Before the lock is waited for: a signal handler that puts then is refused, and does not wait for itself.
        self._ended = True
        writer: StagedWriter | None = None
        # In a forked child the staged file belongs to the parent, which may still write it; so may the lock.
        if os.getpid() == self._process:
            with self._lock:
                writer, self._writer = self._writer, None
        try:
            if kind is None:
                self._refuse_failed()
                self._engine.commit(lambda: self._commit(writer))
        finally:
            # Without the job; or an interrupt ended the wait before its turn, and then it finds that.
            if self._outcome.acquire(blocking=False):
                self._report_ended(is_committed=False)
                self._remove(writer)

    def _commit(self, writer: StagedWriter | None) -> CommittedBatch:
        if not self._outcome.acquire(blocking=False):
            raise TransactionEnded(f"The wait for the commit of {self.batch} was interrupted. Nothing was written.")
        if self.result is not None:
            return self.result  # there already: it still waits for the slaves
        try:
            self._refuse_moved_queues()
            writer = self._stage_positions(writer)
            self.result = self._engine.batches.commit(self.batch, [] if writer is None else [writer.finish()])
            if self._positions and not self.result.already_there:
                self._apply_positions()
            return self.result
        finally:
            self._remove(writer)
            # Here, on the job's thread: an interrupt may have ended the caller's wait.
            self._report_ended(is_committed=self._positions_committed)

    def _refuse_moved_queues(self) -> None:
        for one in self._positions:
            if not one.still_holds():
                raise TransactionEnded(
                    f"Queues of group {one.group!r} are not the consumer's any more: it was closed, another one reads "
                    "their messages again, or their topic was deleted. "
                    f"Nothing of {self.batch} was written; poll again."
                )

    def _apply_positions(self) -> None:
        next_offset = self._engine.log.writer.next_queue_offset(POSITIONS_TOPIC, 0)
        self._groups.apply([(one.group, one.offsets) for one in self._positions], next_offset)
        self._positions_committed = True

    def _report_ended(self, *, is_committed: bool) -> None:
        for one in self._positions:
            one.ended(is_committed)

    def _remove(self, writer: StagedWriter | None) -> None:
        if writer is not None:
            writer.discard()
            remove_files(self._store_path, [StagedFile(writer.path, 0, 0, 0)])


def check_transaction_of(engine: object, given: object) -> None:
    """``InvalidValue`` for anything but a transaction of the store that has this engine."""
    if not isinstance(given, Transaction) or given._engine is not engine:
        raise InvalidValue(f"in_transaction is a transaction of the same store, not {given!r}.")
