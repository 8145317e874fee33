"""Recovery: finds the end of the log, keeps what it cuts off, and brings queues and index to agree with the log.

A clean and an unclean close differ only in the ``RecoveryPolicy``: where to start, and how far the log is known to have
been flushed. ``log_end`` finds the end; this module writes.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from commitlog_store.batch.frames import frames_in
from commitlog_store.columnar.dispatch import index_entries
from commitlog_store.errors import CutRefused
from commitlog_store.format.checkpoint import CheckpointMark
from commitlog_store.log.owner_directory import OwnerDirectory
from commitlog_store.progress import Progress
from commitlog_store.queue.consume_queue_writer import ConsumeQueueWriter
from commitlog_store.recovery.broker_deletions import BrokerDeletions
from commitlog_store.recovery.cut import OnCut, cut_off_after, keep
from commitlog_store.recovery.kept import CutOff, KeptPiece
from commitlog_store.recovery.log_end import FoundEnd, LogOnly, RecoveryPolicy, SoundBlock, find_end
from commitlog_store.recovery.parts import StoreParts

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Recovered(FoundEnd):
    """Report of a recovery: the log's end as it was found, and what was done.

    ``cut`` are the whole records that were cut off after the end, and ``kept`` is where they are; None without any.
    ``lost_flushed``: the log ended before the place up to which it was flushed, as ``accept_lost_log`` allows.
    """

    cut: CutOff | None = None
    kept: KeptPiece | None = None
    lost_flushed: bool = False


def recover(
    parts: StoreParts,
    policy: RecoveryPolicy,
    delay_levels_ms: Sequence[int],
    progress: Progress | None,
    directory: OwnerDirectory,
    on_cut: OnCut,
) -> Recovered:
    """Find the log's end, and bring queues, index and checkpoint to agree with it, on the device too.

    The log's files are loaded; nothing else writes to the store. ``DamagedLog`` for damage that no crash explains
    (invariant 5), ``LogShort``, ``CutRefused``, ``DiskFull`` when what is cut cannot be kept, ``StoreIOError``.
    """
    files, queues, index = parts.files, parts.queues, parts.index
    derived = _Rewriting(parts, policy, delay_levels_ms, directory)
    if policy.from_start:
        derived.refuse_first()
        derived.distrust()
    if policy.from_start or not files.files:
        if policy.delete_queues or not files.files:
            queues.reset(files.min_offset)
        if index is not None:
            index.reset()
    elif index is not None and not policy.aborted:
        index.open()
    found = find_end(files, policy, parts.checkpoint.values, delay_levels_ms, derived, progress)
    cut, kept = _keep(directory, parts, found, delay_levels_ms, on_cut)
    queues.deleted.save()
    lost = derived.lost_after(found.end)
    files.cut(found.end)
    if policy.aborted:
        known = policy.flushed_offset
        files.write_back(found.started_at if known is None else min(known, found.end), found.end)
    files.set_end(found.end)
    derived.cut_queues(found.started_at, lost)
    queues.flush_all()
    queues.sync_directories()
    if index is not None:
        index.flush()
    for file in files.files:
        # A killed process leaves bytes in the kernel: to the device, before the checkpoint claims them (invariant 7).
        file.sync_all()
    last = found.last_store_timestamp
    parts.checkpoint.restart(physic=last, logics=last, index=last if index is not None else 0)
    lost_flushed = policy.flushed_offset is not None and found.end < policy.flushed_offset
    return Recovered(**vars(found), cut=cut, kept=kept, lost_flushed=lost_flushed)


def _keep(
    directory: OwnerDirectory, parts: StoreParts, found: FoundEnd, delay_levels_ms: Sequence[int], on_cut: OnCut
) -> tuple[CutOff | None, KeptPiece | None]:
    """Keep the whole records after the log's end, which are about to be cut off, and report them."""
    cut = cut_off_after(parts.files, found, delay_levels_ms)
    if cut is None:
        return None, None
    if on_cut == "refuse" and not cut.uncommitted:
        raise CutRefused(
            path=directory.path,
            for_shell=directory.paths.for_shell,
            cut_at=cut.start,
            size=cut.size,
            messages=cut.messages,
        )
    kept = keep(directory.path, parts.files, cut)
    where = "not kept, since the disk is full" if kept is None else f"kept in {kept.path}"
    what = f"of {cut.uncommitted}, which was not committed" if cut.uncommitted else cut.reason
    _LOG.warning(
        "%s: cut off %d records (%d bytes) after physical offset %d (%s); %s",
        directory.path, cut.messages, cut.size, cut.start, what, where,
    )  # fmt: skip
    return cut, kept


