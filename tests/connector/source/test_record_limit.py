"""``maxRecordsPerPartition``: no partition has more messages, every message stays in one, and queues in their order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_commitlog.source.partitions import RangePartition, limit_records
from pyspark_commitlog.source.units_of_ranges import QueueRange
from tests.connector.source.spark_helpers import Batches, read, stream
from tests.connector.source.test_batch_planning import assert_complete
from tests.support.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rows_of(partition: RangePartition) -> int:
    return sum(stop - start for *_, start, stop in partition.ranges)


def partition_of(lengths: list[int], *, side_by_side: bool) -> RangePartition:
    ranges = tuple(QueueRange("t", queue_id, 7, 7 + length) for queue_id, length in enumerate(lengths))
    return RangePartition(ranges, side_by_side=side_by_side)


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(1, 100), st.booleans())
@example([1, 5], 2, True)
def test_no_partition_has_more_and_every_message_is_in_one(lengths: list[int], most: int, side_by_side: bool) -> None:
    whole = partition_of(lengths, side_by_side=side_by_side and len(lengths) > 1)
    pieces = limit_records([whole, whole], most)
    half = len(pieces) // 2
    assert pieces[:half] == pieces[half:]
    assert_complete(pieces[:half], whole.ranges)
    assert max(map(rows_of, pieces)) <= most
    assert min(map(rows_of, pieces)) > 0
    if whole.side_by_side and most >= 2 * len(lengths):
        assert all(piece.side_by_side == (len(piece.ranges) > 1) for piece in pieces)


@pytest.mark.parametrize("most", [31, 32, 33, 64, 100])
def test_no_more_than_twice_the_tasks_that_are_needed(most: int) -> None:
    whole = partition_of([1000] * 32, side_by_side=True)
    assert len(limit_records([whole], most)) <= 2 * -(-rows_of(whole) // most)


@pytest.mark.parametrize("most", [None, 30])
def test_a_partition_within_the_limit_stays_as_it_is(most: int | None) -> None:
    whole = partition_of([10, 20], side_by_side=True)
    assert limit_records([whole], most) == [whole]


def test_pieces_are_even() -> None:
    pieces = limit_records([partition_of([1000], side_by_side=False)], 300)
    assert [rows_of(piece) for piece in pieces] == [250] * 4


def test_batch_and_stream_keep_to_it(spark: SparkSession, tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store")
    store.append("orders", [0, 1], [b"x"] * 100)
    given = {"subscribe": "orders", "startingOffsets": "earliest", "maxRecordsPerPartition": "20"}
    sizes = read(spark, store.path, "queueOffset bigint", **given).rdd.glom().map(len).collect()
    assert sum(sizes) == 100
    assert max(sizes) <= 20
    batches = Batches(tmp_path / "checkpoint")
    batches.run(stream(spark, store.path, **given).selectExpr("spark_partition_id() AS task"))
    by_task = Counter(row.task for row in batches.rows)
    assert sum(by_task.values()) == 100
    assert max(by_task.values()) <= 20
