"""Index files: header, slots and entries lie where RocketMQ puts them, and impossible headers are reported."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import InvalidValue
from commitlog_store.format import index_file
from commitlog_store.format.index_file import (
    ENTRY_SIZE,
    HEADER_SIZE,
    INDEX_ENTRY_DTYPE,
    SLOT_SIZE,
    IndexEntry,
    IndexHeader,
    check_header,
    decode_entry,
    decode_header,
    encode_header,
    entry_capacity,
    entry_offset,
    file_size,
    first_entry_agrees,
    infer_slot_count,
    slot_offset,
)
from commitlog_store.format.java_hash import index_key_hash
from tests.store.format.golden_files import GOLDEN, STORES
from tests.support import golden
from tests.support.encoders import encode_entry

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)

SLOTS, CAPACITY = 1000, 4000
HEADER = IndexHeader(1_700_000_000_000, 1_700_000_009_000, 0, 4096, 7, 9)


def index_bytes(store: str) -> bytes:
    (path,) = Path(GOLDEN / store / "store" / "index").iterdir()
    return path.read_bytes()


def entry_at(data: bytes, number: int, slots: int) -> IndexEntry:
    at = entry_offset(number, slots)
    return decode_entry(data[at : at + ENTRY_SIZE])


def chain(data: bytes, key: str) -> list[IndexEntry]:
    """The entries of a key's slot, newest first."""
    at = slot_offset(index_key_hash(key) % SLOTS)
    number = int.from_bytes(data[at : at + SLOT_SIZE], "big", signed=True)
    found = []
    while number:
        found.append(entry_at(data, number, SLOTS))
        assert found[-1].previous < number
        number = found[-1].previous
    return found


@pytest.mark.parametrize("store", STORES)
def test_header_of_rocketmq_encodes_to_the_same_bytes(store: str) -> None:
    data = index_bytes(store)[:HEADER_SIZE]
    assert encode_header(decode_header(data)) == data


@pytest.mark.parametrize("store", STORES)
def test_entries_of_rocketmq_encode_to_the_same_bytes(store: str) -> None:
    data = index_bytes(store)
    used = decode_header(data[:HEADER_SIZE]).index_count
    for number in range(used):
        at = entry_offset(number, SLOTS)
        assert encode_entry(entry_at(data, number, SLOTS)) == data[at : at + ENTRY_SIZE]
    table = np.frombuffer(data, INDEX_ENTRY_DTYPE, offset=entry_offset(0, SLOTS))
    assert len(table) == CAPACITY
    assert tuple(table[1].tolist()) == entry_at(data, 1, SLOTS)


@pytest.mark.parametrize("store", STORES)
def test_a_key_leads_to_the_offsets_that_rocketmq_answers(store: str) -> None:
    data = index_bytes(store)
    queries = golden.expected(store)["query"]
    assert queries
    for query in queries:
        key = f"{query['topic']}#{query['key']}"
        found = {entry.physical_offset for entry in chain(data, key) if entry.key_hash == index_key_hash(key)}
        assert found >= set(query["physicalOffsets"])


@pytest.mark.parametrize("store", STORES)
def test_header_counts_the_slots_in_use_not_all_slots(store: str) -> None:
    data = index_bytes(store)
    slots = np.frombuffer(data, ">i4", count=SLOTS, offset=slot_offset(0))
    header = decode_header(data[:HEADER_SIZE])
    assert header.hash_slot_count == np.count_nonzero(slots) < SLOTS
    assert check_header(header, SLOTS, CAPACITY) is None


def test_layout_is_that_of_the_format() -> None:
    assert (HEADER_SIZE, SLOT_SIZE, ENTRY_SIZE) == (40, 4, 20)
    assert encode_header(IndexHeader(1, 2, 3, 4, 5, 6)).hex() == (
        "00000000000000010000000000000002000000000000000300000000000000040000000500000006"
    )
    assert encode_entry(IndexEntry(1, 2, 3, 4)).hex() == "0000000100000000000000020000000300000004"


@given(st.builds(IndexHeader, INT64, INT64, INT64, INT64, INT32, INT32))
def test_headers_are_read_back_whatever_they_say(header: IndexHeader) -> None:
    assert decode_header(encode_header(header)) == header


@given(st.builds(IndexEntry, INT32, INT64, INT32, INT32))
def test_entries_are_read_back_whatever_they_say(entry: IndexEntry) -> None:
    assert decode_entry(encode_entry(entry)) == entry


@pytest.mark.parametrize("size", [0, 39, 41])
def test_header_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(InvalidValue, match=f"header takes 40 bytes, not {size}"):
        decode_header(bytes(size))


@pytest.mark.parametrize("size", [0, 19, 21])
def test_entry_of_another_size_is_refused(size: int) -> None:
    with pytest.raises(InvalidValue, match=f"entry takes 20 bytes, not {size}"):
        decode_entry(bytes(size))


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
@pytest.mark.parametrize("field", [field.name for field in fields(IndexHeader)])
def test_header_field_that_does_not_fit_is_refused(field: str, number: int) -> None:
    with pytest.raises(InvalidValue, match="header"):
        encode_header(replace(HEADER, **{field: number}))


