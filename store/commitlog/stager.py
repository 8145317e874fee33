"""``BatchStager``: messages of a batch encoded and staged, by any process that sees the store's directory.

Several may stage for one batch at once: the tasks of a Spark job, say. Each tells what it staged (``StagedFile``) to
the one that owns the store, and that one commits all of it together (``MessageStore.commit_batch``).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog.batch.staging import StagedWriter, remove_batch, remove_files
from commitlog.batch_id import BatchId, StagedFile, TopicUse
from commitlog.columnar.body_compression import BodyCompression
from commitlog.columnar.encode import EncodedMessages, encode_messages
from commitlog.columnar.input import QueueColumns, Rows, check_message_rows, queue_columns
from commitlog.columnar.input_chunks import message_chunks
from commitlog.columnar.producer_rules import producer_refusals
from commitlog.columnar.queue_choice import resolve_queue_ids
from commitlog.columnar.unique_key import unique_keys
from commitlog.config import MessageStoreConfig
from commitlog.errors import PutRefused
from commitlog.format.message_id import parse_host
from commitlog.format.message_rules import NO_PRODUCERS_TOPICS, MessageLimits, Refusal, RefusalKind
from commitlog.format.record import FILLER_SIZE
from commitlog.put_status import PutMessageStatus
from commitlog.queue.queue_counts import file_size_of, queue_counts

__all__ = ["NO_PRODUCERS_TOPICS", "BatchStager", "largest_record_of", "queue_counts", "remove_batch", "remove_files"]

# Which topics and queues the rows themselves name; a body has to be there.
_USES = ("body", "value", "topic", "queueId")


def largest_record_of(store_path: str | os.PathLike[str], config: MessageStoreConfig | None = None) -> int:
    """The bytes of the largest record that the store's files have room for; without files, by ``config``."""
    config = config or MessageStoreConfig()
    return (file_size_of(os.fspath(store_path)) or config.mapped_file_size_commit_log) - FILLER_SIZE


class BatchStager:
    """Stages the messages of one part of a batch. Use it as a context manager: what is not finished is removed.

    The same rows get the same queues and unique keys whenever they are staged for the same batch and partition, however
    they come in pieces. The staged file tells which topics it takes for what, and which of them are new, as those are
    that ``queue_counts`` does not name.
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
        self._uses: dict[str, TopicUse] = {}
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

        ``PutRefused`` for the first row that no store takes, or no broker from a producer (``format.producer_rules``);
        ``InvalidValue`` for columns that cannot be; ``StagingFailed``.
        """
        check_message_rows(rows, topic=self._topic)
        for _, chunk in message_chunks(rows):
            encoded = self._encode(chunk)
            if self._writer is None:
                self._writer = self._stack.enter_context(StagedWriter(self._store_path, self._batch, self._name))
            self._writer.append(encoded)

    def finish(self) -> StagedFile | None:
        """The staged file; None when there were no rows."""
        if self._writer is None:
            return None
        return replace(self._writer.finish(), topics=tuple(self._uses[topic] for topic in sorted(self._uses)))

    def __enter__(self) -> BatchStager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _encode(self, chunk: pa.RecordBatch) -> EncodedMessages:
        columns = queue_columns(chunk.select([name for name in chunk.schema.names if name in _USES]), topic=self._topic)
        counts = {name: self._known.get(name, self._config.default_topic_queue_nums) for name in columns.topics}
        queue_ids = resolve_queue_ids(
            chunk,
            topic=self._topic,
            queue_counts=counts,
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
        refusals = [
            *encoded.refusals,
            *producer_refusals(chunk, columns, encoded),
            *_rows_too_long(encoded, columns, queue_ids, self._largest_record),
        ]
        if refusals:
            raise self._refused(min(refusals, key=lambda refusal: refusal.row))
        self._note_uses(columns, counts)
        self._rows += chunk.num_rows
        return encoded

    def _note_uses(self, columns: QueueColumns, counts: Mapping[str, int]) -> None:
        """Of the topics that the rows are for, also where a delayed message waits in the schedule's."""
        for code, name in enumerate(columns.topics):
            ids = columns.queue_ids if len(columns.topics) == 1 else columns.queue_ids[columns.topic_codes == code]
            if not len(ids):
                continue
            spread_over = counts[name] if ids.min() < 0 else 0
            use = TopicUse(name, spread_over, int(ids.max()) + 1, is_new=name not in self._known)
            self._uses[name] = use.joined(self._uses.get(name, use))

    def _refused(self, refusal: Refusal) -> PutRefused:
        place = f"row {self._rows + refusal.row} of partition {self._partition}"
        return PutRefused(
            PutMessageStatus(refusal.kind.value), f"{refusal.told(place)} Nothing of this batch is in the store."
        )


def _rows_too_long(
    encoded: EncodedMessages, columns: QueueColumns, queue_ids: npt.NDArray[np.int32], largest: int
) -> list[Refusal]:
    """The first row whose record no file of the store has room for."""
    too_long = np.flatnonzero(encoded.records.sizes > largest)
    if not len(too_long):
        return []
    record = int(too_long[0])
    row = int(encoded.rows[record])
    why = (
        f"its record takes {int(encoded.records.sizes[record])} bytes, a CommitLog file of the store has room for "
        f"{largest}: compress the bodies, or begin a store with larger files (mappedFileSizeCommitLog)"
    )
    context = f"topic {columns.topics[columns.topic_codes[row]]!r}, queue {queue_ids[row]}"
    return [Refusal(row, RefusalKind.MESSAGE_ILLEGAL, context, why)]
