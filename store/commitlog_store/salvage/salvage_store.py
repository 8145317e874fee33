"""``salvage_store``: brings every whole record of a damaged log into a new store, or into files.

It needs nothing but the log's files, reads them twice, and changes nothing of the source. The first walk is the survey
(``salvage/survey.py``), whose result is the report; the second one reads the found stretches again and writes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace

from commitlog_store.batch.ledger import BatchLedger, saved_batches
from commitlog_store.batch_id import CommittedBatch
from commitlog_store.config import MessageStoreConfig
from commitlog_store.config_files.json_file import LARGEST_CONFIG
from commitlog_store.errors import (
    CorruptConfig,
    FileCreationFailed,
    InvalidValue,
    LogNotFound,
    ReadFailed,
    StoreAccessDenied,
    StoreIOError,
    StoreLocked,
    TargetFailed,
)
from commitlog_store.export.targets import ExportFormat, ExportTarget, check_file_target, check_outside, parse_target
from commitlog_store.files import disk
from commitlog_store.files.store_lock import lock_holder
from commitlog_store.files.whole_file import replace_file
from commitlog_store.format.record import MIN_RECORD_SIZE, own_queue_place
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.log.store_checkpoint import mark_if_readable
from commitlog_store.paths import BATCH_LEDGER, BATCH_TOPIC, CHECKPOINT, COMMIT_LOG, CONFIG, CONSUME_QUEUE, LOCK
from commitlog_store.progress import Progress
from commitlog_store.queue.deleted_topics import DeletedTopics
from commitlog_store.recovery.kept import is_kept_piece, read_kept_piece
from commitlog_store.salvage.file_target import write_files
from commitlog_store.salvage.log_source import LogSource
from commitlog_store.salvage.positions import moved_positions, settle_half_messages
from commitlog_store.salvage.report import SalvageReport, report_of
from commitlog_store.salvage.store_target import StoreTarget
from commitlog_store.salvage.survey import Survey, survey_log
from commitlog_store.salvage.taken_records import taken_blocks
from commitlog_store.verify.findings import Findings
from commitlog_store.verify.queue_ends import QueueEnd, find_queue_ends, given_out

_FILE_KINDS = tuple(kind.value for kind in ExportFormat)
# The directory in the target that becomes the store: an interrupted salvage must not look like a whole one.
_UNFINISHED = "salvage-unfinished"


def salvage_store(
    path: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    config: MessageStoreConfig | None = None,
    uncommitted: bool = False,
    progress: Progress | None = None,
) -> SalvageReport:
    """Take every whole record of the log at ``path``, and report what is lost.

    ``path`` is a store directory, of which only ``commitlog/`` is needed, or a directory of CommitLog files. Nothing in
    it is changed, and it may be read-only. ``target`` is the directory of a new store, or ``parquet:DIR``,
    ``ndjson:FILE`` or ``csv:FILE``; it is empty or missing and not inside ``path``. Without it, this only looks.

    A new store has the log's file names, sizes and store times, all queues and an index, the source's ``config/``, and
    the ledger of batches. ``config`` says which index it gets. Files get what is visible to consumers, with the queue
    offsets that the messages had. ``uncommitted`` also takes the rows of a batch that a crash left unfinished.

    ``progress`` is called with the bytes of the log that were read, and of all to read: twice the log with a target.

    ``InvalidValue`` for a target that cannot be used, ``StoreNotFound``, ``NotAStore``, ``StoreAccessDenied``,
    ``LogNotFound`` for a target and a store without any log file, ``StoreLocked`` for a store that has an owner,
    ``FileChanged`` when another program writes to the log, ``TargetFailed`` when the target cannot be written.

    ::

        from commitlog_store import salvage_store

        report = salvage_store("/data/store")
        print(report.found, "messages,", report.lost, "lost,", report.unreadable_bytes, "bytes unreadable")
        salvage_store("/data/store", "parquet:/data/store-salvaged")
    """
    source = disk.absolute_path(path)
    place = None if target is None else _checked_target(source, os.fspath(target))
    _refuse_owned(source)
    files = LogSource.at(source)
    if not files.bases:
        return _report_without_log(source, files, place)
    try:
        size = files.end() - files.bases[0]
        total = size if place is None else 2 * size

        def done_before(before: int) -> Callable[[int], None]:
            return lambda done: None if progress is None else progress(before + done, total)

        survey = _survey(source, files, done_before(0), uncommitted=uncommitted)
        offsets = _given_out(source, survey, files)
        lost_references = 0
        if isinstance(place, ExportTarget):
            _write_files(files, survey, place, done_before(size))
        elif place is not None:
            config = replace(config or MessageStoreConfig(), mapped_file_size_commit_log=files.file_size())
            lost_references = _new_store(source, files, survey, place, config, done_before(size))
    finally:
        files.close()
    return report_of(
        source,
        None if place is None else str(place),
        survey,
        offsets,
        uncommitted=uncommitted,
        lost_references=lost_references,
        misnamed=files.misnamed,
    )


def _survey(source: str, files: LogSource, done: Callable[[int], None], *, uncommitted: bool) -> Survey:
    """The first walk: what the log has."""
    mark = mark_if_readable(os.path.join(source, CHECKPOINT))
    piece = read_kept_piece(source) if is_kept_piece(source) else None
    flushed_to = 0 if mark is None else mark.flushed_offset
    return survey_log(
        files,
        begin_at=0 if piece is None else piece.start,
        # Of a piece of the log that was cut off, its report says whether it is a batch that was never committed.
        flushed_to=flushed_to if piece is None or piece.uncommitted else MAX_LONG,
        uncommitted=uncommitted,
        progress=lambda read, _: done(read),
    )


def _write_files(files: LogSource, survey: Survey, place: ExportTarget, done: Callable[[int], None]) -> None:
    """The second walk of a salvage into files."""
    try:
        write_files(files, survey, place, done)
    except OSError as error:
        raise TargetFailed("write", path=str(error.filename or place.path), cause=error) from error


def _report_without_log(source: str, files: LogSource, place: ExportTarget | str | None) -> SalvageReport:
    """The report on a store whose log has no file: all that its queues name is lost. ``LogNotFound`` with a target."""
    if place is not None:
        raise LogNotFound.at(files.path, f"{source} has consume queues. Nothing can be salvaged without it")
    survey = Survey(log_start=0, log_end=0)
    offsets = _given_out(source, survey, files)
    return report_of(source, None, survey, offsets, uncommitted=False, lost_references=0, misnamed=[])


def _given_out(source: str, survey: Survey, files: LogSource) -> dict[tuple[str, int], tuple[int, int]]:
    """The queue offsets that the units of a store name; nothing for a directory of log files, which has no queues."""
    if not disk.is_directory(os.path.join(source, CONSUME_QUEUE)):
        return {}
    deleted = DeletedTopics(source)
    with contextlib.suppress(CorruptConfig, ReadFailed):
        iter(deleted)
        queues, _ = find_queue_ends(source, Findings())
        found = {
            (queue.topic, queue.queue_id): given_out(
                queue, max(survey.log_start, deleted.units_from(queue.topic, queue.queue_id))
            )
            for queue in queues
            if not _is_of_another_queue(queue, survey, files)
        }
        return {queue: offsets for queue, offsets in found.items() if offsets is not None}
    return {}


def _is_of_another_queue(queue: QueueEnd, survey: Survey, files: LogSource) -> bool:
    """Whether a queue's last unit leads to a whole record of another queue: the files of two queues were swapped."""
    file = files.find(queue.physical_offset) if queue.size >= MIN_RECORD_SIZE and not queue.is_light else None
    if file is None or queue.physical_offset in survey.left_out or not survey.holds(queue.physical_offset):
        return False
    return own_queue_place(file.read(queue.physical_offset - file.base, MIN_RECORD_SIZE)) != (
        queue.queue_id,
        queue.end - 1,
    )


