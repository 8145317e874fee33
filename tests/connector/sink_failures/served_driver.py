"""A Spark driver for the tests to kill: writes the batches of ``BASE/input`` to a server as they come.

python -m tests.connector.sink_failures.served_driver BASE SCRATCH URL
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.connector.sink_failures.driver import KEEP_ALL_PLANS, QUICK_DRIVER
from tests.connector.sink_failures.output import TOPIC, Input
from tests.connector.sink_failures.query import register
from tests.connector.sink_failures.small_parts import FORMAT, SmallPartsSource
from tests.support.local_spark import start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# The four rows that the task of the smallest batch of an ``Input`` has take 700 bytes.
PART_SIZE = 200


def start_query(spark: SparkSession, base: Path, source: Input, url: str) -> StreamingQuery:
    """A query from an input to a server, which waits long for one that is being started again."""
    register(spark, SmallPartsSource)
    writer = source.frame(spark).writeStream.format(FORMAT).options(topic=TOPIC, rpcTimeout="150s", part=PART_SIZE)
    writer = writer.option("checkpointLocation", str(base / "checkpoint"))
    return writer.trigger(processingTime="100 milliseconds").start(url)


def main(base: str, scratch: str, url: str) -> None:
    spark = start_spark(Path(scratch), **QUICK_DRIVER)
    spark.conf.set(*KEEP_ALL_PLANS)
    start_query(spark, Path(base), Input(Path(base, "input")), url).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
