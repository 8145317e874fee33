"""``BatchStager``: encodes and stages messages of a batch, in any process that sees the store's directory.

Several may stage for one batch at once: the tasks of a Spark job, say. Each reports its ``StagedFile`` to the owner of
the store, which commits all of them together (``MessageStore.commit_batch``).
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from commitlog_store.batch.staging import StagedWriter, remove_batch, remove_files
from commitlog_store.batch_id import BatchId, StagedFile, StagingPlan, TopicUse
from commitlog_store.columnar.body_compression import BodyCompression
from commitlog_store.columnar.encode import EncodedMessages, RecordSettings
from commitlog_store.columnar.input import MessageColumns
from commitlog_store.columnar.message_rows import MessageRows
from commitlog_store.columnar.message_table import MessageTable
from commitlog_store.columnar.unique_key import unique_keys
from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import PutRefused
from commitlog_store.files import disk
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.format.message_rules import no_producers_fault
from commitlog_store.format.record import FILLER_SIZE
from commitlog_store.paths import MOST_QUEUES
from commitlog_store.queue.queue_counts import file_size_of, queue_counts
from commitlog_store.queue.topic_config import TopicConfig

__all__ = [
    "BatchStager",
    "StagingPlace",
    "StagingPlan",
    "largest_record_of",
    "no_producers_fault",
    "queue_counts",
    "remove_batch",
    "remove_files",
]


def largest_record_of(store_path: str | os.PathLike[str], config: MessageStoreConfig | None = None) -> int:
    """Bytes of the largest record that the store's files have room for; without files, by ``config``."""
    config = config or MessageStoreConfig()
    log = StorePaths.of(os.fspath(store_path), config.store_path_commit_log).commit_log
    return (file_size_of(log) or config.mapped_file_size_commit_log) - FILLER_SIZE


class StagingOutput(Protocol):
    """Where the records of one staged file go: a file, or an upload. An error leaves it to ``discard``."""

    def append(self, encoded: EncodedMessages) -> None:
        """Add records whose queues are known."""

    def finish(self) -> StagedFile:
        """What there is to commit."""

    def discard(self) -> None:
        """Remove it unless it is finished."""


class StagingPlace(Protocol):
    """Where staged files are, and what is known there of topics."""

    def writer(self, batch: BatchId, name: str) -> StagingOutput:
        """A new staged file, whose name begins with ``name``."""

    def producers_faults(self) -> Callable[[str], str | None]:
        """Says of a topic why a producer may put nothing into it, as the end of a sentence; None if it may."""


class _StoreDirectory:
    """A store's own directory, as a ``StagingPlace``."""

    def __init__(self, store_path: str, config: MessageStoreConfig) -> None:
        self._store_path = store_path
        topics = TopicConfig(store_path, config.default_topic_queue_nums)
        self.producers_faults = topics.producers_faults

    def writer(self, batch: BatchId, name: str) -> StagedWriter:
        return StagedWriter(self._store_path, batch, name)


