"""Replay a topic into Parquet files; a second run adds only new messages.

The topic is read from its first message to its end, in batches, and the checkpoint keeps the position. By default the
topic is in a store of the tests that RocketMQ 5.3.3 wrote; give a store and a topic to replay your own.

    python examples/topic_to_parquet.py [DIRECTORY] [--store STORE] [--topic TOPIC]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import col

import pyspark_commitlog  # noqa: F401  # before the session: Spark's workers then use this Python

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "rocketmq-5.3.3" / "store"


def start_spark() -> SparkSession:
    return (
        SparkSession.builder.appName("topic to Parquet")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def replay(spark: SparkSession, store: Path, topic: str, directory: Path) -> None:
    """Bring the Parquet files up to the topic's current end."""
    messages = (
        spark.readStream.format("commitlog")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")  # counts for the first run only: from then on the checkpoint says
        .option("maxOffsetsPerTrigger", 100)  # with messages of 1 KiB, 100,000 make a file of a good size
        .load(str(store))
    )
    query = (
        messages.withColumn("body", col("body").cast("string"))
        .writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(directory / topic))
    )
    query.awaitTermination()


def main(directory: Path, store: Path, topic: str) -> int:
    """Replay twice; 0 when the second run added nothing and each message is in the files exactly once."""
    spark = start_spark()
    counts = [0]
    for run in (1, 2):
        replay(spark, store, topic, directory)
        counts.append(spark.read.parquet(str(directory / topic)).count())
        print(f"Run {run}: {counts[-1] - counts[-2]} rows added, {counts[-1]} in all.")
    rows = spark.read.parquet(str(directory / topic))
    positions = rows.select("queueId", "queueOffset").distinct().count()
    spark.stop()
    print(f"{counts[-1]} rows at {positions} different positions, in {directory / topic}.")
    return 0 if counts[1] == counts[2] == positions else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Replay a topic into Parquet files.")
    parser.add_argument("directory", nargs="?", type=Path, help="for the Parquet files and the checkpoint")
    parser.add_argument("--store", type=Path, default=GOLDEN, help="the store to read")
    parser.add_argument("--topic", default="orders")
    given = parser.parse_args()
    raise SystemExit(main(given.directory or Path(tempfile.mkdtemp(prefix="commitlog-")), given.store, given.topic))
