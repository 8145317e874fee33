"""PutTableService: puts of Arrow tables, parsed, encoded and appended in chunks, one hold of the put lock for each.

A chunk's bytes are laid out, checksummed and checked before the lock is taken; under it, three fields are patched and
one ``pwrite`` (two at a file's end) appends them. So puts of single messages never wait long for a bulk put.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.encode import EncodedMessages, RecordSettings
from commitlog_store.columnar.input import MessageColumns
from commitlog_store.columnar.message_rows import MessageRows
from commitlog_store.columnar.message_table import MessageTable
from commitlog_store.columnar.queue_choice import highest_queues
from commitlog_store.config import MessageStoreConfig
from commitlog_store.engine.durability import Durability
from commitlog_store.engine.put_message import PutMessageService
from commitlog_store.engine.stats import StoreStatsService
from commitlog_store.errors import CommitLogError, PutRefused, put_error
from commitlog_store.log.commit_log_writer import AppendedRows, CommitLogWriter
from commitlog_store.put_status import PutMessageStatus
from commitlog_store.queue.get_message import checked_int
from commitlog_store.queue.topic_config import TopicConfig

_STATUSES = list(PutMessageStatus)
_OK = _STATUSES.index(PutMessageStatus.PUT_OK)
# With its type: to infer one, pyarrow tries to import dateutil, each time.
_STATUS_NAMES = pa.array([status.value for status in _STATUSES], pa.string())


@dataclass(frozen=True)
class PutTableResult:
    """Result of the put of a table, row by row: a ``PutMessageResult`` for many messages.

    ``status`` is PUT_OK if every row's is, else that of the first other row, and ``reason`` says why.
    ``message_num`` is the number of rows in the log. ``rows`` has the columns ``status`` (the ``PutMessageStatus``'s
    name, dictionary-encoded), ``physicalOffset``, ``queueId``, ``queueOffset`` and ``storeTimestamp`` (ms), -1 where a
    row is not in the log. It ends with the row that stopped the put, if one did (``stop_at_refusal``).

    ::

        with MessageStore.open("/data/store") as store:
            result = store.put_messages(pa.table({"topic": ["orders"], "body": [b"x"]}))
            print(result.ok, result.rows.column("queueOffset").to_pylist())
    """

    status: PutMessageStatus
    reason: str
    message_num: int
    rows: pa.RecordBatch

    @property
    def ok(self) -> bool:
        """Whether every row's status is PUT_OK."""
        return self.status is PutMessageStatus.PUT_OK

    def raise_for_status(self) -> PutTableResult:
        """This result if every row is PUT_OK; else ``PutRefused``, or ``PutNotConfirmed`` if rows may be stored."""
        if not self.ok:
            raise put_error(self.status, self.reason)
        return self


class _Results:
    """The result while it is being filled. The first row has the number ``first_row``."""

    def __init__(self, count: int, first_row: int) -> None:
        self._first_row = first_row
        self.statuses = np.full(count, -1, np.int8)
        self.physical_offsets = np.full(count, -1, np.int64)
        self.queue_ids = np.full(count, -1, np.int32)
        self.queue_offsets = np.full(count, -1, np.int64)
        self.store_timestamps = np.full(count, -1, np.int64)
        self.reasons: dict[int, str] = {}
        # The log's end after the last row that is in it, 0 without any; and whether one of them waits.
        self.end = 0
        self.waits = False
        # The rows that have a result: not those after one that stopped the put.
        self.count = count

    def put(self, first: int, encoded: EncodedMessages, appended: AppendedRows) -> None:
        """Note the result of a chunk that begins at row ``first`` of the result."""
        for refusal in encoded.refusals:
            assert refusal.row is not None
            self._refuse(np.array([refusal.row - self._first_row]), refusal.status, refusal.reason)
        written = appended.written
        if not written:
            return
        self.end = appended.end
        rows: slice | npt.NDArray[np.int64] = slice(first, first + written)
        if encoded.refusals:
            rows = encoded.rows[:written] + first
        self.statuses[rows] = _OK
        self.physical_offsets[rows] = appended.physical_offsets[:written]
        self.queue_offsets[rows] = appended.queue_offsets[:written]
        self.queue_ids[rows] = encoded.queue_ids[:written]
        self.store_timestamps[rows] = appended.store_timestamp

    def stop_at(self, refusal: PutRefused) -> None:
        """No row after this one gets a result."""
        assert refusal.row is not None
        self.count = refusal.row - self._first_row + 1

    def refuse_rest(self, status: PutMessageStatus, reason: str) -> None:
        """Set status and reason of all rows without a result yet."""
        self._refuse(np.flatnonzero(self.statuses < 0), status, reason)

    def not_safe(self, status: PutMessageStatus, reason: str) -> None:
        """Set status and reason of all rows that are in the log."""
        self._refuse(np.flatnonzero(self.statuses == _OK), status, reason)

    def _refuse(self, rows: npt.NDArray[np.int64], status: PutMessageStatus, reason: str) -> None:
        if len(rows):
            self.statuses[rows] = _STATUSES.index(status)
            self.reasons.setdefault(int(rows[0]), reason)

    def result(self) -> PutTableResult:
        statuses = self.statuses[: self.count]
        bad = np.flatnonzero(statuses != _OK)
        status, reason = PutMessageStatus.PUT_OK, ""
        if len(bad):
            first = int(bad[0])
            status, reason = _STATUSES[statuses[first]], self.reasons.get(first, "")
        rows = pa.record_batch(
            {
                "status": pa.DictionaryArray.from_arrays(pa.array(statuses), _STATUS_NAMES),
                "physicalOffset": self.physical_offsets[: self.count],
                "queueId": self.queue_ids[: self.count],
                "queueOffset": self.queue_offsets[: self.count],
                "storeTimestamp": self.store_timestamps[: self.count],
            }
        )
        return PutTableResult(status, reason, int(np.count_nonzero(self.physical_offsets >= 0)), rows)


