"""Archiver: copies a store's log into an archive, a segment at a time; and ``archive_store``.

A step reads one log file three times: for its checksums, for its units and keys, then for the upload, if the archive
does not have it yet. The checksums of the next one are made while this one is uploaded. Then it puts the units and the
index, a table of a group if one is full, the catalog and the config files, and last the manifest. It may be killed
anywhere: what the newest manifest does not name is put again, or found there by the next step.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import msgspec
import numpy as np

from commitlog_store.archive import catalog as catalogs
from commitlog_store.archive import layout
from commitlog_store.archive.damage import missing, other_bytes
from commitlog_store.archive.generations import commit, create_identity, newest_or_none, read_generation, read_identity
from commitlog_store.archive.index_objects import encode_index
from commitlog_store.archive.log_files import LogSource, Ready
from commitlog_store.archive.manifest import (
    GROUP_SIZE,
    HEAD_SIZE,
    Group,
    Identity,
    Manifest,
    ObjectRef,
    Segment,
    Selection,
)
from commitlog_store.archive.refusals import mismatch, refuse_other_log, refuse_other_topics, refuse_own_directory
from commitlog_store.archive.segments import Records, Sums, read_pieces, read_records, sums_of
from commitlog_store.archive.selected_log import SelectedLog
from commitlog_store.archive.selected_topics import SelectedTopics
from commitlog_store.archive.sums_ahead import SumsAhead
from commitlog_store.archive.tables import QueueTables
from commitlog_store.archive.unit_objects import QueueUnits, encode_units
from commitlog_store.archive.uploads import Pace, Uploads
from commitlog_store.errors import ArchiveMismatch, CommitLogError, FileChanged, InvalidValue
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.checksum import crc32
from commitlog_store.log.store_directory import check_log_directory, check_store_directory
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.paths import (
    BATCH_LEDGER,
    CONFIG,
    CONSUMER_FILTER_CONFIG,
    CONSUMER_OFFSET_CONFIG,
    DELAY_OFFSET_CONFIG,
    DELETED_TOPICS,
    KV_CONFIG,
    SUBSCRIPTION_GROUP_CONFIG,
    TOPICS_CONFIG,
)
from commitlog_store.progress import Progress
from commitlog_store.queue.queue_counts import queue_file_size_of

# The files of config/ that say something about messages, or what administrators have set. None has a secret.
CONFIG_FILES = (
    TOPICS_CONFIG,
    SUBSCRIPTION_GROUP_CONFIG,
    CONSUMER_OFFSET_CONFIG,
    CONSUMER_FILTER_CONFIG,
    DELAY_OFFSET_CONFIG,
    BATCH_LEDGER,
    DELETED_TOPICS,
    KV_CONFIG,
)
_LARGEST_CONFIG = 64 << 20
_MS = 1000


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings:
    """What to archive, and how.

    ``until_ms``: only files that begin with the first and of which no message was stored at that time (ms) or later.
    ``with_last``: the written part of the last file too, once in ``last_every_s``. ``allow_gap``: continue after files
    that are gone. ``max_rate``: bytes a second of the log that are uploaded at most; 0 for no limit. ``topics``: the
    messages of these alone, by name or shell pattern; ``work_dir`` is the directory where their log is made, None for a
    temporary one.
    """

    until_ms: int | None = None
    with_last: bool = False
    last_every_s: float = math.inf
    allow_gap: bool = False
    max_rate: int = 0
    topics: SelectedTopics | None = None
    work_dir: str | None = None


@dataclass(frozen=True, kw_only=True)
class ArchiveReport:
    """An archive after a call: its newest generation, 0 without one, and what the call added.

    ``start`` and ``stop`` are the physical offsets of all that is archived; ``uploaded`` counts bytes, also of what
    was not committed; ``strays`` are the records of the added segments that have no place in a queue.
    ``source_stop`` is the physical offset up to which the store's log was read: ``stop``, unless topics were chosen.
    ``unmatched`` are the names and patterns that match no topic of the store.
    """

    url: str
    generation: int
    start: int
    stop: int
    segments: int
    added: int
    uploaded: int
    strays: int
    source_stop: int
    unmatched: tuple[str, ...] = ()


class Archiver:
    """Adds the log of one store to one archive. A service: ``run_once`` adds a segment.

    Its owner closes it. Nothing in the store's directory is written or locked.
    """

    def __init__(
        self,
        paths: StorePaths,
        objects: ObjectStore,
        settings: ArchiveSettings,
        *,
        progress: Progress | None = None,
        idle_s: float = 10.0,
        pace: Pace | None = None,
    ) -> None:
        """``progress`` is called with the bytes of the present log file that are uploaded, and its size.

        With ``settings.topics``, ``InvalidValue``, ``StoreLocked`` and ``TargetFailed`` for the work directory.
        """
        self._paths = paths
        self._objects = objects
        self._settings = settings
        self._log = LogSource(paths)
        self._selected: SelectedLog | None = None
        if settings.topics is not None:
            self._selected = SelectedLog(
                *(self._log, objects, settings.topics, settings.work_dir),
                until_ms=settings.until_ms,
                allow_gap=settings.allow_gap,
            )
        self._ahead = SumsAhead()
        self._uploads = Uploads(objects, pace or Pace(settings.max_rate), progress)
        self._idle_s = idle_s
        # Of an archive that has no segment yet.
        self._archive_id = ""
        self._newest: Manifest | None = None
        self._last_due = -math.inf
        self._added = self._strays = 0

    @property
    def _source(self) -> LogSource:
        """The log that is archived byte for byte: the store's, or that of the topics."""
        return self._log if self._selected is None else self._selected.copy

    def run_once(self) -> float:
        """Add a segment, if there is one; the seconds until it is worth to look again: 0 after it was added.

        ``ArchiveFailed``, ``ArchiveMismatch``, ``ArchiveGap``, ``ArchiveDamaged``, ``UnsupportedArchive``; the errors
        of reading a store. After each, it may be called again.
        """
        known = self._newest
        base = newest_or_none(self._objects, known)
        if base is not None and (known is None or known.generation != base.generation):
            self._objects.sync(layout.manifest_name(base.generation))  # perhaps of an archiver that was killed
        self._newest = base
        selected = self._selected
        if base is not None:
            refuse_other_topics(self._objects, base, None if selected is None else selected.topics.patterns)
        wants_last = self._wants_last()
        if selected is not None and not selected.take(base, with_last=wants_last):
            if wants_last and not selected.has_more:
                self._last_due = time.monotonic() + self._settings.last_every_s
            is_late = base is not None and selected.is_worth_a_note(base) and not self._note(base, selected)
            return 0.0 if is_late or selected.has_more else self._idle_s
        file_size = self._source.file_size if base is None else base.file_size
        if not file_size:
            return self._idle_s
        if base is None:
            found = self._first(file_size)
        else:
            refuse_other_log(self._objects, self._source, base)
            found = self._next(base)
        if found is None:
            return self._idle_s
        try:
            return 0.0 if self._add(base, found, file_size) else self._idle_s
        finally:
            found.file.close()

    def report(self) -> ArchiveReport:
        """What there is now, and what was added since the beginning."""
        manifest, selected = self._newest, self._selected
        known = [] if selected is None else self.topics()
        return ArchiveReport(
            url=str(self._objects),
            generation=0 if manifest is None else manifest.generation,
            start=0 if manifest is None else manifest.start,
            stop=0 if manifest is None else manifest.stop,
            segments=0 if manifest is None else len(manifest.segments),
            added=self._added,
            uploaded=self._uploads.uploaded,
            strays=self._strays,
            source_stop=_source_stop(manifest),
            unmatched=selected.topics.unmatched(known) if selected is not None and known else (),
        )

    def topics(self) -> list[str]:
        """The topics of which the store has queues."""
        return self._log.topics()

    def waiting_bytes(self) -> int:
        """Bytes of closed log files that the archive did not have when it was asked last."""
        manifest, bases = self._newest, self._source.bases()
        if not bases:
            return 0
        start = bases[0] if manifest is None else manifest.stop
        return max(self._source.last_written(bases) - start, 0)

    def close(self) -> None:
        """Close the store's files."""
        self._ahead.stop()
        if self._selected is not None:
            self._selected.close()
        self._log.close()

    def _first(self, file_size: int) -> Ready | None:
        """The first file of a new archive, whose identity is made."""
        bases = self._source.bases()
        if not bases:
            return None
        found = self._ready(bases[0], file_size)
        if found is not None:
            try:
                self._identify(found, file_size)
            except BaseException:
                found.file.close()
                raise
        return found

    def _ready(self, base: int, file_size: int) -> Ready | None:
        """``LogSource.ready``. All of the topics' log is archived: what it has of the store's last file was asked."""
        return self._source.ready(base, file_size, with_last=self._selected is not None or self._wants_last())

    def _wants_last(self) -> bool:
        return self._settings.with_last and time.monotonic() >= self._last_due

    def _identify(self, found: Ready, file_size: int) -> None:
        """``ArchiveMismatch`` when an archive of another store was begun there."""
        identity = read_identity(self._objects)
        if identity is None:
            head_size = min(HEAD_SIZE, found.size)
            identity = create_identity(
                self._objects,
                Identity(
                    archive_id=secrets.token_hex(16),
                    created_ms=_now_ms(),
                    file_size=file_size,
                    start=found.file.base,
                    head_size=head_size,
                    head_crc32=crc32(found.file.read(0, head_size)),
                ),
            )
        head = crc32(found.file.read(0, identity.head_size))
        if (identity.file_size, identity.start, identity.head_crc32) != (file_size, found.file.base, head):
            raise ArchiveMismatch(
                f"An archive was begun at {self._objects} with a log file at physical offset {identity.start}, which "
                f"{self._paths.commit_log} does not have: it begins at {found.file.base}. Nothing was archived there "
                f"yet. Give another prefix, or delete {self._objects}/{layout.IDENTITY}.",
                offset=found.file.base,
            )
        self._archive_id = identity.archive_id

    def _next(self, base: Manifest) -> Ready | None:
        """The file that follows, or takes the place of the part of one with which the archive ends."""
        last = base.segments[-1]
        is_part = last.log.size < base.file_size
        start = last.start if is_part else last.stop
        if self._settings.allow_gap or self._selected is not None:
            bases = self._source.bases()
            start = start if start in bases or not bases or start > bases[-1] else min(b for b in bases if b > start)
            is_part = is_part and start == last.start
        found = self._ready(start, base.file_size)
        if found is not None and is_part and found.size <= last.log.size:
            found.file.close()
            return None  # nothing has come since
        return found

    def _add(self, base: Manifest | None, found: Ready, file_size: int) -> bool:
        """Upload a file and commit a generation with it; False when that file is to be archived later."""
        began = time.monotonic()
        last = None if base is None else base.segments[-1]
        replaced = last if last is not None and last.start == found.file.base else None
        sums = self._ahead.take(found.file, found.size) if replaced is None else None
        if sums is None:
            sums = sums_of(found.file, found.size, prefix=0 if replaced is None else replaced.log.size)
        if replaced is not None and sums.prefix_crc32 != replaced.log.crc32:
            raise mismatch(self._objects, self._source, found.file.base)
        records = read_records(found.file, found.size)
        if not self._is_wanted(records, found):
            return False
        if found.is_closed:
            self._look_ahead(found.file.base + file_size, file_size)
        selected = self._selected
        if selected is not None:
            selected.write_config()
        config = self._config(base)
        open_batch = _open_batch(base, records, found) if selected is None else selected.open_batch
        base, tables = self._tables(base, replaced)
        segment, strays = self._upload(base, found, sums, records, replaced, tables)
        _show(tables, records, found.file.base, open_batch)
        manifest = self._manifest(base, segment, tables, replaced, config, file_size, open_batch)
        if self._uploads.too_old(began):
            return True  # what was found there may be deleted by now: the step is repeated
        if self._commit(manifest):
            self._added += 1
            if found.size < file_size and not (selected is not None and selected.has_more):
                self._last_due = time.monotonic() + self._settings.last_every_s
            self._strays += strays
        return True

    def _note(self, base: Manifest, selected: SelectedLog) -> bool:
        """Commit a generation that says that the store's log was read further; False if another archiver was faster."""
        selected.write_config()
        noted = msgspec.structs.replace(
            base,
            generation=base.generation + 1,
            created_ms=_now_ms(),
            writer=_writer(),
            attempt=secrets.token_hex(8),
            selection=self._selection(),
            config=self._config(base),
        )
        return self._commit(noted)

    def _commit(self, manifest: Manifest) -> bool:
        """Commit the next generation; False if another archiver was faster: then its generation is the newest one."""
        if commit(self._objects, manifest):
            self._newest = manifest
            return True
        # A listing may not show the other one yet.
        self._objects.sync(layout.manifest_name(manifest.generation))
        self._newest = read_generation(self._objects, manifest.generation)
        return False

    def _selection(self) -> Selection | None:
        return None if self._selected is None else self._selected.selection

    def _look_ahead(self, base: int, file_size: int) -> None:
        """Begin the checksums of the file that the next step adds, if it is closed."""
        with contextlib.suppress(CommitLogError, OSError):  # the next step says what is wrong
            following = self._source.ready(base, file_size, with_last=False)
            if following is not None:
                self._ahead.begin(following)

    def _is_wanted(self, records: Records, found: Ready) -> bool:
        if self._selected is not None:
            return True
        until = self._settings.until_ms
        if until is not None and records.last_timestamp_ms >= until:
            return False
        frame = records.last_frame
        return frame is None or frame.end <= found.file.base + found.size or self._source.holds_whole(frame)

    def _tables(self, base: Manifest | None, replaced: Segment | None) -> tuple[Manifest | None, QueueTables]:
        """The tables to which the next segment is added, and the manifest that it follows, with all groups."""
        if base is None:
            return None, QueueTables()
        tables = QueueTables(self._catalog(base))
        if replaced is not None:
            tables.drop_last()
        elif tables.open_segments == GROUP_SIZE:
            # The last one is a part of a file that is gone. It stays as it is, and so does their group.
            groups = self._with_group(base.groups, tables, base.segments)
            base = msgspec.structs.replace(base, groups=groups)
        return base, tables

    def _with_group(
        self, groups: tuple[Group, ...], tables: QueueTables, segments: Sequence[Segment]
    ) -> tuple[Group, ...]:
        """The groups, and one of all segments that are in none."""
        spans = tables.close_group()
        first = len(groups) * GROUP_SIZE
        table = self._uploads.put(layout.GROUPS, segments[first].start, [catalogs.encode_group(spans)])
        return (*groups, Group(first_segment=first, table=table, head=catalogs.GROUP_HEAD, queues=len(spans)))

    def _upload(
        self,
        base: Manifest | None,
        found: Ready,
        sums: Sums,
        records: Records,
        replaced: Segment | None,
        tables: QueueTables,
    ) -> tuple[Segment, int]:
        start = found.file.base
        log = ObjectRef(
            name=layout.object_name(layout.COMMIT_LOG, start, sums.sha256),
            size=sums.size,
            crc32=sums.crc32,
            sha256=sums.sha256,
        )
        self._uploads.log_file(log, self._checked(found, sums))
        head, pieces = encode_units(records.queues)
        units = self._uploads.put(layout.UNITS, start, [head, *(piece.view(np.uint8).data for piece in pieces)])
        keys, index_rows = encode_index(records.key_hashes, records.key_positions)
        index = self._uploads.put(layout.INDEX, start, keys, checked=True)
        # The bytes that are missing before this file are so before a part of it that it replaces, too.
        earlier = () if base is None else base.segments[: -1 if replaced is not None else None]
        missing = start - earlier[-1].stop if earlier else 0
        strays = records.strays + tables.add([queue.part for queue in records.queues], missing)
        segment = Segment(
            start=start,
            log=log,
            units=units,
            units_head=len(head),
            rows=records.rows,
            records=records.records,
            strays=strays,
            index=index,
            index_rows=index_rows,
            first_timestamp_ms=records.first_timestamp_ms,
            last_timestamp_ms=records.last_timestamp_ms,
            head_crc32=sums.head_crc32,
            tail_stop=records.tail_stop,
            tail_crc32=records.tail_crc32,
        )
        return segment, strays

    def _checked(self, found: Ready, sums: Sums) -> Iterator[bytes]:
        """The bytes to upload. ``FileChanged`` before the last ones when they are not those of the checksums."""
        crc, waiting = 0, b""
        for piece in read_pieces(found.file, found.size):
            crc = crc32(piece, crc)
            if waiting:
                yield waiting
            waiting = piece
        if crc != sums.crc32:
            raise FileChanged(
                f"{found.file.path} was changed while it was being archived. Nothing of it was archived; try again.",
                path=found.file.path,
            )
        yield waiting

    def _manifest(
        self,
        base: Manifest | None,
        segment: Segment,
        tables: QueueTables,
        replaced: Segment | None,
        config: dict[str, ObjectRef],
        file_size: int,
        open_batch: tuple[int, int] | None,
    ) -> Manifest:
        """The next generation, whose catalog and group are put."""
        before = () if base is None else base.segments[: -1 if replaced is not None else None]
        groups = () if base is None else base.groups
        if segment.log.size == file_size and tables.open_segments == GROUP_SIZE:
            groups = self._with_group(groups, tables, (*before, segment))
        head, rows = catalogs.encode_catalog(tables.catalog())
        catalog = self._uploads.put(layout.CATALOG, segment.stop, [head, rows])
        return Manifest(
            archive_id=self._archive_id if base is None else base.archive_id,
            generation=1 if base is None else base.generation + 1,
            created_ms=_now_ms(),
            writer=_writer(),
            attempt=secrets.token_hex(8),
            file_size=file_size,
            queue_file_size=self._queue_file_size() or (0 if base is None else base.queue_file_size),
            open_batch=open_batch,
            selection=self._selection(),
            segments=(*before, segment),
            groups=groups,
            catalog=catalog,
            catalog_head=len(head),
            queues=len(tables.queues),
            config=config,
        )

    def _queue_file_size(self) -> int:
        """The size of the store's queue files; 0 while it has none."""
        while True:
            try:
                return queue_file_size_of(self._paths.root)
            except FileNotFoundError:  # retention has removed it since it was listed
                continue

    def _catalog(self, base: Manifest) -> catalogs.Catalog:
        data = self._objects.get(base.catalog.name)
        url, ref = str(self._objects), base.catalog
        if data is None:
            raise missing(url, ref.name)
        if crc32(data) != ref.crc32:
            raise other_bytes(url, ref.name, ref.size, ref.crc32, found=crc32(data))
        return catalogs.decode_catalog(data, base.catalog_head, ref.name)

    def _config(self, base: Manifest | None) -> dict[str, ObjectRef]:
        """The config files as they are now; those that have not changed are in the archive already."""
        known = {} if base is None else base.config
        offset = 0 if base is None else base.stop
        found: dict[str, ObjectRef] = {}
        root = self._paths.root if self._selected is None else self._selected.config_directory
        for name in CONFIG_FILES:
            path = os.path.join(root, CONFIG, name)
            try:
                data = disk.read_file(path, _LARGEST_CONFIG)
            except FileNotFoundError:
                if name in known:  # brokers remove a file before they rename its successor
                    found[name] = known[name]
                continue
            before = known.get(name)
            if before is not None and (before.size, before.crc32) == (len(data), crc32(data)):
                found[name] = before
            else:
                found[name] = self._uploads.put(layout.CONFIG, offset, [data])
        return found


