"""Opens a store for its owner: gather evidence, decide, recover, then make everything that the services need.

docs/durability.md explains when the checkpoint is trusted and when the log is scanned.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import DiskFull, StoreIOError
from commitlog_store.files.mapped_file_writer import is_out_of_space
from commitlog_store.format.checkpoint import CheckpointMark
from commitlog_store.log.commit_log_writer import CommitLogWriter
from commitlog_store.log.owner_directory import OwnerDirectory
from commitlog_store.progress import Progress
from commitlog_store.queue.topic_config import TopicConfig
from commitlog_store.recovery.allocate import AllocateMappedFileService
from commitlog_store.recovery.parts import StoreParts
from commitlog_store.recovery.recover import Recovered, recover
from commitlog_store.recovery.start import (
    Evidence,
    OpenWishes,
    Start,
    StartKind,
    StartParts,
    how_to_start,
    recovery_policy,
)
from commitlog_store.threads.wakeup import Wakeup

_LOG = logging.getLogger(__name__)
_MS = 1000.0


@dataclass(frozen=True, kw_only=True)
class OpenedLog(StoreParts):
    """An open store without its services.

    ``start`` is how it was opened; ``recovered`` is None when the checkpoint was trusted.
    """

    topics: TopicConfig
    writer: CommitLogWriter
    allocator: AllocateMappedFileService
    start: Start
    recovered: Recovered | None

    @property
    def lost_flushed(self) -> bool:
        """Whether bytes of the log are gone that were on the device, and with them what positions stand for."""
        return self.recovered is not None and self.recovered.lost_flushed

    def mark(self, *, closed: bool) -> CheckpointMark:
        """The mark to write to the checkpoint now."""
        return CheckpointMark(
            log_start=self.files.min_offset,
            queue_ends=self.queues.ends if closed else 0,
            closed=closed,
            flushed_offset=self.files.flushed_where,
            end_offset=self.files.max_wrote if closed else 0,
            last_record=self.writer.last_record if closed else -1,
            queue_file_count=self.queues.file_count,
            index_file_count=self._index_file_count,
            saved_ends=self.queues.saved_generation,
        )

    @property
    def _index_file_count(self) -> int:
        if self.index is not None:
            return self.index.file_count
        return self.checkpoint.mark.index_file_count if self.checkpoint.mark is not None else 0


@contextlib.contextmanager
def _full_disk_refuses() -> Iterator[None]:
    """Opening on a full disk is ``DiskFull``, whatever found no space: nothing is lost, and it may be repeated."""
    try:
        yield
    except StoreIOError as error:
        if not is_out_of_space(error):
            raise
        cause = OSError(error.errno, error.reason)
        advice = "Nothing is lost: free some space and open the store again."
        raise DiskFull(error.operation, path=error.path, cause=cause, advice=advice) from error


@_full_disk_refuses()
def open_log(
    directory: OwnerDirectory,
    config: MessageStoreConfig,
    wishes: OpenWishes,
    *,
    progress: Progress | None,
    on_failure: Callable[[BaseException], None],
    allocate: Wakeup,
) -> OpenedLog:
    """Open the files of a store whose lock is held, and recover what a crash left. Errors: ``MessageStore.open``."""
    directory.prepare()
    timeout_s, warm = config.put_message_timeout / _MS, config.warm_mapped_file_enable
    allocator = AllocateMappedFileService(timeout_s, allocate, warm=warm)
    parts = StoreParts.of(directory, config, allocator)
    shown = parts.gate.state
    try:
        looked_at = StartParts(directory.paths, directory.aborted, parts.queues, parts.index, parts.checkpoint)
        evidence, start = how_to_start(looked_at, wishes)
        _LOG.info("%s: %s. %s", directory.path, start.kind.value, start.reason)
        if (refusal := start.refusal(directory.path)) is not None:
            raise refusal
        if start.kind is not StartKind.CLEAN:
            parts.queues.distrust_saved_ends()
        parts.queues.announce_changes()
        recovered, last_record, last_store_timestamp = _recover(
            directory, config, parts, evidence, start, wishes, progress
        )
        topics = TopicConfig(directory.path, config.default_topic_queue_nums, parts.queues.highest_ids)
        opened = OpenedLog(
            **vars(parts),
            topics=topics,
            writer=CommitLogWriter(
                parts.files,
                parts.queues.next_offsets,
                topics.list_queues,
                on_failure,
                last_record=last_record,
                last_store_timestamp=last_store_timestamp,
            ),
            allocator=allocator,
            start=start,
            recovered=recovered,
        )
        _mark_in_use(directory, opened)
        return opened
    except BaseException as error:
        parts.gate.put_back(shown)  # readers see what they saw before
        parts.close()
        if isinstance(error, OSError):
            raise StoreIOError("open", path=str(error.filename or directory.path), cause=error) from error
        raise


def _mark_in_use(directory: OwnerDirectory, opened: OpenedLog) -> None:
    """Note on the device that the store is in use, and end the deletions of topics that a crash has cut short."""
    queues = opened.queues
    queues.deleted.keep_within(opened.files.max_wrote)
    half_deleted = queues.half_deleted()
    for topic in half_deleted:
        queues.discount_topic(topic)
    # From here on the mark of the last close is wrong; it must be removed before the first record is appended.
    opened.checkpoint.flush(opened.mark(closed=False))
    directory.mark_in_use()
    for topic in half_deleted:
        queues.remove_topic(topic)


def _recover(
    directory: OwnerDirectory,
    config: MessageStoreConfig,
    parts: StoreParts,
    evidence: Evidence,
    start: Start,
    wishes: OpenWishes,
    progress: Progress | None,
) -> tuple[Recovered | None, int, int]:
    """Bring the store's parts to agree, as was decided. Also where the log's last record starts, and its store time."""
    parts.files.load(aborted=evidence.aborted)
    recovered = None
    if start.kind is StartKind.CLEAN:
        assert evidence.mark is not None, "a store without a mark is scanned"
        _take_marks_end(parts, evidence.mark)
        last = evidence.mark.last_record, parts.checkpoint.values.physic_msg_timestamp
    else:
        policy = recovery_policy(evidence, start, wishes)
        recovered = recover(parts, policy, config.delay_levels_ms, progress, directory, wishes.on_cut)
        last = recovered.last_record, recovered.last_store_timestamp
    # Every batch that was hidden is in its queues now.
    parts.gate.settle(parts.files.max_wrote)
    parts.reading.refresh()
    return recovered, *last


def _take_marks_end(parts: StoreParts, mark: CheckpointMark) -> None:
    """Take the log's end from the checkpoint."""
    checkpoint = parts.checkpoint
    parts.files.set_end(mark.end_offset)
    if parts.index is not None:
        parts.index.open()
    else:
        # Messages put from now on will be missing in the index, also those with the time of the last message.
        times = checkpoint.values
        checkpoint.restart(physic=times.physic_msg_timestamp, logics=times.logics_msg_timestamp, index=0)
