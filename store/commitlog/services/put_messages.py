"""The bulk put: an Arrow table of messages, encoded and appended in chunks, one hold of the put lock for each.

A chunk's bytes are laid out, checksummed and checked before the lock is taken; under it, three fields are patched and
one ``pwrite`` (two at a file's end) appends them. So readers of single messages never wait long for a bulk put.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog.columnar.encode import EncodedMessages, encode_messages
from commitlog.columnar.input import Rows, check_message_rows, queue_columns
from commitlog.columnar.input_chunks import message_chunks
from commitlog.columnar.input_properties import property_of
from commitlog.columnar.queue_choice import resolve_queue_ids
from commitlog.config import FlushDiskType, MessageStoreConfig
from commitlog.errors import CommitLogError, InvalidValue, PutRefused, put_error
from commitlog.format.message_id import parse_host
from commitlog.format.message_rules import MessageLimits, Refusal
from commitlog.format.properties import WAIT
from commitlog.log.append_results import AppendedRows
from commitlog.log.commit_log_writer import CommitLogWriter
from commitlog.message import PutMessageStatus
from commitlog.paths import validate_new_topic
from commitlog.services.put_message import PutMessageService, is_waiting
from commitlog.services.running_state import RunningState
from commitlog.services.stats import StoreStatsService

__all__ = ["PutMessagesResult", "PutMessagesService"]

_STATUSES = list(PutMessageStatus)
_OK = _STATUSES.index(PutMessageStatus.PUT_OK)


@dataclass(frozen=True)
class PutMessagesResult:
    """How a bulk put ended, row by row.

    ``rows`` has the columns ``status`` (the ``PutMessageStatus``'s name, dictionary-encoded), ``physicalOffset``,
    ``queueId``, ``queueOffset`` and ``storeTimestamp`` (ms), -1 where a row is not in the log. ``status`` is PUT_OK
    when every row's is, else that of the first other row, of which ``reason`` says why.
    """

    status: PutMessageStatus
    reason: str
    rows: pa.RecordBatch

    @property
    def ok(self) -> bool:
        """Whether every row's status is PUT_OK."""
        return self.status is PutMessageStatus.PUT_OK

    def raise_for_status(self) -> PutMessagesResult:
        """This result when every row is PUT_OK; else ``PutRefused``, or ``PutNotConfirmed`` when rows may be stored."""
        if not self.ok:
            raise put_error(self.status, self.reason)
        return self


class _Rows:
    """The result while it is being filled."""

    def __init__(self, count: int) -> None:
        self.statuses = np.full(count, -1, np.int8)
        self.physical_offsets = np.full(count, -1, np.int64)
        self.queue_ids = np.full(count, -1, np.int32)
        self.queue_offsets = np.full(count, -1, np.int64)
        self.store_timestamps = np.full(count, -1, np.int64)
        self.reasons: dict[int, str] = {}
        # The log's end behind the last row that is in it; 0 while none is.
        self.end = 0

    def refuse(self, rows: npt.NDArray[np.int64], status: PutMessageStatus, reason: str) -> None:
        if len(rows):
            self.statuses[rows] = _STATUSES.index(status)
            self.reasons.setdefault(int(rows[0]), reason)

    def refuse_rest(self, status: PutMessageStatus, reason: str) -> None:
        self.refuse(np.flatnonzero(self.statuses < 0), status, reason)

    def result(self) -> PutMessagesResult:
        bad = np.flatnonzero(self.statuses != _OK)
        status, reason = PutMessageStatus.PUT_OK, ""
        if len(bad):
            first = int(bad[0])
            status, reason = _STATUSES[self.statuses[first]], self.reasons.get(first, "")
        names = pa.array([one.value for one in _STATUSES])
        rows = pa.record_batch(
            {
                "status": pa.DictionaryArray.from_arrays(pa.array(self.statuses), names),
                "physicalOffset": self.physical_offsets,
                "queueId": self.queue_ids,
                "queueOffset": self.queue_offsets,
                "storeTimestamp": self.store_timestamps,
            }
        )
        return PutMessagesResult(status, reason, rows)


class PutMessagesService:
    """Puts tables. Any number of threads may call it."""

    def __init__(
        self,
        config: MessageStoreConfig,
        log: CommitLogWriter,
        single: PutMessageService,
        state: RunningState,
        stats: StoreStatsService,
        queue_count: Callable[[str], int],
        on_appended: Callable[[], None],
    ) -> None:
        self._config = config
        self._log = log
        self._single = single
        self._state = state
        self._stats = stats
        self._queue_count = queue_count
        self._on_appended = on_appended
        self._host = parse_host(f"{config.broker_ip}:{config.listen_port}")
        self._limits = MessageLimits(
            max_message_size=config.max_message_size, max_delay_level=len(config.delay_levels_ms)
        )
        self._turn = 0

    def put_messages(self, table: Rows, *, topic: str | None = None) -> PutMessagesResult:
        """Append the table's rows in their order. ``InvalidValue`` for columns that cannot be, before the first row."""
        check_message_rows(table, topic=topic)
        rows = _Rows(table.num_rows)
        try:
            for first, chunk in message_chunks(table):
                self._single.refuse_when_unwritable()
                started = time.perf_counter()
                appended = self._put_chunk(chunk, topic, first, rows, started)
                self._on_appended()
                if appended.error is not None:
                    raise appended.error
        except PutRefused as refusal:
            rows.refuse_rest(refusal.status, refusal.reason)
        except (CommitLogError, OSError) as error:
            self._refuse_rest(rows, error)
        except Exception as error:
            if not rows.end:
                raise
            # The rows that are in the log keep their result, which an exception would take away.
            self._refuse_rest(rows, error)
        self._flush(rows, table)
        result = rows.result()
        if not result.ok:
            self._stats.failed()
        return result

    def refused(self, table: Rows, refused: PutRefused, *, topic: str | None = None) -> PutMessagesResult:
        """The result of a put of which nothing was begun. ``InvalidValue`` as for one that was."""
        check_message_rows(table, topic=topic)
        rows = _Rows(table.num_rows)
        rows.refuse_rest(refused.status, refused.reason)
        return rows.result()

    def encoded(self, table: Rows, topic: str | None) -> Iterator[EncodedMessages]:
        """The table's rows as records that have their queues, in chunks. ``PutRefused`` for a row that is not taken.

        ``InvalidValue`` for columns that cannot be.
        """
        check_message_rows(table, topic=topic)
        for first, chunk in message_chunks(table):
            encoded = self._encode(chunk, topic, self._queue_ids(chunk, topic))
            if encoded.refusals:
                refusal = encoded.refusals[0]
                raise PutRefused(PutMessageStatus(refusal.kind.value), refusal.told(f"row {refusal.row + first}"))
            too_long = np.flatnonzero(encoded.records.sizes > self._log.largest_record)
            if len(too_long):
                rows = _Rows(table.num_rows)
                self._refuse_long(encoded, too_long, first, rows)
                raise PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, next(iter(rows.reasons.values())))
            yield encoded

    def _queue_ids(self, chunk: pa.RecordBatch, topic: str | None) -> npt.NDArray[np.int32]:
        counts = self._queue_counts(queue_columns(chunk, topic=topic).topics)
        queue_ids = resolve_queue_ids(chunk, topic=topic, queue_counts=counts, round_robin_start=self._turn)
        self._turn += chunk.num_rows
        return queue_ids

    def _put_chunk(
        self, chunk: pa.RecordBatch, topic: str | None, first: int, rows: _Rows, started: float
    ) -> AppendedRows:
        queue_ids = self._queue_ids(chunk, topic)
        encoded, taken = self._encode(chunk, topic, queue_ids), np.arange(chunk.num_rows)
        for refusal in encoded.refusals:
            _refuse_row(rows, first, refusal)
        too_long = np.flatnonzero(encoded.records.sizes > self._log.largest_record)
        if len(too_long):
            self._refuse_long(encoded, too_long, first, rows)
            taken = np.delete(encoded.rows, too_long)
            encoded = self._encode(chunk.take(pa.array(taken)), topic, queue_ids[taken])
        appended = self._log.append_rows(encoded.queued())
        if appended.written:
            rows.end = appended.end
        done = taken[encoded.rows[: appended.written]] + first
        rows.statuses[done] = _OK
        rows.physical_offsets[done] = appended.physical_offsets[: appended.written]
        rows.queue_offsets[done] = appended.queue_offsets[: appended.written]
        rows.queue_ids[done] = encoded.queue_ids[: appended.written]
        rows.store_timestamps[done] = appended.store_timestamp
        self._count(encoded, appended.written, started)
        return appended

    def _queue_counts(self, topics: list[str]) -> dict[str, int]:
        """Over how many queues each topic is spread; what is no topic is left out, its rows are refused."""
        counts = {}
        for topic in topics:
            try:
                validate_new_topic(topic)
            except InvalidValue:
                continue
            counts[topic] = self._queue_count(topic)
        return counts

    def _encode(self, chunk: pa.RecordBatch, topic: str | None, queue_ids: npt.NDArray[np.int32]) -> EncodedMessages:
        return encode_messages(
            chunk,
            topic=topic,
            born_timestamp_ms=int(time.time() * 1000),
            born_host=self._host,
            store_host=self._host,
            limits=self._limits,
            trailing_separator=self._config.properties_trailing_separator,
            queue_ids=queue_ids,
        )

    def _refuse_long(self, encoded: EncodedMessages, too_long: npt.NDArray[np.int64], first: int, rows: _Rows) -> None:
        """Refuse records that no file has room for."""
        for place in too_long.tolist():
            row = int(encoded.rows[place]) + first
            rows.refuse(
                np.array([row]),
                PutMessageStatus.MESSAGE_ILLEGAL,
                f"The record of row {row} takes {int(encoded.records.sizes[place])} bytes; a CommitLog file of this "
                f"store has room for {self._log.largest_record}.",
            )

    def _count(self, encoded: EncodedMessages, written: int, started: float) -> None:
        codes, elapsed = encoded.topic_codes[:written], time.perf_counter() - started
        counts = np.bincount(codes, minlength=len(encoded.topics)).tolist()
        sizes = np.bincount(codes, encoded.records.sizes[:written], minlength=len(encoded.topics)).tolist()
        for topic, count, size in zip(encoded.topics, counts, sizes, strict=True):
            if count:
                self._stats.put(topic, count, int(size), elapsed)

    def _refuse_rest(self, rows: _Rows, error: Exception) -> None:
        rows.refuse_rest(*self._single.status_of(error))

    def _flush(self, rows: _Rows, table: Rows) -> None:
        if not rows.end or self._config.flush_disk_type is not FlushDiskType.SYNC_FLUSH or not _waits(table):
            return
        status, reason = self._single.await_flush(rows.end)
        if status is not PutMessageStatus.PUT_OK:
            rows.refuse(np.flatnonzero(rows.statuses == _OK), status, reason)


def _refuse_row(rows: _Rows, first: int, refusal: Refusal) -> None:
    rows.refuse(
        np.array([refusal.row + first]),
        PutMessageStatus(refusal.kind.value),
        refusal.told(f"row {refusal.row + first}"),
    )


def _waits(table: Rows) -> bool:
    """Whether a row of the table waits for the device: all but those whose property WAIT says that it does not."""
    if "properties" not in table.schema.names or pa.types.is_null(table.schema.field("properties").type):
        return True
    column = table.column("properties")
    # The first row decides nearly always.
    first = column[0].as_py() or ()
    if not any(name == WAIT for name, _ in first):
        return True
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return any(_chunk_waits(chunk) for chunk in chunks if len(chunk))


def _chunk_waits(properties: pa.MapArray) -> bool:
    texts = property_of(properties, WAIT)
    if texts is None:
        return True
    distinct = texts.unique().to_pylist()
    return any(is_waiting(None if text is None else text.decode("utf-8", "replace")) for text in distinct)
