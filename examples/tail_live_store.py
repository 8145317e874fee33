"""Follow a store while it is being written, as ``tail -f`` follows a file.

A thread puts clicks into a store, as a broker would. A Structured Streaming query tails the store concurrently and
prints each batch. Reading takes no lock: give the store directory of a running broker instead of this one.

    python examples/tail_live_store.py [DIRECTORY]
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import pyspark_commitlog  # noqa: F401  # before the session: Spark's workers then use this Python
from commitlog_store import MessageStore, MessageStoreConfig

BATCHES = 4
# Files of 16 MiB suffice for an example; RocketMQ's are of 1 GiB.
CONFIG = MessageStoreConfig(mapped_file_size_commit_log=16 << 20, message_index_enable=False)


class Clicks:
    """Puts ten clicks, again and again, in a thread of its own."""

    def __init__(self, store: MessageStore) -> None:
        self.count = 0
        self._store = store
        self._enough = threading.Event()
        self._thread = threading.Thread(target=self._produce)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._enough.set()
        self._thread.join()

    def _produce(self) -> None:
        while not self._enough.wait(0.1):
            bodies = [f"click {self.count + number}" for number in range(10)]
            self._store.put_messages(pa.table({"body": bodies}), topic="clicks").raise_for_status()
            self.count += len(bodies)


class Printer:
    """Prints the content of each batch, and reports when there were enough batches."""

    def __init__(self) -> None:
        self.rows = self.batches = 0
        self.enough = threading.Event()

    def show(self, batch: DataFrame, batch_id: int) -> None:
        queues = {row["queueId"]: row["count"] for row in batch.groupBy("queueId").count().collect()}
        self.rows += sum(queues.values())
        self.batches += 1
        print(f"  batch {batch_id}: {sum(queues.values()):>3} rows, by queue {dict(sorted(queues.items()))}")
        if self.batches >= BATCHES:
            self.enough.set()


def start_spark() -> SparkSession:
    return (
        SparkSession.builder.appName("tail a live store")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def main(directory: Path) -> int:
    """Tail for some batches; 0 when every click that was put was seen."""
    spark, printer = start_spark(), Printer()
    with MessageStore.open(directory / "store", CONFIG) as store:
        clicks = Clicks(store)
        frame = (
            spark.readStream.format("commitlog")
            .schema("queueId int, body binary")  # only these columns are decoded
            .option("subscribe", "clicks")
            # The first click creates the topic. A query that starts at "latest" skips messages that are stored already.
            .option("startingOffsets", "earliest")
            .load(str(directory / "store"))
        )
        query = frame.writeStream.foreachBatch(printer.show).trigger(processingTime="1 second").start()
        clicks.start()
        try:
            while not printer.enough.wait(0.2) and query.isActive:
                pass
        finally:
            clicks.stop()
        query.processAllAvailable()  # the messages since the last batch; raises the query's error
        query.stop()
    spark.stop()
    print(f"{clicks.count} clicks were put, the query saw {printer.rows}: ", end="")
    print("all of them." if printer.rows == clicks.count else "the number differs.")
    return 0 if printer.rows == clicks.count else 1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="commitlog-"))))
