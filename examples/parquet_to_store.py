"""Parquet files into a store, once, however often the job runs.

The write has a name: ``txnAppId`` says whose it is, ``txnVersion`` which one. The store remembers the last version of
every name, so a job that is repeated after a failure writes nothing twice. A write is in the store as a whole or not at
all: no reader sees a part of it.

    python examples/parquet_to_store.py [DIRECTORY]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, concat, lit, struct, to_json, when

import pyspark_commitlog  # noqa: F401  # before the session: Spark's workers then use this Python
from commitlog_store import StoreReader

ORDERS = 1_000
# Settings of a new store: files of 16 MiB suffice for an example; RocketMQ's are of 1 GiB.
SMALL_FILES = {"mappedFileSizeCommitLog": "16m", "maxHashSlotNum": "10000", "maxIndexNum": "40000"}


def start_spark() -> SparkSession:
    return (
        SparkSession.builder.appName("Parquet to store")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def make_parquet(spark: SparkSession, path: Path) -> None:
    """Some orders of ten customers."""
    orders = spark.range(ORDERS).select(
        concat(lit("order-"), col("id")).alias("orderId"),
        concat(lit("customer-"), col("id") % 10).alias("customer"),
        (col("id") * 7 % 500).alias("amount"),
    )
    orders.write.mode("overwrite").parquet(str(path))


def load_orders(spark: SparkSession, parquet: Path, store: Path, version: int) -> None:
    """One run of the job: rows become messages by the names of their columns."""
    orders = spark.read.parquet(str(parquet))
    messages = orders.select(
        to_json(struct("orderId", "customer", "amount")).alias("body"),
        col("orderId").alias("keys"),  # the store's index finds messages by it
        when(col("amount") >= 400, "large").alias("tags"),
        col("customer").alias("shardingKey"),  # what has one key goes to one queue, and so stays in order
    )
    (
        messages.write.format("commitlog")
        .mode("append")
        .options(**SMALL_FILES)
        .option("topic", "orders")
        .option("queues", 4)
        .option("txnAppId", "orders-loader")
        .option("txnVersion", version)  # of a daily job, say, the day: 20250131
        .save(str(store))
    )


def main(directory: Path) -> int:
    """Run the job twice; 0 when each row is stored exactly once."""
    parquet, store = directory / "orders", directory / "store"
    spark = start_spark()
    make_parquet(spark, parquet)
    counts = []
    for run in (1, 2):
        load_orders(spark, parquet, store, version=1)
        counts.append(spark.read.format("commitlog").option("subscribe", "orders").load(str(store)).count())
        print(f"Run {run} of version 1: the store has {counts[-1]} orders.")
    spark.stop()
    with StoreReader.open(store) as reader:
        for committed in reader.batches():
            print(f"The store remembers {committed.batch}, of {committed.rows} rows.")
        for message in reader.query("orders", "order-77"):
            print(f"Found by its key, in queue {message.queue_id}: {message.body.decode()}")
    print("Each order is there once." if counts == [ORDERS, ORDERS] else "The numbers differ.")
    return 0 if counts == [ORDERS, ORDERS] else 1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="commitlog-"))))
