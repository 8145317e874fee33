"""Units, index slots and index entries of values that cannot be."""

from __future__ import annotations

import numpy as np
import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import CorruptConsumeQueue, CorruptIndex, CorruptRecord, CorruptStoreError
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.format.index_file import entry_offset, slot_offset
from commitlog_store.format.java_hash import index_key_hash
from tests.store.damage.filled_store import index_file, poke, queue_file
from tests.support.store_builder import StoreBuilder


@pytest.mark.parametrize("value", [-(2**63), -1, 2**63 - 1, 10**15])
def test_a_unit_that_points_outside_the_log_is_reported(builder: StoreBuilder, value: int) -> None:
    poke(queue_file(builder), 3 * UNIT_SIZE, "q", value)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptConsumeQueue) as raised:
        list(reader.read("a", 0, 0))
    assert (raised.value.path, raised.value.offset) == (str(queue_file(builder)), 3 * UNIT_SIZE)


def test_a_unit_that_points_back_is_named_by_its_own_place(builder: StoreBuilder) -> None:
    poke(queue_file(builder), 3 * UNIT_SIZE, "q", 0)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptConsumeQueue, match="offset after") as raised:
        list(reader.read("a", 0, 0))
    assert (raised.value.path, raised.value.offset) == (str(queue_file(builder)), 3 * UNIT_SIZE)


@pytest.mark.parametrize("value", [-(2**31), -1, 0, 1, 90, 0x7FFFFFFE])
def test_a_unit_of_an_impossible_size_is_reported(builder: StoreBuilder, value: int) -> None:
    poke(queue_file(builder), 3 * UNIT_SIZE + 8, "i", value)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptStoreError):
        list(reader.read("a", 0, 0))


def test_a_unit_of_another_queue_is_noticed(builder: StoreBuilder) -> None:
    """Units swapped between queues point to whole records, of another queue."""
    other = queue_file(builder).parents[1] / "1" / queue_file(builder).name
    data = bytearray(queue_file(builder).read_bytes())
    data[4 * UNIT_SIZE : 5 * UNIT_SIZE] = other.read_bytes()[4 * UNIT_SIZE : 5 * UNIT_SIZE]
    queue_file(builder).write_bytes(data)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptRecord, match="QUEUEID"):
        list(reader.read("a", 0, 0))


def test_a_light_queue_with_a_wild_unit_is_an_error_too(builder: StoreBuilder) -> None:
    with StoreReader.open(builder.path) as reader:
        (units,) = reader.units("a", 0, 0, 3)
    wild = np.zeros(3, [("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
    wild["physical_offset"], wild["size"] = units["physical_offset"], units["size"]
    wild["physical_offset"][1] += 1
    builder.write_units("%LMQ%x", 0, 0, wild)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptRecord):
        list(reader.read("%LMQ%x", 0, 0))


def _chain(builder: StoreBuilder) -> tuple[int, int]:
    """The byte of the slot that holds ``k0`` of topic ``a``, and of the entry of it."""
    return slot_offset(index_key_hash("a#k0") % 10), entry_offset(1, 10)


@pytest.mark.parametrize("previous", [1, 2, 30, 0x7FFFFFFF, -1, -(2**31)])
def test_an_index_chain_that_does_not_descend_is_reported(builder: StoreBuilder, previous: int) -> None:
    """A cycle would be followed for ever, a wild number would lead out of the file."""
    slot, entry = _chain(builder)
    poke(index_file(builder), slot, "i", 1)
    poke(index_file(builder), entry + 16, "i", previous)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptIndex, match="Chain of entry 1") as raised:
        reader.query("a", "k0")
    assert (raised.value.path, raised.value.offset) == (str(index_file(builder)), entry)


@pytest.mark.parametrize("number", [-1, -(2**31), 32, 39, 40, 41, 0x7FFFFFFF])
def test_an_index_slot_that_points_outside_is_reported(builder: StoreBuilder, number: int) -> None:
    slot, _ = _chain(builder)
    poke(index_file(builder), slot, "i", number)
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(CorruptIndex, match="Slot") as raised:
            reader.query("a", "k0")
        assert raised.value.offset == slot
        builder.write_abort()
        assert reader.query("a", "k0") == [], "after a crash RocketMQ passes over such slots"


@pytest.mark.parametrize("count", [40, 41, 0x7FFFFFFF, -1, -(2**31)])
def test_an_index_count_larger_than_the_file_is_reported(builder: StoreBuilder, count: int) -> None:
    poke(index_file(builder), 36, "i", count)
    slot, _ = _chain(builder)
    poke(index_file(builder), slot, "i", 40)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptIndex):
        reader.query("a", "k0")


@pytest.mark.parametrize("place", [-1, -(2**63), 10**15, 2**63 - 1])
def test_an_index_entry_that_points_outside_the_log_is_reported(builder: StoreBuilder, place: int) -> None:
    _, entry = _chain(builder)
    poke(index_file(builder), entry + 4, "q", place)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptIndex) as raised:
        reader.query("a", "k0")
    assert (raised.value.offset, raised.value.found) == (entry, place)


def test_an_index_entry_that_points_into_a_record_is_reported(builder: StoreBuilder) -> None:
    _, entry = _chain(builder)
    poke(index_file(builder), entry + 4, "q", 5)
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptRecord):
        reader.query("a", "k0")


@pytest.mark.parametrize("size", [1, 39, 40, 41, 123, 125, 84_039])
def test_an_index_file_of_an_impossible_size_is_refused_at_every_look(builder: StoreBuilder, size: int) -> None:
    index_file(builder).write_bytes(bytes(size))
    with StoreReader.open(builder.path) as reader:
        for _ in range(3):
            with pytest.raises(CorruptIndex, match="expected a size of"):
                reader.query("a", "k0")
            with pytest.raises(CorruptIndex):
                reader.index_files()


def test_an_index_file_that_was_just_made_is_empty(builder: StoreBuilder) -> None:
    """A live owner makes the file first and gives it its size next."""
    data = index_file(builder).read_bytes()
    index_file(builder).write_bytes(b"")
    with StoreReader.open(builder.path) as reader:
        assert reader.query("a", "k0") == []
        index_file(builder).write_bytes(bytes(len(data)))
        assert reader.query("a", "k0") == []
        index_file(builder).write_bytes(data)
        assert len(reader.query("a", "k0")) == 1