def _open_batch(base: Manifest | None, records: Records, found: Ready) -> tuple[int, int] | None:
    """The batch within which the log ends after a file: the physical offsets of its first byte and after its last one.

    None if the log ends with a whole batch or a single message.
    """
    frame, before = records.last_frame, None if base is None else base.open_batch
    last = before if frame is None else (frame.physical_offset, frame.end)
    return last if last is not None and last[1] > found.file.base + found.size else None


def _show(tables: QueueTables, records: Records, start: int, open_batch: tuple[int, int] | None) -> None:
    """Show what the last segment, which begins at ``start``, has, but for messages of a batch within which it ends."""
    if open_batch is None:
        tables.show_all()
    elif open_batch[0] >= start:  # else it began in an earlier segment, and nothing of this one is shown
        tables.show_all(but={queue.name: _units_from(queue, open_batch[0]) for queue in records.queues})


def _source_stop(manifest: Manifest | None) -> int:
    if manifest is None:
        return 0
    return manifest.stop if manifest.selection is None else manifest.selection.source_stop


def _units_from(queue: QueueUnits, physical_offset: int) -> int:
    """The number of a queue's units from the first one on that leads to a record at or after a physical offset."""
    later = np.flatnonzero(queue.units["physical_offset"] >= physical_offset)
    return len(queue.units) - int(later[0]) if len(later) else 0


