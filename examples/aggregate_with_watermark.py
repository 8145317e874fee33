"""From store to store: count events by minute of their own time, and write each count when it is final.

Events have their own time in their body (JSON), and arrive slightly out of order. The watermark says how late an
event may be: a minute is complete when an event arrives that is half a minute younger. Then its count is written, once
(output mode append). Watermark, counts and positions are in the checkpoint; the sink commits each batch exactly once,
so that no crash counts an event twice.

    python examples/aggregate_with_watermark.py [DIRECTORY]
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, count, from_json, struct, to_json, window

import pyspark_commitlog  # noqa: F401  # before the session: Spark's workers then use this Python
from commitlog_store import MessageStore, MessageStoreConfig, StoreReader

START = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)
EVENTS = 600  # one a second
LATENESS = timedelta(seconds=30)
CONFIG = MessageStoreConfig(mapped_file_size_commit_log=16 << 20, message_index_enable=False)
SMALL_FILES = {"mappedFileSizeCommitLog": "16m", "messageIndexEnable": "false"}


def event_times() -> list[datetime]:
    """One a second, each up to ten seconds late; the same in every run."""
    chance = random.Random(1)
    return [START + timedelta(seconds=number - chance.uniform(0, min(number, 10))) for number in range(EVENTS)]


def make_events(path: Path) -> None:
    """Put the events in a transaction: once, however often this program runs."""
    bodies = [json.dumps({"page": "home", "time": time.isoformat()}) for time in event_times()]
    with MessageStore.open(path, CONFIG) as store, store.transaction("make events", version=0) as transaction:
        transaction.put_messages(pa.table({"body": bodies}), topic="views")


def start_spark() -> SparkSession:
    return (
        SparkSession.builder.appName("aggregate with a watermark")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def views_by_minute(spark: SparkSession, path: Path) -> DataFrame:
    """A message for each complete minute of each page."""
    views = (
        spark.readStream.format("commitlog")
        .option("subscribe", "views")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 200)
        .load(str(path))
    )
    events = views.select(from_json(col("body").cast("string"), "page string, time timestamp").alias("event"))
    counts = (
        events.select("event.*")
        .withWatermark("time", f"{LATENESS.seconds} seconds")
        .groupBy(window("time", "1 minute"), "page")
        .agg(count("*").alias("views"))
    )
    return counts.select(
        to_json(struct(col("window.start").alias("minute"), "page", "views")).alias("body"), col("page").alias("keys")
    )


def read_counts(path: Path) -> list[tuple[datetime, int]]:
    """The written counts, by minute."""
    with StoreReader.open(path) as reader:
        batches = [
            batch
            for queue in reader.queues("views-by-minute")
            for batch in reader.read(queue.topic, queue.queue_id, queue.min_offset, columns=["body"])
        ]
    found = [json.loads(body.as_py()) for batch in batches for body in batch.column("body")]
    return sorted((datetime.fromisoformat(one["minute"]), one["views"]) for one in found)


def main(directory: Path) -> int:
    """Run the query to the end of its input; 0 when every complete minute has its count, once."""
    make_events(directory / "views")
    spark = start_spark()
    query = (
        views_by_minute(spark, directory / "views")
        .writeStream.format("commitlog")
        .options(**SMALL_FILES)
        .option("topic", "views-by-minute")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start(str(directory / "counts"))
    )
    query.awaitTermination()
    spark.stop()

    counts = read_counts(directory / "counts")
    for minute, views in counts:
        print(f"  {minute:%H:%M} {views:>4} views")
    over = max(event_times()) - LATENESS
    by_minute = Counter(time.replace(second=0, microsecond=0) for time in event_times())
    expected = sorted((minute, views) for minute, views in by_minute.items() if minute + timedelta(minutes=1) <= over)
    print(f"{len(counts)} minutes are final, {len(by_minute) - len(expected)} still open: ", end="")
    print("the same as counted by hand." if counts == expected else f"differs from {expected}.")
    return 0 if counts == expected else 1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="commitlog-"))))
