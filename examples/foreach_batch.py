"""foreachBatch with two writes per batch, and each row once in both of them.

A streaming query that writes with ``format("commitlog")`` is exactly-once by itself. Inside foreachBatch the writes are
the program's own, and after a crash Spark runs the whole batch again, also what was written already. So each write has
a name of its own (``txnAppId``) and takes the batch's id for its version (``txnVersion``). This program fails between
the two writes of a batch, and then continues from its checkpoint.

    python examples/foreach_batch.py [DIRECTORY]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

import pyspark_commitlog  # noqa: F401  # before the session: Spark's workers then use this Python
from commitlog_store import MessageStore, MessageStoreConfig, StoreReader

ORDERS = 300
LARGE = 400
BATCH_THAT_FAILS = 1
# Settings of new stores: files of 16 MiB suffice for an example; RocketMQ's are of 1 GiB.
SMALL_FILES = {"mappedFileSizeCommitLog": "16m", "messageIndexEnable": "false"}
CONFIG = MessageStoreConfig(mapped_file_size_commit_log=16 << 20, message_index_enable=False)


def start_spark() -> SparkSession:
    return (
        SparkSession.builder.appName("foreachBatch")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def amounts() -> list[int]:
    return [number * 7 % 500 for number in range(ORDERS)]


def make_orders(path: Path) -> None:
    """Put the orders in a transaction: once, however often this program runs."""
    with MessageStore.open(path, CONFIG) as store, store.transaction("make orders", version=0) as transaction:
        transaction.put_messages(pa.table({"body": [str(amount) for amount in amounts()]}), topic="orders")


def append(messages: DataFrame, store: Path, topic: str, batch_id: int) -> None:
    """Write one topic's share of a batch.

    Two writes with one name count as one: the second would be skipped. A new checkpoint begins at batch 0 again, so it
    needs new names.
    """
    (
        messages.write.format("commitlog")
        .mode("append")
        .options(**SMALL_FILES)
        .option("topic", topic)
        .option("txnAppId", f"orders to {topic}")
        .option("txnVersion", batch_id)
        .save(str(store))
    )


def run(spark: SparkSession, directory: Path, *, fail: bool) -> None:
    """Stream the orders to their end; with ``fail``, fail between the two writes of a batch."""
    store = directory / "output"

    def write(batch: DataFrame, batch_id: int) -> None:
        orders = batch.select(col("body").cast("string").alias("body"))
        orders.persist()  # two writes, but the source is read once
        append(orders, store, "archive", batch_id)
        if fail and batch_id == BATCH_THAT_FAILS:
            raise RuntimeError("failed between the two writes, as the example wants")
        append(orders.where(col("body").cast("int") >= LARGE), store, "review", batch_id)
        orders.unpersist()
        print(f"  batch {batch_id} is written")

    frame = (
        spark.readStream.format("commitlog")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100)
        .load(str(directory / "input"))
    )
    writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(directory / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


def bodies(store: Path, topic: str) -> list[int]:
    """All messages of a topic, sorted."""
    with StoreReader.open(store) as reader:
        blocks = [
            block for queue in reader.queues(topic) for block in reader.read(topic, queue.queue_id, 0, columns=["body"])
        ]
    return sorted(int(body.as_py()) for block in blocks for body in block.column("body"))


def main(directory: Path) -> int:
    """Fail once, continue, compare; 0 when each order is in its topic exactly once."""
    make_orders(directory / "input")
    spark = start_spark()
    try:
        run(spark, directory, fail=True)
    except StreamingQueryException:
        archived, reviewed = len(bodies(directory / "output", "archive")), len(bodies(directory / "output", "review"))
        print(f"Failed in batch {BATCH_THAT_FAILS}: {archived} orders in archive, {reviewed} of them in review.")
    print("Again, from the checkpoint:")
    run(spark, directory, fail=False)
    spark.stop()
    same = True
    for topic, expected in {"archive": amounts(), "review": [one for one in amounts() if one >= LARGE]}.items():
        found = bodies(directory / "output", topic)
        right = found == sorted(expected)
        same = same and right
        print(f"{topic}: {len(found)} of {len(expected)} orders, {'each once' if right else 'differs'}.")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="commitlog-"))))
