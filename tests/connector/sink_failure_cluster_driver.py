"""A Spark with two executors in processes of their own, one of which is killed in the middle of a write.

    python -m tests.connector.sink_failure_cluster_driver BASE

``BASE/lost`` is the store. ``BASE/killed`` tells how many staged files the partition had when its executor was killed.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.functions import udf

from tests.connector.sink_failure_driver import QUICK_DRIVER
from tests.connector.sink_helpers import append
from tests.support.local_spark import PROJECT, start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PADDING", "ROWS"]

PARTITIONS = 4
ROWS = 2_400
KILLED_AT = 1_100
# Large enough that what Python's workers give comes to the sink row by row, and not at the end.
PADDING = "." * 2_000
# So that the sink has staged something when it happens.
ROWS_OF_A_BATCH = 50


def main(directory: str) -> None:
    base = Path(directory)
    settings = {
        "spark__master": "local-cluster[2,1,512]",
        "spark__executor__memory": "512m",
        "spark__executorEnv__PYTHONPATH": str(PROJECT),
        "spark__sql__execution__arrow__maxRecordsPerBatch": str(ROWS_OF_A_BATCH),
    }
    spark = start_spark(base / "scratch", **(QUICK_DRIVER | settings))
    lose_an_executor(spark, base)
    spark.stop()


def lose_an_executor(spark: SparkSession, base: Path) -> None:
    """Partition 1 kills the JVM whose worker it runs in, when most of its rows are with the sink."""
    killed = str(base / "killed")

    @udf("string")
    def kill_once(number: int) -> str:
        if number == KILLED_AT and not os.path.exists(killed):
            deadline = time.monotonic() + 20
            while not (staged := list(base.glob("lost/staging/*/*/1-0-*"))) and time.monotonic() < deadline:
                time.sleep(0.05)
            with open(killed, "w") as stream:
                stream.write(str(len(staged)))
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text()
            os.kill(int(daemon.rpartition(")")[2].split()[1]), signal.SIGKILL)
            time.sleep(60)
        return f"{number}{PADDING}"

    append(spark.range(0, ROWS, 1, PARTITIONS).select(kill_once("id").alias("body")), base / "lost")


if __name__ == "__main__":
    main(*sys.argv[1:])
