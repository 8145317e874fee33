"""``StoreReader.read_together``: the rows of ``read``, or none of them where anything is in the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog import ALL_COLUMNS, BatchId, Message, MessageFilter, MessageStore, StoreReader
from commitlog.columnar.body_compression import BodyCompression
from commitlog.errors import InvalidValue, OffsetOutOfRange, QueueNotFound, ReaderClosed
from commitlog.format.sys_flag import CompressionType
from commitlog.stager import BatchStager
from tests.support.store_builder import StoreBuilder

__all__: list[str] = []

Range = tuple[str, int, int, int]

_PLACES = ["topic", "queueId", "queueOffset"]


def _whole(reader: StoreReader) -> list[Range]:
    return [
        (topic, queue.queue_id, queue.min_offset, queue.max_offset)
        for topic in reader.topics()
        for queue in reader.queues(topic)
    ]


def _one_by_one(reader: StoreReader, ranges: Sequence[Range], columns: Sequence[str]) -> list[pa.RecordBatch]:
    return [batch for wanted in ranges for batch in reader.read(*wanted, columns=columns)]


def _rows(batches: Sequence[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("name", ["golden_533", "golden_498"])
def test_all_queues_of_a_store_of_rocketmq(name: str, request: pytest.FixtureRequest) -> None:
    with StoreReader.open(request.getfixturevalue(name)) as reader:
        ranges = _whole(reader)
        together = reader.read_together(ranges, columns=ALL_COLUMNS, verify_crc=True)
        assert together is not None
        assert _rows(together) == _rows(_one_by_one(reader, ranges, ALL_COLUMNS))
        assert len(together) < len(ranges)


@given(
    queues=st.lists(st.integers(0, 4), min_size=1, max_size=60),
    cuts=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=5, max_size=5),
)
def test_any_ranges_of_interleaved_queues(
    tmp_path_factory: pytest.TempPathFactory, queues: list[int], cuts: list[tuple[int, int]]
) -> None:
    """Over several files of the log and of the queues."""
    store = StoreBuilder(tmp_path_factory.mktemp("together") / "store", log_file_size=4 << 10, queue_file_units=7)
    store.append("t", queues, [b"%d" % number * 50 for number in range(len(queues))])
    with StoreReader.open(store.path) as reader:
        ranges = []
        for queue, (one, other) in zip(reader.queues("t"), cuts, strict=False):
            start, stop = sorted((min(one, queue.max_offset), min(other, queue.max_offset)))
            ranges.append(("t", queue.queue_id, start, stop))
        together = reader.read_together(ranges, columns=_PLACES)
        assert together is not None
        assert _rows(together) == _rows(_one_by_one(reader, ranges, _PLACES))


@pytest.mark.parametrize(
    "wanted", [{"tags": "paid || shipped"}, {"keys": "k1 k3"}, {"filter": "region = 'us'"}, {"tags": "no such tag"}]
)
def test_a_filter_selects_as_in_read(golden_533: Path, wanted: dict[str, str]) -> None:
    chosen = MessageFilter.parse(**wanted)
    with StoreReader.open(golden_533) as reader:
        ranges = [one for one in _whole(reader) if one[0] in ("orders", "audit")]
        together = reader.read_together(ranges, columns=ALL_COLUMNS, filter=chosen)
        assert together is not None
        assert all(batch.num_rows for batch in together)
        one_by_one = [batch for one in ranges for batch in reader.read(*one, columns=ALL_COLUMNS, filter=chosen)]
        assert _rows(together) == _rows(one_by_one)
        assert bool(together) == ("no such tag" not in wanted.values())


def test_nothing_is_read_of_no_ranges_and_of_empty_ones(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store")
    store.append("t", 0, [b"x"])
    with StoreReader.open(store.path) as reader:
        assert reader.read_together([]) == []
        assert reader.read_together([("t", 0, 1, 1)]) == []


@pytest.mark.parametrize("damage", ["record", "unit", "file"])
def test_none_where_damage_or_a_missing_file_is_in_the_way(tmp_path: Path, damage: str) -> None:
    store = StoreBuilder(tmp_path / "store", log_file_size=1 << 10)
    store.append("t", [0, 1] * 20, [b"x" * 100] * 40)
    logs = sorted((store.path / "commitlog").iterdir())
    if damage == "file":
        logs[2].unlink()
    else:
        path, place = (logs[1], 4) if damage == "record" else (store.path / "consumequeue/t/1" / ("0" * 20), 65)
        with path.open("r+b") as file:
            file.seek(place)
            file.write(b"\xff")
    with StoreReader.open(store.path) as reader:
        assert reader.read_together([("t", 0, 0, 20), ("t", 1, 0, 20)]) is None
        assert reader.read_together([("t", 0, 0, 2), ("t", 1, 0, 2)]) is not None


def test_none_where_bodies_unpack_to_more_than_a_batch_holds(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "store").close()
    batch_id = BatchId("packed", 1)
    compression = BodyCompression(CompressionType.ZLIB, 0)
    with BatchStager(tmp_path / "store", batch_id, queue_counts={"t": 2}, compression=compression) as stager:
        rows = {"topic": ["t"] * 8, "body": [b"x" * (1 << 20)] * 8, "queueId": pa.array([0, 1] * 4, pa.int32())}
        stager.put(pa.record_batch(rows))
        staged = stager.finish()
        assert staged is not None
    with MessageStore.open(tmp_path / "store") as store:
        store.commit_batch(batch_id, [staged])
    with StoreReader.open(tmp_path / "store") as reader:
        assert reader.read_together([("t", 0, 0, 4), ("t", 1, 0, 4)]) is None
        (batch,) = reader.read_together([("t", 0, 0, 1), ("t", 1, 0, 1)]) or []
        assert batch.column("body").to_pylist() == [b"x" * (1 << 20)] * 2


def test_wrong_ranges_are_refused_as_by_read(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store") as store:
        store.put_message(Message(queue_id=0, topic="t", body=b"x"))
    with StoreReader.open(tmp_path / "store") as reader:
        with pytest.raises(OffsetOutOfRange, match=r"wanted offsets \[0, 2\)"):
            reader.read_together([("t", 0, 0, 2)])
        with pytest.raises(InvalidValue, match="begins at or before its end"):
            reader.read_together([("t", 0, 1, 0)])
        with pytest.raises(QueueNotFound):
            reader.read_together([("t", 7, 0, 1)])
    with pytest.raises(ReaderClosed):
        reader.read_together([])
