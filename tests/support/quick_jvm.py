"""JVMs that start quickly: one that lives for seconds or minutes spends them loading and compiling classes.

python -m tests.support.quick_jvm    archives the classes that Spark loads, which ``make test`` does once

With the archive a Spark is there in half the time. Nothing depends on it: where there is none, or it was made with
another Java or another Spark, classes are loaded as ever. Benchmarks run without any of this.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.support.golden import ROCKETMQ_533, copy_golden
from tests.support.local_spark import PROJECT, QUICK_SPARK, start_spark

__all__ = ["archive_classes", "make_jvms_quick"]

_ARCHIVE = PROJECT / ".venv" / "spark.jsa"
# Read by the java launcher itself, so by whatever starts one.
_VARIABLE = "JDK_JAVA_OPTIONS"
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# An archive that does not fit is passed over; what Java says of that would be among a program's output.
_SILENT = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def make_jvms_quick() -> None:
    """For all JVMs that this process and its children start from now on."""
    archive = f" {_SILENT} -XX:SharedArchiveFile={_ARCHIVE}" if _ARCHIVE.exists() else ""
    os.environ[_VARIABLE] = _QUICK + archive


def archive_classes() -> None:
    """Write the archive anew, from one Spark that reads and writes stores. No archive where this Java makes none."""
    _ARCHIVE.unlink(missing_ok=True)
    unfinished = _ARCHIVE.with_suffix(".unfinished")
    os.environ[_VARIABLE] = f"{_QUICK} {_SILENT} -XX:ArchiveClassesAtExit={unfinished}"
    with tempfile.TemporaryDirectory() as directory:
        _run_spark(Path(directory))
    if unfinished.exists():
        unfinished.rename(_ARCHIVE)


def _run_spark(directory: Path) -> None:
    """A batch and a stream through the connector, and Parquet; returns when the JVM is gone."""
    spark = start_spark(directory, **QUICK_SPARK)
    store, parquet = copy_golden(ROCKETMQ_533, directory / "store"), str(directory / "parquet")
    rows = spark.read.format("commitlog").option("subscribe", "orders").load(str(store))
    rows.groupBy("queueId").count().collect()
    copy = rows.select("topic", "body").write.format("commitlog").mode("append")
    copy.save(str(directory / "copy"))
    live = spark.readStream.format("commitlog").option("subscribe", "orders").load(str(store))
    query = live.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    query.trigger(availableNow=True).start(parquet).awaitTermination()
    spark.read.parquet(parquet).count()
    gateway = spark.sparkContext._gateway
    spark.stop()
    assert gateway is not None
    gateway.shutdown()
    # It ends with its standard input, and writes the archive then.
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    archive_classes()
