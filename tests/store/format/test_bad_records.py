"""Records and units that contradict the format are problems of one named record."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_store.columnar.locate import RecordProblem
from commitlog_store.format.record import Record, decode_record
from tests.store.columnar.record_blocks import Block, one_record, plain_record, rows_of
from tests.support.encoders import encode_record

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
]


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize(("field", "offset", "code", "value"), BAD)
def test_bad_value_of_a_field_is_named_with_its_row(field: str, offset: int, code: str, value: int, row: int) -> None:
    block = Block([plain_record(), plain_record(), plain_record()])
    struct.pack_into(">" + code, block.data.data, int(block.positions[row]) + offset, value)
    with pytest.raises(RecordProblem) as raised:
        block.batch()
    assert raised.value.field == field
    assert raised.value.index == row
    assert raised.value.within == offset


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 90, 0x7FFFFFFF])
def test_unit_size_that_no_record_can_have_is_named(size: int) -> None:
    block = Block([plain_record(), plain_record()])
    block.sizes[1] = size
    with pytest.raises(RecordProblem, match="SIZE of the unit"):
        block.batch()


@pytest.mark.parametrize("position", [-1, 2**40])
def test_unit_that_points_outside_is_named(position: int) -> None:
    block = Block([plain_record(), plain_record()])
    block.positions[1] = position
    with pytest.raises(RecordProblem, match="SIZE of the unit"):
        block.batch()


@pytest.mark.parametrize("flags", [16, 32, 48])
def test_ipv6_bits_on_ipv4_records_are_never_followed_past_the_end(flags: int) -> None:
    block = Block([plain_record(b"", b"")])
    struct.pack_into(">i", block.data.data, int(block.positions[0]) + 36, flags)
    with pytest.raises(RecordProblem):
        block.batch()


def test_record_too_short_for_its_ipv6_hosts_is_named_by_its_own_row() -> None:
    """Records are taken apart in groups of equal hosts; the row that is reported counts all of them."""
    block = Block([plain_record(), plain_record(), plain_record(b"", b"", 48)])
    block.sizes[2] = 114
    with pytest.raises(RecordProblem, match="at least 115 with these hosts") as raised:
        block.batch()
    assert (raised.value.field, raised.value.index) == ("TOTALSIZE", 2)


@pytest.mark.parametrize("bits", [0x400, 0x500, 0x600, 0x700])
def test_unknown_compression_type_is_a_problem_of_that_record(bits: int) -> None:
    block = Block([plain_record(), replace(plain_record(), sys_flag=1 | bits)])
    with pytest.raises(RecordProblem) as raised:
        block.batch()
    assert (raised.value.field, raised.value.index) == ("BODY", 1)


def test_compressed_body_that_is_not_a_stream_is_a_problem_of_that_record() -> None:
    block = Block([plain_record(), replace(plain_record(), sys_flag=1)])
    with pytest.raises(RecordProblem) as raised:
        block.batch()
    assert (raised.value.field, raised.value.index) == ("BODY", 1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x78",
        b"\x78\x5e",
        b"\x78\x5e is how this text starts",
        zlib.compress(b"text " * 100, 5)[:-1],
        zlib.compress(b"text " * 100, 5) + b"more",
        zlib.compress(b"text " * 100, 5),
        zlib.compress(b"text " * 100, 6),
        zlib.compress(b"text " * 100, 9),
    ],
    ids=["empty", "one byte", "header", "text", "cut", "bytes after it", "level 5", "level 6", "level 9"],
)
def test_body_that_an_application_packed_itself_is_given_as_it_is(body: bytes) -> None:
    """At level 5 it is packed as RocketMQ's producers do, whose records say so in SYSFLAG."""
    block = Block([plain_record(body), plain_record(body, b"")])
    assert block.batch()["body"].to_pylist() == [body, body]


def test_topic_and_properties_may_not_be_longer_than_rocketmq_reads_them() -> None:
    """Their lengths are signed in RocketMQ; what decode_record refuses, columns must refuse too."""
    data = bytearray(
        encode_record(replace(plain_record(properties=b"p" * 32767), physical_offset=1003, queue_offset=5))
    )
    data += b"p"
    struct.pack_into(">i", data, 0, len(data))
    struct.pack_into(">H", data, 100, 32768)
    assert not isinstance(decode_record(bytes(data), physical_offset=1003), Record)
    block = Block([plain_record()])
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
        if row["sysFlag"] == was["sysFlag"]:  # with its type bits lost too, nothing shows that a body is compressed
            assert row["body"] == was["body"]
