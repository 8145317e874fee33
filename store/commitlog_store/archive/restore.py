"""Restore: a store directory made of an archive, which opens here and in RocketMQ."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import msgspec

from commitlog_store.archive.damage import damaged, missing, other_bytes
from commitlog_store.archive.generations import newest
from commitlog_store.archive.manifest import Manifest, ObjectRef, Segment
from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import ArchiveGap, CommitLogError, InvalidValue, TargetFailed
from commitlog_store.files import disk
from commitlog_store.files.whole_file import replace_synced
from commitlog_store.format.checksum import crc32
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.store_directory import refuse_store_within
from commitlog_store.object_storage.clients import PART_SIZE, PARTS_AT_ONCE
from commitlog_store.object_storage.object_store import ObjectCut, ObjectStore
from commitlog_store.owned_store.opening import StoreOpening
from commitlog_store.paths import COMMIT_LOG, CONFIG, file_name_for_offset
from commitlog_store.progress import Progress
from commitlog_store.recovery.start import OpenWishes

_SUFFIX = ".restoring"
# In the new store's directory until its queues are built: a RestoreReport and the log's file size, as JSON.
_UNBUILT = "restored.json"
_LARGEST_NOTE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class RestoreReport:
    """A restored store: the physical offsets of its log, how many files that has, and how many were downloaded now.

    ``stop`` is before that of the archive when an archive of some topics ends within a batch, which is left out.
    """

    path: str
    start: int
    stop: int
    files: int
    downloaded: int


def restore_store(
    url: str | ObjectStore,
    path: str | os.PathLike[str],
    *,
    since_ms: int | None = None,
    options: dict[str, str] | None = None,
    progress: Progress | None = None,
) -> RestoreReport:
    """Make a store directory at ``path`` of the archive at ``url``; with ``since_ms``, without the files before the one
    that has the first message stored at that time (ms) or later.

    The log files are downloaded into ``path`` with the suffix ``.restoring``, and compared with their checksums; a
    repeated call continues there. Then the directory gets its name, and is opened and closed once: that builds queues
    and index from the log. ``progress`` is called with the bytes of log files that are done, and of all.

    ``ArchiveNotFound``, ``ArchiveDamaged``, ``ArchiveFailed``; ``ArchiveGap`` when log files are missing in between;
    ``InvalidValue`` when something is at ``path``, ``NotAStore`` when that is within a store's own directories;
    ``TargetFailed`` when the disk fails or is full; the errors of ``MessageStore.open`` for a log that was damaged
    before it was archived. ::

        restore_store("s3://bucket/orders", "/data/restored")
        with StoreReader.open("/data/restored") as reader:
            print(reader.topics())
    """
    target = disk.absolute_path(path)
    unbuilt = _unbuilt(target)
    if unbuilt is not None:  # an earlier call was killed after it had given the directory its name
        return _built(target, unbuilt)
    _refuse_existing(target)
    objects = url if isinstance(url, ObjectStore) else ObjectStore.open(url, options=options)
    manifest = newest(objects)
    segments = _chosen(manifest, since_ms, objects)
    stop = min(segments[-1].stop, _limit(manifest))
    restoring = _Restoring(objects, manifest, target + _SUFFIX, stop)
    with _writing(target):
        restoring.run(segments, progress)
        unbuilt = _Unbuilt(
            start=segments[0].start,
            stop=stop,
            files=len(segments),
            downloaded=restoring.downloaded,
            file_size=manifest.file_size,
            queue_file_size=manifest.queue_file_size,
        )
        # From now on a repeated call builds the queues.
        replace_synced(os.path.join(restoring.path, _UNBUILT), msgspec.json.encode(unbuilt))
        if disk.is_directory(target):
            disk.remove_directory(target)
        disk.rename(restoring.path, target)
        disk.sync_directory(os.path.dirname(target))
    return _built(target, unbuilt)


class _Unbuilt(msgspec.Struct, frozen=True, kw_only=True):
    """What ``_UNBUILT`` says."""

    start: int
    stop: int
    files: int
    downloaded: int
    file_size: int
    queue_file_size: int


def _unbuilt(target: str) -> _Unbuilt | None:
    """What was restored, and has no queues yet."""
    try:
        return msgspec.json.decode(disk.read_file(os.path.join(target, _UNBUILT), _LARGEST_NOTE), type=_Unbuilt)
    except (OSError, msgspec.MsgspecError):
        return None


def _built(target: str, unbuilt: _Unbuilt) -> RestoreReport:
    """Build queues and index of what was restored: the store is opened and closed, and no message is delivered.

    The log may end within a batch that the archived ledger has as committed; the store is then without that batch.
    """
    config = MessageStoreConfig(mapped_file_size_commit_log=unbuilt.file_size, schedule_enable=False)
    if unbuilt.queue_file_size:
        config = replace(config, mapped_file_size_consume_queue=unbuilt.queue_file_size)
    opening = StoreOpening(target, config, lock_timeout_s=0.0, wishes=OpenWishes(accept_lost_log=True), progress=None)
    try:
        opening.run().close()
    except BaseException as error:
        opening.undo()
        if isinstance(error, CommitLogError):
            disk.unlink(os.path.join(target, _UNBUILT))  # a repeated call would not help
            error.advised("The log was restored whole; its queues were not built.")
        raise
    disk.unlink(os.path.join(target, _UNBUILT))
    return RestoreReport(
        path=target, start=unbuilt.start, stop=unbuilt.stop, files=unbuilt.files, downloaded=unbuilt.downloaded
    )


def _refuse_existing(target: str) -> None:
    if disk.exists(target) and not (disk.is_directory(target) and not disk.list_names(target)):
        raise InvalidValue(f"{target} exists: a store is restored into a new directory, or an empty one.")
    above = os.path.dirname(target)
    if not disk.is_directory(above):
        raise InvalidValue(f"{above} is not a directory: {target} cannot be made in it.")
    refuse_store_within(target)


def _limit(manifest: Manifest) -> int:
    """The physical offset up to which the log is restored, if that is before its end.

    An archive of some topics has no frames, by which the recovery of the new store would know the batch within which
    the log ends, and be without it.
    """
    return MAX_LONG if manifest.selection is None or manifest.open_batch is None else manifest.open_batch[0]


def _chosen(manifest: Manifest, since_ms: int | None, objects: ObjectStore) -> tuple[Segment, ...]:
    """The segments from the first that has a message of that time on. ``ArchiveGap``."""
    limit = _limit(manifest)
    segments = tuple(one for one in manifest.segments if one.start < limit) or manifest.segments[:1]
    if since_ms is not None:
        later = [index for index, one in enumerate(segments) if one.last_timestamp_ms >= since_ms]
        segments = segments[later[0] if later else -1 :]
    for before, after in pairwise(segments):
        if before.stop != after.start:
            raise ArchiveGap(
                f"{objects} has no bytes of the log from physical offset {before.stop} to {after.start}, and no store "
                f"has such a gap. Restore what comes after it, with since_ms={after.first_timestamp_ms} (--since).",
                start=before.stop,
                stop=after.start,
            )
    return segments


class _Restoring:
    """The directory that is being filled, with the log up to ``stop``. ``downloaded`` counts log files."""

    def __init__(self, objects: ObjectStore, manifest: Manifest, path: str, stop: int) -> None:
        self.path = path
        self.downloaded = 0
        self._objects = objects
        self._manifest = manifest
        self._stop = stop

    def run(self, segments: tuple[Segment, ...], progress: Progress | None) -> None:
        """Download what is not there yet, and sync it."""
        log, config = os.path.join(self.path, COMMIT_LOG), os.path.join(self.path, CONFIG)
        for directory in (self.path, log, config):
            if not disk.is_directory(directory):
                disk.make_directory(directory, shared=True)
        wanted = {file_name_for_offset(segment.start) for segment in segments}
        for name in disk.list_names(log):
            if name not in wanted:
                disk.unlink(os.path.join(log, name))
        done, total = 0, sum(segment.log.size for segment in segments)
        for segment in segments:
            path = os.path.join(log, file_name_for_offset(segment.start))
            if segment.stop > self._stop:
                self._write(path, segment.log, self._stop - segment.start, self._manifest.file_size)
                self.downloaded += 1
            elif not self._has(path, segment.log):
                self._write(path, segment.log, segment.log.size, self._manifest.file_size)
                self.downloaded += 1
            done += segment.log.size
            if progress is not None:
                progress(done, total)
        for name in disk.list_names(config):
            disk.unlink(os.path.join(config, name))
        for name, ref in self._manifest.config.items():
            self._write(os.path.join(config, os.path.basename(name)), ref, ref.size, ref.size)
        for directory in (log, config, self.path):
            disk.sync_directory(directory)

    def _has(self, path: str, ref: ObjectRef) -> bool:
        """Whether an earlier call has downloaded that file: its bytes, and zeros after them."""
        if disk.file_size(path) != self._manifest.file_size:
            return False
        descriptor, crc = disk.open_file(path), 0
        try:
            for start in range(0, ref.size, PART_SIZE):
                crc = crc32(disk.read_at(descriptor, min(PART_SIZE, ref.size - start), start), crc)
            for start in range(ref.size, self._manifest.file_size, PART_SIZE):
                rest = disk.read_at(descriptor, min(PART_SIZE, self._manifest.file_size - start), start)
                if rest.count(0) < len(rest):
                    return False  # of another archive, of which more of the last file was archived
        finally:
            disk.close(descriptor)
        return crc == ref.crc32

    def _write(self, path: str, ref: ObjectRef, kept: int, size: int) -> None:
        """A file of an object's first ``kept`` bytes, and zeros up to ``size``."""
        if disk.exists(path):
            disk.unlink(path)
        descriptor = disk.create_file(path, shared=True)
        try:
            at = 0
            for piece in download(self._objects, ref):
                disk.write_at(descriptor, piece, at)
                at += len(piece)
            if kept < at:
                disk.truncate(descriptor, kept)
            # Last: a file of its whole size is one that may be complete.
            disk.truncate(descriptor, size)
            disk.sync(descriptor)
        finally:
            disk.close(descriptor)


def download(objects: ObjectStore, ref: ObjectRef) -> Iterator[bytes]:
    """The bytes of an object, in pieces. ``ArchiveDamaged``, after the last one, when they are not those it was named
    with."""
    crc, sha256 = 0, hashlib.sha256()
    at_once = PART_SIZE * PARTS_AT_ONCE
    for start in range(0, ref.size, at_once):
        stop = min(start + at_once, ref.size)
        ranges = [(at, min(at + PART_SIZE, stop)) for at in range(start, stop, PART_SIZE)]
        try:
            pieces = objects.get_ranges(ref.name, ranges)
        except ObjectCut as cut:
            expected, found = f"{ref.size} bytes", f"{cut.size} bytes"
            raise damaged(str(objects), ref.name, offset=cut.size, expected=expected, found=found) from None
        if pieces is None:
            raise missing(str(objects), ref.name)
        for piece in pieces:
            crc = crc32(piece, crc)
            sha256.update(piece)
            yield piece
    if (crc, sha256.hexdigest()) != (ref.crc32, ref.sha256):
        raise other_bytes(str(objects), ref.name, ref.size, ref.crc32, found=crc)


@contextlib.contextmanager
def _writing(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TargetFailed("write", path=error.filename or path, cause=error) from error
