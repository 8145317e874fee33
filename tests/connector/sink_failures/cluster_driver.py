"""A Spark with two executors in processes of their own, one of which is killed in the middle of a write.

    python -m tests.connector.sink_failures.cluster_driver BASE batch|stream

``BASE/store`` is written, while a thread and a second query read it. ``BASE/killed`` holds how many staged files the
partition had when its executor was killed. It prints ``fine`` at the end, or fails.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.functions import udf

from tests.connector.sink.sink_helpers import append, stream_to
from tests.connector.sink_failures.driver import QUICK_DRIVER
from tests.connector.sink_failures.lost_executor import kill_own_executor
from tests.connector.sink_failures.output import TOPIC, Input, Watcher, check_output
from tests.connector.sink_failures.query import Query
from tests.connector.sink_failures.reading_query import ReadingQuery
from tests.support.local_spark import start_spark
from tests.support.programs import python_path
from tests.support.waiting import WAIT_LIMIT_S

ROWS = 2_400
KILLED_AT = 1_100
# Large enough that what Python's workers give comes to the sink row by row, and not at the end.
PADDING = "." * 2_000
# So that the sink has staged something when it happens.
ROWS_OF_A_BATCH = 50
# Of a stream; the executor is lost in the second one.
BATCHES = 3


def main(directory: str, write: str) -> None:
    base = Path(directory)
    settings = {
        "spark__master": "local-cluster[2,1,512]",
        "spark__executor__memory": "512m",
        "spark__executorEnv__PYTHONPATH": python_path(),
        "spark__sql__execution__arrow__maxRecordsPerBatch": str(ROWS_OF_A_BATCH),
    }
    spark = start_spark(base / "scratch", **(QUICK_DRIVER | settings))
    source = Input(base / "input")
    source.extra_rows, source.padding = ROWS, PADDING
    source.add(1 if write == "batch" else BATCHES)
    query = Query(spark, base, source)
    query.make_store()
    with Watcher(query.store, source), ReadingQuery(spark, base, query.store, source):
        if write == "batch":
            append(losing_an_executor(base, 0)(source.all_frame(spark)), query.store, topic=TOPIC)
        else:
            stream_to(losing_an_executor(base, 1)(source.frame(spark)), query.store, query.checkpoint, topic=TOPIC)
    check_output(query.store, source)
    spark.stop()
    print("fine")


def losing_an_executor(base: Path, batch: int) -> Callable[[DataFrame], DataFrame]:
    """A partition of the batch kills the JVM whose worker it runs in, when most of its rows are with the sink."""
    killed = str(base / "killed")
    last = f"m-{batch}-{KILLED_AT}{PADDING}"

    @udf("string")
    def kill_once(body: str) -> str:
        task = TaskContext.get()
        if body == last and task is not None and not os.path.exists(killed):
            staged = f"store/staging/*/*/{task.partitionId()}-0-*"
            deadline = time.monotonic() + WAIT_LIMIT_S
            while not (found := list(base.glob(staged))) and time.monotonic() < deadline:
                time.sleep(0.05)
            with open(killed, "w") as stream:
                stream.write(str(len(found)))
            kill_own_executor()
        return body

    return lambda frame: frame.select(kill_once("body").alias("body"), "queueId")


if __name__ == "__main__":
    main(*sys.argv[1:])