@pytest.mark.parametrize("index_count", [0, 1, CAPACITY])
def test_index_count_of_a_new_an_empty_and_a_full_file_is_fine(index_count: int) -> None:
    assert check_header(replace(HEADER, index_count=index_count), SLOTS, CAPACITY) is None


def test_header_with_its_end_before_its_begin_is_fine_since_clocks_step_back() -> None:
    assert check_header(replace(HEADER, end_timestamp=HEADER.begin_timestamp - 1), SLOTS, CAPACITY) is None


@pytest.mark.parametrize(
    ("field", "value", "offset", "expected"),
    [
        ("begin_timestamp", -1, 0, "at least 0"),
        ("end_timestamp", -1, 8, "at least 0"),
        ("begin_physical_offset", -1, 16, "at least 0"),
        ("end_physical_offset", -1, 24, "at least 0"),
        ("hash_slot_count", -1, 32, "0 to 1000"),
        ("hash_slot_count", SLOTS + 1, 32, "0 to 1000"),
        ("index_count", -1, 36, "0 to 4000"),
        ("index_count", CAPACITY + 1, 36, "0 to 4000"),
    ],
)
def test_impossible_header_field_is_reported_with_its_place(field: str, value: int, offset: int, expected: str) -> None:
    problem = check_header(replace(HEADER, **{field: value}), SLOTS, CAPACITY)
    assert problem == (field, offset, expected, value)


def test_sizes_are_those_of_rocketmq_files() -> None:
    assert file_size(index_file.DEFAULT_SLOT_COUNT, index_file.DEFAULT_ENTRY_CAPACITY) == 420_000_040
    assert file_size(SLOTS, CAPACITY) == 84_040 == len(index_bytes(STORES[0]))


def test_slot_count_follows_from_the_size_at_four_entries_a_slot() -> None:
    assert infer_slot_count(420_000_040) == 5_000_000
    assert infer_slot_count(84_040) == 1000
    assert infer_slot_count(124) == 1


@pytest.mark.parametrize("size", [-44, 0, 39, 40, 123, 125, 84_039, 84_041, 220_000_040])
def test_size_that_no_slot_count_fits_is_reported(size: int) -> None:
    assert infer_slot_count(size) is None


@given(st.integers(1, 10**7), st.integers(1, 10**8))
def test_capacity_follows_from_the_size_and_the_slot_count(slots: int, capacity: int) -> None:
    assert entry_capacity(file_size(slots, capacity), slots) == capacity


@pytest.mark.parametrize("size", [0, 40, 4_040, 4_041, 4_059, 84_039])
def test_size_that_does_not_fit_the_slot_count_is_reported(size: int) -> None:
    assert entry_capacity(size, SLOTS) is None


@pytest.mark.parametrize("slots", [0, -1])
def test_file_without_slots_is_refused(slots: int) -> None:
    with pytest.raises(InvalidValue, match="at least 1 slot"):
        file_size(slots, 1)
    with pytest.raises(InvalidValue, match="at least 1 slot"):
        entry_capacity(84_040, slots)
    with pytest.raises(InvalidValue, match="at least 1 slot"):
        entry_offset(1, slots)


@pytest.mark.parametrize("capacity", [0, -1])
def test_file_without_room_for_entries_is_refused(capacity: int) -> None:
    with pytest.raises(InvalidValue, match="at least 1 entry"):
        file_size(SLOTS, capacity)


def test_negative_slot_or_entry_number_is_refused() -> None:
    with pytest.raises(InvalidValue, match="numbered from 0, not -1"):
        slot_offset(-1)
    with pytest.raises(InvalidValue, match="numbered from 0, not -1"):
        entry_offset(-1, SLOTS)


def test_last_entry_ends_the_file() -> None:
    assert slot_offset(SLOTS) == entry_offset(0, SLOTS)
    assert entry_offset(CAPACITY, SLOTS) == file_size(SLOTS, CAPACITY)


@pytest.mark.parametrize("store", STORES)
def test_first_entry_rules_out_nearly_all_wrong_slot_counts_of_the_same_file_size(store: str) -> None:
    data = index_bytes(store)
    header = decode_header(data[:HEADER_SIZE])
    fitting = [slots for slots in range(5, 4200) if entry_capacity(len(data), slots) is not None]
    assert len(fitting) > 800
    left = {slots for slots in fitting if first_entry_agrees(header, entry_at(data, 1, slots))}
    assert SLOTS in left
    assert len(left) < 10
    # The few others are places of zeros, which stand for physical offset 0.
    assert left == {SLOTS} or header.begin_physical_offset == 0


@pytest.mark.parametrize("index_count", [0, 1])
def test_file_without_entries_agrees_with_any_slot_count(index_count: int) -> None:
    assert first_entry_agrees(replace(HEADER, index_count=index_count), IndexEntry(-1, -1, -1, -1))
