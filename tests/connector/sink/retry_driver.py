"""A Spark driver in which tasks are tried again: writes a store as a batch and as a stream, each task failing once.

    python -m tests.connector.sink.retry_driver BASE

The shared session of the tests gives a failed task up at once, as ``local[2]`` does. ``BASE/batch/store`` and
``BASE/stream/store`` are written, while a thread and a second query read them. It prints ``fine`` at the end, or fails.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql.functions import udf

from tests.connector.sink.sink_helpers import append, stream_to
from tests.connector.sink_failures.output import TOPIC, Input, Watcher, check_output
from tests.connector.sink_failures.query import Query
from tests.connector.sink_failures.reading_query import ReadingQuery
from tests.support.local_spark import QUICK_SPARK, start_spark

ROWS = 1_500
# Of each queue one, so that each task fails.
FAILING = range(1_000, 1_004)
# So that the sink has staged something when a task fails.
ROWS_OF_A_BATCH = 50


def main(directory: str) -> None:
    base = Path(directory)
    settings = {
        "spark__master": "local[2,4]",
        "spark__sql__execution__arrow__maxRecordsPerBatch": str(ROWS_OF_A_BATCH),
        "spark__sql__adaptive__enabled": "false",
    }
    spark = start_spark(base / "scratch", **(QUICK_SPARK | settings))

    @udf("string")
    def fails_once(body: str) -> str:
        context = TaskContext.get()
        assert context is not None
        if int(body.rpartition("-")[2]) in FAILING and context.attemptNumber() == 0:
            raise RuntimeError("the task fails, as the test wants")
        return body

    source = Input(base / "input")
    source.extra_rows = ROWS
    source.add()
    for write in ("batch", "stream"):
        directory_of_write = base / write
        directory_of_write.mkdir()
        query = Query(spark, directory_of_write, source)
        query.make_store()
        frame = source.all_frame(spark) if write == "batch" else source.frame(spark)
        rows = frame.withColumn("body", fails_once("body"))
        with Watcher(query.store, source), ReadingQuery(spark, directory_of_write, query.store, source):
            if write == "batch":
                append(rows, query.store, topic=TOPIC)
            else:
                stream_to(rows, query.store, query.checkpoint, topic=TOPIC)
        check_output(query.store, source)
    spark.stop()
    print("fine")


if __name__ == "__main__":
    main(*sys.argv[1:])
