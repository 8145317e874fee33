"""The files of a store as its owner writes them: log, consume queues, index, checkpoint and gate."""

from __future__ import annotations

from dataclasses import dataclass

from commitlog_store.batch.visibility import BatchGate
from commitlog_store.config import MessageStoreConfig
from commitlog_store.files.mapped_file_queue_writer import FileAllocator, MappedFileQueueWriter
from commitlog_store.files.transient_store_pool import TransientStorePool
from commitlog_store.index.writer import IndexWriter
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.log.owner_directory import OwnerDirectory
from commitlog_store.log.store_checkpoint import StoreCheckpoint
from commitlog_store.paths import CHECKPOINT, COMMIT_LOG, INDEX
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.consume_queue_store import ConsumeQueueStore


@dataclass(frozen=True, kw_only=True)
class StoreParts:
    """The parts of a store that recovery, and then the services, work on.

    ``index`` is None when the store keeps no index. ``reading`` is the log as the queues read it.
    """

    files: MappedFileQueueWriter
    queues: ConsumeQueueStore
    index: IndexWriter | None
    checkpoint: StoreCheckpoint
    gate: BatchGate
    reading: CommitLog

    @classmethod
    def of(cls, directory: OwnerDirectory, config: MessageStoreConfig, allocator: FileAllocator) -> StoreParts:
        """The parts of a store; only checkpoint and gate are read now. ``StoreIOError``."""
        reading = CommitLog(directory.of(COMMIT_LOG))
        pool = TransientStorePool(config.transient_store_pool_size) if config.transient_store_pool_enable else None
        index = None
        if config.message_index_enable:
            slots, entries = config.max_hash_slot_num, config.max_index_num
            index = IndexWriter(directory.of(INDEX), max_hash_slot_num=slots, max_index_num=entries)
        return cls(
            files=MappedFileQueueWriter(
                directory.of(COMMIT_LOG),
                config.mapped_file_size_commit_log,
                allocator=allocator,
                pool=pool,
                warm=config.warm_mapped_file_enable,
            ),
            queues=ConsumeQueueStore(
                directory.path, config.mapped_file_size_consume_queue, QueueCatalog(directory.path, reading)
            ),
            index=index,
            checkpoint=StoreCheckpoint.load(directory.of(CHECKPOINT)),
            gate=BatchGate(directory.path),
            reading=reading,
        )

    def close(self) -> None:
        """Close every file and flush none: a clean close has flushed before."""
        if self.index is not None:
            self.index.release()
        self.files.close()
        self.queues.close()
        self.checkpoint.close()
        self.gate.release()
        self.reading.close()
