"""A job written for Spark's Kafka connector, run on a store: its format and two options are changed.

    .format("kafka").option("kafka.bootstrap.servers", "broker:9092")                       before
    .format("commitlog").option("path", "/data/store").option("rowFormat", "kafka")         here

The job reads orders with key, value and headers, keeps the large ones, and writes them to another topic. The function
``connection`` is all that knows about the store.

    python examples/from_kafka.py [DIRECTORY]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import pyspark_commitlog  # noqa: F401  # before the session: Spark's workers then use this Python

ORDERS = 200
LARGE = 400
FORMAT = "commitlog"
# Settings of a new store: files of 16 MiB suffice for an example; RocketMQ's are of 1 GiB.
SMALL_FILES = {"mappedFileSizeCommitLog": "16m", "messageIndexEnable": "false"}


def connection(store: Path) -> dict[str, str]:
    """The two options. With Kafka: ``{"kafka.bootstrap.servers": "broker:9092"}``."""
    return {"path": str(store), "rowFormat": "kafka"}


def start_spark() -> SparkSession:
    return (
        SparkSession.builder.appName("from-kafka")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def make_orders(spark: SparkSession, store: Path) -> None:
    """Each order has its customer as key, and a header."""
    orders = spark.range(ORDERS).selectExpr(
        "concat('customer-', id % 10) AS key",
        "cast(id * 7 % 500 AS string) AS value",
        "array(named_struct('key', 'shop', 'value', cast('berlin' AS binary))) AS headers",
    )
    options = connection(store) | SMALL_FILES
    orders.write.format(FORMAT).options(**options).option("topic", "orders").mode("append").save()


def read_orders(spark: SparkSession, store: Path) -> DataFrame:
    return (
        spark.readStream.format(FORMAT)
        .options(**connection(store))
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", 50)
        .load()
    )


def keep_large(orders: DataFrame, store: Path, checkpoint: Path) -> None:
    large = orders.where(f"cast(cast(value AS string) AS int) >= {LARGE}").select("key", "value", "headers")
    query = (
        large.writeStream.format(FORMAT)
        .options(**connection(store))
        .option("topic", "large-orders")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(directory: Path) -> None:
    store = directory / "store"
    spark = start_spark()
    make_orders(spark, store)
    keep_large(read_orders(spark, store), store, directory / "checkpoint")

    rows = (
        spark.read.format(FORMAT)
        .options(**connection(store))
        .option("subscribe", "large-orders")
        .option("includeHeaders", "true")
        .load()
    )
    print("columns:", ", ".join(rows.columns))
    found = rows.selectExpr("cast(key AS string) key", "partition", "headers[0].value shop").collect()
    customers = {row.key for row in found}
    places = {(row.key, row.partition) for row in found}
    print(f"{len(found)} of {sum(number * 7 % 500 >= LARGE for number in range(ORDERS))} large orders")
    print(f"Each of {len(customers)} customers in one partition: {len(places) == len(customers)}")
    print("shops:", {bytes(row.shop).decode() for row in found})
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        main(Path(tempfile.mkdtemp(prefix="commitlog-")))