class BatchStager:
    """Stages the messages of one part of a batch. Use it as a context manager: an unfinished file is removed.

    The same rows get the same queues and unique keys whenever they are staged for the same batch and partition, in any
    chunks. Rows without queue id and sharding key take the queues in turn; each batch begins with another one. The
    staged file lists the topics with their uses, and which of them are new: those not in ``queue_counts``.

    ::

        batch = BatchId("loader", 7)
        with BatchStager("/data/store", batch, queue_counts={"orders": 4}, topic="orders") as stager:
            stager.put(pa.table({"body": [b"a", b"b"]}))
            staged = stager.finish()
        with MessageStore.open("/data/store") as store:
            store.commit_batch(batch, [staged])
    """

    def __init__(
        self,
        store_path: str | os.PathLike[str] | StagingPlace,
        batch: BatchId,
        *,
        queue_counts: Mapping[str, int],
        topic: str | None = None,
        partition: int = 0,
        name: str = "",
        config: MessageStoreConfig | None = None,
        compression: BodyCompression | None = None,
        largest_record: int | None = None,
        shown: Mapping[str, str] | None = None,
    ) -> None:
        """``store_path`` is the store's directory, or the ``RemoteBatches`` of a server of the store.

        ``topic`` is that of rows without one, ``partition`` numbers the parts, ``name`` begins the file's name.

        ``shown`` has the names of columns for the reasons of refusals, where the rows had others before.

        ``config`` is the store's: its limits, hosts, and number of queues of a new topic. ``largest_record`` is the
        size in bytes of the largest record that the store's files have room for (``largest_record_of``).
        """
        config = config or MessageStoreConfig()
        self._uses: dict[str, TopicUse] = {}
        if isinstance(store_path, str | os.PathLike) or not hasattr(store_path, "writer"):
            self._place: StagingPlace = _StoreDirectory(disk.absolute_path(store_path), config)
        else:
            self._place = store_path
        self._batch = batch
        self._known = queue_counts
        self._topic = topic
        self._shown = shown
        self._partition = partition
        self._name = name
        self._config = config
        self._key_prefix = f"{batch.app_id}\0{batch.version}".encode()
        self._first_turn = _first_turn(batch) + partition
        settings = RecordSettings.of(config, largest_record=largest_record, compression=compression)
        self._settings = replace(settings, limits=replace(settings.limits, max_queue_id=MOST_QUEUES - 1))
        self._rows = 0
        self._writer: StagingOutput | None = None
        self._stack = ExitStack()

    def put(self, rows: MessageRows) -> None:
        """Stage rows, as ``MessageStore.put_messages`` takes them.

        ``PutRefused`` for the first row that this store does not accept, and for a queue from ``MOST_QUEUES`` on: no
        topic has so many, so no consumer looks there. ``InvalidValue`` for wrong columns; ``StagingFailed``.
        """
        table = MessageTable(rows, topic=self._topic, shown=self._shown)
        for _, chunk in table.chunks():
            encoded = self._encoded(table, chunk)
            if self._writer is None:
                self._writer = self._place.writer(self._batch, self._name)
                self._stack.callback(self._writer.discard)
            self._writer.append(encoded)

    def finish(self) -> StagedFile | None:
        """The staged file; None without rows."""
        if self._writer is None:
            return None
        return replace(self._writer.finish(), topics=tuple(self._uses[topic] for topic in sorted(self._uses)))

    def __enter__(self) -> BatchStager:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _encoded(self, table: MessageTable, chunk: pa.RecordBatch) -> EncodedMessages:
        columns, _, encoded = table.encoded(
            chunk,
            self._settings,
            self._queue_count,
            self._place.producers_faults(),
            first_row=self._rows,
            # By the row's number, so that the chunks of the rows do not matter.
            first_turn=self._first_turn + self._rows,
            born_timestamp_ms=int(time.time() * 1000),
            row_name=self._row_name,
            unique_keys=unique_keys(self._key_prefix, self._partition, self._rows, chunk.num_rows),
        )
        if encoded.refusals:
            first = encoded.refusals[0]
            raise PutRefused(first.status, f"{first.reason} Nothing of this batch is in the store.", row=first.row)
        self._note_uses(columns)
        self._rows += columns.count
        return encoded

    def _row_name(self, row: int) -> str:
        return f"row {row} of partition {self._partition}"

    def _queue_count(self, topic: str) -> int:
        return self._known.get(topic, self._config.default_topic_queue_nums)

    def _note_uses(self, columns: MessageColumns) -> None:
        """Note the uses of the rows' own topics, also of delayed messages, which are stored in the schedule's topic."""
        named = np.full(columns.count, -1, np.int32) if columns.queue_ids is None else columns.queue_ids
        for code, name in enumerate(columns.topics):
            ids = named if len(columns.topics) == 1 else named[columns.topic_codes == code]
            if not len(ids):
                continue
            spread_over = self._queue_count(name) if ids.min() < 0 else 0
            use = TopicUse(name, spread_over, int(ids.max()) + 1, is_new=name not in self._known)
            self._uses[name] = use.joined(self._uses.get(name, use))


def _first_turn(batch: BatchId) -> int:
    """The turn that a batch begins with: another one for each application, one more for each version.

    A batch that began at queue 0 each time would put all rows of small batches there. The turn follows from the
    batch, so that a task that is repeated puts its rows into the same queues.
    """
    return (zlib.crc32(batch.app_id.encode()) + batch.version) % (1 << 31)
