"""Stores with a missing head, or missing files in the middle."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import CorruptConsumeQueue, FileMissing, MessageNotFound, OffsetOutOfRange
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from tests.store.shapes.numbered_bodies import (
    SMALL_LOG,
    UNITS,
    bounds,
    log_files,
    made_bodies,
    numbered,
    queue_files,
    read,
)
from tests.support.store_builder import StoreBuilder


def test_messages_of_deleted_log_files_are_below_the_min_offset(builder: StoreBuilder) -> None:
    """Their units are still there: RocketMQ deletes queue files later, and only whole ones."""
    places = builder.append("t", 0, made_bodies(60))
    assert len(log_files(builder)) >= 4
    for _ in range(3):
        builder.delete_log_files(1)
        log_start = int(log_files(builder)[0].name)
        first = int(np.searchsorted(places, log_start))
        with StoreReader.open(builder.path) as reader:
            assert bounds(reader) == (first, 60)
            assert read(reader, first) == numbered(first, 60)
            assert reader.physical_bounds() == (log_start, builder.position)
            with pytest.raises(OffsetOutOfRange) as raised:
                reader.read("t", 0, first - 1)
            assert raised.value.min_offset == first
            with pytest.raises(MessageNotFound, match=f"the log holds .{log_start}, "):
                reader.message_at(int(places[first - 1]))


def test_missing_queue_files_at_the_head_move_the_min_offset(builder: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(45))
    queue_files(builder)[0].unlink()
    queue_files(builder)[0].unlink()
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (20, 45)
        assert read(reader, 20) == numbered(20, 45)
        with pytest.raises(OffsetOutOfRange):
            reader.read("t", 0, 19)


def test_a_queue_whose_messages_all_expired_is_empty(builder: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(5))
    builder.append("busy", 0, made_bodies(100))
    builder.delete_log_files(2)
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (5, 5)
        assert read(reader, 5) == []
        builder.append("t", 0, made_bodies(1, 5))
        assert bounds(reader) == (5, 6)
        assert read(reader, 5) == numbered(5, 6)


def test_a_store_that_starts_late_is_read_from_its_first_file(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s", log_file_size=SMALL_LOG, queue_file_units=UNITS, log_start=40 * SMALL_LOG)
    builder.start_queue_at("t", 0, 70)
    builder.append("t", 0, made_bodies(30, 70))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (70, 100)
        assert read(reader, 70) == numbered(70, 100)
        assert reader.physical_bounds() == (40 * SMALL_LOG, builder.position)


def test_fillers_at_the_head_are_not_messages(builder: StoreBuilder) -> None:
    builder.pad_queue("t", 0, 13)
    builder.append("t", 0, made_bodies(12, 13))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (13, 25)
        assert read(reader, 13) == numbered(13, 25)
        assert reader.offset_by_time("t", 0, 0) == 13


def test_a_queue_of_fillers_only_is_empty(builder: StoreBuilder) -> None:
    builder.pad_queue("t", 0, 13)
    builder.append("other", 0, made_bodies(1))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (13, 13)
        assert read(reader, 13) == []


def test_a_missing_log_file_is_named_with_the_offsets_it_held(builder: StoreBuilder) -> None:
    places = builder.append("t", 0, made_bodies(90))
    files = log_files(builder)
    gone, later = files[2], files[3]
    gone.unlink()
    first, beyond = (int(np.searchsorted(places, int(path.name))) for path in (gone, later))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 90)
        with pytest.raises(FileMissing) as raised:
            read(reader)
        assert (raised.value.path, raised.value.start, raised.value.stop) == (str(gone), first, beyond)
        assert (raised.value.topic, raised.value.queue_id) == ("t", 0)
        assert str(gone) in str(raised.value)
        assert read(reader, 0, first) == numbered(0, first)
        assert read(reader, beyond) == numbered(beyond, 90)
        with pytest.raises(MessageNotFound):
            reader.message_at(int(places[first]))


def test_the_first_rows_come_before_the_gap_is_reported(builder: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(90))
    log_files(builder)[2].unlink()
    found: list[int] = []
    with StoreReader.open(builder.path) as reader:
        batches = reader.read("t", 0, 0, columns=["queueOffset"])
        with pytest.raises(FileMissing) as raised:
            found.extend(offset for batch in batches for offset in batch["queueOffset"].to_pylist())
    assert found == list(range(raised.value.start))


def test_a_missing_queue_file_is_named_with_the_offsets_it_held(builder: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(45))
    gone = queue_files(builder)[2]
    gone.unlink()
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 45)
        for start in (0, 19, 20, 25):
            with pytest.raises(FileMissing) as raised:
                read(reader, start)
            assert (raised.value.path, raised.value.start, raised.value.stop) == (str(gone), max(start, 20), 30)
        assert read(reader, 0, 20) == numbered(0, 20)
        assert read(reader, 30) == numbered(30, 45)


def test_a_queue_file_cut_short_in_the_middle_hides_nothing(builder: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(45))
    os.truncate(queue_files(builder)[1], 7 * UNIT_SIZE + 3)
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 45)
        with pytest.raises(FileMissing) as raised:
            read(reader)
        assert (raised.value.start, raised.value.stop) == (17, 20)
        assert read(reader, 20) == numbered(20, 45)


def test_a_hole_in_a_queue_is_not_an_end(builder: StoreBuilder) -> None:
    """The units after one whose size damage has zeroed must not vanish without a word."""
    builder.append("t", 0, made_bodies(45))
    for unit in range(44):
        path = queue_files(builder)[unit // UNITS]
        whole = path.read_bytes()
        at = unit % UNITS * UNIT_SIZE
        path.write_bytes(whole[: at + 8] + bytes(4) + whole[at + 12 :])
        with StoreReader.open(builder.path) as reader, pytest.raises(CorruptConsumeQueue) as raised:
            read(reader)
        assert str(path) in str(raised.value)
        assert raised.value.offset == at
        path.write_bytes(whole)
