"""Tables encoded as they would stand in a log, and what readers and dispatch make of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.bodies import verify_crc
from commitlog_store.columnar.columns import ALL_COLUMNS
from commitlog_store.columnar.decode import record_batch
from commitlog_store.columnar.dispatch import index_entries
from commitlog_store.columnar.encode import EncodedMessages, RecordSettings, encode_messages
from commitlog_store.columnar.input import message_schema, parse_messages
from commitlog_store.columnar.locate import QueuePlace, locate
from commitlog_store.columnar.records import patch_late_fields
from commitlog_store.columnar.scan import RecordScan, scan_records
from commitlog_store.format.record import Record, decode_record
from tests.store.columnar.record_blocks import rows_of

BASE = 4096
TOPIC = "orders"
HOST = (bytes([10, 1, 2, 3]), 10911)


def encode(table: pa.Table, **options: Any) -> EncodedMessages:
    """All rows to one queue, unless the options say otherwise."""
    return encode_table(table, **{"queue_ids": np.full(table.num_rows, 3, np.int32)} | options)


def encode_table(
    table: pa.Table | pa.RecordBatch,
    *,
    topic: str | None = TOPIC,
    born_timestamp_ms: int = 1,
    queue_ids: npt.NDArray[np.int32] | None = None,
    unique_keys: pa.Array | None = None,
    **settings: Any,
) -> EncodedMessages:
    """The whole table as one chunk, parsed and encoded; without ``queue_ids`` the rows go where they say themselves."""
    defaults: dict[str, Any] = {"born_host": HOST, "store_host": HOST, "largest_record": 1 << 30}
    given = RecordSettings(**defaults | settings)
    columns = parse_messages(
        one_chunk(table),
        message_schema(table, topic=topic),
        born_timestamp_ms=born_timestamp_ms,
        limits=given.limits,
    )
    if queue_ids is None:
        queue_ids = np.full(columns.count, -1, np.int32) if columns.queue_ids is None else columns.queue_ids
    return encode_messages(columns, queue_ids, given, unique_keys=unique_keys)


def one_chunk(table: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """All rows of a table as one record batch."""
    if isinstance(table, pa.RecordBatch):
        return table
    columns = [column.combine_chunks() for column in table.columns]
    return pa.record_batch(columns, schema=table.schema)


def decoded(encoded: EncodedMessages) -> list[Record]:
    """The records, one at a time; each is whole, and its CRC and sizes are right."""
    found = []
    for start, stop in pairwise(encoded.records.starts.tolist()):
        record = decode_record(encoded.records.data[start:stop].tobytes())
        assert isinstance(record, Record)
        found.append(record)
    return found


def scan_of(encoded: EncodedMessages) -> RecordScan:
    """The records as dispatch and recovery find them in the log, CRCs compared."""
    count = len(encoded.rows)
    placed = patch_late_fields(
        encoded.records,
        host_flags=encoded.host_flags,
        queue_offsets=np.arange(count, dtype=np.int64),
        physical_offsets=encoded.records.starts[:-1] + BASE,
        store_timestamps=np.full(count, 2, np.int64),
    )
    scan = scan_records(placed.data, BASE, check_crc=True)
    assert scan.stop is None
    assert len(scan) == count
    return scan


def key_hashes(encoded: EncodedMessages) -> list[list[int]]:
    """For each record, the hashes that the index gets."""
    scan = scan_of(encoded)
    entries = index_entries(scan)
    found: list[list[int]] = [[] for _ in range(len(scan))]
    for key, row in zip(entries[0].tolist(), entries[1].tolist(), strict=True):
        found[row].append(key)
    return found


def read_rows(encoded: EncodedMessages) -> list[dict[str, Any]]:
    """What a reader's columns give, CRCs compared."""
    scan = scan_of(encoded)
    place = QueuePlace(topic=TOPIC, queue_id=3, queue_offsets=np.arange(len(scan), dtype=np.int64))
    block = locate(scan.data, scan.positions, scan.sizes, scan.positions + BASE, place)
    verify_crc(block)
    return rows_of(record_batch(block, ALL_COLUMNS))
