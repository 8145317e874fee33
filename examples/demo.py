"""Read a real RocketMQ store with Structured Streaming; stop in the middle; continue from there.

The store in ``tests/golden/rocketmq-5.3.3`` was written by RocketMQ 5.3.3. This program reads a copy of it in small
batches, stops the query, starts it again from its checkpoint, and compares what arrived with what RocketMQ itself
reported about the same store. Run it with ``make demo``, which sets up all it needs.
"""

from __future__ import annotations

import json
import lzma
import shutil
import tempfile
import threading
from collections import Counter
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.readwriter import DataStreamWriter
from rich.console import Console
from rich.table import Table

import pyspark_commitlog  # noqa: F401  # before the session: Spark's workers then use this Python
from commitlog_store import StoreReader
from commitlog_store.paths import is_system_topic

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "golden" / "rocketmq-5.3.3"
ROWS_PER_BATCH = 150
BATCHES_BEFORE_THE_STOP = 3

console = Console(highlight=False)


class ShowProgress(StreamingQueryListener):
    """Prints a line for each batch; ``enough`` is set after some of them, ``ended`` when the query has ended."""

    def __init__(self) -> None:
        self.batches = 0
        self.enough = threading.Event()
        self.ended = threading.Event()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self.ended.clear()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        if progress.numInputRows == 0:
            return
        end, latest = next_offsets(progress.sources[0].endOffset), next_offsets(progress.sources[0].latestOffset)
        # Spark asks for the latest offset when it plans a batch, so one planned in an earlier run has none.
        behind = f"{sum((latest - end).values()):>4} behind" if latest else "cut off by the stop, now done"
        orders = " ".join(str(end["orders", queue]) for queue in range(4))
        console.print(f"  batch {progress.batchId}: {progress.numInputRows:>3} rows, orders at {orders}, {behind}")
        self.batches += 1
        if self.batches == BATCHES_BEFORE_THE_STOP:
            self.enough.set()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.ended.set()

    def wait_for_the_end(self) -> None:
        """Spark reports progress from a thread of its own, somewhat later than it happens."""
        self.ended.wait(timeout=30)


def next_offsets(position: str) -> Counter[tuple[str, int]]:
    """The next offset to read of each (topic, queue), from the text in which Spark reports a stream's position."""
    topics = json.loads(position)["offsets"] if position.startswith("{") else {}
    return Counter(
        {(topic, int(queue)): offset for topic, queues in topics.items() for queue, offset in queues.items()}
    )


def main() -> int:
    """Run the demonstration; 0 when everything that RocketMQ reported arrived exactly once."""
    with tempfile.TemporaryDirectory(prefix="pyspark-commitlog-demo-") as directory:
        scratch = Path(directory)
        store = Path(shutil.copytree(GOLDEN / "store", scratch / "store"))
        describe(store)
        console.print("\nStarting Spark ...")
        spark = start_spark(scratch)
        try:
            progress = ShowProgress()
            spark.streams.addListener(progress)
            read_some_and_stop(spark, store, scratch, progress)
            read_the_rest(spark, store, scratch, progress)
            return compare(spark.read.parquet(str(scratch / "messages")), rows_reported_by_rocketmq())
        finally:
            spark.stop()


def describe(store: Path) -> None:
    """Look into the store without Spark."""
    with StoreReader.open(store) as reader:
        queues = [queue for topic in reader.topics() for queue in reader.queues(topic)]
    messages = sum(queue.max_offset - queue.min_offset for queue in queues)
    topics = len({queue.topic for queue in queues})
    console.print(f"A store written by RocketMQ 5.3.3: {messages} messages in {len(queues)} queues of {topics} topics.")


LOGGING = """
rootLogger.level = fatal
rootLogger.appenderRef.terminal.ref = terminal
appender.terminal.type = Console
appender.terminal.name = terminal
appender.terminal.target = SYSTEM_ERR
appender.terminal.layout.type = PatternLayout
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = fatal
"""


