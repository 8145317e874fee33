"""Consume-queue units: 20 bytes each, and what a unit of given values is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import InvalidValue
from commitlog_store.format.consume_queue_unit import (
    FILLER_SIZE,
    UNIT,
    UNIT_DTYPE,
    UNIT_FILE_DTYPE,
    UNIT_SIZE,
    UnitState,
    classify_unit,
    decode_units,
)
from tests.store.format.golden_files import STORES, messages, queue_files, store_file

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)


@pytest.mark.parametrize("path", queue_files())
def test_files_of_rocketmq_encode_to_the_same_bytes(path: Path) -> None:
    data = path.read_bytes()
    assert decode_units(data).astype(UNIT_FILE_DTYPE).tobytes() == data


@pytest.mark.parametrize("store", STORES)
def test_units_say_what_rocketmq_read_from_them(store: str) -> None:
    queues: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for message in messages(store):
        queues.setdefault((message["topic"], message["queueId"]), []).append(message)
    for (topic, queue_id), expected in queues.items():
        first = expected[0]["queueOffset"]
        units = decode_units(store_file(store, "consumequeue", topic, str(queue_id), "0" * 20))
        found = units[first : first + len(expected)].tolist()
        assert found == [(message["physicalOffset"], message["storeSize"], message["tagsCode"]) for message in expected]
        following = units[first + len(expected)]
        assert classify_unit(int(following["physical_offset"]), int(following["size"])) is UnitState.UNWRITTEN


def test_unit_is_20_big_endian_bytes() -> None:
    data = bytes.fromhex("0000000000000102 00000304 FFFFFFFFFFFFFFFF")
    assert UNIT_SIZE == len(data) == 20
    assert decode_units(data).tolist() == [(0x102, 0x304, -1)]
    assert UNIT.unpack(data) == (0x102, 0x304, -1)


def test_decoded_units_are_native_and_do_not_hold_on_to_the_buffer() -> None:
    data = bytearray(UNIT.pack(1, 2, 3))
    units = decode_units(data)
    data[:] = bytes(UNIT_SIZE)
    assert units.dtype == UNIT_DTYPE
    assert units["physical_offset"].dtype.isnative
    assert units.flags.owndata
    assert units.tolist() == [(1, 2, 3)]


@given(st.lists(st.tuples(INT64, INT32, INT64)))
def test_units_are_read_back(values: list[tuple[int, int, int]]) -> None:
    data = b"".join(UNIT.pack(*value) for value in values)
    assert decode_units(data).tolist() == values
    assert decode_units(data).astype(UNIT_FILE_DTYPE).tobytes() == data


def test_no_bytes_are_not_units() -> None:
    assert len(decode_units(b"")) == 0


@pytest.mark.parametrize("size", [1, 19, 21, 39])
def test_part_of_a_unit_is_refused(size: int) -> None:
    with pytest.raises(InvalidValue, match=f"{size} bytes"):
        decode_units(bytes(size))


@pytest.mark.parametrize(
    ("physical_offset", "size", "state"),
    [
        pytest.param(0, 0, UnitState.UNWRITTEN, id="zeros"),
        pytest.param(5, 0, UnitState.UNWRITTEN, id="size-not-written-yet"),
        pytest.param(0, FILLER_SIZE, UnitState.FILLER, id="filler"),
        pytest.param(0, 91, UnitState.MESSAGE, id="first-message-of-a-log"),
        pytest.param(2**63 - 1, FILLER_SIZE - 1, UnitState.MESSAGE, id="largest"),
        pytest.param(-1, 91, UnitState.CORRUPT, id="negative-offset"),
        pytest.param(0, -1, UnitState.CORRUPT, id="negative-size"),
        pytest.param(-1, 0, UnitState.CORRUPT, id="negative-offset-without-size"),
        pytest.param(-(2**63), FILLER_SIZE, UnitState.CORRUPT, id="filler-with-negative-offset"),
        pytest.param(0, -(2**31), UnitState.CORRUPT, id="smallest-size"),
    ],
)
def test_unit_is_found_by_its_offset_and_size(physical_offset: int, size: int, state: UnitState) -> None:
    assert classify_unit(physical_offset, size) is state
