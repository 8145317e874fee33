"""Several stores through a real Spark: a stream that survives a store's absence, a batch, and tables about stores."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_commitlog.spark_versions import HAS_READ_LIMITS
from tests.connector.sink.test_batch import error_of
from tests.connector.source.spark_helpers import Batches
from tests.support.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


@pytest.fixture
def stores(tmp_path: Path) -> dict[str, StoreBuilder]:
    """Two stores with twenty messages each in two queues."""
    made = {name: StoreBuilder(tmp_path / name) for name in ("broker-a", "broker-b")}
    for name, store in made.items():
        store.append("orders", [0, 1], [name.encode()] * 20)
    return made


def path_of(stores: dict[str, StoreBuilder]) -> str:
    return ",".join(f"{name}={store.path}" for name, store in stores.items())


def frame_of(spark: SparkSession, stores: dict[str, StoreBuilder], **options: str) -> DataFrame:
    return spark.readStream.format("commitlog").options(subscribe="orders", **options).load(path_of(stores))


def by_store(rows: list[Row]) -> Counter[tuple[str, bytes]]:
    return Counter((row.store, bytes(row.body)) for row in rows)


def test_a_batch_read_has_the_store_of_each_row(spark: SparkSession, stores: dict[str, StoreBuilder]) -> None:
    reader = spark.read.format("commitlog").option("subscribe", "orders")
    frame = reader.load(path_of(stores))
    assert frame.columns[:2] == ["store", "topic"]
    assert by_store(frame.collect()) == {("broker-a", b"broker-a"): 20, ("broker-b", b"broker-b"): 20}
    counted = reader.schema("STORE string").load(path_of(stores)).groupBy("store").count().collect()
    assert {tuple(row) for row in counted} == {("broker-a", 20), ("broker-b", 20)}
    plain = reader.schema("queueOffset bigint, store string").load(str(stores["broker-a"].path))
    assert {row.store for row in plain.collect()} == {None}
    assert "declare it without NOT NULL" in error_of(
        reader.schema("store string not null").load(path_of(stores)).collect
    )


def test_a_stream_goes_on_without_a_store_and_reads_it_when_it_is_back(
    spark: SparkSession, stores: dict[str, StoreBuilder], tmp_path: Path
) -> None:
    batches = Batches(tmp_path / "checkpoint")
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "15", "onMissingStore": "skip"}
    assert len(batches.run(frame_of(spark, stores, **given))) == 40
    sizes = [len(rows) for _, rows in sorted(batches.by_id.items())]
    assert sizes == ([15, 15, 10] if HAS_READ_LIMITS else [40])
    for name, store in stores.items():
        store.append("orders", [0, 1], [name.encode()] * 4)
    stores["broker-b"].path.rename(tmp_path / "away")
    assert by_store(batches.run(frame_of(spark, stores, **given))) == {("broker-a", b"broker-a"): 4}
    (tmp_path / "away").rename(stores["broker-b"].path)
    stores["broker-c"] = StoreBuilder(tmp_path / "broker-c")
    stores["broker-c"].append("orders", [0], [b"broker-c"] * 3)
    batches.run(frame_of(spark, stores, **given))
    assert by_store(batches.rows) == {
        ("broker-a", b"broker-a"): 24,
        ("broker-b", b"broker-b"): 24,
        ("broker-c", b"broker-c"): 3,
    }


def test_a_table_about_stores_has_the_store_of_each_row(spark: SparkSession, stores: dict[str, StoreBuilder]) -> None:
    frame = spark.read.format("commitlog").option("metadata", "queues").load(path_of(stores))
    rows = frame.select("store", "topic", "queueId", "messages").collect()
    assert sorted(map(tuple, rows)) == [
        (name, "orders", queue_id, 10) for name in ("broker-a", "broker-b") for queue_id in (0, 1)
    ]