def start_spark(scratch: Path) -> SparkSession:
    """A local Spark that does not write to the terminal: its errors are raised here anyway."""
    logging = scratch / "log4j2.properties"
    logging.write_text(LOGGING)
    return (
        SparkSession.builder.appName("pyspark-commitlog demo")
        .master("local[2]")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={logging.as_uri()}")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(scratch / "spark"))
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        # With Unix sockets, Spark prints a traceback for each worker that was idle for a minute (troubleshooting.md).
        .config("spark.python.unix.domain.socket.enabled", "false")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def streaming_query(spark: SparkSession, store: Path, scratch: Path) -> DataStreamWriter:
    """The query: every topic but RocketMQ's own, in small batches, into Parquet files."""
    messages = (
        spark.readStream.format("commitlog")
        .option("path", str(store))
        .option("subscribePattern", ".*")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_PER_BATCH)
        .load()
    )
    return (
        messages.writeStream.format("parquet")
        .option("path", str(scratch / "messages"))
        .option("checkpointLocation", str(scratch / "checkpoint"))
    )


def read_some_and_stop(spark: SparkSession, store: Path, scratch: Path, progress: ShowProgress) -> None:
    """Run the query for a few batches, then stop it before the end of the store."""
    console.print(f"\nA streaming query, at most {ROWS_PER_BATCH} messages a batch over all topics.")
    console.print("Shown of topic orders: the next offset to read of each of its four queues.")
    query = streaming_query(spark, store, scratch).trigger(processingTime="1 second").start()
    while not progress.enough.wait(timeout=0.2):
        if not query.isActive:
            query.awaitTermination()  # raises the query's error
    query.stop()
    progress.wait_for_the_end()
    console.print("Stopped midway.")


def read_the_rest(spark: SparkSession, store: Path, scratch: Path, progress: ShowProgress) -> None:
    """Start the same query on the same checkpoint, and let it run to the end of the store."""
    console.print("\nThe same query again, from its checkpoint:")
    streaming_query(spark, store, scratch).trigger(availableNow=True).start().awaitTermination()
    progress.wait_for_the_end()
    console.print("Reached the end of the store.")


def compare(messages: DataFrame, reported: Counter[str]) -> int:
    """Show what arrived beside what RocketMQ reported, and return the program's exit code."""
    rows = messages.count()
    positions = messages.select("topic", "queueId", "queueOffset").distinct().count()
    console.print(f"\n{rows} rows arrived, at {positions} different positions (topic, queue, offset): ", end="")
    console.print("none twice." if rows == positions else "[bold red]some twice.[/]")

    arrived = Counter({row["topic"]: row["count"] for row in messages.groupBy("topic").count().collect()})
    table = Table(title="Messages per topic", caption="RocketMQ's system topics are read only when named.")
    table.add_column("topic", max_width=40, overflow="ellipsis", no_wrap=True)
    for heading in ("Spark read", "RocketMQ reported", ""):
        table.add_column(heading, justify="right")
    for topic in sorted(reported | arrived):
        same = arrived[topic] == reported[topic]
        table.add_row(
            topic, str(arrived[topic]), str(reported[topic]), "[green]same[/]" if same else "[bold red]differs[/]"
        )
    table.add_section()
    table.add_row("all", str(arrived.total()), str(reported.total()), "")
    console.print(table)
    return 0 if rows == positions and arrived == reported else 1


def rows_reported_by_rocketmq() -> Counter[str]:
    """Messages per topic as RocketMQ's own store counted them, without its system topics."""
    reported: Counter[str] = Counter()
    with lzma.open(GOLDEN / "expected.jsonl.xz", "rt", encoding="utf-8") as lines:
        for answer in map(json.loads, filter(str.strip, lines)):
            if answer["kind"] == "queue" and not is_system_topic(answer["topic"]):
                reported[answer["topic"]] += answer["max"] - answer["min"]
    return reported


if __name__ == "__main__":
    raise SystemExit(main())
