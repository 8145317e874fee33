"""The driver's half of a write: makes the store and looks at it before the tasks begin, then commits or removes what
they staged.
"""

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
    """Make the store if there is none yet, and look at it once for all tasks, so that all choose the same queues.

    ``StoreOpenError`` for what is no store, ``CorruptConfig``, ``StoreIOError``.
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
    """Make the store if there is none yet, so that tasks can stage in it. ``StoreOpenError`` for what is no store.

    An executor that does not find it then knows that it does not see the driver's files.
    """
    try:
        StoreReader.open(options.path).close()
    except (StoreNotFound, NotAStore):
        _open(options).close()  # which refuses a directory that holds something else
        # It is what was asked for, or a path mistyped, or a disk that is not mounted.
        _logger.warning("There was no store in %s, so a new one was made.", options.path)


def staged_rows(messages: Iterable[WriterCommitMessage | None]) -> list[StagedRows]:
    """The messages of tasks that ended, in the order of the partitions."""
    found = [message for message in messages if isinstance(message, StagedRows)]
    return sorted(found, key=lambda message: message.partition)


def commit_staged(options: SinkOptions, batch: BatchId, messages: Sequence[StagedRows]) -> CommittedBatch | None:
    """Bring the staged rows into the store, all of them or none; None when there are none.

    The store is owned for just as long as that takes. The errors are those of ``MessageStore.open`` and
    ``MessageStore.commit_batch``.
    """
    files = [message.staged for message in messages if message.staged is not None]
    if not files:
        return None
    with _open(options) as store:
        committed = store.commit_batch(batch, files)
        # Closing does this too, but says nothing of a queue that cannot be written: readers would not get the batch.
        store.dispatch()
        return committed


def _open(options: SinkOptions) -> MessageStore:
    # Tasks import this module with the writers that are pickled to them, and never open a store: they do without a
    # third of the package, and of the time that importing it takes.
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
    """Remove the files of these tasks. Never raises for what is not there.

    A batch may have been committed although its commit raised, so nothing but the files is touched.
    """
    remove_files(store_path, [message.staged for message in messages if message.staged is not None])
