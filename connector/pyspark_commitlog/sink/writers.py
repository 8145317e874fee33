"""``CommitLogBatchWriter``, ``CommitLogStreamWriter``: the sink's writers, as Spark calls them.

Spark lets the data source make a writer in a process that plans the write, pickles it to the executors, and commits in
another process: a batch write with the same writer, a micro-batch with one made there. So a writer only holds the
result of ``plan_write``; making one touches no file.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from commitlog_store import BatchId
from commitlog_store.paths import UNNAMED_WRITE_PREFIX
from pyspark_commitlog.errors import ConnectorError, OptionError
from pyspark_commitlog.short_errors import with_short_errors
from pyspark_commitlog.sink.commit import commit_staged, remove_staged, staged_rows
from pyspark_commitlog.sink.fingerprint import checkpoint_fingerprint
from pyspark_commitlog.sink.task import StagedRows, StageTask
from pyspark_commitlog.spark_versions import StreamArrowWriter

if TYPE_CHECKING:
    import pyarrow as pa


_logger = logging.getLogger(__name__)

# Local properties that Spark gives the tasks of a streaming query.
_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_CHECKPOINT_ROOT = "spark.sql.streaming.checkpointLocation"


def refuse_overwrite(overwrite: bool, *, streaming: bool) -> None:
    """``OptionError`` for all but appending; Spark itself refuses the other modes."""
    if overwrite and streaming:
        raise OptionError(
            'outputMode("complete") writes the whole result again in every batch; a log is only appended to. Use '
            'outputMode("append"), or foreachBatch.',
            option="outputMode",
            value="complete",
        )
    if overwrite:
        raise OptionError(
            'mode("overwrite") is not for a log, which is only appended to. Use mode("append"); to begin a new store, '
            "give a path that does not exist.",
            option="mode",
            value="overwrite",
        )


def _context() -> TaskContext:
    context = TaskContext.get()
    if context is None:
        raise ConnectorError("Rows can be written by a task of Spark only.")
    return context


@with_short_errors
class CommitLogBatchWriter(DataSourceArrowWriter):
    """One batch write."""

    def __init__(self, task: StageTask) -> None:
        self._options = task.options
        self._task = task
        # A write without an id gets a unique one for staging, so that other writes do not touch its files.
        self._staged_as = task.options.batch or BatchId(UNNAMED_WRITE_PREFIX + uuid.uuid4().hex)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        partition = context.partitionId()
        staged = self._task.stage(iterator, self._staged_as, partition, context.attemptNumber())
        return StagedRows(partition=partition, batch=self._staged_as, staged=staged)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        # Nothing repeats the commit of a write without an id to a directory. To a server, a lost answer does.
        unnamed = self._staged_as if self._options.is_served else BatchId("")
        committed = commit_staged(self._options, self._options.batch or unnamed, staged_rows(messages))
        if committed is not None and committed.already_there and self._options.batch is not None:
            _logger.warning("%s was in %s already; nothing was written.", self._options.batch, self._options.path)
        if self._options.batch is None:
            remove_staged(self._options, (), self._staged_as)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        remove_staged(self._options, staged_rows(messages), None if self._options.batch else self._staged_as)


@with_short_errors
class CommitLogStreamWriter(StreamArrowWriter):
    """The write of one micro-batch."""

    def __init__(self, task: StageTask) -> None:
        self._options = task.options
        self._task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        partition = context.partitionId()
        query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
        if query_id is None or batch_id is None:
            raise ConnectorError(
                f"Spark did not give this task the id of its query and batch ({_QUERY_ID}, {_BATCH_ID}), without which "
                "a batch cannot be written exactly once. Write from foreachBatch, with txnAppId and txnVersion."
            )
        batch = BatchId(query_id, int(batch_id))
        staged = self._task.stage(iterator, batch, partition, context.attemptNumber())
        return StagedRows(
            partition=partition,
            batch=batch,
            staged=staged,
            checkpoint_root=context.getLocalProperty(_CHECKPOINT_ROOT),
        )

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if None in messages:
            # By trigger(continuous=...), which does not call Python writers and still commits: the rows would be lost.
            raise ConnectorError(
                f"Batch {batchId} is to be committed without what its tasks wrote: Spark does not ask a Python sink to "
                "write under trigger(continuous=...). Use trigger(processingTime=...) or trigger(availableNow=True). "
                "Nothing was written."
            )
        staged = staged_rows(messages)
        if not any(message.staged for message in staged):
            return
        query_id = staged[0].batch.app_id
        wrong = [message.batch for message in staged if message.batch != BatchId(query_id, batchId)]
        if wrong:
            raise ConnectorError(
                f"Batch {batchId} of query {query_id!r} is to be committed, but a task staged {wrong[0]}. Nothing was "
                "written."
            )
        fingerprint = checkpoint_fingerprint(self._options, staged[0].checkpoint_root, query_id, batchId)
        committed = commit_staged(self._options, BatchId(query_id, batchId, fingerprint), staged)
        if committed is not None and committed.already_there:
            _logger.info("Batch %d of query %s was in %s already.", batchId, query_id, self._options.path)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002  # Spark's name
        remove_staged(self._options, staged_rows(messages))
