"""Cuts a damaged log before the damage, for ``commitlog repair``; a copy of everything after the cut is kept.

The copy goes to a directory that the store does not read::

    repair/00000000000000123456/commitlog/00000000000000000000     zero before the cut, then the log's bytes
                                          00000000000000262144     ...

It is whole and on the device before anything in the log is touched. docs/decisions/0010-repair.md has the reasons.
"""

from __future__ import annotations

import dataclasses
import os
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from commitlog.columnar.dispatch import dispatch_requests
from commitlog.config import MessageStoreConfig
from commitlog.errors import DiskFull, InvalidValue, StoreIOError
from commitlog.files import disk
from commitlog.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog.files.mapped_file_writer import NO_SPACE, MappedFileWriter
from commitlog.files.whole_file import TEMPORARY_SUFFIX
from commitlog.format.checkpoint import CheckpointMark
from commitlog.log.owner_directory import OwnerDirectory
from commitlog.log.scan import LogEnd, find_record, walk
from commitlog.log.store_checkpoint import StoreCheckpoint
from commitlog.paths import CHECKPOINT, COMMIT_LOG, REPAIR, file_name_for_offset

__all__ = ["LostMessages", "cut_log", "messages_from"]

_PIECE_SIZE = 1 << 20
_ZEROS = bytes(_PIECE_SIZE)
_ANYWHERE = 2**63 - 1


class LostMessages(NamedTuple):
    """Whole messages of a queue that a cut removes, and the range ``[start, stop)`` of their queue offsets.

    Prepared and rolled-back messages have no place in a queue: their offsets are all 0.
    """

    topic: str
    queue_id: int
    start: int
    stop: int
    messages: int


def messages_from(directory: OwnerDirectory, physical_offset: int) -> list[LostMessages]:
    """All whole messages that begin at a physical offset or after it, by topic and queue.

    ``CorruptRecord`` for files that do not fit together, ``StoreIOError``.
    """
    files = _load(directory)
    found: dict[tuple[str, int], list[LostMessages]] = defaultdict(list)
    try:
        at = physical_offset
        while (record := find_record(files, at, _ANYWHERE)) is not None:
            end = LogEnd()
            for scan in walk(files, record.physical_offset, _ANYWHERE, end, check_crc=True):
                requests = dispatch_requests(scan, ())
                own = np.stack((requests.topic_codes, requests.queue_ids))
                for code, queue_id in np.unique(own, axis=1).T.tolist():
                    offsets = requests.queue_offsets[(requests.topic_codes == code) & (requests.queue_ids == queue_id)]
                    topic = requests.topics[code]
                    found[topic, queue_id].append(
                        LostMessages(topic, queue_id, int(offsets.min()), int(offsets.max()) + 1, len(offsets))
                    )
            at = end.offset + 1
    finally:
        files.close()
    return [_together(parts) for _, parts in sorted(found.items())]


def _together(parts: list[LostMessages]) -> LostMessages:
    start, stop = min(one.start for one in parts), max(one.stop for one in parts)
    return parts[0]._replace(start=start, stop=stop, messages=sum(one.messages for one in parts))


def cut_log(directory: OwnerDirectory, at: int) -> str:
    """End the log at a physical offset. Returns the directory in which everything after it is kept.

    The store is then as after a crash: opening it brings queues, index and ledger to agree. ``InvalidValue`` for an
    offset outside the log, ``CorruptRecord`` for files that do not fit together; ``DiskFull`` when the copy has no
    space, and then nothing is changed; ``StoreIOError``.
    """
    files = _load(directory)
    try:
        file = files.find(at)
        if file is None:
            raise InvalidValue(f"The log of {directory.path} has no byte at physical offset {at}; nothing was cut.")
        kept = _keep(directory, [one for one in files.files if one.base + one.capacity > at], at)
        _claim_no_more(directory, files, file, at)
        files.cut(at)
    finally:
        files.close()
    return kept


def _load(directory: OwnerDirectory) -> MappedFileQueueWriter:
    files = MappedFileQueueWriter(directory.of(COMMIT_LOG), MessageStoreConfig().mapped_file_size_commit_log)
    try:
        files.load()
    except OSError as error:
        raise StoreIOError("open", path=files.path, cause=error) from error
    return files


def _claim_no_more(directory: OwnerDirectory, files: MappedFileQueueWriter, file: MappedFileWriter, at: int) -> None:
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
        checkpoint.flush(dataclasses.replace(mark, closed=False, flushed_offset=at))
    finally:
        checkpoint.close()


def _keep(directory: OwnerDirectory, files: list[MappedFileWriter], at: int) -> str:
    """Copy the bytes from ``at`` on. ``DiskFull``, ``StoreIOError``; then nothing is left of the copy."""
    parent = directory.of(REPAIR)
    target = os.path.join(parent, file_name_for_offset(at))
    made = target + TEMPORARY_SUFFIX
    try:
        if disk.is_symlink(parent):
            raise InvalidValue(f"{parent} is a symbolic link; a store is written only in its directory. Remove it.")
        for path in (parent, made, os.path.join(made, COMMIT_LOG)):
            if not disk.exists(path):
                disk.make_directory(path)
        for file in files:
            _copy(file, os.path.join(made, COMMIT_LOG), at)
        for path in (os.path.join(made, COMMIT_LOG), made):
            disk.sync_directory(path)
        first, number = target, 2
        while disk.exists(target):  # the log was cut here before, and has grown again
            target, number = f"{first}-{number}", number + 1
        disk.rename(made, target)
        for path in (parent, directory.path):
            disk.sync_directory(path)
    except OSError as error:
        _remove(made)
        if error.errno in NO_SPACE:
            advice = "A copy of the cut part is kept there, so it needs as much space. Nothing was cut."
            raise DiskFull("write", path=made, cause=error, advice=advice) from error
        raise StoreIOError("write", path=made, cause=error, advice="Nothing was cut.") from error
    return target


def _copy(file: MappedFileWriter, directory: str, at: int) -> None:
    """Copy the bytes of a log file from a physical offset on, at the same positions; zeros stay holes."""
    path = os.path.join(directory, os.path.basename(file.path))
    if disk.exists(path):
        disk.unlink(path)  # a crash has left it
    source, target = disk.open_file(file.path), -1
    try:
        target = disk.create_file(path)
        disk.truncate(target, file.capacity)
        for first, last in disk.data_extents(source, max(at - file.base, 0), file.capacity):
            for place in range(first, last, _PIECE_SIZE):
                data = disk.read_at(source, min(_PIECE_SIZE, last - place), place)
                if not _ZEROS.startswith(data):
                    disk.write_at(target, data, place)
        disk.sync(target)
    finally:
        disk.close(source)
        if target >= 0:
            disk.close(target)


def _remove(made: str) -> None:
    """Remove an incomplete copy, as far as possible: the next copy of the same cut starts from scratch."""
    log = os.path.join(made, COMMIT_LOG)
    try:
        for name in disk.list_names(log):
            disk.unlink(os.path.join(log, name))
        disk.remove_directory(log)
        disk.remove_directory(made)
    except OSError:
        pass
