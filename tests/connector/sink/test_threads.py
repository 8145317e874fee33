"""Writes in other threads than the one that made the session, which find the source since the package is imported."""

from __future__ import annotations

import inspect
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.readwriter import DataFrameWriter
from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.connector.sink.sink_helpers import SMALL, append, body_texts, stream_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def active_session(spark: SparkSession) -> object:
    return spark._jvm.SparkSession.getActiveSession()  # type: ignore[union-attr]


def test_batches_and_streams_are_written_by_plain_threads(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input/part").write_text("c\nd\n")
    with ThreadPoolExecutor(1) as pool:  # a new thread, to which nothing has been done
        assert pool.submit(active_session, spark).result().isEmpty()  # type: ignore[attr-defined]
        pool.submit(append, spark.sql("select 'a' body"), tmp_path / "store").result()
    with ThreadPoolExecutor(1) as pool:
        given = SMALL | {"path": str(tmp_path / "store")}
        writer = spark.sql("select 'b' body").write.mode("append").options(**given)
        pool.submit(writer.save, format="COMMITLOG").result()
    with ThreadPoolExecutor(1) as pool:
        lines = spark.readStream.text(str(tmp_path / "input")).selectExpr("value AS body")
        pool.submit(stream_to, lines, tmp_path / "store", tmp_path / "checkpoint").result()
    assert body_texts(tmp_path / "store") == ["a", "b", "c", "d"]


def test_other_formats_leave_the_thread_as_it_is(spark: SparkSession) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(spark.range(1).write.format, "noop").result()
        assert pool.submit(active_session, spark).result().isEmpty()  # type: ignore[attr-defined]


def test_a_session_that_is_active_stays_so(spark: SparkSession) -> None:
    other = spark.newSession()
    found: list[bool] = []

    def choose_format() -> None:
        other._jvm.SparkSession.setActiveSession(other._jsparkSession)  # type: ignore[union-attr]
        spark.range(1).write.format("commitlog")
        found.append(active_session(spark).get().equals(other._jsparkSession))  # type: ignore[attr-defined]

    thread = threading.Thread(target=choose_format)
    thread.start()
    thread.join()
    assert found == [True]


def test_the_format_of_other_writers_is_named_as_in_pyspark(spark: SparkSession) -> None:
    assert spark.range(1).write.format(source="noop") is not None
    for writer in (DataFrameWriter, DataStreamWriter):
        assert inspect.signature(writer.format) == inspect.signature(inspect.unwrap(writer.format))


def test_a_pyspark_that_keeps_its_session_elsewhere_writes_as_without_the_package() -> None:
    assert_in_a_new_process(
        """
        from pyspark.sql.readwriter import DataFrameWriter

        DataFrameWriter.format = lambda self, source: f"chosen {source}"
        import pyspark_commitlog

        assert object.__new__(DataFrameWriter).format("commitlog") == "chosen commitlog"
        """
    )


def test_a_pyspark_without_these_writers_still_imports_the_source() -> None:
    """Spark registers no Python source at all when the import of one fails."""
    assert_in_a_new_process(
        """
        import sys
        import pyspark.sql.readwriter
        import pyspark.sql.streaming.readwriter

        del pyspark.sql.readwriter.DataFrameWriter.format
        sys.modules["pyspark.sql.streaming.readwriter"] = None
        import pyspark_commitlog

        assert pyspark_commitlog.DefaultSource.name() == "commitlog"
        """
    )


def assert_in_a_new_process(program: str) -> None:
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_importing_the_package_again_changes_nothing() -> None:
    from pyspark_commitlog.thread_sessions import find_source_in_all_threads

    before = DataFrameWriter.format
    find_source_in_all_threads("commitlog")
    assert DataFrameWriter.format is before
