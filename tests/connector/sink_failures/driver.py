"""A Spark driver for the tests to kill: writes the batches of an input to ``BASE/store`` as they come.

    python -m tests.connector.sink_failures.driver BASE SCRATCH [NAME QUEUES]

The input is ``BASE/input``, or the one that is called ``NAME``, in ``BASE/NAME``, with queues such as ``4,5,6,7``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.connector.sink_failures.output import Input
from tests.connector.sink_failures.query import Query, register
from tests.support.local_spark import QUICK_SPARK, start_spark

# Nor need Spark plan again what is so small.
QUICK_DRIVER = QUICK_SPARK | {"spark__sql__adaptive__enabled": "false"}
# ``Input.take_order`` reads the plans of all batches in the checkpoint.
KEEP_ALL_PLANS = ("spark.sql.streaming.minBatchesToRetain", "10000")


def main(base: str, scratch: str, name: str = "", queues: str = "") -> None:
    spark = start_spark(Path(scratch), **QUICK_DRIVER)
    spark.conf.set(*KEEP_ALL_PLANS)
    register(spark)
    if name:
        source = Input(Path(base, name), name, [int(one) for one in queues.split(",")])
        query = Query(spark, Path(base), source, lockTimeout="100", queues=10)
    else:
        query = Query(spark, Path(base), Input(Path(base, "input")))
    query.start(processingTime="50 milliseconds").awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
