"""A cluster of two workers, at addresses of their own, where Spark speculates; a stream with a slow task.

    python -m tests.connector.sink_failures.speculation_driver BASE

``BASE/store`` is written, while a thread and a second query read it. ``BASE/twin`` lists what lay in the staging area
when the copy of the slow task had staged all but its last rows. It prints ``fine`` at the end, or fails.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql.functions import udf

from tests.connector.cluster.standalone import standalone_cluster
from tests.connector.sink.sink_helpers import staged_files, stream_to
from tests.connector.sink_failures.driver import QUICK_DRIVER
from tests.connector.sink_failures.output import TOPIC, Input, Watcher, check_output
from tests.connector.sink_failures.query import Query
from tests.connector.sink_failures.reading_query import ReadingQuery
from tests.support.local_spark import start_spark
from tests.support.programs import python_path
from tests.support.waiting import wait_for

WORKERS = ("127.0.0.2", "127.0.0.3")
# One for each queue.
FILES = 4
ROWS = 2_400
# The slow task has the rows 1, 5, 9 and so on: it waits in the middle, and its copy reports at the end.
WAITS_AT = ROWS // 2 + 1
TELLS_AT = ROWS - FILES + 1
PADDING = "." * 2_000
ROWS_OF_A_BATCH = 50


def main(directory: str) -> None:
    base = Path(directory)
    scratch = base / "scratch"
    scratch.mkdir()
    with standalone_cluster(scratch, *WORKERS) as cluster:
        settings = {
            "spark__master": cluster.address,
            "spark__executor__cores": "2",
            "spark__executor__memory": "512m",
            "spark__executorEnv__PYTHONPATH": python_path(),
            "spark__sql__execution__arrow__maxRecordsPerBatch": str(ROWS_OF_A_BATCH),
            "spark__speculation": "true",
            "spark__speculation__interval": "100ms",
            "spark__speculation__multiplier": "1.1",
            "spark__speculation__quantile": "0.5",
            "spark__speculation__minTaskRuntime": "100ms",
        }
        spark = start_spark(scratch, **(QUICK_DRIVER | settings))
        source = Input(base / "input", parts=FILES)
        source.extra_rows, source.padding = ROWS - len(source.rows(0)), PADDING
        source.add()
        query = Query(spark, base, source)
        query.make_store()
        slow = slow_where_told(query.store, base / "twin")
        with Watcher(query.store, source), ReadingQuery(spark, base, query.store, source):
            frame = source.frame(spark).select(slow("body").alias("body"), "queueId")
            stream_to(frame, query.store, query.checkpoint, topic=TOPIC)
        check_output(query.store, source)
        spark.stop()
    print("fine")


def slow_where_told(store: Path, twin: Path):  # type: ignore[no-untyped-def]  # what udf returns, PySpark does not say
    """A function that gives every body back; of one queue, the task's first attempt waits for its twin."""
    waits_at, tells_at = (f"m-0-{at}{PADDING}" for at in (WAITS_AT, TELLS_AT))

    @udf("string")
    def slow(body: str) -> str:
        task = TaskContext.get()
        if task is not None:
            if task.attemptNumber() == 0 and body == waits_at:
                wait_for(twin.exists)
            if task.attemptNumber() == 1 and body == tells_at:
                wait_for(lambda: any(f"/{task.partitionId()}-1-" in path for path in staged_files(store)))
                twin.with_suffix(".tmp").write_text("\n".join(staged_files(store)))
                twin.with_suffix(".tmp").rename(twin)
        return body

    return slow


if __name__ == "__main__":
    main(*sys.argv[1:])
