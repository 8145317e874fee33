"""Cuts a damaged log before the damage, for ``commitlog repair``; a copy of everything after the cut is kept.

The copy is whole and on the device before anything in the log is touched. docs/decisions/0010-repair.md has the
reasons.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import InvalidValue
from commitlog_store.files.error_paths import failed_writes
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.files.mapped_file_writer import MappedFileWriter
from commitlog_store.format.checkpoint import CheckpointMark
from commitlog_store.log.owner_directory import OwnerDirectory
from commitlog_store.log.store_checkpoint import StoreCheckpoint
from commitlog_store.paths import CHECKPOINT, COMMIT_LOG
from commitlog_store.recovery.cut import keep, whole_records_from
from commitlog_store.recovery.kept import CutOff, KeptPiece


def cut_log(directory: OwnerDirectory, at: int, reason: str, delay_levels_ms: Sequence[int]) -> KeptPiece:
    """End the log at a physical offset. Returns the piece in which everything after it is kept.

    The store is then as after a crash: opening it brings queues, index and ledger to agree. ``InvalidValue`` for an
    offset outside the log, ``CorruptRecord`` for files that do not fit together; ``DiskFull`` when the copy has no
    space, and then nothing is changed; ``StoreIOError``.
    """
    files = _load(directory)
    try:
        file = files.find(at)
        if file is None:
            raise InvalidValue(f"The log of {directory.path} has no byte at physical offset {at}; nothing was cut.")
        nothing = CutOff(start=at, size=0, messages=0, reason=reason)
        kept = keep(directory.path, files, whole_records_from(files, at, reason, delay_levels_ms) or nothing)
        assert kept is not None, "only an uncommitted batch may be lost for lack of space"
        _lower_positions(directory, files, file, at)
        files.cut(at)
    finally:
        files.close()
    return kept


def _load(directory: OwnerDirectory) -> MappedFileQueueWriter:
    files = MappedFileQueueWriter(directory.of(COMMIT_LOG), MessageStoreConfig().mapped_file_size_commit_log)
    with failed_writes(files.path, "open"):
        files.load()
    return files


def _lower_positions(directory: OwnerDirectory, files: MappedFileQueueWriter, file: MappedFileWriter, at: int) -> None:
    """Limit the checkpoint to the log's new end (invariant 7), so that the next opening recovers the store."""
    checkpoint = StoreCheckpoint.load(directory.of(CHECKPOINT))
    mark = checkpoint.mark or CheckpointMark(closed=False, flushed_offset=file.base)
    flushed = min(mark.flushed_offset, at)
    # The rest counts as flushed from here on, so it must be: see MappedFileQueueWriter.write_back.
    files.write_back(flushed, at)
    for one in files.files:
        if one.base < at:
            one.sync_all()
    directory.mark_in_use()
    try:
        checkpoint.flush(dataclasses.replace(mark, closed=False, flushed_offset=at, saved_ends=0))
    finally:
        checkpoint.close()
