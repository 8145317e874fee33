"""``StoreReader.read_side_by_side``: the rows of ``read``, in the log's order, up to what is in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given

from commitlog_store import ALL_COLUMNS, MessageFilter, StoreReader
from commitlog_store.errors import InvalidValue, OffsetOutOfRange, ReaderClosed
from tests.store.ranges_of_queues import (
    CUTS,
    QUEUES,
    Rows,
    damaged,
    interleaved,
    one_by_one,
    ranges_between,
    rows_of,
    two_queues,
    unpacked_bodies,
    whole_queues,
)
from tests.support.store_builder import StoreBuilder

_PLACES = ["topic", "queueId", "queueOffset", "physicalOffset"]


def _of_log(rows: Rows) -> Rows:
    """Rows in the order of the log."""
    return sorted(rows, key=lambda row: int(str(row["physicalOffset"])))


@pytest.mark.parametrize("name", ["golden_533", "golden_498"])
def test_each_topic_of_a_store_of_rocketmq(name: str, request: pytest.FixtureRequest) -> None:
    with StoreReader.open(request.getfixturevalue(name)) as reader:
        for topic in reader.topics():
            ranges = whole_queues(reader, topic)
            batches = reader.read_side_by_side(ranges, columns=ALL_COLUMNS, verify_crc=True)
            assert rows_of(list(batches)) == _of_log(one_by_one(reader, ranges))
            assert batches.positions == [stop for *_, stop in ranges]


@given(queues=QUEUES, cuts=CUTS)
def test_any_ranges_of_interleaved_queues(
    tmp_path_factory: pytest.TempPathFactory, queues: list[int], cuts: list[tuple[int, int]]
) -> None:
    """Over several files of the log and of the queues."""
    store = interleaved(tmp_path_factory.mktemp("beside"), queues)
    with StoreReader.open(store.path) as reader:
        ranges = ranges_between(reader, cuts)
        assert rows_of(list(reader.read_side_by_side(ranges, columns=ALL_COLUMNS))) == _of_log(
            one_by_one(reader, ranges)
        )


def test_every_message_of_long_ranges_is_given_once_and_in_the_order_of_its_queue(tmp_path: Path) -> None:
    """More than one round of units, the second one with queues that end at different places."""
    store = StoreBuilder(tmp_path / "store", log_file_size=32 << 20, queue_file_units=300_000)
    queues = [number % 3 if number < 60_000 else number % 7 % 2 for number in range(120_000)]
    store.append("t", queues, [b"x"] * len(queues))
    with StoreReader.open(store.path) as reader:
        ranges = whole_queues(reader, "t")
        batches = list(reader.read_side_by_side(ranges, columns=_PLACES))
        rows = pa.Table.from_batches(batches)
        for _, queue_id, start, stop in ranges:
            offsets = rows.filter(pc.equal(rows["queueId"], queue_id))["queueOffset"].to_pylist()
            assert offsets == list(range(start, stop))
        # A round that ends within a block leaves its rest to the next one.
        assert min(batch.num_rows for batch in batches[:-1]) > 8_000


@pytest.mark.parametrize(
    "wanted", [{"tags": "paid || shipped"}, {"keys": "k1 k3"}, {"filter": "region = 'us'"}, {"tags": "no such tag"}]
)
def test_a_filter_selects_as_in_read(golden_533: Path, wanted: dict[str, Any]) -> None:
    chosen = MessageFilter.parse(**wanted)
    with StoreReader.open(golden_533) as reader:
        ranges = whole_queues(reader, "orders")
        batches = reader.read_side_by_side(ranges, columns=ALL_COLUMNS, filter=chosen)
        assert rows_of(list(batches)) == _of_log(one_by_one(reader, ranges, chosen=chosen))
        assert batches.positions == [stop for *_, stop in ranges]


@pytest.mark.parametrize("damage", ["record", "unit", "file"])
def test_batches_end_before_damage_or_a_missing_file_and_say_where(tmp_path: Path, damage: str) -> None:
    store = two_queues(tmp_path)
    ranges = [("t", 0, 0, 20), ("t", 1, 0, 20)]
    with StoreReader.open(store.path) as reader:
        every = _of_log(one_by_one(reader, ranges))
    damaged(store, damage)
    with StoreReader.open(store.path) as reader:
        batches = reader.read_side_by_side(ranges, columns=ALL_COLUMNS)
        read = rows_of(list(batches))
        assert read == every[: len(read)]
        assert len(read) < 40
        assert sum(batches.positions) == len(read)
        assert [sum(row["queueId"] == queue_id for row in read) for queue_id in (0, 1)] == batches.positions


def test_batches_hold_no_more_than_fits_of_bodies_that_unpack_to_much(tmp_path: Path) -> None:
    with StoreReader.open(unpacked_bodies(tmp_path, 16)) as reader:
        batches = reader.read_side_by_side([("t", 0, 0, 8), ("t", 1, 0, 8)])
        found = list(batches)
        assert batches.positions == [8, 8]
        assert all(batch.num_rows <= 4 for batch in found)
        assert [row["body"] for row in rows_of(found)] == [b"x" * (1 << 20)] * 16


def test_a_file_that_is_cut_while_it_is_read_ends_the_batches(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store", log_file_size=1 << 20)
    store.append("t", [0, 1] * 50, [b"x" * 100] * 100)
    with StoreReader.open(store.path) as reader:
        batches = reader.read_side_by_side([("t", 0, 0, 50), ("t", 1, 0, 50)])
        (log,) = (store.path / "commitlog").iterdir()
        with log.open("r+b") as file:
            file.truncate(4096)
        assert list(batches) == []
        assert batches.positions == [0, 0]


def test_wrong_ranges_are_refused_as_by_read(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store")
    store.append("t", 0, [b"x"])
    store.append("u", 0, [b"x"])
    with StoreReader.open(store.path) as reader:
        with pytest.raises(OffsetOutOfRange, match=r"wanted offsets \[0, 2\)"):
            reader.read_side_by_side([("t", 0, 0, 2)])
        for ranges in ([], [("t", 0, 0, 1), ("u", 0, 0, 1)]):
            with pytest.raises(InvalidValue, match="those of one topic"):
                reader.read_side_by_side(ranges)
        batches = reader.read_side_by_side([("t", 0, 0, 1)])
    with pytest.raises(ReaderClosed):
        next(batches)
