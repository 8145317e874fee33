"""``StoreReader.read_side_by_side``: the rows of ``read``, in the log's order, up to what is in the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog import ALL_COLUMNS, BatchId, MessageFilter, MessageStore, StoreReader
from commitlog.columnar.body_compression import BodyCompression
from commitlog.errors import InvalidValue, OffsetOutOfRange, ReaderClosed
from commitlog.format.sys_flag import CompressionType
from commitlog.stager import BatchStager
from tests.support.store_builder import StoreBuilder

__all__: list[str] = []

Range = tuple[str, int, int, int]
Rows = list[dict[str, object]]

_PLACES = ["topic", "queueId", "queueOffset", "physicalOffset"]


def _rows(batches: Sequence[pa.RecordBatch]) -> Rows:
    return [row for batch in batches for row in batch.to_pylist()]


def _of_log(rows: Rows) -> Rows:
    """Rows in the order of the log."""
    return sorted(rows, key=lambda row: int(str(row["physicalOffset"])))


def _whole(reader: StoreReader, topic: str) -> list[Range]:
    return [(topic, queue.queue_id, queue.min_offset, queue.max_offset) for queue in reader.queues(topic)]


def _one_by_one(reader: StoreReader, ranges: Sequence[Range], chosen: MessageFilter | None = None) -> Rows:
    return _rows([batch for one in ranges for batch in reader.read(*one, columns=ALL_COLUMNS, filter=chosen)])


@pytest.mark.parametrize("name", ["golden_533", "golden_498"])
def test_each_topic_of_a_store_of_rocketmq(name: str, request: pytest.FixtureRequest) -> None:
    with StoreReader.open(request.getfixturevalue(name)) as reader:
        for topic in reader.topics():
            ranges = _whole(reader, topic)
            batches = reader.read_side_by_side(ranges, columns=ALL_COLUMNS, verify_crc=True)
            assert _rows(list(batches)) == _of_log(_one_by_one(reader, ranges))
            assert batches.positions == [stop for *_, stop in ranges]


@given(
    queues=st.lists(st.integers(0, 4), min_size=1, max_size=60),
    cuts=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=5, max_size=5),
)
def test_any_ranges_of_interleaved_queues(
    tmp_path_factory: pytest.TempPathFactory, queues: list[int], cuts: list[tuple[int, int]]
) -> None:
    """Over several files of the log and of the queues."""
    store = StoreBuilder(tmp_path_factory.mktemp("beside") / "store", log_file_size=4 << 10, queue_file_units=7)
    store.append("t", queues, [b"%d" % number * 50 for number in range(len(queues))])
    with StoreReader.open(store.path) as reader:
        ranges = []
        for queue, (one, other) in zip(reader.queues("t"), cuts, strict=False):
            start, stop = sorted((min(one, queue.max_offset), min(other, queue.max_offset)))
            ranges.append(("t", queue.queue_id, start, stop))
        assert _rows(list(reader.read_side_by_side(ranges, columns=ALL_COLUMNS))) == _of_log(
            _one_by_one(reader, ranges)
        )


def test_every_message_of_long_ranges_is_given_once_and_in_the_order_of_its_queue(tmp_path: Path) -> None:
    """More than one round of units, the second one with queues that end at different places."""
    store = StoreBuilder(tmp_path / "store", log_file_size=32 << 20, queue_file_units=300_000)
    queues = [number % 3 if number < 60_000 else number % 7 % 2 for number in range(120_000)]
    store.append("t", queues, [b"x"] * len(queues))
    with StoreReader.open(store.path) as reader:
        ranges = _whole(reader, "t")
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
def test_a_filter_selects_as_in_read(golden_533: Path, wanted: dict[str, str]) -> None:
    chosen = MessageFilter.parse(**wanted)
    with StoreReader.open(golden_533) as reader:
        ranges = _whole(reader, "orders")
        batches = reader.read_side_by_side(ranges, columns=ALL_COLUMNS, filter=chosen)
        assert _rows(list(batches)) == _of_log(_one_by_one(reader, ranges, chosen))
        assert batches.positions == [stop for *_, stop in ranges]


@pytest.mark.parametrize("damage", ["record", "unit", "file"])
def test_batches_end_before_damage_or_a_missing_file_and_say_where(tmp_path: Path, damage: str) -> None:
    store = StoreBuilder(tmp_path / "store", log_file_size=1 << 10)
    store.append("t", [0, 1] * 20, [b"x" * 100] * 40)
    ranges = [("t", 0, 0, 20), ("t", 1, 0, 20)]
    with StoreReader.open(store.path) as reader:
        every = _of_log(_one_by_one(reader, ranges))
    logs = sorted((store.path / "commitlog").iterdir())
    if damage == "file":
        logs[2].unlink()
    else:
        path, place = (logs[1], 4) if damage == "record" else (store.path / "consumequeue/t/1" / ("0" * 20), 65)
        with path.open("r+b") as file:
            file.seek(place)
            file.write(b"\xff")
    with StoreReader.open(store.path) as reader:
        batches = reader.read_side_by_side(ranges, columns=ALL_COLUMNS)
        read = _rows(list(batches))
        assert read == every[: len(read)]
        assert len(read) < 40
        assert sum(batches.positions) == len(read)
        assert [sum(row["queueId"] == queue_id for row in read) for queue_id in (0, 1)] == batches.positions


def test_batches_hold_no_more_than_fits_of_bodies_that_unpack_to_much(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "store").close()
    batch_id = BatchId("packed", 1)
    compression = BodyCompression(CompressionType.ZLIB, 0)
    with BatchStager(tmp_path / "store", batch_id, queue_counts={"t": 2}, compression=compression) as stager:
        rows = {"topic": ["t"] * 16, "body": [b"x" * (1 << 20)] * 16, "queueId": pa.array([0, 1] * 8, pa.int32())}
        stager.put(pa.record_batch(rows))
        staged = stager.finish()
        assert staged is not None
    with MessageStore.open(tmp_path / "store") as store:
        store.commit_batch(batch_id, [staged])
    with StoreReader.open(tmp_path / "store") as reader:
        batches = reader.read_side_by_side([("t", 0, 0, 8), ("t", 1, 0, 8)])
        found = list(batches)
        assert batches.positions == [8, 8]
        assert all(batch.num_rows <= 4 for batch in found)
        assert [row["body"] for row in _rows(found)] == [b"x" * (1 << 20)] * 16


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