class PutTableService:
    """Puts tables. Any number of threads may call it."""

    def __init__(
        self,
        config: MessageStoreConfig,
        log: CommitLogWriter,
        single: PutMessageService,
        durability: Durability,
        stats: StoreStatsService,
        topics: TopicConfig,
        on_appended: Callable[[], None],
    ) -> None:
        self._config = config
        self._log = log
        self._single = single
        self._durability = durability
        self._stats = stats
        self._topics = topics
        self._on_appended = on_appended
        self._settings = RecordSettings.of(config, largest_record=log.largest_record)
        self._turn = 0

    def put_messages(
        self, rows: MessageRows, *, topic: str | None = None, first_row: int = 0, stop_at_refusal: bool = False
    ) -> PutTableResult:
        """Append the rows in their order. ``InvalidValue`` for wrong columns, before the first row.

        ``first_row`` is the number of the first row in reasons: another one for a part of a table. With
        ``stop_at_refusal``, no row after the first refused one is appended, and ``rows`` of the result ends with that.
        """
        first_row = checked_int("first_row", first_row)
        table = MessageTable(rows, topic=topic)
        results = _Results(len(table), first_row)
        try:
            for first, chunk in table.chunks():
                self._single.refuse_when_unwritable()
                self._put_chunk(table, first, chunk, results, first_row, stop_at_refusal)
                if results.count < len(table):
                    break
        except PutRefused as refusal:
            results.refuse_rest(refusal.status, refusal.reason)
        except (CommitLogError, OSError) as error:
            results.refuse_rest(*self._single.status_of(error))
        except Exception as error:
            if not results.end:
                raise
            # The rows that are in the log keep their result, which an exception would lose.
            results.refuse_rest(*self._single.status_of(error))
        self._await(results)
        result = results.result()
        if not result.ok:
            self._stats.failed()
        return result

    def encoded(
        self, rows: MessageRows, topic: str | None, *, first_row: int = 0, from_store: bool = False
    ) -> Iterator[EncodedMessages]:
        """The rows as records with queues, in chunks. ``PutRefused`` for a row that is not accepted.

        ``from_store``: also for topics that take no messages from producers. ``InvalidValue`` for wrong columns.
        """
        first_row = checked_int("first_row", first_row)
        table = MessageTable(rows, topic=topic)
        for first, chunk in table.chunks():
            _, encoded = self._encoded(table, first + first_row, chunk, from_store=from_store)
            if encoded.refusals:
                raise encoded.refusals[0]
            yield encoded

    def _put_chunk(
        self,
        table: MessageTable,
        first: int,
        chunk: pa.RecordBatch,
        results: _Results,
        first_row: int,
        stop_at_refusal: bool,
    ) -> None:
        started = time.perf_counter()
        columns, encoded = self._encoded(table, first + first_row, chunk, stop_at_refusal=stop_at_refusal)
        if stop_at_refusal and encoded.refusals:
            results.stop_at(encoded.refusals[0])
        appended = self._log.append_rows(encoded.queued())
        results.put(first, encoded, appended)
        results.waits |= columns.waits
        self._count(encoded, appended.written, started)
        self._on_appended()
        if appended.error is not None:
            raise appended.error

    def _encoded(
        self,
        table: MessageTable,
        first: int,
        chunk: pa.RecordBatch,
        *,
        from_store: bool = False,
        stop_at_refusal: bool = False,
    ) -> tuple[MessageColumns, EncodedMessages]:
        """A chunk whose first row has the number ``first`` as records, whose topics and queues are listed.

        With ``stop_at_refusal`` those of the rows before the first refused one, and that refusal.
        """
        encode = partial(
            table.encoded,
            settings=self._settings,
            queue_count=self._topics.queue_count,
            topic_fault=self._topics.put_faults() if from_store else self._topics.producers_faults(),
            first_row=first,
            first_turn=self._turn,
            born_timestamp_ms=int(time.time() * 1000),
        )
        columns, queue_ids, encoded = encode(chunk)
        if stop_at_refusal and encoded.refusals:
            refusal = encoded.refusals[0]
            assert refusal.row is not None
            chunk = chunk.slice(0, refusal.row - first)
            columns, queue_ids, encoded = encode(chunk)
            encoded = replace(encoded, refusals=[refusal])
        self._turn += chunk.num_rows
        # The rows' own topics, also of those that are delayed.
        self._topics.list_queues(highest_queues(columns, queue_ids))
        return columns, encoded

    def _count(self, encoded: EncodedMessages, written: int, started: float) -> None:
        elapsed = time.perf_counter() - started
        if len(encoded.topics) == 1 and written:
            self._stats.put(encoded.topics[0], written, int(encoded.records.starts[written]), elapsed)
            return
        codes = encoded.topic_codes[:written]
        counts = np.bincount(codes, minlength=len(encoded.topics)).tolist()
        sizes = np.bincount(codes, encoded.records.sizes[:written], minlength=len(encoded.topics)).tolist()
        for topic, count, size in zip(encoded.topics, counts, sizes, strict=True):
            if count:
                self._stats.put(topic, count, int(size), elapsed)

    def _await(self, results: _Results) -> None:
        if not (results.end and results.waits and self._durability.waits):
            return
        status, reason = self._durability.wait(results.end)
        if status is not PutMessageStatus.PUT_OK:
            results.not_safe(status, reason)
