"""CommitBatchService: commits of batches, which bring staged messages into the log as one frame, exactly once.

docs/decisions/0007-batches-as-frames.md explains it, and the state after a crash at each point.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator, Sequence

from commitlog_store.batch.frames import FoundFrame, frame_of
from commitlog_store.batch.ledger import BatchLedger, delivered_offsets, last_batch, load_ledger
from commitlog_store.batch.staging import (
    BlockBuffers,
    read_blocks,
    refuse_foreign_files,
    remove_leftovers,
    remove_up_to,
    staged_size,
)
from commitlog_store.batch_id import (
    EPOCH_APPLICATION,
    BatchId,
    CommittedBatch,
    StagedFile,
    is_store_application,
    joined_uses,
)
from commitlog_store.columnar.batch_frame import FrameRecord
from commitlog_store.columnar.staged_block import StagedBlock
from commitlog_store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from commitlog_store.engine.running_state import RunningState
from commitlog_store.engine.store_flush import StoreFlush
from commitlog_store.errors import CommitLogError, CorruptStaging, DiskFull, PutRefused
from commitlog_store.files.mapped_file_writer import passes
from commitlog_store.format.message_id import parse_host
from commitlog_store.format.record import Record, decode_record
from commitlog_store.message import PutMessageStatus
from commitlog_store.paths import BATCH_TOPIC
from commitlog_store.queue.topic_config import TopicConfig
from commitlog_store.recovery.open import OpenedLog
from commitlog_store.slow_steps import SlowSpell
from commitlog_store.threads.prefetch import prefetch

_LOG = logging.getLogger(__name__)
_FRAME_QUEUE = (BATCH_TOPIC, 0)
# While the store is open, the ledger's file is written once in so many batches.
_SAVE_EVERY = 256
_LEFTOVERS_EVERY_S = 24 * 3600


class CommitBatchService:
    """Commits batches on the store's job thread: one at a time, not interrupted by signals."""

    def __init__(
        self,
        store_path: str,
        config: MessageStoreConfig,
        log: OpenedLog,
        store_flush: StoreFlush,
        state: RunningState,
        topics: TopicConfig,
        on_appended: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store_path = store_path
        self._clock = clock
        self._topics = topics
        self._queue_nums = config.default_topic_queue_nums
        self._log = log
        self._store_flush = store_flush
        self._state = state
        self._on_appended = on_appended
        self._sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._is_replica = config.broker_role is BrokerRole.SLAVE
        self._host = parse_host(config.store_host)
        self._ledger: BatchLedger | None = None
        # Whether the log was found to lack frames that the ledger's file counts.
        self.frames_were_lost = False
        self._unsaved = 0
        self._leftovers_due = clock() + _LEFTOVERS_EVERY_S
        self._slow = SlowSpell(_LOG, f"A commit of a batch to {store_path}")

    def check(self, batch: BatchId) -> CommittedBatch | None:
        """The batch if it is in the store already; None if it is not. ``BatchConflict``."""
        return self._loaded().check(batch)

    def commit(
        self, batch: BatchId, staged: Sequence[StagedFile], *, new_topic_queues: int | None = None
    ) -> CommittedBatch:
        """Bring a batch into the log, and to the device under SYNC_FLUSH, unless it is there already.

        Topics that are new with it get ``new_topic_queues`` queues, by default as many as any new topic.

        ``BatchConflict``, ``StagingLost``, ``CorruptStaging``, ``DiskFull``, ``PutRefused``, ``InvalidValue`` for a
        file that is named twice, is of another batch or a symbolic link, and what ``TopicConfig.admit`` raises before:
        nothing was written.
        ``StoreIOError``: outcome unknown; open the store again and repeat the commit to find out.
        """
        files = [one for one in staged if one.rows]

        def admit() -> None:
            refuse_foreign_files(batch, files)
            for one in files:
                if (found := staged_size(self._store_path, one)) != one.size:
                    raise CorruptStaging("Size", path=one.path, offset=0, expected=f"{one.size} bytes", found=found)
            # Only for a batch that is to be written, and before it: a crash in between leaves topics without messages,
            # not messages in a topic that the next writer spreads over other queues.
            if uses := joined_uses(files):
                self._topics.admit(uses, new_topic_queues or self._queue_nums)

        committed = self._commit(batch, self._blocks(files) if files else None, admit)
        if batch.app_id:
            remove_up_to(self._store_path, batch)
        self._remove_leftovers()
        return committed

    def _remove_leftovers(self) -> None:
        """As opening the store does, once a day: a server of the store stays open for months."""
        if self._clock() >= self._leftovers_due:
            self._leftovers_due = self._clock() + _LEFTOVERS_EVERY_S
            remove_leftovers(self._store_path, now=time.time())

    def commit_blocks(
        self, batch: BatchId, blocks: Sequence[StagedBlock], *, frees_space: bool = False
    ) -> CommittedBatch:
        """Bring records of this process into the log as a batch of the store's own application; errors as ``commit``.

        ``PutRefused`` also if a topic cannot be listed. ``frees_space``: also on a nearly full disk, since retention
        can delete files when they are in the log.
        """

        def admit() -> None:
            self._topics.list_queues(queue for block in blocks for queue in block.queues)

        return self._commit(batch, (block for block in blocks), admit, frees_space=frees_space)

    def _commit(
        self,
        batch: BatchId,
        blocks: Generator[StagedBlock, None, None] | None,
        admit: Callable[[], None],
        *,
        frees_space: bool = False,
    ) -> CommittedBatch:
        """The commit of every batch, step by step. ``admit`` checks it and lists its topics; no ``blocks``: no rows."""
        # 1. The ledger says whether the batch is in the log already.
        ledger = self._loaded()
        committed = ledger.check(batch)
        if committed is not None:
            return committed
        # 2. Refusals come before the first byte.
        self._state.refuse_commits(frees_space=frees_space)
        if blocks is None:
            return CommittedBatch(batch, -1, -1, 0, -1)
        admit()
        try:
            ledger.reserve_space_for(batch)
        except DiskFull:
            if not frees_space:
                raise
        # 3. All records come after the log's end, the frame record last: before it, nothing is in the log.
        began, last = self._clock(), ledger.last(batch.app_id)
        previous = -1 if last is None else last.physical_offset
        frame = FrameRecord(batch, previous, self._host, int(time.time() * 1000))
        try:
            with contextlib.closing(blocks):
                committed = CommittedBatch(batch, *self._log.writer.append_frame(frame, _FRAME_QUEUE, blocks))
            # 4. It is in the log. A failure from here on leaves it there, and the next owner finds it.
            self._on_appended()
            if self._sync:
                self._store_flush.flush_log()
            # 5. It is committed.
            ledger.add(committed)
        except BaseException as error:
            if frame.made:
                # The ledger lacks the batch, and would let it be written again.
                self._state.halt(error)
            elif isinstance(error, TimeoutError):
                raise PutRefused(PutMessageStatus.CREATE_MAPEDFILE_FAILED, str(error)) from error
            raise
        self._slow.note(self._clock() - began)
        self._unsaved += 1
        if self._unsaved >= _SAVE_EVERY:
            self._save(ledger, or_later=True)
        return committed

    def _blocks(self, staged: list[StagedFile]) -> Generator[StagedBlock, None, None]:
        """The blocks of all files. The next block is read and checked while this one is being written."""
        buffers = BlockBuffers()
        rows, left = 0, sum(one.rows for one in staged)
        blocks = (block for one in staged for block in read_blocks(self._store_path, one, buffers))
        with contextlib.closing(prefetch(blocks)) as ahead:
            for block in ahead:
                rows += len(block)
                yield block
        if rows != left:
            # The files' contents are checked as they are read; this checksum is for the way from there to the log.
            raise CorruptStaging("Rows", path=staged[0].path, offset=0, expected=f"{left} rows", found=f"{rows}")

    def batches(self) -> list[CommittedBatch]:
        """The last batch of each application; the store's own ones are left out."""
        return [batch for batch in self._loaded().batches() if not is_store_application(batch.batch.app_id)]

    def last_version(self, app_id: str) -> int | None:
        """The version of an application's last batch; None without any."""
        last = self._loaded().last(app_id)
        return None if last is None else last.batch.version

    def last_batch(self, app_id: str) -> BatchId | None:
        """An application's last batch; None without any."""
        return last_batch(self._loaded(), app_id)

    def epoch(self) -> int:
        """How often a mirror was promoted in the history of this log."""
        last = self._loaded().last(EPOCH_APPLICATION)
        return 0 if last is None else last.batch.version

    def begin_epoch(self) -> int:
        """Begin the next epoch, on the device too: a batch without messages says so. Errors as ``commit``."""
        epoch = self.epoch() + 1
        self.commit_blocks(BatchId(EPOCH_APPLICATION, epoch), ())
        self._store_flush.flush_log()
        return epoch

    def delivered_offsets(self) -> dict[int, int]:
        """By delay level, the offset of the next message to deliver, as the last delivery of each left it."""
        return delivered_offsets(self._loaded())

    def forget(self, app_id: str) -> CommittedBatch | None:
        """Remove an application from the ledger, on the device too. Returns its last batch.

        ``DiskFull``: it is in the ledger as before. ``StoreIOError``.
        """
        ledger = self._loaded()
        forgotten = ledger.forget(app_id)
        if forgotten is not None:
            try:
                self._save(ledger)
            except CommitLogError:
                ledger.recall(forgotten)
                raise
        return forgotten

    def save(self) -> None:
        """Write the ledger's file if it lacks anything. ``StoreIOError``."""
        if self._ledger is not None and self._ledger.changed:
            self._save(self._ledger, or_later=True)

    def save_for_cleaning(self) -> int | None:
        """Write the ledger's file before frames of the log are deleted.

        Returns the physical offset from which on frames are still needed, when the disk has no space for the file. That
        is so only where the space that was reserved for it is gone too.
        ``CorruptConfig``, ``StoreIOError``.
        """
        if self._ledger is None and self._log.queues.highest_id(BATCH_TOPIC) < 0:
            return None
        ledger = self._loaded()
        if ledger.unsaved_from is not None:
            self._save(ledger, or_later=True, from_reserve=True)
        return ledger.unsaved_from

    def _save(self, ledger: BatchLedger, *, or_later: bool = False, from_reserve: bool = False) -> None:
        """``or_later``: without space or descriptors, leave it for the next time, since the log has everything."""
        # The file counts all frames up to now, also those of no application: none may be lost in a crash after this.
        self._store_flush.flush_log()
        try:
            ledger.save(from_reserve=from_reserve)
        except CommitLogError as error:
            if not passes(error):
                self._state.halt(error)
            elif or_later:
                return
            raise
        self._unsaved = 0

    def _loaded(self) -> BatchLedger:
        """The ledger, read at first use: all earlier frames are in the frame topic's queue then."""
        if self._ledger is None or self._is_replica:  # batches of a master come by themselves
            self._ledger = load_ledger(self._store_path, _OwnersLog(self._log))
            if self._ledger.file_is_wrong and not self._is_replica:
                self.frames_were_lost = True
                # Before the next frame, which may take the queue offset of a lost one.
                _LOG.warning(
                    "%s counts batches that the log has lost. It is made from the frames in the log again, and knows "
                    "applications that were reset and have committed nothing since: reset these again.",
                    self._ledger.path,
                )
                self._save(self._ledger, or_later=True)
        return self._ledger


def epoch_of(store_path: str, log: OpenedLog) -> int:
    """How often a mirror was promoted in the history of the log of a store that is being opened."""
    last = load_ledger(store_path, _OwnersLog(log)).last(EPOCH_APPLICATION)
    return 0 if last is None else last.batch.version


class _OwnersLog:
    """The open store as a ``LedgerSource``."""

    def __init__(self, log: OpenedLog) -> None:
        self._files = log.files
        self._queues = log.queues

    def log_bounds(self) -> tuple[int, int]:
        return self._files.min_offset, self._files.max_wrote

    def queue_end(self) -> int:
        return self._queues.next_offset(*_FRAME_QUEUE) if self._queues.highest_id(BATCH_TOPIC) >= 0 else 0

    def place(self, queue_offset: int) -> int | None:
        return self._queues.place(*_FRAME_QUEUE, queue_offset)

    def frame_at(self, physical_offset: int) -> FoundFrame | None:
        file = self._files.find(physical_offset)
        if file is None:
            return None
        at = physical_offset - file.base
        size = int.from_bytes(file.read(at, 4), "big", signed=True)
        data = file.read(at, max(min(size, file.capacity - at), 0))
        record = decode_record(data, physical_offset=physical_offset)
        return frame_of(record) if isinstance(record, Record) else None
