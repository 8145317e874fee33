"""Every byte of a small store damaged, one at a time: the right rows, or a named error.

Each byte takes one of four other values, in turns; the forms marked ``stress`` take all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from commitlog_store import MessageExt, StoreReader
from commitlog_store.errors import CommitLogError, CorruptCheckpoint, CorruptIndex
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.format.index_file import HEADER_SIZE, entry_offset
from tests.store.damage.filled_store import (
    BODIES,
    LOG_FILE_SIZE,
    damage_byte,
    expected_bodies,
    flips,
    index_file,
    log_file,
    outcome,
    queue_file,
    read_everything,
    records_of,
)
from tests.support.store_builder import StoreBuilder

Values = Callable[[int, int], list[int]]


def one_of(byte: int, at: int) -> list[int]:
    """One of the values for a byte: its neighbours take the others."""
    return flips(byte)[at % 4 :: 4]


def all_of(byte: int, at: int) -> list[int]:
    return flips(byte)


in_turns = pytest.mark.parametrize("values", [one_of, pytest.param(all_of, marks=pytest.mark.stress)])


@in_turns
@pytest.mark.parametrize("number", [0, 1, 2])
def test_every_byte_of_the_log_damaged_gives_the_right_bodies_or_an_error(
    builder: StoreBuilder, number: int, values: Values
) -> None:
    path = log_file(builder, number)
    base = int(path.name)
    whole = expected_bodies()
    data = path.read_bytes()
    with StoreReader.open(builder.path) as reader:
        for topic, queue_id, offset, place, size in records_of(reader):
            if not base <= place < base + LOG_FILE_SIZE:
                continue
            for at in range(place - base, place - base + size):
                for value in values(data[at], at)[: 4 if at < place - base + 90 else 1]:
                    undo = damage_byte(path, at, value)
                    try:
                        batches = reader.read(topic, queue_id, offset, columns=["body"], verify_crc=True)
                        bodies = [body for batch in batches for body in batch["body"].to_pylist()]
                    except CommitLogError:
                        pass
                    else:
                        assert bodies == whole[topic, queue_id][offset:], (at, value)
                    undo()
    assert read_everything(builder.path) == whole


def _both_ways(reader: StoreReader, number: int, place: int) -> list[MessageExt]:
    found = outcome(lambda: reader.message_at(place))
    by_key = reader.query("a", f"k{number}")
    return by_key if isinstance(found, CommitLogError) else [found, *by_key]


def test_every_byte_of_the_log_damaged_gives_the_right_message_or_an_error(builder: StoreBuilder) -> None:
    """The same by place and by key."""
    path = log_file(builder)
    with StoreReader.open(builder.path) as reader:
        (units,) = reader.units("a", 0, 0, 3)
        places = units["physical_offset"].tolist()
        for at in range(int(places[2])):
            undo = damage_byte(path, at, path.read_bytes()[at] ^ (1 << at % 8))
            for number, place in zip((0, 2), places, strict=False):
                found = outcome(partial(_both_ways, reader, number, place))
                if not isinstance(found, CommitLogError):
                    assert all(m.body == BODIES[number] for m in found), at
            undo()


@in_turns
@pytest.mark.parametrize("aborted", [False, True], ids=["closed", "crashed"])
def test_every_byte_of_a_queue_damaged_gives_all_rows_or_an_error(
    builder: StoreBuilder, aborted: bool, values: Values
) -> None:
    """The last unit too: in a store that was closed it leads to a message, and after a crash the log says so."""
    if aborted:
        builder.write_abort()
    path = queue_file(builder)
    data = path.read_bytes()
    for at in range(12 * UNIT_SIZE):
        for value in values(data[at], at):
            undo = damage_byte(path, at, value)
            found = outcome(lambda: read_everything(builder.path))
            undo()
            if isinstance(found, CommitLogError):
                assert str(builder.path) in str(found) or "Topic 'a', queue 0" in str(found)
            else:
                assert found == expected_bodies(), (at, value)


@in_turns
def test_every_byte_of_a_queue_whose_head_expired_gives_all_rows_or_an_error(
    builder: StoreBuilder, values: Values
) -> None:
    """A damaged unit may point into the deleted part of the log and look expired; the unit before it disproves that."""
    builder.delete_log_files(1)
    path = queue_file(builder)
    data = path.read_bytes()
    whole = read_everything(builder.path)
    assert 2 < len(whole["a", 0]) < 8
    for at in range(12 * UNIT_SIZE):
        for value in values(data[at], at):
            undo = damage_byte(path, at, value)
            found = outcome(lambda: read_everything(builder.path))
            undo()
            assert isinstance(found, CommitLogError) or found == whole, (at, value)


@in_turns
def test_every_byte_of_the_index_damaged_finds_the_right_messages_or_an_error(
    builder: StoreBuilder, values: Values
) -> None:
    path = index_file(builder)
    data = path.read_bytes()
    written = entry_offset(31, 10)
    with StoreReader.open(builder.path) as reader:
        for at in range(written + 40):
            for value in values(data[at], at):
                undo = damage_byte(path, at, value)
                for number in (0, 7, 15, 29):
                    topic = "b" if 10 <= number < 20 else "a"
                    try:
                        found = reader.query(topic, f"k{number}")
                    except CommitLogError:
                        continue
                    assert [m.body for m in found] in ([], [BODIES[number]]), at
                files = outcome(reader.index_files)
                if isinstance(files, CommitLogError):
                    assert isinstance(files, CorruptIndex)
                    assert (files.path, files.offset < HEADER_SIZE) == (str(path), True)
                undo()


def test_every_byte_of_the_checkpoint_damaged_is_a_time_or_an_error(builder: StoreBuilder) -> None:
    path = builder.path / "checkpoint"
    with StoreReader.open(builder.path) as reader:
        for at in range(60):
            undo = damage_byte(path, at, 0xFF)
            found = outcome(reader.checkpoint)
            assert found is not None
            assert not isinstance(found, CommitLogError) or isinstance(found, CorruptCheckpoint)
            undo()
