"""The driver of ``machine.py``: uses stores over the network, on executors that have no directory of them."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import concat_ws, udf

from tests.cluster.machine import OWNER_PORT, QUEUES, ROWS, SERVER_PORT
from tests.connector.cluster.copying_driver import copy_at_once, executors
from tests.connector.sink_failures.driver import QUICK_DRIVER
from tests.connector.sink_failures.lost_executor import kill_own_executor
from tests.connector.sink_failures.query import register
from tests.connector.sink_failures.small_parts import FORMAT, SmallPartsSource
from tests.support.local_spark import start_spark
from tests.support.programs import python_path
from tests.support.waiting import WAIT_LIMIT_S, wait_for

Row = tuple[str, int, int]
# Large enough that a task uploads parts while its rows come.
PADDING = "." * 1_000
PART_SIZE = 32 << 10
# In the middle of a partition of the second batch.
KILLED_AT = f"a-1-{ROWS // QUEUES * 3 // 4}"


def main(mode: str, directory: str, master: str, host: str) -> None:
    base = Path(directory)
    spark = session(base / "scratch", master)
    options = {
        "path": ",".join(f"{name}=grpc+tls://{host}:{SERVER_PORT}/{name}" for name in "ab"),
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "tokenFile": str(base / "read-token"),
        "tlsRootCertificates": str(base / "server.pem"),
        # Several partitions for each queue, so that every executor has some.
        "maxBytesPerPartition": "65536",
    }
    if mode == "batch":
        wait_for(lambda: executors(spark) == 2)
        check_that_no_one_sees(spark, base / "disk" / "a")
        read_once(spark, options)
        copy_at_once(spark, base)
        copy_and_lose_an_executor(spark, options, base, f"grpc+tls://{host}:{OWNER_PORT}")
    else:
        follow(spark, options, base / "checkpoint")
    spark.stop()
    print("fine", flush=True)


def session(scratch: Path, master: str) -> SparkSession:
    host = master.removeprefix("spark://").partition(":")[0]
    settings = {
        "spark__master": master,
        "spark__driver__host": host,
        "spark__driver__bindAddress": host,
        "spark__executor__cores": "2",
        "spark__executor__memory": "512m",
        "spark__executorEnv__PYTHONPATH": python_path(),
        # So that a task gets its rows as they come.
        "spark__sql__execution__arrow__maxRecordsPerBatch": "50",
        # A host without power says nothing: what it had to do is done elsewhere after this time.
        "spark__network__timeout": "30s",
        "spark__network__timeoutInterval": "5s",
        "spark__executor__heartbeatInterval": "2s",
    }
    return start_spark(scratch, **(QUICK_DRIVER | settings))


def check_that_no_one_sees(spark: SparkSession, store: Path) -> None:
    """Neither the driver nor the executors have the directory, and all executors were asked."""
    assert not store.exists()
    seen = spark.sparkContext.parallelize(range(8), 8).map(lambda _: os.path.exists(store)).collect()
    assert seen == [False] * 8


def read_once(spark: SparkSession, options: dict[str, str]) -> None:
    frame = spark.read.format("commitlog").options(**options).load().select("store", "queueId", "queueOffset")
    assert Counter(map(row_of, frame.collect())) == Counter(expected({"a": ROWS, "b": ROWS}))


def copy_and_lose_an_executor(spark: SparkSession, options: dict[str, str], base: Path, url: str) -> None:
    """Both stores, as a stream of two batches; in the second one, the executor of a task is killed."""
    register(spark, SmallPartsSource)
    stream = spark.readStream.format("commitlog").options(**options, maxOffsetsPerTrigger=str(ROWS)).load()
    place = concat_ws("-", "store", "queueId", "queueOffset")
    copies = stream.select(losing_an_executor(base)(place).alias("body"), "queueId")
    writer = copies.writeStream.format(FORMAT).options(topic="copies", part=PART_SIZE)
    writer = writer.options(tokenFile=str(base / "write-token"), tlsRootCertificates=str(base / "server.pem"))
    writer = writer.option("checkpointLocation", str(base / "copying")).trigger(availableNow=True)
    query = writer.start(url)
    wait_for(lambda: (base / "about-to-be-killed").exists() or query.exception())
    print("an executor less, please", flush=True)
    query.awaitTermination(WAIT_LIMIT_S)
    assert not query.isActive


def losing_an_executor(base: Path) -> Callable[[Column], Column]:
    about, killed = str(base / "about-to-be-killed"), str(base / "killed")

    @udf("string")
    def kill_once(body: str) -> str:
        if body == KILLED_AT and not os.path.exists(killed):
            Path(about).touch()
            wait_for(lambda: os.path.exists(killed))
            kill_own_executor()
        return body + PADDING

    return kill_once


def follow(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> None:
    rows: Counter[Row] = Counter()

    def keep(frame: DataFrame, _batch: int) -> None:
        rows.update(map(row_of, frame.select("store", "queueId", "queueOffset").collect()))

    stream = spark.readStream.format("commitlog").options(**options, maxOffsetsPerTrigger="500").load()
    query = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint)).start()
    wait_for(lambda: rows.total() > 0 or query.exception())
    print("another worker, please", flush=True)
    wait_for(lambda: executors(spark) == 2 or query.exception())
    done = rows.total()
    wait_for(lambda: rows.total() > done or query.exception())
    print("a worker less, please", flush=True)
    wanted = Counter(expected({"a": 2 * ROWS, "b": ROWS}))
    wait_for(lambda: rows.total() >= wanted.total() or query.exception())
    assert query.exception() is None, query.exception()
    query.stop()
    query.awaitTermination(WAIT_LIMIT_S)
    assert rows == wanted


def row_of(row: Row) -> Row:
    return row[0], row[1], row[2]


def expected(messages: dict[str, int]) -> list[Row]:
    return [
        (store, queue_id, offset)
        for store, count in messages.items()
        for queue_id in range(QUEUES)
        for offset in range(count // QUEUES)
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
