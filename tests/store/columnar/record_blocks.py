"""Records of every mixture laid out as in a log file, and what their columns must be."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from commitlog_store.columnar.bodies import verify_crc
from commitlog_store.columnar.columns import ALL_COLUMNS
from commitlog_store.columnar.decode import record_batch
from commitlog_store.columnar.locate import QueuePlace, locate
from commitlog_store.format import compression, sys_flag
from commitlog_store.format.message_id import encode_message_id, format_host
from commitlog_store.format.properties import decode_properties, decode_utf8
from commitlog_store.format.record import MAGIC_V1, MAGIC_V2, Record, body_crc, header_size
from tests.support.encoders import encode_record

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TOPIC = "orders"
QUEUE_ID = 3


# Bytes that make trouble: separators where none belong, zeros, pieces of UTF-8 and of no UTF-8, whole names.
_PIECES = (
    b"\x01", b"\x02", b"\0", b" ", b"a", b"TAGS", b"KEYS", b"UNIQ_KEY", b"\xff", b"\xc3", b"\xa9", b"\xed\xa0\x80",
    b"\xf0\x9f\x98\x80", b"\xe2\x82", "Ü".encode(), b"TAGS\x01", b"\x02TAGS\x01", b"\x01\x02", b"k1 k2",
)  # fmt: skip
odd_properties = st.lists(st.sampled_from(_PIECES), max_size=12).map(b"".join)
names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "a", "é", "a name"])
values = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=15)
plain_properties = st.builds(
    lambda entries, last: "\x02".join(f"{n}\x01{v}" for n, v in entries).encode() + (b"\x02" if last else b""),
    st.lists(st.tuples(names, values), max_size=4),
    st.booleans(),
)
properties_of_one = st.one_of(plain_properties, odd_properties, st.binary(max_size=30), st.just(b""))
# What producers write: the same names in the same order all along, so that the short way is taken too.
properties_of_many = st.one_of(
    st.lists(properties_of_one, min_size=1, max_size=8),
    st.builds(
        lambda names, rows, last: [
            "\x02".join(f"{n}\x01{v}" for n, v in zip(names, row, strict=False)).encode() + (b"\x02" if last else b"")
            for row in rows
        ],
        st.lists(names, min_size=1, max_size=3),
        st.lists(st.lists(st.one_of(values, st.just("")), min_size=3, max_size=3), min_size=1, max_size=6),
        st.booleans(),
    ),
)

_int32 = st.integers(-(2**31), 2**31 - 1)
_times = st.integers(0, 253_402_300_799_999)
_ports = st.one_of(st.integers(0, 65535), _int32)


@st.composite
def one_record(draw: st.DrawFn) -> Record:
    body = draw(st.one_of(st.binary(max_size=60), st.just(b"x" * 300)))
    flags = draw(st.sampled_from([0, 0, 16, 32, 48])) | draw(st.sampled_from([0, 2, 4, 8, 12]))
    packing = draw(st.sampled_from([None, None, 0, 0x100, 0x200, 0x300]))
    if packing is not None:
        flags |= sys_flag.COMPRESSED_FLAG | packing
        body = compression.compress(body, sys_flag.compression_type(flags))
    magic = draw(st.sampled_from([MAGIC_V1, MAGIC_V1, MAGIC_V2]))
    properties = draw(properties_of_one)
    born, store = (16 if flags & bit else 4 for bit in (16, 32))
    size = header_size(flags) + len(body) + (1 if magic == MAGIC_V1 else 2) + len(TOPIC) + 2 + len(properties)
    return Record(
        total_size=size,
        magic=magic,
        body_crc=body_crc(body),
        queue_id=QUEUE_ID,
        flag=draw(_int32),
        queue_offset=0,
        physical_offset=0,
        sys_flag=flags,
        born_timestamp=draw(_times),
        born_ip=draw(st.binary(min_size=born, max_size=born)),
        born_port=draw(_ports),
        store_timestamp=draw(_times),
        store_ip=draw(
            st.one_of(st.binary(min_size=store, max_size=store), st.just((bytes(10) + b"\xff\xff1234")[-store:]))
        ),
        store_port=draw(_ports),
        reconsume_times=draw(_int32),
        prepared_transaction_offset=draw(st.integers(-(2**63), 2**63 - 1)),
        body=body,
        topic=TOPIC.encode(),
        properties=properties,
    )


class Block:
    """Records laid one after another, with gaps between them, as they stand in a log file."""

    def __init__(self, records: list[Record], *, base: int = 1000, gap: int = 0, first_offset: int = 5) -> None:
        self.records: list[Record] = []
        parts = [b"\xee" * 3]
        at = 3
        positions = []
        for index, one in enumerate(records):
            record = replace(one, physical_offset=base + at, queue_offset=first_offset + index)
            data = encode_record(record)
            self.records.append(record)
            positions.append(at)
            parts += [data, b"\xee" * gap]
            at += len(data) + gap
        self.data = np.frombuffer(b"".join(parts), np.uint8).copy()
        self.positions = np.array(positions, np.int64)
        self.sizes = np.array([record.total_size for record in self.records], np.int64)
        self.physical = self.positions + base
        self.place = QueuePlace(
            topic=TOPIC,
            queue_id=QUEUE_ID,
            queue_offsets=np.arange(first_offset, first_offset + len(records), dtype=np.int64),
        )

    def batch(self, columns: tuple[str, ...] = ALL_COLUMNS) -> pa.RecordBatch:
        block = locate(self.data, self.positions, self.sizes, self.physical, self.place)
        verify_crc(block)
        return record_batch(block, columns)


def expected_row(record: Record) -> dict[str, Any]:
    """What one-record decoding gives, under the columns' names."""
    properties = decode_properties(record.properties)
    body = record.body
    if record.sys_flag & sys_flag.COMPRESSED_FLAG:
        body = compression.decompress(body, sys_flag.compression_type(record.sys_flag), 1 << 20)
    return {
        "topic": decode_utf8(record.topic),
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "body": body,
        "bornTimestamp": _EPOCH + timedelta(milliseconds=record.born_timestamp),
        "storeTimestamp": _EPOCH + timedelta(milliseconds=record.store_timestamp),
        "properties": properties,
        "msgId": encode_message_id(record.store_ip, record.store_port, record.physical_offset),
        "uniqKey": properties.get("UNIQ_KEY"),
        "bornHost": format_host(record.born_ip, record.born_port),
        "storeHost": format_host(record.store_ip, record.store_port),
        "physicalOffset": record.physical_offset,
        "preparedTransactionOffset": record.prepared_transaction_offset,
        "storeSize": record.total_size,
        "flag": record.flag,
        "sysFlag": record.sys_flag,
        "bodyCrc": record.body_crc,
        "reconsumeTimes": record.reconsume_times,
    }


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    batch.validate(full=True)
    rows: list[dict[str, Any]] = batch.to_pylist()
    for row in rows:
        row["properties"] = dict(row["properties"])
    return rows


def plain_record(body: bytes = b"hello", properties: bytes = b"TAGS\x01paid\x02", flags: int = 0) -> Record:
    born, store = (bytes(16) if flags & bit else bytes(4) for bit in (16, 32))
    return Record(
        total_size=header_size(flags) + len(body) + 1 + len(TOPIC) + 2 + len(properties),
        magic=MAGIC_V1,
        body_crc=body_crc(body),
        queue_id=QUEUE_ID,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=flags,
        born_timestamp=1,
        born_ip=born,
        born_port=1,
        store_timestamp=2,
        store_ip=store,
        store_port=2,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        topic=TOPIC.encode(),
        properties=properties,
    )