def _refuse_owned(source: str) -> None:
    """``StoreLocked`` beside an owner: what it is writing looks damaged, and what it wrote since then lost."""
    store = os.path.dirname(source) if os.path.basename(source) == COMMIT_LOG else source
    holder = None
    with contextlib.suppress(OSError, StoreAccessDenied):  # the lock may not be readable where the log is
        holder = lock_holder(os.path.join(store, LOCK))
    if holder is not None:
        raise StoreLocked(
            f"The store {store} has an owner, process {holder}: stop it first, or salvage a copy of its log. "
            "'commitlog verify' looks at a store in use.",
            path=store,
            holder=holder,
        )


def _checked_target(source: str, target: str) -> ExportTarget | str:
    """The target, nothing of which exists yet. ``InvalidValue``."""
    kind, colon, _ = target.partition(":")
    if colon and kind in _FILE_KINDS:
        place = parse_target(target)
        check_outside(place.path, source)
        check_file_target(place)
        is_used = (
            bool(disk.file_size(place.path)) if place.format is not ExportFormat.PARQUET else _has_names(place.path)
        )
        path = place.path
    elif colon and kind.isalnum():
        raise InvalidValue(
            f"A salvage goes to a directory, parquet:DIR, ndjson:FILE or csv:FILE, not to {target!r}. For a directory "
            f"of that name give ./{target}."
        )
    else:
        path = os.path.abspath(target)
        check_outside(path, source)
        if disk.exists(path) and not disk.is_directory(path):
            raise InvalidValue(f"{path} is not a directory; a new store takes one.")
        if disk.exists(os.path.join(path, _UNFINISHED)):
            raise InvalidValue(f"{path} holds what an interrupted salvage left; remove it, or give another target.")
        place, is_used = None, _has_names(path)
    if is_used:
        raise InvalidValue(f"{path} exists already; a salvage begins in an empty or missing target.")
    return place or path


