"""StageTask: a task of a write, which stages its rows in the executor; the driver commits or removes them.

Repeated and concurrent attempts of a task do no harm: each has a file of its own.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from commitlog_store import BatchId, MessageStoreConfig, PutMessageStatus, StagedFile
from commitlog_store.errors import PutRefused, StagingFailed, StoreNotFound
from commitlog_store.stager import BatchStager, StagingPlace, StagingPlan
from pyspark_commitlog.options.write import SinkOptions
from pyspark_commitlog.sink.columns import SinkColumns
from pyspark_commitlog.sink.served import config_of, connect
from pyspark_commitlog.worker_gc import leave_out_imported_modules


@dataclass(frozen=True, kw_only=True)
class StagedRows(WriterCommitMessage):
    """The message of a task to the committer: its file, None without rows.

    ``checkpoint_root`` is the session's setting, for queries that have no checkpoint location of their own.
    """

    partition: int
    batch: BatchId
    staged: StagedFile | None
    checkpoint_root: str | None = None


@dataclass(frozen=True, kw_only=True)
class StageTask:
    """Made on the driver, pickled to the executors: settings, and how many queues each topic has.

    ``plan`` is what a server that owns the store has said of it; None for a directory.
    """

    options: SinkOptions
    columns: SinkColumns
    queue_counts: Mapping[str, int]
    largest_record: int | None = None
    plan: StagingPlan | None = None

    def stage(
        self, batches: Iterable[pa.RecordBatch], batch: BatchId, partition: int, attempt: int
    ) -> StagedFile | None:
        """Stage the rows of one partition. Returns the file, None without rows.

        ``PutRefused``, ``StoreNotFound``, ``StagingFailed``; of an upload also ``StagingLost``, ``RemoteFailed``. After
        any error the file is removed.
        """
        leave_out_imported_modules()
        if self.plan is None:
            return self._stage(self.options.path, self.options.store_config, batches, batch, partition, attempt)
        config = config_of(self.options, self.plan)
        with connect(self.options, self.plan) as server:
            return self._stage(server, config, batches, batch, partition, attempt)

    def _stage(
        self,
        place: str | StagingPlace,
        config: MessageStoreConfig,
        batches: Iterable[pa.RecordBatch],
        batch: BatchId,
        partition: int,
        attempt: int,
    ) -> StagedFile | None:
        stager = BatchStager(
            place,
            batch,
            queue_counts=self.queue_counts,
            topic=self.options.topic,
            partition=partition,
            name=f"{partition}-{attempt}",
            config=config,
            compression=self.options.compression,
            largest_record=self.largest_record,
            shown=self.columns.shown,
        )
        try:
            with stager:
                count = 0
                for rows in batches:
                    if (fault := self.columns.fault(rows)) is not None:
                        row = count + fault[0]
                        raise PutRefused(
                            PutMessageStatus.MESSAGE_ILLEGAL,
                            f"Message in row {row} of partition {partition}: {fault[1]}. Nothing of this batch is in "
                            "the store.",
                            row=row,
                        )
                    stager.put(self.columns.rename(rows))
                    count += rows.num_rows
                return stager.finish()
        except StagingFailed as error:
            if error.errno != errno.ENOENT or self.plan is not None:
                raise
            raise StoreNotFound(
                f"The store {self.options.path} does not exist on this executor ({socket.gethostname()}), though the "
                "driver has it. Driver and executors must see the same directory: mount it on all of them. "
                "Nothing was written.",
                path=self.options.path,
            ) from error
