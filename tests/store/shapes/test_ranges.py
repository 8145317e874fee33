"""Ranges, limits, and many queues in one log."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import FileChanged, InvalidValue, OffsetOutOfRange
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_FILE_DTYPE
from tests.store.shapes.numbered_bodies import body, bounds, log_files, made_bodies, numbered, queue_files, read
from tests.support.store_builder import StoreBuilder


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (3, 10_000), (1000, 700), (1000, 1 << 20)])
def test_a_range_over_many_files_is_read_whole_and_in_order(builder: StoreBuilder, rows: int, size: int) -> None:
    builder.append("t", 0, made_bodies(123))
    assert len(log_files(builder)) > 5
    assert len(queue_files(builder)) == 13
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 123)
        assert read(reader, max_batch_rows=rows, max_batch_bytes=size) == numbered(0, 123)
        assert read(reader, 9, 31, max_batch_rows=rows, max_batch_bytes=size) == numbered(9, 31)
        for start in (0, 9, 10, 11, 122, 123):
            assert read(reader, start) == numbered(start, 123)


def test_batches_keep_to_rows_and_bytes(builder: StoreBuilder) -> None:
    builder.append("t", 0, [b"x" * 20] * 30 + [b"y" * 2000] + [b"x" * 20] * 9)
    with StoreReader.open(builder.path) as reader:
        batches = list(reader.read("t", 0, 0, max_batch_rows=7, max_batch_bytes=600, columns=["body", "storeSize"]))
    for batch in batches:
        assert batch.num_rows <= 7
        # A message that alone is larger still comes, by itself.
        assert sum(batch["storeSize"].to_pylist()) <= 600 or batch.num_rows == 1
    assert sum(batch.num_rows for batch in batches) == 40


def test_batches_keep_to_the_bytes_that_bodies_unpack_to(tmp_path: Path) -> None:
    """Else a few megabytes of well compressed bodies would be gigabytes in a worker's memory."""
    builder = StoreBuilder(tmp_path / "store")
    plain = [bytes([number]) * 100_000 for number in range(40)]
    builder.append("t", 0, [zlib.compress(one) for one in plain], sys_flag=1)
    builder.append("t", 0, [b"not compressed" * 1000] * 3)
    with StoreReader.open(builder.path) as reader:
        batches = list(
            reader.read("t", 0, 0, max_batch_bytes=250_000, columns=["body", "queueOffset"], verify_crc=True)
        )
        found = [row for batch in batches for row in batch.to_pylist()]
        assert [row["body"] for row in found] == plain + [b"not compressed" * 1000] * 3
        assert [row["queueOffset"] for row in found] == list(range(43))
        assert max(sum(map(len, batch["body"].to_pylist())) for batch in batches) <= 250_000
        alone = list(reader.read("t", 0, 0, max_batch_bytes=50_000, columns=["body"]))
        assert [len(batch["body"][0].as_py()) for batch in alone[:40]] == [100_000] * 40


@pytest.mark.parametrize("name", ["max_batch_rows", "max_batch_bytes"])
@pytest.mark.parametrize("value", [0, -1])
def test_limits_are_at_least_one(builder: StoreBuilder, name: str, value: int) -> None:
    builder.append("t", 0, made_bodies(1))
    with StoreReader.open(builder.path) as reader, pytest.raises(InvalidValue, match=name):
        reader.read("t", 0, 0, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("chunk", [0, -1])
def test_units_come_at_least_one_at_a_time(builder: StoreBuilder, chunk: int) -> None:
    builder.append("t", 0, made_bodies(1))
    with StoreReader.open(builder.path) as reader, pytest.raises(InvalidValue, match="chunk"):
        list(reader.units("t", 0, 0, 1, chunk=chunk))


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (0, 6), (6, 7), (6, None), (-1, -1)])
def test_offsets_outside_the_queue_are_refused_with_the_available_ones(
    builder: StoreBuilder, start: int, stop: int | None
) -> None:
    builder.append("t", 0, made_bodies(5))
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(OffsetOutOfRange) as raised:
            reader.read("t", 0, start, stop)
        error = raised.value
        assert (error.topic, error.queue_id, error.start) == ("t", 0, start)
        assert (error.min_offset, error.max_offset) == (0, 5)
        assert error.stop == (7 if stop is None else stop)
        with pytest.raises(OffsetOutOfRange):
            reader.units("t", 0, start, stop if stop is not None else 9)
        with pytest.raises(OffsetOutOfRange):
            reader.store_timestamp("t", 0, 5)


@pytest.mark.parametrize(("start", "text"), [(6, "[6, 7)"), (9, "[9, 10)"), (-2, "[-2, 5)")])
def test_a_range_without_an_end_is_named_as_it_was_wanted(builder: StoreBuilder, start: int, text: str) -> None:
    builder.append("t", 0, made_bodies(5))
    with StoreReader.open(builder.path) as reader, pytest.raises(OffsetOutOfRange) as raised:
        reader.read("t", 0, start)
    assert f"wanted offsets {text}, available are [0, 5)." in str(raised.value)


def test_a_range_that_ends_before_its_start_is_refused_as_a_wrong_argument(builder: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(5))
    with StoreReader.open(builder.path) as reader:
        for refused in (lambda: reader.read("t", 0, 4, 3), lambda: reader.units("t", 0, 4, 3)):
            with pytest.raises(InvalidValue, match="not at 4 with the end 3"):
                refused()


def test_the_store_time_of_a_filler_is_refused_with_the_bounds_of_the_queue(builder: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(7))
    builder.write_units("t", 0, 4, np.array([(0, FILLER_SIZE, 0)], UNIT_FILE_DTYPE))
    with StoreReader.open(builder.path) as reader, pytest.raises(OffsetOutOfRange, match="is a filler") as raised:
        reader.store_timestamp("t", 0, 4)
    error = raised.value
    assert (error.start, error.stop, error.min_offset, error.max_offset) == (4, 5, 0, 7)


@pytest.mark.parametrize("at", [0, 2, 5])
def test_an_empty_range_within_the_queue_gives_no_batch(builder: StoreBuilder, at: int) -> None:
    builder.append("t", 0, made_bodies(5))
    with StoreReader.open(builder.path) as reader:
        assert list(reader.read("t", 0, at, at)) == []
        assert list(reader.units("t", 0, at, at)) == []


@pytest.mark.parametrize("between", [1, 80 << 10], ids=["through the mapping", "each message by itself"])
def test_queues_that_share_the_log_keep_apart(tmp_path: Path, between: int) -> None:
    """Where a queue's messages lie far apart they are read one by one; the rows are the same."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=8 << 20)
    for topic in ("t", "u"):
        made = made_bodies(200)
        for first in range(0, 200, 20):
            builder.append(topic, range(20), made[first : first + 20])
            builder.append("other", 0, [b"x" * between] * 20)
    with StoreReader.open(builder.path) as reader:
        for queue_id in range(20):
            for topic in ("t", "u"):
                expected = [(at, body(queue_id + 20 * at)) for at in range(10)]
                assert read(reader, topic=topic, queue_id=queue_id) == expected
                assert read(reader, topic=topic, queue_id=queue_id, max_batch_rows=3) == expected


def test_a_record_cut_off_is_reported_when_read_by_itself_too(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    places = []
    for body_of in made_bodies(10):
        builder.append("other", 0, [b"x" * (80 << 10)])
        places += builder.append("t", 0, [body_of]).tolist()
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 10)
        batches = reader.read("t", 0, 0)
        os.truncate(log_files(builder)[0], int(places[9]) + 50)
        with pytest.raises(FileChanged, match="00000000000000000000"):
            list(batches)
