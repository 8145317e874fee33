"""Puts of tables through a server: in parts, each once, with one result for all rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.input import Rows
from commitlog_store.engine.put_table import PutTableResult
from commitlog_store.errors import PutNotConfirmed, PutRefused, Refused
from commitlog_store.put_status import PutMessageStatus
from commitlog_store.remote.put_wire import SentRows, TableResult, encode_rows, parts_of
from commitlog_store.remote.session import Session

# Bytes of a part with the rest of its question.
LARGEST_PART = (16 << 20) - (64 << 10)
# With one of these the store refuses all that follows, too.
_ENDS = frozenset(
    {
        PutMessageStatus.SERVICE_NOT_AVAILABLE,
        PutMessageStatus.CREATE_MAPEDFILE_FAILED,
        PutMessageStatus.OS_PAGECACHE_BUSY,
        PutMessageStatus.UNKNOWN_ERROR,
    }
)


class TablePart(NamedTuple):
    """Rows that go together: where they begin, how many they are, and their bytes.

    ``data`` is None for a row that is larger than any question.
    """

    first: int
    row_num: int
    data: SentRows | None
    size: int


def sendable_parts(rows: Rows) -> Iterator[TablePart]:
    """The rows in parts, each of the size of a question. Those with dictionaries are encoded here."""
    head = rows.schema.serialize().size
    encodes = any("dictionary<" in str(kind) for kind in rows.schema.types)
    for first, part in parts_of(rows):
        yield from _sendable(first, part, head, encodes=encodes)


def _sendable(first: int, part: pa.RecordBatch, head: int, *, encodes: bool) -> Iterator[TablePart]:
    data: SentRows = encode_rows(part) if encodes else part
    size = head + pa.ipc.get_record_batch_size(part) if isinstance(data, pa.RecordBatch) else data.nbytes
    count = part.num_rows
    if size <= LARGEST_PART or count == 1:
        yield TablePart(first, count, data if size <= LARGEST_PART else None, size)
        return
    half = count // 2
    yield from _sendable(first, part.slice(0, half), head, encodes=encodes)
    yield from _sendable(first + half, part.slice(half), head, encodes=encodes)


def too_large(row: int) -> PutRefused:
    return PutRefused(
        PutMessageStatus.MESSAGE_ILLEGAL,
        f"A row for a server has at most {LARGEST_PART} bytes; row {row} has more.",
        row=row,
    )


def put_table(
    session: Session, rows: Rows, topic: str | None, first_row: int, *, stop_at_refusal: bool = False
) -> PutTableResult:
    """See ``RemoteStore.put_messages``."""
    results: list[PutTableResult] = []
    # The status of all rows that follow, once they are not to be put.
    ended: tuple[PutMessageStatus, str] | None = None
    for first, count, data, size in sendable_parts(rows):
        if stop_at_refusal and results and not results[-1].ok:
            break
        if ended is not None:
            results.append(_without(count, *ended))
        elif data is None:
            refusal = too_large(first_row + first)
            results.append(_without(count, refusal.status, refusal.reason))
        else:
            try:
                answer: TableResult = session.once(
                    "put_messages", data, topic, first_row + first, stop_at_refusal, size=size
                )
                result = answer.result()
                if result.status in _ENDS:
                    ended = result.status, result.reason
            except PutNotConfirmed as error:
                result = _without(count, error.status, error.reason)
                after = f"Not put, since the rows before have no answer: {error.reason}"
                ended = PutMessageStatus.SERVICE_NOT_AVAILABLE, after
            except Refused as error:
                if not results:
                    raise
                ended = PutMessageStatus.SERVICE_NOT_AVAILABLE, str(error)
                result = _without(count, *ended)
            results.append(result)
    return _joined(results)


def _without(count: int, status: PutMessageStatus, reason: str) -> PutTableResult:
    """The result of rows that have no place in the log."""
    places = np.full(count, -1, np.int64)
    rows = pa.record_batch(
        {
            "status": pa.array([status.value] * count, pa.string()).dictionary_encode(),
            "physicalOffset": places,
            "queueId": places.astype(np.int32),
            "queueOffset": places,
            "storeTimestamp": places,
        }
    )
    return PutTableResult(status, reason, 0, rows)


def _joined(results: list[PutTableResult]) -> PutTableResult:
    if len(results) == 1:
        return results[0]
    if not results:
        return _without(0, PutMessageStatus.PUT_OK, "")
    bad = next((one for one in results if not one.ok), results[0])
    table = pa.Table.from_batches([one.rows.cast(results[0].rows.schema) for one in results])
    (rows,) = table.unify_dictionaries().combine_chunks().to_batches()
    return PutTableResult(bad.status, bad.reason, sum(one.message_num for one in results), rows)