def archive_store(
    path: str | os.PathLike[str],
    url: str | ObjectStore,
    *,
    until_ms: int | None = None,
    with_last: bool = False,
    allow_gap: bool = False,
    max_rate: int = 0,
    topics: str | Sequence[str] | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    store_path_commit_log: str | os.PathLike[str] | None = None,
    options: dict[str, str] | None = None,
    progress: Progress | None = None,
) -> ArchiveReport:
    """Archive the closed log files of the store at ``path`` below ``url``, those that are not archived yet.

    ``url`` is ``s3://bucket/prefix``, ``gs://``, ``az://``, ``hdfs://host:port/directory`` or ``file:///directory``.
    The store is only read, also beside a live broker. It may be killed and repeated at any time. ``until_ms``: only
    files without a message that was stored at that time (ms) or later. ``with_last`` adds the written part of the last
    file; the closed file takes its place later. ``max_rate`` limits the bytes a second. ``options`` are the object
    store's: ``endpoint``, ``region``; in HDFS they are Hadoop's.

    ``topics`` archives the messages of these alone, by name or shell pattern, in a log of their own, and each call for
    that archive names the same ones. It is made in ``work_dir``, a directory for that alone with room for one log file;
    by default a temporary one.

    ``ArchiveMismatch`` for an archive of another store, or of other topics; ``ArchiveGap`` when retention took files
    before they were archived, unless ``allow_gap``; ``ArchiveFailed``, ``ArchiveDamaged``, ``UnsupportedArchive``;
    ``StoreOpenError``, ``FileChanged``, ``ReadFailed``; ``InvalidValue``; ``TargetFailed`` and ``StoreLocked`` for
    ``work_dir``. ::

        report = archive_store("/data/store", "s3://bucket/orders")
        print(report.stop, report.added)
    """
    archiver = open_archiver(
        path,
        url,
        ArchiveSettings(
            until_ms=until_ms,
            with_last=with_last,
            allow_gap=allow_gap,
            max_rate=max_rate,
            topics=None if topics is None else SelectedTopics(topics),
            work_dir=None if work_dir is None else disk.absolute_path(work_dir),
        ),
        store_path_commit_log=store_path_commit_log,
        options=options,
        progress=progress,
    )
    try:
        while not archiver.run_once():
            pass
        return archiver.report()
    finally:
        archiver.close()


def open_archiver(
    path: str | os.PathLike[str],
    url: str | ObjectStore,
    settings: ArchiveSettings,
    *,
    store_path_commit_log: str | os.PathLike[str] | None = None,
    options: dict[str, str] | None = None,
    progress: Progress | None = None,
    idle_s: float = 10.0,
) -> Archiver:
    """An archiver of the store at ``path``. ``StoreOpenError``, ``InvalidValue``."""
    if settings.work_dir is not None and settings.topics is None:
        raise InvalidValue("work_dir is for archives of some topics: give topics, too.")
    directory = disk.absolute_path(path)
    check_store_directory(directory)
    paths = StorePaths.of(directory, store_path_commit_log)
    check_log_directory(paths, exists=True)
    if not isinstance(url, ObjectStore):
        refuse_own_directory(url, paths)
        url = ObjectStore.open(url, options=options, writes=True)
    return Archiver(paths, url, settings, progress=progress, idle_s=idle_s)


def _now_ms() -> int:
    return int(time.time() * _MS)


def _writer() -> str:
    try:
        return f"pyspark-commitlog {version('pyspark-commitlog')}"
    except PackageNotFoundError:
        return "pyspark-commitlog"
