"""The scan finds what decoding record by record finds, and stops with the same error text."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_store.columnar.scan import RecordScan, scan_records
from commitlog_store.format.record import (
    HEADER_DTYPES,
    HOST_FLAGS,
    Corrupt,
    Filler,
    Record,
    Torn,
    Unwritten,
    decode_record,
    encode_filler,
)
from tests.store.columnar.log_stretches import as_array, record_of, stretch, walked
from tests.store.columnar.record_blocks import one_record, plain_record

BASE = 1 << 40


def assert_agrees(data: bytes, check_crc: bool = True) -> RecordScan:
    scan = scan_records(as_array(data), BASE, check_crc=check_crc)
    records, end, stop = walked(data, BASE, check_crc)
    assert (scan.end, scan.stop) == (end, stop)
    assert len(scan) == len(records)
    assert scan.sizes.tolist() == [record.total_size for record in records]
    assert (scan.positions + BASE).tolist() == [record.physical_offset for record in records]
    for part in ("body", "topic", "properties"):
        starts, lengths = getattr(scan.parts, f"{part}_starts"), getattr(scan.parts, f"{part}_lengths")
        found = [data[at : at + length] for at, length in zip(starts.tolist(), lengths.tolist(), strict=True)]
        assert found == [getattr(record, part) for record in records]
    for name in ("queue_offset", "store_timestamp", "sys_flag", "magic", "store_port", "prepared_transaction_offset"):
        assert scan.field(name).tolist() == [getattr(record, name) for record in records]
    return scan


@given(st.lists(one_record(), max_size=6), st.sampled_from([b"", bytes(30), encode_filler(99), b"\1\2\3", b"junk" * 9]))
def test_scan_is_decoding_one_by_one(records: list[Record], behind: bytes) -> None:
    assert_agrees(stretch(records, BASE) + behind)


@settings(max_examples=4 * settings().max_examples)
@given(st.data())
def test_any_damaged_byte_is_what_the_scan_stops_with(data: st.DataObject) -> None:
    """A flipped byte never raises and never hides a good record in front of it."""
    good = stretch(data.draw(st.lists(one_record(), min_size=1, max_size=4)), BASE) + bytes(8)
    at = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[at] ^= data.draw(st.integers(1, 255))
    assert_agrees(bytes(bad), data.draw(st.booleans()))


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_can_be_scanned(data: bytes, check_crc: bool) -> None:
    assert_agrees(data, check_crc)


def test_every_cut_is_torn() -> None:
    whole = stretch([plain_record(), plain_record(flags=HOST_FLAGS)], BASE)
    first = decode_record(whole)
    assert isinstance(first, Record)
    for length in range(1, len(whole)):
        scan = assert_agrees(whole[:length])
        assert isinstance(scan.stop, Torn) == (length != first.total_size)


@pytest.mark.parametrize(
    "counts", [(1,), (17,), (300,), (5000,), (20, 1, 400), (1,) * 300, (70, 3) * 9, (64, 63, 65, 8)]
)
def test_even_stretches_and_changes_of_size_are_scanned(counts: tuple[int, ...]) -> None:
    """Every way of the walk, and of going from one to the other, finds every record."""
    records = [plain_record(b"x" * (index % 7)) for index, count in enumerate(counts) for _ in range(count)]
    scan = assert_agrees(stretch(records, BASE) + bytes(20))
    assert len(scan) == sum(counts)
    assert scan.stop == Unwritten()


@pytest.mark.parametrize("row", [0, 1, 20, 255, 4095])
@pytest.mark.parametrize(
    ("field", "offset", "value"), [("MAGICCODE", 7, 1), ("PHYSICALOFFSET", 28, 1), ("BODYCRC", 88, 1)]
)
def test_bad_record_in_an_even_stretch_ends_it(row: int, field: str, offset: int, value: int) -> None:
    records = [plain_record()] * 4200
    data = bytearray(stretch(records, BASE))
    data[row * records[0].total_size + offset] ^= value
    scan = scan_records(as_array(bytes(data)), BASE, check_crc=True)
    assert len(scan) == row
    assert isinstance(scan.stop, Corrupt)
    assert scan.stop.field == field


@pytest.mark.parametrize("lengths", [(600,), (767,), (768,), (0, 2000), (5000, 3, 0)])
def test_crcs_of_bodies_are_compared_whatever_their_length(lengths: tuple[int, ...]) -> None:
    records = [record_of(body=bytes([row + 1]) * lengths[row % len(lengths)]) for row in range(12)]
    data = bytearray(stretch(records, BASE))
    assert len(assert_agrees(bytes(data))) == len(records)
    longest = max(range(6, 12), key=lambda row: len(records[row].body))
    data[sum(record.total_size for record in records[:longest]) + 88] ^= 1
    assert (len(assert_agrees(bytes(data))), len(assert_agrees(bytes(data), check_crc=False))) == (longest, 12)


def test_the_first_bad_record_counts_whatever_field_is_bad() -> None:
    """Fields are checked one after another over all records; an early record's last field still comes first."""
    size = plain_record().total_size
    data = bytearray(stretch([plain_record()] * 9, BASE))
    data[8 * size + 28] ^= 1  # PHYSICALOFFSET
    data[6 * size + 84] = 0x7F  # BODYLENGTH
    data[4 * size + 93] = 0xFF  # TOPICLENGTH
    data[2 * size + 100] = 0x7F  # PROPERTIESLENGTH
    scan = assert_agrees(bytes(data))
    assert isinstance(scan.stop, Corrupt)
    assert (len(scan), scan.stop.field) == (2, "PROPERTIESLENGTH")
    data[size + 88] ^= 1  # the body
    assert (len(assert_agrees(bytes(data))), len(assert_agrees(bytes(data), check_crc=False))) == (1, 2)


