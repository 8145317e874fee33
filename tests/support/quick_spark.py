"""A Spark that starts quickly: one that lives for seconds or minutes spends them loading and compiling classes.

python -m tests.support.quick_spark    prepares the Python that runs it, which ``make test`` does once

Two things are kept where that Python is installed, and a Spark is there in half the time: an archive of the classes
that a JVM loads, and a Spark home like that of the package pyspark, but for its zip, out of which every Python worker
imports, and so compiles, PySpark again; without it they import the installed package. In the zip's place is a directory
whose one module lets Spark's daemons import what their workers use (quick_workers). Nothing depends on any of it: where
it is not, or was made with another Java or Spark, all is loaded as ever. Benchmarks run without any of this.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.support.golden import ROCKETMQ_533, copy_golden
from tests.support.local_spark import QUICK_SPARK, start_spark

_HOME = Path(sys.prefix, "spark-home")
_ARCHIVE = Path(sys.prefix, "spark.jsa")
# Read by the java launcher itself, so by whatever starts one.
JAVA_OPTIONS = "JDK_JAVA_OPTIONS"
# Without the file of counters in /tmp, which is named by the process number: hosts of a test have equal ones.
_QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
# An archive that does not fit is skipped; what Java says of that would be among a program's output.
_SILENT = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"


def make_spark_quick() -> None:
    """Whatever Spark this process and its children start from now on. What it leaves in its directory for temporary
    files, as one that is killed does, goes when this process ends.
    """
    directory = tempfile.mkdtemp(prefix="jvm-")  # a short path: Spark has its sockets there
    atexit.register(_remove, directory, os.getpid())
    os.environ[JAVA_OPTIONS] = f"{_QUICK_JVM} -Djava.io.tmpdir={directory}"
    if _ARCHIVE.exists():
        os.environ[JAVA_OPTIONS] += f" {_SILENT} -XX:SharedArchiveFile={_ARCHIVE}"
    if _HOME.exists():
        os.environ["SPARK_HOME"] = str(_HOME)


def _remove(directory: str, owner: int) -> None:
    """``owner`` is the process that has made it, which a fork is not."""
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)


def prepare() -> None:
    """Make the home, and the archive from one Spark that reads and writes stores. None where this Java makes none."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    _HOME.mkdir(exist_ok=True)
    for name in ("bin", "jars", "sbin"):
        link = _HOME / name
        link.unlink(missing_ok=True)
        link.symlink_to(installed / name)
    # Spark puts this path before all others of its Python processes, and of no other one.
    imports_ahead = _HOME / "python" / "lib" / "pyspark.zip"
    imports_ahead.parent.mkdir(parents=True, exist_ok=True)
    imports_ahead.unlink(missing_ok=True)
    imports_ahead.symlink_to(Path(__file__).parent / "quick_workers")
    _ARCHIVE.unlink(missing_ok=True)
    make_spark_quick()
    unfinished = _ARCHIVE.with_suffix(".unfinished")
    os.environ[JAVA_OPTIONS] += f" {_SILENT} -XX:ArchiveClassesAtExit={unfinished}"
    try:
        with tempfile.TemporaryDirectory() as directory:
            _use_spark(Path(directory))
    except Exception:
        shutil.rmtree(_HOME)  # a Spark that does not start here must not be used later
        raise
    if unfinished.exists():
        unfinished.rename(_ARCHIVE)
    else:
        sys.stderr.write("Java made no archive of classes; every Spark of the tests loads them again\n")


def _use_spark(directory: Path) -> None:
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
    prepare()
