"""``StoreReader.read_together``: the rows of ``read``, or none of them where anything is in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from commitlog_store import ALL_COLUMNS, Message, MessageFilter, MessageStore, StoreReader
from commitlog_store.errors import InvalidValue, OffsetOutOfRange, QueueNotFound, ReaderClosed
from tests.store.ranges_of_queues import (
    CUTS,
    QUEUES,
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

_PLACES = ["topic", "queueId", "queueOffset"]


@pytest.mark.parametrize("name", ["golden_533", "golden_498"])
def test_all_queues_of_a_store_of_rocketmq(name: str, request: pytest.FixtureRequest) -> None:
    with StoreReader.open(request.getfixturevalue(name)) as reader:
        ranges = [one for topic in reader.topics() for one in whole_queues(reader, topic)]
        together = reader.read_together(ranges, columns=ALL_COLUMNS, verify_crc=True)
        assert together is not None
        assert rows_of(together) == one_by_one(reader, ranges)
        assert len(together) < len(ranges)


@given(queues=QUEUES, cuts=CUTS)
def test_any_ranges_of_interleaved_queues(
    tmp_path_factory: pytest.TempPathFactory, queues: list[int], cuts: list[tuple[int, int]]
) -> None:
    """Over several files of the log and of the queues."""
    store = interleaved(tmp_path_factory.mktemp("together"), queues)
    with StoreReader.open(store.path) as reader:
        ranges = ranges_between(reader, cuts)
        together = reader.read_together(ranges, columns=_PLACES)
        assert together is not None
        assert rows_of(together) == one_by_one(reader, ranges, _PLACES)


@pytest.mark.parametrize(
    "wanted", [{"tags": "paid || shipped"}, {"keys": "k1 k3"}, {"filter": "region = 'us'"}, {"tags": "no such tag"}]
)
def test_a_filter_selects_as_in_read(golden_533: Path, wanted: dict[str, Any]) -> None:
    chosen = MessageFilter.parse(**wanted)
    with StoreReader.open(golden_533) as reader:
        ranges = whole_queues(reader, "audit") + whole_queues(reader, "orders")
        together = reader.read_together(ranges, columns=ALL_COLUMNS, filter=chosen)
        assert together is not None
        assert all(batch.num_rows for batch in together)
        assert rows_of(together) == one_by_one(reader, ranges, chosen=chosen)
        assert bool(together) == ("no such tag" not in wanted.values())


def test_nothing_is_read_of_no_ranges_and_of_empty_ones(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store")
    store.append("t", 0, [b"x"])
    with StoreReader.open(store.path) as reader:
        assert reader.read_together([]) == []
        assert reader.read_together([("t", 0, 1, 1)]) == []


@pytest.mark.parametrize("damage", ["record", "unit", "file"])
def test_none_where_damage_or_a_missing_file_is_in_the_way(tmp_path: Path, damage: str) -> None:
    store = two_queues(tmp_path)
    damaged(store, damage)
    with StoreReader.open(store.path) as reader:
        assert reader.read_together([("t", 0, 0, 20), ("t", 1, 0, 20)]) is None
        assert reader.read_together([("t", 0, 0, 2), ("t", 1, 0, 2)]) is not None


def test_none_where_bodies_unpack_to_more_than_a_batch_holds(tmp_path: Path) -> None:
    with StoreReader.open(unpacked_bodies(tmp_path, 8)) as reader:
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