def test_a_scan_reports_the_bytes_after_the_last_record() -> None:
    data = stretch([plain_record()], BASE)
    assert assert_agrees(data).stop is None
    assert assert_agrees(data + bytes(8)).stop == Unwritten()
    assert assert_agrees(data + encode_filler(8)).stop == Filler(8)
    assert assert_agrees(data + bytes(7)).stop == Torn(8, 7)
    assert assert_agrees(b"").stop is None


def test_a_scan_stops_at_a_record_too_short_for_its_ipv6_hosts() -> None:
    """The header of IPv6 hosts is 24 bytes longer; a record of the least size has no room for it."""
    data = bytearray(stretch([plain_record(b"x" * 40), record_of("", body=b"")], BASE))
    struct.pack_into(">i", data, plain_record(b"x" * 40).total_size + 36, HOST_FLAGS)
    scan = assert_agrees(bytes(data))
    assert isinstance(scan.stop, Corrupt)
    assert scan.stop.field == "TOTALSIZE"


def test_topics_may_change_within_the_stretch() -> None:
    records = [record_of(topic) for topic in ("orders", "Orders", "o", "", "orders", "x" * 127)]
    assert len(assert_agrees(stretch(records, BASE))) == 6


def test_layout_of_headers_is_the_narrowest_that_fits() -> None:
    narrow = scan_records(as_array(stretch([plain_record()], BASE)), BASE, check_crc=True)
    wide = scan_records(as_array(stretch([plain_record(), plain_record(flags=16)], BASE)), BASE, check_crc=True)
    assert narrow.headers.dtype == HEADER_DTYPES[0]
    assert wide.headers.dtype == HEADER_DTYPES[HOST_FLAGS]


def test_scan_of_read_only_bytes_holds_native_numbers() -> None:
    scan = scan_records(as_array(stretch([plain_record()] * 3, BASE)), BASE, check_crc=True)
    assert scan.field("queue_id").dtype == np.dtype(np.int32)
    assert scan.properties.text("TAGS").to_pylist() == ["paid"] * 3
