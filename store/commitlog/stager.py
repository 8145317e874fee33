"""``BatchStager``: messages of a batch encoded and staged, by any process that sees the store's directory.

Several may stage for one batch at once: the tasks of a Spark job, say. Each tells what it staged (``StagedFile``) to
the one that owns the store, and that one commits all of it together (``MessageStore.commit_batch``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlog.batch import BatchId, StagedFile
from commitlog.config import MessageStoreConfig
from commitlog.errors import PutRefused
from commitlog.format.body_compression import BodyCompression
from commitlog.format.message_chunks import message_chunks
from commitlog.format.message_columns import Rows, check_message_schema
from commitlog.format.message_encode import EncodedMessages, encode_messages
from commitlog.format.message_id import parse_host
from commitlog.format.message_queues import resolve_queue_ids
from commitlog.format.message_rules import SCHEDULE_TOPIC, MessageLimits, Refusal, RefusalKind
from commitlog.format.record import FILLER_SIZE
from commitlog.format.unique_key import unique_keys
from commitlog.log.queue_counts import file_size_of, queue_counts
from commitlog.log.staging import StagedWriter, remove_batch, remove_files

__all__ = ["BatchStager", "largest_record_of", "queue_counts", "remove_batch", "remove_files"]


def largest_record_of(store_path: str | os.PathLike[str], config: MessageStoreConfig | None = None) -> int:
    """The bytes of the largest record that the store's files have room for; without files, by ``config``."""
    config = config or MessageStoreConfig()
    return (file_size_of(os.fspath(store_path)) or config.mapped_file_size_commit_log) - FILLER_SIZE


class BatchStager:
    """Stages the messages of one part of a batch. Use it as a context manager: what is not finished is removed.

    The same rows get the same queues and unique keys whenever they are staged for the same batch and partition, however
    they come in pieces. ``new_topics``: the topics that ``queue_counts`` does not name, and how many queues of each
    are used.
    """

    def __init__(
        self,
        store_path: str | os.PathLike[str],
        batch: BatchId,
        *,
        queue_counts: Mapping[str, int],
        topic: str | None = None,
        partition: int = 0,
        name: str = "",
        config: MessageStoreConfig | None = None,
        compression: BodyCompression | None = None,
        largest_record: int | None = None,
    ) -> None:
        """``topic`` is that of rows without one, ``partition`` numbers the parts, ``name`` begins the file's name.

        ``config`` is what the store is opened with: its limits, hosts, and number of queues of a new topic.
        ``largest_record`` is how many bytes of a record the store's files have room for (``largest_record_of``).
        """
        config = config or MessageStoreConfig()
        self.new_topics: dict[str, int] = {}
        self._store_path = os.fspath(store_path)
        self._batch = batch
        self._known = queue_counts
        self._topic = topic
        self._partition = partition
        self._name = name
        self._config = config
        self._compression = compression
        self._largest_record = largest_record or config.mapped_file_size_commit_log - FILLER_SIZE
        self._key_prefix = f"{batch.app_id}\0{batch.version}".encode()
        self._host = parse_host(f"{config.broker_ip}:{config.listen_port}")
        self._limits = MessageLimits(
            max_message_size=config.max_message_size, max_delay_level=len(config.delay_levels_ms)
        )
        self._rows = 0
        self._writer: StagedWriter | None = None
        self._stack = ExitStack()

    def put(self, rows: Rows) -> None:
        """Stage rows, with the columns of ``MessageStore.put_messages``.

        ``PutRefused`` for the first row that no store takes, ``InvalidValue`` for columns that cannot be;
        ``StoreIOError`` when staging fails.
        """
        check_message_schema(rows.schema, topic=self._topic)
        for _, chunk in message_chunks(rows):
            encoded = self._encode(chunk)
            if self._writer is None:
                self._writer = self._stack.enter_context(StagedWriter(self._store_path, self._batch, self._name))
            self._writer.append(encoded)

    def finish(self) -> StagedFile | None:
        """The staged file; None when there were no rows."""
        return None if self._writer is None else self._writer.finish()

    def __enter__(self) -> BatchStager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _encode(self, chunk: pa.RecordBatch) -> EncodedMessages:
        names = _topics_of(chunk, self._topic)
        default = self._config.default_topic_queue_nums
        queue_ids = resolve_queue_ids(
            chunk,
            topic=self._topic,
            queue_counts={name: self._known.get(name, default) for name in names},
            # By the row's number, so that it does not matter how the rows came in pieces.
            round_robin_start=self._partition + self._rows,
        )
        encoded = encode_messages(
            chunk,
            topic=self._topic,
            born_timestamp_ms=int(time.time() * 1000),
            born_host=self._host,
            store_host=self._host,
            limits=self._limits,
            trailing_separator=self._config.properties_trailing_separator,
            queue_ids=queue_ids,
            unique_keys=unique_keys(self._key_prefix, self._partition, self._rows, chunk.num_rows),
            compression=self._compression,
        )
        if encoded.refusals:
            raise self._refused(encoded.refusals[0])
        self._refuse_too_long(encoded)
        self._note_new_topics(encoded)
        self._rows += chunk.num_rows
        return encoded

    def _note_new_topics(self, encoded: EncodedMessages) -> None:
        for code, name in enumerate(encoded.topics):
            if name not in self._known and name != SCHEDULE_TOPIC:
                used = int(encoded.queue_ids[encoded.topic_codes == code].max()) + 1
                self.new_topics[name] = max(used, self.new_topics.get(name, 0))

    def _refuse_too_long(self, encoded: EncodedMessages) -> None:
        too_long = np.flatnonzero(encoded.records.sizes > self._largest_record)
        if len(too_long):
            row = int(too_long[0])
            topic, queue_id = encoded.topics[encoded.topic_codes[row]], int(encoded.queue_ids[row])
            raise PutRefused(
                RefusalKind.MESSAGE_ILLEGAL.value,
                f"Message in row {self._rows + row} of partition {self._partition} (topic {topic!r}, queue "
                f"{queue_id}): its record takes {int(encoded.records.sizes[row])} bytes, a CommitLog file of the store "
                f"has room for {self._largest_record}. Nothing of this batch is in the store.",
            )

    def _refused(self, refusal: Refusal) -> PutRefused:
        place = f"row {self._rows + refusal.row} of partition {self._partition}"
        return PutRefused(refusal.kind.value, f"{refusal.told(place)} Nothing of this batch is in the store.")


def _topics_of(chunk: pa.RecordBatch, default: str | None) -> list[str]:
    """The distinct topics of a chunk."""
    column = chunk.column("topic") if "topic" in chunk.schema.names else None
    if column is None or pa.types.is_null(column.type):
        return [] if default is None else [default]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    distinct = pc.unique(pc.fill_null(column, default) if default is not None else column.drop_null())
    # What is no UTF-8 is refused by the encoder, which says in which row.
    return [name.decode("utf-8", "surrogateescape") for name in distinct.cast(pa.binary()).to_pylist()]
