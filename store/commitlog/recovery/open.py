"""Everything an owner has open: made, recovered, and ready for the services.

docs/durability.md explains when the clean mark is believed and when the log is scanned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from commitlog.batch.visibility import BatchGate
from commitlog.columnar.dispatch import dispatch_requests, index_entries
from commitlog.config import MessageStoreConfig
from commitlog.errors import CorruptIndex, StoreIOError
from commitlog.files import disk
from commitlog.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog.files.transient_store_pool import TransientStorePool
from commitlog.format.checkpoint import CheckpointMark
from commitlog.format.record import Record, Unwritten, decode_record
from commitlog.index.writer import IndexWriter
from commitlog.log.commit_log import CommitLog
from commitlog.log.commit_log_writer import CommitLogWriter
from commitlog.log.owner_directory import OwnerDirectory
from commitlog.log.scan import LogEnd, walk
from commitlog.log.store_checkpoint import StoreCheckpoint
from commitlog.paths import CHECKPOINT, COMMIT_LOG, INDEX
from commitlog.queue.catalog import QueueCatalog
from commitlog.queue.consume_queue_store import ConsumeQueueStore
from commitlog.recovery.allocate import AllocateMappedFileService
from commitlog.recovery.recover import Progress, Recovered, Recovery, RecoveryPolicy
from commitlog.threads.wakeup import Wakeup

__all__ = ["OpenedLog", "open_log"]

_MS = 1000.0


@dataclass
class OpenedLog:
    """The parts of an open store. ``recovered`` is None when the clean mark was believed."""

    files: MappedFileQueueWriter
    writer: CommitLogWriter
    queues: ConsumeQueueStore
    index: IndexWriter | None
    checkpoint: StoreCheckpoint
    gate: BatchGate
    allocator: AllocateMappedFileService
    recovered: Recovered | None
    _reading: CommitLog

    def close(self) -> None:
        """Close every file, and flush none: a clean close has done that before."""
        if self.index is not None:
            self.index.release()
        self.files.close()
        self.queues.close()
        self.checkpoint.close()
        self.gate.release()
        self._reading.close()

    @property
    def _index_file_count(self) -> int:
        if self.index is not None:
            return self.index.file_count
        return self.checkpoint.mark.index_file_count if self.checkpoint.mark is not None else 0

    def mark(self, *, closed: bool) -> CheckpointMark:
        """What is to stand in the checkpoint now."""
        return CheckpointMark(
            closed=closed,
            flushed_offset=self.files.flushed_where,
            end_offset=self.files.max_wrote if closed else 0,
            last_record=self.writer.last_record if closed else -1,
            queue_file_count=self.queues.file_count,
            index_file_count=self._index_file_count,
        )


def open_log(
    directory: OwnerDirectory,
    config: MessageStoreConfig,
    *,
    accept_lost_log: bool,
    rebuild: bool,
    progress: Progress | None,
    on_failure: Callable[[BaseException], None],
    allocate: Wakeup,
) -> OpenedLog:
    """Open the files of a store whose lock is held, and recover what a crash left. Errors: ``MessageStore.open``."""
    directory.prepare()
    if not accept_lost_log:
        directory.refuse_lost_log()
    allocator = AllocateMappedFileService(
        config.put_message_timeout / _MS, allocate, warm=config.warm_mapped_file_enable
    )
    files = MappedFileQueueWriter(
        directory.of(COMMIT_LOG),
        config.mapped_file_size_commit_log,
        allocator=allocator,
        warm=config.warm_mapped_file_enable,
    )
    reading = CommitLog(directory.of(COMMIT_LOG))
    catalog = QueueCatalog(directory.path, reading)
    queues = ConsumeQueueStore(directory.path, config.mapped_file_size_consume_queue, catalog)
    index = None
    if config.message_index_enable:
        index = IndexWriter(
            directory.of(INDEX), max_hash_slot_num=config.max_hash_slot_num, max_index_num=config.max_index_num
        )
    checkpoint = StoreCheckpoint.load(directory.of(CHECKPOINT))
    writer = CommitLogWriter(files, queues.next_offset, on_failure, last_store_timestamp=0)
    gate = BatchGate(directory.path)
    found = gate.state
    opened = OpenedLog(files, writer, queues, index, checkpoint, gate, allocator, None, reading)
    try:
        aborted = directory.aborted or _was_left_open(checkpoint.mark)
        files.load(aborted=aborted)
        opened.recovered, writer.last_record, writer.last_store_timestamp = _recover(
            directory, opened, config.delay_levels_ms, aborted=aborted, rebuild=rebuild, progress=progress
        )
        # Whatever was hidden is in its queues now.
        gate.settle(files.max_wrote)
        if config.transient_store_pool_enable:
            # Its buffers are of the size that the files have, which need not be what the configuration says.
            files.pool = TransientStorePool(config.transient_store_pool_size, files.file_size)
        reading.refresh()
        # From here on the clean mark is not true any more; it must be gone before the first record is appended.
        checkpoint.flush(opened.mark(closed=False))
        directory.mark_in_use()
    except OSError as error:
        gate.put_back(found)
        opened.close()
        raise StoreIOError("open", path=str(error.filename or directory.path), cause=error) from error
    except BaseException:
        gate.put_back(found)  # readers see what they saw before
        opened.close()
        raise
    return opened


def _recover(
    directory: OwnerDirectory,
    opened: OpenedLog,
    delay_levels_ms: Sequence[int],
    *,
    aborted: bool,
    rebuild: bool,
    progress: Progress | None,
) -> tuple[Recovered | None, int, int]:
    """What recovery did (None: nothing to do), the last record, and its store time."""
    files, queues, index, checkpoint = opened.files, opened.queues, opened.index, opened.checkpoint
    mark = checkpoint.mark
    anew = _parts_missing(queues, index, mark) or (index is not None and _index_behind(checkpoint))
    anew = anew or (mark is None and index is not None and _has_holes(index, files, delay_levels_ms))
    anew = rebuild or (anew and bool(files.files))
    if not anew and not aborted and index is not None:
        anew = not _opens(index)
    if not anew and not aborted and mark is not None and mark.closed and _mark_agrees(files, mark):
        files.set_end(mark.end_offset)
        if index is None:
            # What is put from now on will be missing in the index, also when it has the time of the last message.
            times = checkpoint.values
            checkpoint.restart(physic=times.physic_msg_timestamp, logics=times.logics_msg_timestamp, index=0)
        return None, mark.last_record, checkpoint.values.physic_msg_timestamp
    policy = RecoveryPolicy(
        aborted=aborted,
        from_start=anew,
        flushed_offset=mark.flushed_offset if mark is not None else None,
    )
    recovery = Recovery(
        files,
        queues,
        index,
        checkpoint,
        policy,
        delay_levels_ms,
        progress,
        gate=opened.gate,
        mark_in_use=directory.mark_in_use,
    )
    if anew:
        recovery.distrust()
    if anew or not files.files:
        _start_anew(queues, index, delete=rebuild or not files.files)
    recovered = recovery.run()
    queues.flush_all()
    queues.sync_directories()
    if index is not None:
        index.flush()
    _flush_log(files)
    last = recovered.last_store_timestamp
    checkpoint.restart(physic=last, logics=last, index=last if index is not None else 0)
    return recovered, recovered.last_record, last


def _was_left_open(mark: CheckpointMark | None) -> bool:
    """Whether an owner has written that it opened the store, and not that it closed it: with ``abort`` or without."""
    return mark is not None and not mark.closed


def _flush_log(files: MappedFileQueueWriter) -> None:
    """What a killed process left in the kernel goes to the device before the checkpoint speaks of it (invariant 7)."""
    for file in files.files:
        file.sync_all()


def _opens(index: IndexWriter) -> bool:
    """Whether the index of a store that was closed cleanly is in order; else it is built anew."""
    try:
        index.open()
    except CorruptIndex:
        return False
    return True


def _start_anew(queues: ConsumeQueueStore, index: IndexWriter | None, *, delete: bool) -> None:
    if delete:
        queues.reset()
    if index is not None:
        index.reset()


def _parts_missing(queues: ConsumeQueueStore, index: IndexWriter | None, mark: CheckpointMark | None) -> bool:
    """Whether queues or index files are gone that should be there."""
    found = queues.count_files()
    if mark is None:
        return found == 0
    if found < mark.queue_file_count or (found == 0 and not mark.closed):
        return True
    return index is not None and _index_files(index) < mark.index_file_count


def _index_behind(checkpoint: StoreCheckpoint) -> bool:
    """Whether the last owner closed the store without an index, and put messages."""
    times = checkpoint.values
    closed = checkpoint.mark is not None and checkpoint.mark.closed
    return closed and times.index_msg_timestamp < times.physic_msg_timestamp


def _has_holes(index: IndexWriter, files: MappedFileQueueWriter, delay_levels_ms: Sequence[int]) -> bool:
    """Whether messages with keys lie between two index files of a store that others wrote.

    RocketMQ drops an index file that was not flushed when it crashed, and goes on with a new one behind it.
    """
    for last, first in index.borders():
        # The first message of a file may have keys in the one before it, and stand in both.
        for scan in walk(files, last, first, LogEnd(), check_crc=False):
            requests = dispatch_requests(scan, delay_levels_ms)
            if (requests.physical_offsets[index_entries(scan, requests).rows] > last).any():
                return True
    return False


def _index_files(index: IndexWriter) -> int:
    if not disk.is_directory(index.path):
        return 0
    return sum(1 for name in disk.list_names(index.path) if name.isdigit())


def _mark_agrees(files: MappedFileQueueWriter, mark: CheckpointMark) -> bool:
    """Whether the log ends where the mark says: its last record is there and good, and nothing stands behind it."""
    if not files.files:
        return mark.end_offset == 0
    if not files.min_offset <= mark.end_offset <= files.files[-1].base + files.file_size:
        return False
    if mark.last_record < files.min_offset:
        return mark.last_record < 0 and mark.end_offset == files.min_offset and _nothing_at(files, mark.end_offset)
    file = files.find(mark.last_record)
    if file is None:
        return False
    at = mark.last_record - file.base
    size = int.from_bytes(file.read(at, 4), "big", signed=True)
    record = decode_record(file.read(at, max(min(size, file.capacity - at), 0)), physical_offset=mark.last_record)
    if not isinstance(record, Record):
        return False
    end = mark.last_record + record.total_size
    # Behind the last record may stand a filler, when the next file could not be made.
    ends_file = mark.end_offset == file.base + file.capacity and mark.end_offset >= end
    return (mark.end_offset == end or ends_file) and _nothing_at(files, mark.end_offset)


def _nothing_at(files: MappedFileQueueWriter, offset: int) -> bool:
    file = files.find(offset)
    if file is None:
        return True
    head = file.read(offset - file.base, 8)
    return len(head) < 8 or isinstance(decode_record(head), Unwritten)