def _has_names(path: str) -> bool:
    return disk.is_directory(path) and bool(disk.list_names(path))


def _new_store(
    source: str,
    files: LogSource,
    survey: Survey,
    path: str,
    config: MessageStoreConfig,
    progress: Callable[[int], None],
) -> int:
    """The second walk, into a store that is at ``path`` once it is whole. Returns the number of lost references."""
    unfinished = os.path.join(path, _UNFINISHED)
    try:
        with StoreTarget(unfinished, config, survey.target_start(files)) as target:
            target.expect(survey.frames)
            for block in taken_blocks(files, survey):
                target.add(block)
                progress(block.scan.physical_offset + block.scan.end - survey.log_start)
            _copy_config(source, unfinished, survey)
            settle_half_messages(unfinished, survey.chains)
            _save_ledger(source, survey, target)
            target.finish()
        _take_place(unfinished, path)
    except (StoreIOError, FileCreationFailed, ReadFailed, StoreAccessDenied, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        failed = str(error.filename or path) if isinstance(error, OSError) else error.path
        if not isinstance(cause, OSError) or not failed.startswith(path):
            raise
        advice = "The salvage is not finished: remove its target, and salvage again."
        raise TargetFailed("write", path=failed, cause=cause, advice=advice) from error
    return target.lost_references


def _take_place(unfinished: str, path: str) -> None:
    """Move a finished store up into its directory. From the log on it is a store: all else can be made from that."""
    names = sorted(disk.list_names(unfinished), key=lambda name: (name != CONFIG, name != COMMIT_LOG))
    for name in names:
        disk.rename(os.path.join(unfinished, name), os.path.join(path, name))
        disk.sync_directory(path)
    disk.remove_directory(unfinished)
    disk.sync_directory(path)


def _copy_config(source: str, target: str, survey: Survey) -> None:
    """Copy the JSON files of ``config/``, but for the ledger: topics, groups, and the consumers' positions, moved."""
    directory = os.path.join(source, CONFIG)
    for name in disk.list_names(directory) if disk.is_directory(directory) else ():
        if name.endswith(".json") and name != BATCH_LEDGER:
            path = os.path.join(directory, name)
            try:
                content = disk.read_file(path, LARGEST_CONFIG)
            except OSError as error:
                advice = f"To do without it, salvage {os.path.join(source, COMMIT_LOG)} alone."
                raise ReadFailed("read", path=path, cause=error, advice=advice) from error
            replace_file(os.path.join(target, CONFIG, name), moved_positions(name, content, survey.chains))
    disk.sync_directory(os.path.join(target, CONFIG))  # once for all files: the target is not used before it is whole


def _save_ledger(source: str, survey: Survey, target: StoreTarget) -> None:
    """The last batch of each application: of the source's ledger, of whole frames, and of damaged committed ones.

    A batch without a frame record in the target, because it has expired or is damaged, is known by the ledger alone.
    """
    try:
        batches = saved_batches(source)
    except CorruptConfig:
        batches = {}
    frames = {one.frame.physical_offset: one for one in target.frames}
    for app, batch in batches.items():
        if batch.physical_offset >= survey.log_start and batch.physical_offset not in frames:
            batches[app] = replace(batch, physical_offset=-1, end=-1)
    damaged = [
        CommittedBatch(one.frame.frame.batch, -1, -1, one.rows_found, one.frame.store_timestamp)
        for one in survey.damaged_batches
        if one.committed
    ]
    whole = [
        CommittedBatch(
            one.frame.frame.batch, one.physical_offset, one.end, one.frame.frame.rows, one.frame.store_timestamp
        )
        for one in target.frames
    ]
    for batch in (*damaged, *whole):
        app = batch.batch.app_id
        if app and (app not in batches or batches[app].batch.version <= batch.batch.version):
            batches[app] = batch
    chain = survey.chains.queues.get((BATCH_TOPIC, 0))
    queue_end = 0 if chain is None else chain.new_end
    if batches:
        BatchLedger(target.path, batches, queue_end, lambda _: None, saved={}).save()
