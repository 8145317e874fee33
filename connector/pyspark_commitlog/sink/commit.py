"""The driver's part of a write: prepares the store before the tasks begin, then commits or removes the staged files."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import WriterCommitMessage

from commitlog_store import BatchId, CommittedBatch, PutMessageStatus, StagedFile, StoreReader
from commitlog_store.errors import CommitLogError, DiskFull, NotAStore, PutRefused, StoreLocked, StoreNotFound
from commitlog_store.stager import largest_record_of, queue_counts, remove_batch, remove_files
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.write import Flush, SinkOptions
from pyspark_commitlog.sink.columns import SinkColumns
from pyspark_commitlog.sink.fingerprint import checkpoint_within
from pyspark_commitlog.sink.served import commit_uploads, remove_uploads, staging_plan
from pyspark_commitlog.sink.task import StagedRows, StageTask

if TYPE_CHECKING:
    from commitlog_store import MessageStore


_logger = logging.getLogger(__name__)

# How long a commit waits for another owner before it says so, and at most from one warning to the next.
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 60.0
# How often a commit looks for its replica.
_LOOK_AGAIN_S = 0.01


def plan_write(options: SinkOptions, columns: SinkColumns) -> StageTask:
    """Create the store if it does not exist. Read its topics once for all tasks, so that all choose the same queues.

    A server that owns the store is asked. ``StoreOpenError`` if the path is not a store, ``CorruptConfig``,
    ``StoreIOError``; ``RemoteFailed``.
    """
    only_topic = None if "topic" in columns.names else options.topic
    if options.is_served:
        plan = staging_plan(options, only_topic)
        return StageTask(
            options=options,
            columns=columns,
            queue_counts=plan.queue_counts,
            largest_record=plan.largest_record,
            plan=plan,
        )
    prepare_store(options)
    return StageTask(
        options=options,
        columns=columns,
        queue_counts=queue_counts(options.path, only_topic, options.queues),
        largest_record=largest_record_of(options.path, options.store_config),
    )


def prepare_store(options: SinkOptions) -> None:
    """Create the store if it does not exist, so that tasks can stage in it. ``StoreOpenError`` if it is not a store.

    An executor that does not find it then reports that it does not see the driver's files. ``OptionError`` if Spark has
    put the query's checkpoint where the store is to be created.
    """
    checkpoint = checkpoint_within(options)
    # A directory of this name is Spark's: a store has a file.
    if checkpoint is not None and os.path.isdir(os.path.join(options.path, "checkpoint")):
        _refuse_checkpoint(options, checkpoint)
    try:
        StoreReader.open(options.path, store_path_commit_log=options.store_path_commit_log).close()
    except (StoreNotFound, NotAStore):
        if checkpoint is not None:
            _refuse_checkpoint(options, checkpoint)
        _open(options).close()  # which refuses a directory that holds something else
        # This is intended, or the path is mistyped, or a disk is not mounted.
        _logger.warning("The store %s did not exist; a new one was created.", options.path)


def _refuse_checkpoint(options: SinkOptions, checkpoint: str) -> NoReturn:
    raise OptionError(
        f"Option checkpointLocation is {checkpoint!r}, which is within the directory of the store, {options.path}. "
        "Spark makes it first, and no store is created in a directory that holds something else. Give the checkpoint a "
        "directory outside of the store, and remove the one in it.",
        option="checkpointLocation",
        value=checkpoint,
    )


def staged_rows(messages: Iterable[WriterCommitMessage | None]) -> list[StagedRows]:
    """The messages of the tasks that succeeded, in the order of the partitions."""
    found = [message for message in messages if isinstance(message, StagedRows)]
    return sorted(found, key=lambda message: message.partition)


def commit_staged(options: SinkOptions, batch: BatchId, messages: Sequence[StagedRows]) -> CommittedBatch | None:
    """Bring the staged rows into the store, all of them or none. None without rows.

    The store is owned only during that, or has a server as its owner. The errors are those of ``MessageStore.open`` and
    ``MessageStore.commit_batch``; a server's are those of ``commit_uploads``.
    """
    files = [message.staged for message in messages if message.staged is not None]
    if not files:
        return None
    if options.is_served:
        return commit_uploads(options, batch, files)
    with _open(options) as store:
        if options.flush is Flush.REPLICATED:
            _await_replica(store, options)
        if store.disk_is_filling:
            _clean(store)  # or the commit might be refused, and nothing would ever be deleted
        committed = _commit(store, batch, files)
        # Closing does this too, but ignores a queue that cannot be written: readers would not get the batch.
        store.dispatch()
        _clean(store)
        return committed


def _await_replica(store: MessageStore, options: SinkOptions) -> None:
    """Return when a replica follows. ``PutRefused`` when none has come in time: nothing was written."""
    deadline = time.monotonic() + options.replica_timeout_s
    while not any(slave.request_offset >= 0 for slave in store.slaves()):
        if time.monotonic() >= deadline:
            raise PutRefused(
                PutMessageStatus.SLAVE_NOT_AVAILABLE,
                f"No replica has connected to {store.ha_address} (haListenAddress) within "
                f"{options.replica_timeout_s:g} s (replicaTimeout). Nothing was written. Start one, as with commitlog "
                f"follow {store.ha_address} DIR.",
            )
        time.sleep(_LOOK_AGAIN_S)


def _clean(store: MessageStore) -> None:
    """Delete the files that the options of retention take. A failure is logged: the commit counts."""
    if not store.config.retention:
        return
    try:
        report = store.clean()
    except CommitLogError as error:
        _logger.warning("The old files of %s were not deleted: %s", store.path, error)
        return
    if report.deleted:
        _logger.info(
            "%d old files of %s were deleted; its log begins at physical offset %d now.",
            len(report.deleted),
            store.path,
            report.log_start,
        )


def _commit(store: MessageStore, batch: BatchId, files: Sequence[StagedFile]) -> CommittedBatch:
    try:
        return store.commit_batch(batch, files)
    except DiskFull as error:
        if error.path != store.path:
            raise  # a file found no space; a store that rejects commits because of the disk names itself
        raise DiskFull(
            error.operation,
            path=error.path,
            cause=OSError(error.errno, error.reason),
            advice="Nothing was written. Free some space and start the write again. The option "
            "diskSpaceWarningLevelRatio says how much of the disk may be used.",
        ) from error


def _open(options: SinkOptions) -> MessageStore:
    """The store, owned. While it has another owner, a warning says who that is, ever more rarely."""
    # Tasks import this module with the pickled writers, and never open a store: so they import only two thirds of the
    # package.
    from commitlog_store import MessageStore

    started = time.monotonic()
    pause_s = _FIRST_WAIT_S
    while True:
        waited = time.monotonic() - started
        # Within the pause the lock is asked for all the time: the store is taken as soon as it is free.
        wait_s = max(0.0, min(pause_s, options.lock_timeout_s - waited))
        try:
            return MessageStore.open(options.path, options.store_config, lock_timeout_s=wait_s)
        except StoreLocked as error:
            refusal = error.__cause__ if isinstance(error.__cause__, StoreLocked) else error
            waited = time.monotonic() - started
            if waited >= options.lock_timeout_s:
                raise StoreLocked(
                    f"{refusal} Waited {options.lock_timeout_s:g} s for it. Nothing was written. The option "
                    "lockTimeout says how long to wait.",
                    path=error.path,
                    holder=error.holder,
                ) from error
            _logger.warning(
                "%s Waiting for it: %.0f s of %g s (lockTimeout) are over.", refusal, waited, options.lock_timeout_s
            )
            pause_s = min(2 * pause_s, _LONGEST_WAIT_S)


def remove_staged(options: SinkOptions, messages: Iterable[StagedRows], unnamed: BatchId | None = None) -> None:
    """Remove the files of these tasks. Missing files are skipped.

    A batch may have been committed although its commit raised, so only the files are touched; of a write without a
    name, ``unnamed``, all files, also those of tasks that failed, since its id is unique.
    """
    files = [message.staged for message in messages if message.staged is not None]
    if options.is_served:
        remove_uploads(options, files, unnamed)
        return
    remove_files(options.path, files)
    if unnamed is not None:
        remove_batch(options.path, unnamed)
