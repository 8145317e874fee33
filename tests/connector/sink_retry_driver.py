"""A Spark driver in which tasks are tried again: writes a store as a batch and as a stream, each task failing once.

    python -m tests.connector.sink_retry_driver DIRECTORY

The shared session of the tests gives a failed task up at once, as ``local[2]`` does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql.functions import udf

from tests.connector.sink_helpers import append, stream_to
from tests.support.local_spark import QUICK_SPARK, start_spark

__all__: list[str] = []

ROWS = 1_500
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
    def fails_once(number: int) -> str:
        context = TaskContext.get()
        assert context is not None
        if number % 500 == 350 and context.attemptNumber() == 0:
            raise RuntimeError("the task fails, as the test wants")
        return str(number)

    numbers = spark.range(0, ROWS, 1, 3)
    append(numbers.select(fails_once("id").alias("body")), base / "batch")
    numbers.write.parquet(str(base / "input"))
    source = spark.readStream.schema("id bigint").parquet(str(base / "input"))
    stream_to(source.select(fails_once("id").alias("body")), base / "stream", base / "checkpoint")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
