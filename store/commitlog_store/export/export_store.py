"""``export_store``: copies messages of a store into Parquet, JSON lines or CSV, each row exactly once.

Queues are read one after the other through ``StoreReader.read``; those of an archive, where they lie among each other
in the log, a topic's queues together, so that each piece of the log is fetched once. What is damaged or missing is
passed queue by queue, and then they are read together again. After each finished file (Parquet) or piece (lines),
everything is synced and the state file gets the next queue offsets (``export/state.py``). An export that was killed at
any moment is resumed from there.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Literal

import pyarrow as pa

from commitlog_store.columnar.columns import column_type, listed_columns
from commitlog_store.errors import CorruptStoreError, FileMissing, InvalidValue
from commitlog_store.export.places import ExportPlace, place_of
from commitlog_store.export.positions import ExportPositions
from commitlog_store.export.ranges import ExportRange, ranges_to_read, readable_topics
from commitlog_store.export.state import ExportState
from commitlog_store.export.targets import ExportFormat, ExportTarget, check_outside, parse_target
from commitlog_store.export.writers import DEFAULT_FILE_SIZE
from commitlog_store.files import disk
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.filter.tags import TagSubscription
from commitlog_store.paths import ARCHIVE_SCHEMES, REMOTE_SCHEMES
from commitlog_store.progress import Progress
from commitlog_store.queue.get_message import checked_count
from commitlog_store.queue.log_blocks import DEFAULT_ROWS
from commitlog_store.reader import MessageBatches, StoreReader
from commitlog_store.storage_stats import StorageStats
from commitlog_store.timestamps import GivenTime, milliseconds_of

# Everything that a put takes back, and where the message stood.
EXPORT_COLUMNS: tuple[str, ...] = (
    "topic", "queueId", "queueOffset", "physicalOffset", "msgId", "storeTimestamp", "bornTimestamp", "bornHost",
    "tags", "keys", "properties", "body",
)  # fmt: skip
_PAST_DAMAGE = (
    "To leave out what cannot be read, resume the export with on_damage='skip' (commitlog export --resume "
    "--on-damage skip)."
)
# As many rows as a writer turns into texts at a time.
_TEXT_ROWS = 4096
# Messages of all queues that are read queue by queue where damage is in the way, before they are read together again;
# so many times more where that soon ends again: damaged units end it up to 65,536 messages before them.
_LEAST_ALONE = 64
_MORE_ALONE = 4


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """Report of an export: the rows that this call wrote, and those of all calls that filled the target.

    ``skipped`` counts the messages, by topic, that ``on_damage="skip"`` left out since the last call that came to its
    end; ``total_skipped`` those of all calls. ``committed`` is the number of Parquet files, or the length of the file
    in bytes. ``lost_ends`` is what the store says is missing at its ends (``StoreReader.lost_ends``), unless ``until``
    was given. ``storage`` is what reading asked of object storage.
    """

    target: ExportTarget
    topics: list[str]
    rows: int
    total_rows: int
    skipped: dict[str, int]
    total_skipped: dict[str, int]
    committed: int
    lost_ends: list[str] = field(default_factory=list)
    storage: StorageStats = field(default_factory=StorageStats)


def export_store(
    path: str | os.PathLike[str],
    target: ExportTarget | str,
    *,
    topics: Sequence[str] = (),
    since: GivenTime | None = None,
    until: GivenTime | None = None,
    tags: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002  # the name that it has everywhere
    columns: Sequence[str] = EXPORT_COLUMNS,
    resume: bool = False,
    from_log: bool = False,
    on_damage: Literal["raise", "skip"] = "raise",
    verify_crc: bool = True,
    store_path_commit_log: str | os.PathLike[str] | None = None,
    archive: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | None = None,
    compression: str = "snappy",
    file_size: int = DEFAULT_FILE_SIZE,
    progress: Progress | None = None,
) -> ExportReport:
    """Copy messages of the store at ``path`` into ``target``, such as ``"parquet:/data/orders"``.

    ``topics`` are names or shell patterns (``"orders-*"``); by default all topics of applications. Patterns match no
    system topics, and skip, with a warning, topics that cannot be read; a name takes any topic. ``since`` and
    ``until`` are store times as ``StoreReader.scan`` takes them, the second one excluded. ``tags`` keeps the messages
    with one of these, ``filter`` those for which this SQL92 expression holds (``MessageFilter.parse``). ``columns`` are
    those of ``StoreReader.read``. Parquet files go into ``topic=<topic>/`` and hold about ``file_size`` bytes of
    messages, as Arrow has them in memory; the directory stands for the column ``topic``.

    ``store_path_commit_log``, ``from_log``, ``archive``, ``storage_options``, ``cache_dir`` and ``cache_size`` are
    those of ``StoreReader.open``.

    Bodies are compared with their CRC, unless ``verify_crc`` is false. Damage ends the export with an error; with
    ``on_damage="skip"``, messages that cannot be read are left out, logged, and counted. Both options may change later.

    With ``resume``, an export that ended early, or at the store's end of that time, continues: the target has each row
    exactly once. Queues that are new are exported from ``since`` on. Else the target must be empty or missing.

    ``target`` may be a prefix of object storage, ``"parquet:s3://bucket/orders"``, with the extra ``archive``, or in
    HDFS, with the extra ``hdfs``: lines then go into objects of bounded size (``export/object_target.py``). Keys come
    from the environment.

    ``progress`` is called with the queue offsets that were read, and the number of all to read.

    ``InvalidValue`` for a target that cannot be used, unknown columns, and other options than those of the export to
    be resumed; ``TailLost`` when the store has lost messages that the target has; ``TopicNotFound``, the errors of
    ``StoreReader.open`` and ``StoreReader.read``; ``TargetFailed`` when the target cannot be written, or another export
    writes there; ``ArchiveFailed`` when object storage refuses.

    ::

        from commitlog_store import export_store

        report = export_store("/data/store", "parquet:/data/store-export", topics=["orders*"], resume=True)
        print(report.rows, "new rows")
    """
    target = parse_target(target, objects=True) if isinstance(target, str) else target
    if not isinstance(target, ExportTarget):
        raise InvalidValue(f"target is FORMAT:PLACE, such as 'parquet:/data/export', not {target!r}.")
    source = str(path) if _is_url(str(path)) else disk.absolute_path(path)
    _check_options(columns, file_size, on_damage)
    kept = None if tags is None else sorted(set(tags))
    request = _Request(
        target=target,
        topics=topics,
        since_ms=_time("since", since),
        until_ms=_time("until", until),
        chosen=_chosen(tags, filter),
        asked=ExportState(store=source, format=target.format.value, columns=list(columns), tags=kept, filter=filter),
        resume=resume,
        verify_crc=verify_crc,
        compression=compression,
        file_size=file_size,
        progress=progress,
        from_objects=archive is not None or source.startswith(ARCHIVE_SCHEMES),
    )
    with StoreReader.open(
        source,
        store_path_commit_log=store_path_commit_log,
        from_log=from_log,
        on_damage=on_damage,
        storage_options=storage_options,
        cache_dir=cache_dir,
        cache_size=cache_size,
        archive=archive,
    ) as reader:
        return _export_from(reader, request)


@dataclass(frozen=True, kw_only=True)
class _Request:
    """What one call exports, and how. ``asked`` is its state before the first row, without an earlier call.

    ``from_objects``: all or some of the log is fetched from object storage.
    """

    target: ExportTarget
    topics: Sequence[str]
    since_ms: int | None
    until_ms: int | None
    chosen: MessageFilter
    asked: ExportState
    resume: bool
    verify_crc: bool
    compression: str
    file_size: int
    progress: Progress | None
    from_objects: bool


def _export_from(reader: StoreReader, request: _Request) -> ExportReport:
    """``export_store`` from an open reader. Its errors."""
    target = request.target
    _check_outside_store(target, reader, request.asked.store)
    topics = readable_topics(reader, request.topics)
    place = place_of(target)
    with place.locked(resume=request.resume):
        began = _begun(place, request)
        positions = ExportPositions(reader, began)
        ranges = ranges_to_read(reader, topics, positions, target, since_ms=request.since_ms, until_ms=request.until_ms)
        export = _Export(reader, place, _with_starts(place, began, positions, ranges), positions, request)
        state = export.run(ranges)
    return ExportReport(
        target=target,
        topics=topics,
        rows=export.new_rows,
        total_rows=state.rows,
        skipped=_not_reported_yet(began, state),
        total_skipped=state.skipped,
        committed=state.committed,
        lost_ends=reader.lost_ends() if request.until_ms is None else [],
        storage=reader.stats(),
    )


def _is_url(path: str) -> bool:
    """Whether the store is a served one, or an archive, without files here."""
    return path.startswith((*REMOTE_SCHEMES, *ARCHIVE_SCHEMES))


def _check_outside_store(target: ExportTarget, reader: StoreReader, source: str) -> None:
    """``InvalidValue`` for a target within the directories of the store."""
    if not _is_url(source) and not target.in_objects:
        for inside in (source, reader.paths.commit_log):
            check_outside(target.path, inside)


def _check_options(columns: Sequence[str], file_size: int, on_damage: str) -> None:
    """``InvalidValue`` for columns that do not exist, and unless each is named once; for other options as well."""
    checked_count("file_size", file_size)
    if on_damage not in ("raise", "skip"):
        raise InvalidValue(f"on_damage is 'raise' or 'skip', not {on_damage!r}.")
    for name in listed_columns(columns):
        column_type(name)
    if not columns or len(set(columns)) < len(columns):
        raise InvalidValue(f"The columns of an export are at least one, each named once, not {list(columns)!r}.")


def _time(name: str, given: GivenTime | None) -> int | None:
    return None if given is None else milliseconds_of(given, name)


def _chosen(tags: Sequence[str] | None, expression: str | None) -> MessageFilter:
    """The filter of an export. ``InvalidValue``."""
    if tags is not None and not tags:
        raise InvalidValue("The tags of an export are at least one; leave them out for all messages.")
    subscription = None if tags is None else TagSubscription(tuple(sorted(set(tags))))
    return replace(MessageFilter.parse(filter=expression), tags=subscription)


def _begun(place: ExportPlace, request: _Request) -> ExportState:
    """The state to continue from, of a target that is locked."""
    began = place.load(resume=request.resume)
    if began is None:
        return request.asked
    began.check_same(request.asked, request.target)
    return began


def _with_starts(
    place: ExportPlace, began: ExportState, positions: ExportPositions, ranges: Sequence[ExportRange]
) -> ExportState:
    """The state with where each range begins, saved: a relative time means another offset when it is resumed."""
    for one in ranges:
        positions.begin(one.topic, one.queue_id, one.start)
    state = replace(positions.noted_in(began), finished=False)
    place.save(state)
    return state


def _not_reported_yet(began: ExportState, state: ExportState) -> dict[str, int]:
    """The skipped messages that no earlier report has: a call that did not come to its end has made none."""
    reported = Counter(began.skipped if began.finished else {})
    return dict(Counter(state.skipped) - reported)


class _Export:
    """One run of an export: reads the ranges, writes their rows, and commits."""

    def __init__(
        self,
        reader: StoreReader,
        place: ExportPlace,
        state: ExportState,
        positions: ExportPositions,
        request: _Request,
    ) -> None:
        self.new_rows = 0
        self._reader = reader
        self._place = place
        self._writer = place.writer(
            state.columns, state.committed, file_size=request.file_size, compression=request.compression
        )
        self._state = state
        self._positions = positions
        self._request = request
        self._rows = state.rows
        # Queue offsets that were read, and all to read.
        self._done = self._total = 0
        self._skipped_before = Counter(state.skipped)
        self._batch_rows = DEFAULT_ROWS if state.format == ExportFormat.PARQUET.value else _TEXT_ROWS

    def run(self, ranges: list[ExportRange]) -> ExportState:
        """Export all ranges. Returns the last state. Damage is raised with what to do about it."""
        with contextlib.closing(self._writer):
            try:
                return self._run(ranges)
            except (CorruptStoreError, FileMissing) as error:
                error.advised(_PAST_DAMAGE)
                raise

    def _run(self, ranges: list[ExportRange]) -> ExportState:
        self._total = sum(one.stop - one.start for one in ranges)
        for _, of_topic in groupby(ranges, key=lambda one: one.topic):
            if self._done:
                self._writer.end_topics()
            self._read_topic(list(of_topic))
        self._commit(finished=True)
        return self._state

    def _read_topic(self, ranges: list[ExportRange]) -> None:
        """Export ranges of a topic, those of an archive together: damage is passed queue by queue."""
        left, alone = _messages(ranges), _LEAST_ALONE
        while self._request.from_objects and len(ranges) > 1:
            ranges = [one for one in self._read_together(ranges) if one.start < one.stop]
            together, left = left - _messages(ranges), _messages(ranges)
            alone = _LEAST_ALONE if together > alone else alone * _MORE_ALONE
            ranges = [self._read_alone(one, stop) for one, stop in zip(ranges, _ends(ranges, alone), strict=True)]
            left = _messages(ranges)
        for one in ranges:
            self._read_alone(one, one.stop)

    def _read_together(self, ranges: list[ExportRange]) -> list[ExportRange]:
        """Export ranges of a topic in the order of the log. What is left, from damage or a missing file on."""
        batches = self._reader.read_side_by_side(
            ranges,
            columns=self._state.columns,
            verify_crc=self._request.verify_crc,
            filter=self._request.chosen,
        )
        for batch in batches:
            for at in range(0, batch.num_rows, self._batch_rows):
                self._writer.write(ranges[0].topic, batch.slice(at, self._batch_rows))
            ranges = self._move_positions(batch, ranges, batches.positions)
        return self._move_positions(None, ranges, batches.positions)

    def _read_alone(self, one: ExportRange, stop: int) -> ExportRange:
        """Export one range up to an offset. What is left of it."""
        batches = self._read(one, stop)
        for batch in batches:
            self._writer.write(one.topic, batch)
            [one] = self._move_positions(batch, [one], [batches.position])
        [one] = self._move_positions(None, [one], [stop])
        return one

    def _move_positions(
        self, batch: pa.RecordBatch | None, ranges: Sequence[ExportRange], positions: Sequence[int]
    ) -> list[ExportRange]:
        """Move ranges up to positions, after a batch was written, and commit if that is due. What is left of them."""
        left = [one._replace(start=at) for one, at in zip(ranges, positions, strict=True)]
        for before, one in zip(ranges, left, strict=True):
            self._done += one.start - before.start
            if one != before:
                self._positions.move(one.topic, one.queue_id, one.start)
        if batch is not None:
            self._rows += batch.num_rows
            self.new_rows += batch.num_rows
            if self._writer.is_due:
                self._commit(finished=False)
            if self._request.progress is not None:
                self._request.progress(self._done, self._total)
        return left

    def _read(self, one: ExportRange, stop: int) -> MessageBatches:
        return self._reader.read(
            one.topic,
            one.queue_id,
            one.start,
            stop,
            columns=self._state.columns,
            verify_crc=self._request.verify_crc,
            max_batch_rows=self._batch_rows,
            filter=self._request.chosen,
        )

    def _commit(self, *, finished: bool) -> None:
        committed = self._writer.commit()
        noted = self._positions.noted_in(self._state)
        # What a reader has skipped lies before the positions: it reports that before the batch that follows.
        skipped = Counter(self._skipped_before)
        for one in self._reader.skipped:
            skipped[one.topic] += one.messages
        self._state = replace(noted, committed=committed, rows=self._rows, skipped=dict(skipped), finished=finished)
        self._place.save(self._state)


def _messages(ranges: Sequence[ExportRange]) -> int:
    return sum(one.stop - one.start for one in ranges)


def _ends(ranges: Sequence[ExportRange], messages: int) -> list[int]:
    """Where ranges with messages end after so many of all of them, or a few more: after the same part of each."""
    left = max(_messages(ranges), messages)
    return [one.stop - (one.stop - one.start) * (left - messages) // left for one in ranges]
