"""The driver's part of a write: prepares the store before the tasks begin, then commits or removes the staged files."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from commitlog import BatchId, CommittedBatch, StoreReader
from commitlog.errors import NotAStore, StoreLocked, StoreNotFound
from commitlog.stager import largest_record_of, queue_counts, remove_files
from pyspark_commitlog.options.write import SinkOptions
from pyspark_commitlog.sink.columns import SinkColumns
from pyspark_commitlog.sink.task import StagedRows, StageTask

if TYPE_CHECKING:
    from commitlog import MessageStore

__all__ = ["commit_staged", "plan_write", "prepare_store", "remove_staged", "staged_rows"]

_logger = logging.getLogger(__name__)


def plan_write(options: SinkOptions, columns: SinkColumns) -> StageTask:
    """Create the store if it does not exist. Read its topics once for all tasks, so that all choose the same queues.

    ``StoreOpenError`` if the path is not a store, ``CorruptConfig``, ``StoreIOError``.
    """
    prepare_store(options)
    only_topic = None if "topic" in columns.names else options.topic
    return StageTask(
        options=options,
        columns=columns,
        queue_counts=queue_counts(options.path, only_topic, options.queues),
        largest_record=largest_record_of(options.path, options.store_config),
    )


def prepare_store(options: SinkOptions) -> None:
    """Create the store if it does not exist, so that tasks can stage in it. ``StoreOpenError`` if it is not a store.

    An executor that does not find it then reports that it does not see the driver's files.
    """
    try:
        StoreReader.open(options.path).close()
    except (StoreNotFound, NotAStore):
        _open(options).close()  # which refuses a directory that holds something else
        # This is intended, or the path is mistyped, or a disk is not mounted.
        _logger.warning("The store %s did not exist; a new one was created.", options.path)


def staged_rows(messages: Iterable[WriterCommitMessage | None]) -> list[StagedRows]:
    """The messages of the tasks that succeeded, in the order of the partitions."""
    found = [message for message in messages if isinstance(message, StagedRows)]
    return sorted(found, key=lambda message: message.partition)


def commit_staged(options: SinkOptions, batch: BatchId, messages: Sequence[StagedRows]) -> CommittedBatch | None:
    """Bring the staged rows into the store, all of them or none. None without rows.

    The store is owned only during that. The errors are those of ``MessageStore.open`` and
    ``MessageStore.commit_batch``.
    """
    files = [message.staged for message in messages if message.staged is not None]
    if not files:
        return None
    with _open(options) as store:
        committed = store.commit_batch(batch, files)
        # Closing does this too, but ignores a queue that cannot be written: readers would not get the batch.
        store.dispatch()
        return committed


def _open(options: SinkOptions) -> MessageStore:
    # Tasks import this module with the pickled writers, and never open a store: so they import only two thirds of the
    # package.
    from commitlog import MessageStore

    try:
        return MessageStore.open(options.path, options.store_config, lock_timeout_s=options.lock_timeout_s)
    except StoreLocked as error:
        raise StoreLocked(
            f"{error} Nothing was written. The option lockTimeout says how long to wait.",
            path=error.path,
            holder=error.holder,
        ) from error


def remove_staged(store_path: str, messages: Iterable[StagedRows]) -> None:
    """Remove the files of these tasks. Missing files are skipped.

    A batch may have been committed although its commit raised, so only the files are touched.
    """
    remove_files(store_path, [message.staged for message in messages if message.staged is not None])