class _Rewriting:
    """Queues and index of a store that is being recovered: they take what the scan finds."""

    def __init__(
        self,
        parts: StoreParts,
        policy: RecoveryPolicy,
        delay_levels_ms: Sequence[int],
        directory: OwnerDirectory,
    ) -> None:
        self._delay_levels_ms = delay_levels_ms
        self._files = parts.files
        self._queues = parts.queues
        self._index = parts.index
        self._checkpoint = parts.checkpoint
        self._gate = parts.gate
        # As the last owner left it; until recovery is done, the file may claim less.
        self._claimed = parts.checkpoint.values
        self._policy = policy
        self._directory = directory
        times = None if parts.checkpoint.mark is not None else parts.checkpoint.values
        self._deletions = BrokerDeletions(
            directory.path, parts.files, parts.queues.deleted, times, aborted=policy.aborted
        )
        self._start = parts.files.min_offset

    @property
    def has_index(self) -> bool:
        return self._index is not None

    @property
    def index_end(self) -> int:
        return -1 if self._index is None else self._index.end_physical_offset

    def start_over(self) -> None:
        self.refuse_first()
        self.distrust()
        self._queues.forget()
        if self._index is not None:
            self._index.reset()

    def refuse_first(self) -> None:
        """Search the whole log for what refuses an opening, before queues, index and checkpoint are touched.

        What they say (that the log was closed, how much is missing) would be gone at the next opening.
        """
        policy = dataclasses.replace(self._policy, from_start=True)
        untouched = LogOnly(self._queues.count_units, self._deletions.note)
        find_end(self._files, policy, self._claimed, self._delay_levels_ms, untouched)

    def distrust(self) -> None:
        """Before queues and index are rebuilt: a crash during that must not leave a checkpoint that vouches for them.

        ``StoreIOError``.
        """
        self._queues.deleted.save()
        self._claim(logics=0, index=0)
        self._directory.mark_in_use()

    def _claim(self, *, logics: int, index: int) -> None:
        flushed = self._policy.flushed_offset
        mark = None
        if flushed is not None:
            end = flushed if self._policy.closed_log else 0
            mark = CheckpointMark(closed=False, flushed_offset=flushed, end_offset=end)
        self._checkpoint.restart(physic=self._claimed.physic_msg_timestamp, logics=logics, index=index)
        self._checkpoint.flush(mark)

    def begin(self, start: int) -> bool:
        """Truncate the index, which is read again from ``start`` on.

        It removes damaged files, and the next recovery would not see that they had existed. So the checkpoint does
        not vouch for the index during that.
        """
        self._start = start
        index = self._index
        if index is None or not self._policy.aborted:
            return True
        claimed = self._checkpoint.values
        if claimed.index_msg_timestamp:
            self._claim(logics=claimed.logics_msg_timestamp, index=0)
        whole = index.truncate(start) and not self._index_is_gone(start, claimed.index_msg_timestamp)
        if whole and claimed.index_msg_timestamp:
            self._claim(logics=claimed.logics_msg_timestamp, index=claimed.index_msg_timestamp)
        return whole

    def _index_is_gone(self, start: int, claimed: int) -> bool:
        """RocketMQ's checkpoint does not say how many files there were, but there was one."""
        assert self._index is not None
        expected = self._policy.flushed_offset is None and claimed > 0 and start > self._files.min_offset
        return expected and not self._index.file_count

    def take(self, block: SoundBlock, *, from_start: bool) -> bool:
        scan, requests, groups = block
        self._deletions.note(groups)
        for frame in frames_in(scan):
            known = frame.end <= scan.physical_offset + scan.end and all(map(self._queues.holds, groups))
            if frame.end > self._gate.state.shown_to and not known:
                # Readers of other processes have not seen it yet, and must see all of it at once.
                self._gate.close_from(frame.physical_offset)
        for group in groups:
            whole = from_start or self._deletions.begins_within(group.topic, self._start)
            if not self._queues.rewrite(group, from_start=whole, write_back=self._policy.aborted):
                return False
        if self._index is not None:
            entries = index_entries(scan)
            if len(entries.rows):
                rows = entries.rows
                self._index.put(entries.key_hashes, requests.physical_offsets[rows], requests.store_timestamps[rows])
        return True

    def queues_end_surely(self, start: int, end: int) -> bool:
        lost = self.lost_after(end)
        return all(writer.end_before_lost(start, lost) is not None for writer in self._untouched())

    def lost_after(self, end: int) -> range:
        """The places of messages that a crash may have lost after the log's end."""
        last = self._files.files[-1] if self._files.files else None
        # The file after the last one may be lost, too.
        return range(end, end if last is None else last.base + 2 * last.capacity)

    def count_units(self, start: int, stop: int) -> int:
        return self._queues.count_units(start, stop)

    def cut_queues(self, start: int, lost: range) -> None:
        """End every queue after its last message in the log, or in what has expired.

        The log was read from ``start`` on; ``lost`` are the places after its end that a crash may have lost.
        """
        for writer in self._untouched():
            last = writer.end_before_lost(start, lost)
            if last is None and start and not self._policy.accept_short:
                writer.continue_after_damage(start)
            else:
                writer.continue_at(writer.end_before(start) if last is None else last)
        for topic, queue_id in list(self._queues.known_queues()):
            writer = self._queues.writer(topic, queue_id)
            if writer.next_offset:
                writer.cut(writer.next_offset)
            else:
                # RocketMQ, which makes a file for its first unit, takes the zeros of one without units for a unit.
                writer.delete()

    def _untouched(self) -> list[ConsumeQueueWriter]:
        """The queues without messages in the part of the log that was scanned."""
        writers = [self._queues.writer(topic, queue_id) for topic, queue_id in self._queues.known_queues()]
        return [writer for writer in writers if writer.next_offset is None]
