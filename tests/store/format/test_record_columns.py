"""Many records at once give what one record at a time gives, whatever mixture they are."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from commitlog.errors import InvalidValue
from commitlog.format import compression, sys_flag
from commitlog.format.binary_gather import gather_binary, strided_view, to_text
from commitlog.format.columns import ALL_COLUMNS, COLUMN_TYPES, arrow_schema, column_type
from commitlog.format.message_id import encode_message_id, format_host
from commitlog.format.properties import decode_properties, decode_utf8
from commitlog.format.property_columns import PropertyRows
from commitlog.format.record import (
    HEADER_DTYPES,
    MAGIC_V1,
    MAGIC_V2,
    Record,
    body_crc,
    decode_record,
    encode_record,
    header_size,
)
from commitlog.format.record_block import QueuePlace, RecordProblem, locate
from commitlog.format.record_bodies import verify_crc
from commitlog.format.record_columns import record_batch
from commitlog.format.record_encode import encode_records, new_headers, patch_late_fields

__all__: list[str] = []

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TOPIC = "orders"
QUEUE_ID = 3


# -- strategies --------------------------------------------------------------------------------------------------------

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


# -- all columns -------------------------------------------------------------------------------------------------------


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(one_record(), min_size=1, max_size=6), st.sampled_from([0, 1, 50]))
def test_columns_equal_one_record_decoding(records: list[Record], gap: int) -> None:
    block = Block(records, gap=gap)
    for record, at in zip(block.records, block.positions.tolist(), strict=True):
        assert decode_record(block.data.data[at:], physical_offset=record.physical_offset) == record
    assert rows_of(block.batch()) == [expected_row(record) for record in block.records]


@given(st.lists(one_record(), min_size=1, max_size=4), st.sets(st.sampled_from(ALL_COLUMNS), min_size=1))
def test_any_choice_of_columns_gives_the_same_values(records: list[Record], chosen: set[str]) -> None:
    block = Block(records)
    columns = tuple(sorted(chosen))
    batch = block.batch(columns)
    assert batch.schema == arrow_schema(columns)
    assert batch.equals(block.batch().select(columns))


@given(st.lists(one_record(), min_size=1, max_size=4))
def test_batches_own_their_bytes(records: list[Record]) -> None:
    """What a caller holds must survive the mapping it came from: overwriting the bytes changes nothing."""
    block = Block(records)
    batch = block.batch()
    before = rows_of(batch)
    block.data[:] = 0xAA
    assert rows_of(batch) == before


def test_light_queues_take_records_of_other_queues_and_show_the_queue_that_was_read() -> None:
    records = [decode_record(encode_record(record)) for record in Block([_plain(b"a"), _plain(b"b")]).records]
    block = Block([record for record in records if isinstance(record, Record)])
    place = QueuePlace(topic="%LMQ%me", queue_id=0, queue_offsets=np.array([70, 71], np.int64), shared=True)
    located = locate(block.data, block.positions, block.sizes, block.physical, place)
    batch = record_batch(located, ["topic", "queueId", "queueOffset", "body"])
    assert batch.to_pylist() == [
        {"topic": "%LMQ%me", "queueId": 0, "queueOffset": 70, "body": b"a"},
        {"topic": "%LMQ%me", "queueId": 0, "queueOffset": 71, "body": b"b"},
    ]


def _plain(body: bytes = b"hello", properties: bytes = b"TAGS\x01paid\x02", flags: int = 0) -> Record:
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


# -- bad values --------------------------------------------------------------------------------------------------------

# A record here: 112 bytes, body at 88, topic length at 93, properties length at 100.
BAD = [
    ("MAGICCODE", 4, "I", 0),
    ("MAGICCODE", 4, "I", 0xCBD43194),
    ("TOTALSIZE", 0, "i", 111),
    ("TOTALSIZE", 0, "i", 113),
    ("TOTALSIZE", 0, "i", -1),
    ("TOTALSIZE", 0, "i", 0x7FFFFFFF),
    ("PHYSICALOFFSET", 28, "q", 0),
    ("PHYSICALOFFSET", 28, "q", -1),
    ("PHYSICALOFFSET", 28, "q", 2**63 - 1),
    ("QUEUEOFFSET", 20, "q", 8),
    ("QUEUEOFFSET", 20, "q", -1),
    ("QUEUEID", 12, "i", 4),
    ("QUEUEID", 12, "i", -1),
    ("BODYLENGTH", 84, "i", -1),
    ("BODYLENGTH", 84, "i", 22),
    ("BODYLENGTH", 84, "i", 0x7FFFFFFF),
    ("BODYLENGTH", 84, "i", -(2**31)),
    ("TOPICLENGTH", 93, "B", 17),
    ("TOPICLENGTH", 93, "B", 255),
    ("TOPIC", 94, "B", ord("O")),
    ("PROPERTIESLENGTH", 100, "h", 9),
    ("PROPERTIESLENGTH", 100, "h", 11),
    ("PROPERTIESLENGTH", 100, "h", -1),
    ("BODYCRC", 8, "i", 0),
    ("BODYCRC", 8, "i", -1),
    ("BORNTIMESTAMP", 40, "q", 2**63 - 1),
    ("STORETIMESTAMP", 56, "q", -(2**63)),
    ("STORETIMESTAMP", 56, "q", (2**63 - 1) // 1000 + 1),
]


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize(("field", "offset", "code", "value"), BAD)
def test_bad_value_of_a_field_is_named_with_its_row(field: str, offset: int, code: str, value: int, row: int) -> None:
    block = Block([_plain(), _plain(), _plain()])
    struct.pack_into(">" + code, block.data.data, int(block.positions[row]) + offset, value)
    with pytest.raises(RecordProblem) as raised:
        block.batch()
    assert raised.value.field == field
    assert raised.value.index == row
    assert raised.value.within == offset


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 90, 0x7FFFFFFF])
def test_unit_size_that_no_record_can_have_is_named(size: int) -> None:
    block = Block([_plain(), _plain()])
    block.sizes[1] = size
    with pytest.raises(RecordProblem, match="SIZE of the unit"):
        block.batch()


@pytest.mark.parametrize("position", [-1, 2**40])
def test_unit_that_points_outside_is_named(position: int) -> None:
    block = Block([_plain(), _plain()])
    block.positions[1] = position
    with pytest.raises(RecordProblem, match="SIZE of the unit"):
        block.batch()


@pytest.mark.parametrize("flags", [16, 32, 48])
def test_ipv6_bits_on_ipv4_records_are_never_followed_past_the_end(flags: int) -> None:
    block = Block([_plain(b"", b"")])
    struct.pack_into(">i", block.data.data, int(block.positions[0]) + 36, flags)
    with pytest.raises(RecordProblem):
        block.batch()


def test_record_too_short_for_its_ipv6_hosts_is_named_by_its_own_row() -> None:
    """Records are taken apart in groups of equal hosts; the row that is reported counts all of them."""
    block = Block([_plain(), _plain(), _plain(b"", b"", 48)])
    block.sizes[2] = 114
    with pytest.raises(RecordProblem, match="at least 115 with these hosts") as raised:
        block.batch()
    assert (raised.value.field, raised.value.index) == ("TOTALSIZE", 2)


@pytest.mark.parametrize("bits", [0x400, 0x500, 0x600, 0x700])
def test_unknown_compression_type_is_a_problem_of_that_record(bits: int) -> None:
    block = Block([_plain(), replace(_plain(), sys_flag=1 | bits)])
    with pytest.raises(RecordProblem) as raised:
        block.batch()
    assert (raised.value.field, raised.value.index) == ("BODY", 1)


def test_compressed_body_that_is_no_stream_is_a_problem_of_that_record() -> None:
    block = Block([_plain(), replace(_plain(), sys_flag=1)])
    with pytest.raises(RecordProblem) as raised:
        block.batch()
    assert (raised.value.field, raised.value.index) == ("BODY", 1)


def test_topic_and_properties_may_not_be_longer_than_rocketmq_reads_them() -> None:
    """Their lengths are signed in RocketMQ; what decode_record refuses, columns must refuse too."""
    data = bytearray(encode_record(replace(_plain(properties=b"p" * 32767), physical_offset=1003, queue_offset=5)))
    data += b"p"
    struct.pack_into(">i", data, 0, len(data))
    struct.pack_into(">H", data, 100, 32768)
    assert not isinstance(decode_record(bytes(data), physical_offset=1003), Record)
    block = Block([_plain()])
    block.data = np.frombuffer(b"\xee" * 3 + bytes(data), np.uint8)
    block.sizes[0] = len(data)
    with pytest.raises(RecordProblem, match="PROPERTIESLENGTH"):
        block.batch(("body",))


@settings(max_examples=3 * settings().max_examples)
@given(st.data())
def test_damaged_records_give_the_written_bodies_or_a_problem(data: st.DataObject) -> None:
    records = data.draw(st.lists(one_record(), min_size=1, max_size=3))
    block = Block(records)
    whole = rows_of(block.batch())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(block.data) - 1))
        block.data[at] ^= data.draw(st.integers(1, 255))
    try:
        damaged = block.batch(("body", "properties", "sysFlag", "msgId", "bornHost"))
    except RecordProblem:
        return
    for row, was in zip(damaged.to_pylist(), whole, strict=True):
        if row["sysFlag"] == was["sysFlag"]:  # nothing protects the bit that says whether a body is compressed
            assert row["body"] == was["body"]


# -- properties --------------------------------------------------------------------------------------------------------


@settings(max_examples=6 * settings().max_examples)
@given(properties_of_many)
@example([b""])
@example([b"", b"TAGS\x01a\x02", b""])
@example([b"TAGS\x01a", b"TAGS\x01b\x02"])
@example([b"TAGS\x01a\x02TAGS\x01b\x02"])
@example([b"TAGS\x01a\x02TAGS\x01\x02"])
@example([b"TAGS\x01\x02", b"TAGS\x01b\x02"])
@example([b"TAGS\x01a\x01b\x02"])
@example([b"\x01a\x02", b"\x02\x02", b"\x01\x02"])
@example([b"TAGS\x01", b"x\x02"])
@example([b"TAGS\x01a", b"x\x02TAGS\x01b"])
@example([b"TAGS\x01\0a\0\x02", b"TA\0GS\x01a\x02"])
@example([b"\xff\x01a\x02\xfe\x01b\x02"])
@example([b"KEYS\x01a\x02TAGS\x01b\x02", b"TAGS\x01b\x02KEYS\x01a\x02"])
@example([b"TAGS\x01" + b"\xff" * 13, b"TAGS\x01" + b"x" * 13])
def test_property_columns_equal_decode_properties(rows: list[bytes]) -> None:
    expected = [decode_properties(row) for row in rows]
    found = PropertyRows(pa.array(rows, pa.binary()))
    for name in ("TAGS", "KEYS", "UNIQ_KEY", "a", "é", "a name", "a name that no row has"):
        assert found.text(name).to_pylist() == [row.get(name) for row in expected], name
    as_map = found.map()
    as_map.validate(full=True)
    assert [dict(row) for row in as_map.to_pylist()] == expected
    assert all(len(row) == len(dict(row)) for row in as_map.to_pylist()), "a map holds every name once"


@given(properties_of_many, st.integers(0, 3), st.integers(0, 3))
def test_property_columns_of_a_slice_equal_those_of_its_rows(rows: list[bytes], skip: int, cut: int) -> None:
    whole = pa.array([b"junk\x01junk\x02"] * skip + rows + [b"\x01\x02"] * cut, pa.binary())
    found = PropertyRows(whole.slice(skip, len(rows)))
    assert found.text("TAGS").to_pylist() == [decode_properties(row).get("TAGS") for row in rows]
    assert [dict(row) for row in found.map().to_pylist()] == [decode_properties(row) for row in rows]


def test_no_rows_have_no_properties() -> None:
    found = PropertyRows(pa.array([], pa.binary()))
    assert found.text("TAGS").to_pylist() == []
    assert found.map().to_pylist() == []


# -- gathering ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [0, 1, 11, 12, 13])
def test_values_of_every_length_around_the_inline_limit(behind: int) -> None:
    """12 bytes fit a view itself; at the end of the data there may be fewer than 12 bytes to fetch."""
    data = np.arange(1, 60, dtype=np.uint8)
    for length in range(20):
        end = len(data) - behind
        starts = np.array([0, 5, end - length], np.int64)
        lengths = np.full(3, length, np.int64)
        expected = [data[s : s + length].tobytes() for s in starts.tolist()]
        found = gather_binary(data, starts, lengths)
        found.validate(full=True)
        assert found.to_pylist() == expected


@given(st.binary(min_size=1, max_size=60), st.data())
def test_gathered_values_are_the_slices(raw: bytes, data: st.DataObject) -> None:
    values = data.draw(
        st.lists(
            st.integers(0, len(raw)).flatmap(lambda s: st.tuples(st.just(s), st.integers(0, len(raw) - s))), max_size=10
        )
    )
    starts = np.array([start for start, _ in values], np.int64)
    lengths = np.array([length for _, length in values], np.int64)
    found = gather_binary(np.frombuffer(raw, np.uint8), starts, lengths)
    found.validate(full=True)
    assert found.type == pa.binary()
    assert found.to_pylist() == [raw[start : start + length] for start, length in values]


def test_a_strided_view_narrower_than_nothing_and_wider_than_the_data() -> None:
    data = np.arange(3, dtype=np.uint8)
    assert len(strided_view(data, 4)) == 0
    assert [item.tobytes() for item in strided_view(data, 2)] == [b"\0\x01", b"\x01\x02"]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=12), odd_properties), max_size=6))
def test_text_is_what_decode_utf8_gives(raw: list[bytes | None]) -> None:
    found = to_text(pa.array(raw, pa.binary()))
    found.validate(full=True)
    assert found.to_pylist() == [None if value is None else decode_utf8(value) for value in raw]


# -- encoding ----------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.binary(max_size=40), properties_of_one), max_size=6),
    st.sampled_from([0, 16, 32, 48]),
    st.sampled_from(["t", "orders", "t" * 127, "t" * 128, "é" * 64]),
    st.integers(0, 2**62),
)
def test_many_records_encoded_equal_one_at_a_time(
    values: list[tuple[bytes, bytes]], flags: int, topic: str, place: int
) -> None:
    count = len(values)
    headers = new_headers(count, flags)
    rng = np.random.default_rng(count)
    for name in ("queue_id", "flag", "born_port", "store_port", "reconsume_times"):
        headers[name] = rng.integers(-(2**31), 2**31, count)
    headers["born_timestamp"] = rng.integers(0, 2**60, count)
    headers["prepared_transaction_offset"] = rng.integers(-(2**63), 2**63 - 1, count)
    headers["sys_flag"] |= 8
    born, store = (bytes(range(16)) if flags & bit else bytes([10, 1, 2, 3]) for bit in (16, 32))
    headers["born_ip"], headers["store_ip"] = np.void(born), np.void(store)
    bodies = pa.array([body for body, _ in values], pa.binary())
    properties = pa.array([text for _, text in values], pa.binary())
    encoded = encode_records(headers, bodies, topic, properties)
    offsets, times = np.arange(count) + 7, np.arange(count) + 1_700_000_000_000
    places = place + encoded.starts[:-1]
    patched = patch_late_fields(
        encoded, host_flags=flags, queue_offsets=offsets, physical_offsets=places, store_timestamps=times
    )
    assert patched.starts[-1] == len(patched.data)
    for row, (body, text) in enumerate(values):
        data = patched.data[patched.starts[row] : patched.starts[row + 1]].tobytes()
        decoded = decode_record(data, physical_offset=int(places[row]))
        assert isinstance(decoded, Record)
        assert encode_record(decoded) == data
        assert decoded.magic == (MAGIC_V1 if len(topic.encode()) <= 127 else MAGIC_V2)
        assert (decoded.body, decoded.properties, decoded.topic) == (body, text, topic.encode())
        assert (decoded.queue_offset, decoded.store_timestamp) == (7 + row, 1_700_000_000_000 + row)
        assert (decoded.born_ip, decoded.store_ip, decoded.sys_flag) == (born, store, flags | 8)
        assert (decoded.queue_id, decoded.flag) == (int(headers["queue_id"][row]), int(headers["flag"][row]))
        assert decoded.prepared_transaction_offset == int(headers["prepared_transaction_offset"][row])
        assert decoded.body_crc == body_crc(body)


def test_slices_of_bodies_and_properties_are_encoded_as_such() -> None:
    """An Arrow slice keeps the whole buffers; only its own rows may be written."""
    bodies = pa.array([b"no", b"yes", b"yes too", b"no"], pa.binary()).slice(1, 2)
    properties = pa.array([b"no\x01no", b"a\x01b", b"", b"no\x01no"], pa.binary()).slice(1, 2)
    encoded = encode_records(new_headers(2), bodies, "t", properties)
    found = [decode_record(encoded.data[s:].tobytes()) for s in encoded.starts[:-1].tolist()]
    assert [(r.body, r.properties) for r in found if isinstance(r, Record)] == [(b"yes", b"a\x01b"), (b"yes too", b"")]


@pytest.mark.parametrize("topic", ["", "t" * 32768])
def test_topic_that_fits_no_record_is_refused(topic: str) -> None:
    with pytest.raises(InvalidValue, match="1 to 32767"):
        encode_records(new_headers(1), pa.array([b""]), topic, pa.array([b""]))


def test_properties_that_are_too_long_name_their_row() -> None:
    properties = pa.array([b"", b"p" * 32767, b"p" * 32768])
    with pytest.raises(InvalidValue, match="row 2 have 32768 bytes"):
        encode_records(new_headers(3), pa.array([b"", b"", b""]), "t", properties)


# -- the columns' table ------------------------------------------------------------------------------------------------


def test_columns_are_those_that_the_source_documents() -> None:
    assert tuple(COLUMN_TYPES) == ALL_COLUMNS
    assert column_type("body") == pa.binary()
    assert column_type("storeTimestamp") == pa.timestamp("us", tz="UTC")
    assert all(field.nullable for field in arrow_schema(ALL_COLUMNS))


@pytest.mark.parametrize(("wrong", "meant"), [("Body", "body"), ("storetimestamp", "storeTimestamp"), ("tag", "tags")])
def test_unknown_column_is_refused_with_the_nearest_known(wrong: str, meant: str) -> None:
    with pytest.raises(InvalidValue, match=f"Unknown column '{wrong}'. Did you mean '{meant}'"):
        arrow_schema(["topic", wrong])


def test_header_layouts_agree_with_the_sizes() -> None:
    assert all(dtype.itemsize == header_size(flags) for flags, dtype in HEADER_DTYPES.items())
