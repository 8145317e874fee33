"""A Spark driver for the tests to kill: streams a store into one file per batch, ``<batch id>.json``.

    python -m tests.connector.source.crash_driver STORE CHECKPOINT OUTPUT SCRATCH

A batch is written beside its name and then renamed, so a batch that is run again replaces itself and a file is whole.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.local_spark import QUICK_SPARK, start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def into_files(spark: SparkSession, store: str, checkpoint: str, output: str) -> DataStreamWriter:
    """The query, which is yet to be started."""

    def write(frame: DataFrame, batch_id: int) -> None:
        rows = [[row.queueId, row.queueOffset, bytes(row.body).decode()] for row in frame.collect()]
        unfinished = Path(output, f"{batch_id}.unfinished")
        unfinished.write_text(json.dumps(rows))
        os.replace(unfinished, Path(output, f"{batch_id}.json"))

    frame = (
        spark.readStream.format("commitlog")
        .schema("queueId int, queueOffset bigint, body binary")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "200")
        .load(store)
    )
    return frame.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)


def main(store: str, checkpoint: str, output: str, scratch: str) -> None:
    spark = start_spark(Path(scratch), **QUICK_SPARK, spark__sql__adaptive__enabled="false")
    query = into_files(spark, store, checkpoint, output).trigger(processingTime="10 milliseconds").start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
