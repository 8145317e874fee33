"""A small local Spark for tests and benchmarks."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# For few rows: no query is compiled, and no expression. Programs of the tests have Spark's defaults.
QUICK_SPARK = {"spark__sql__codegen__wholeStage": "false", "spark__sql__codegen__factoryMode": "NO_CODEGEN"}

PROJECT = Path(__file__).resolve().parent.parent.parent


def make_java_available() -> None:
    """Set ``JAVA_HOME`` the way ``make`` does, so that a bare ``pytest`` works too."""
    found = subprocess.run([PROJECT / ".ci" / "java-home"], check=True, capture_output=True, text=True)
    os.environ["JAVA_HOME"] = found.stdout.strip()


def few_processes() -> dict[str, str]:
    """Settings with which a checkpoint of a stream takes few processes.

    Without Hadoop's native library its file system runs ``chmod`` and ``readlink``, ten processes for each file of a
    checkpoint by default, 80 for a query of four batches. The older of Spark's two classes for checkpoints, on files
    without checksums, takes one.
    """
    import pyspark

    (jar,) = Path(pyspark.__file__).parent.glob("jars/spark-sql_*.jar")
    # It has moved between versions of Spark.
    (found,) = [
        name for name in zipfile.ZipFile(jar).namelist() if name.endswith("/FileSystemBasedCheckpointFileManager.class")
    ]
    return {
        "spark__hadoop__fs__file__impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "spark__sql__streaming__checkpointFileManagerClass": found.removesuffix(".class").replace("/", "."),
    }


def start_spark(scratch: Path, **settings: str) -> SparkSession:
    """A ``local[2]`` session in UTC that keeps its files in ``scratch``; ``settings`` have ``__`` in place of dots."""
    make_java_available()
    from pyspark.sql import SparkSession

    import pyspark_commitlog  # noqa: F401  # before the session: its workers run this Python

    builder = (
        SparkSession.builder.appName("pyspark-commitlog tests")
        .master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
    )
    for name, value in settings.items():
        builder = builder.config(name.replace("__", "."), value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
