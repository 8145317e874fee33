"""The sink through Spark Connect, and in a pipeline, which runs on it: a client without a JVM, and a server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from tests.connector.sink.sink_helpers import SMALL, body_texts, staged_files
from tests.support.clean_store import assert_clean
from tests.support.local_spark import PROJECT, make_java_available
from tests.support.programs import child_environment

# What ``pip install pyspark[pipelines]`` brings beside what is needed anyway; ``make`` installs it there.
CONNECT = Path(sys.prefix, "connect")


PIPELINE = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
dp.create_sink(name="messages", format="commitlog", options={options})

@dp.append_flow(target="messages", name="from_files")
def from_files():
    return spark.readStream.text({source})
"""
SPECIFICATION = """
name: a pipeline
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not CONNECT.exists(), reason="needs what `make test` installs for Spark Connect"),
]


def run(*command: str, where: Path = PROJECT) -> None:
    make_java_available()
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    ran = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=where,
        env=child_environment(CONNECT) | python,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


def check(store: Path, wanted: list[str]) -> None:
    assert body_texts(store) == wanted
    assert not staged_files(store)
    assert_clean(store)


def check_last_batch(store: Path, version: int) -> None:
    """One query wrote, and its checkpoint was found."""
    with StoreReader.open(store) as reader:
        (query,) = reader.batches()
    assert (query.batch.version, bool(query.batch.fingerprint)) == (version, True)


def test_batches_streams_and_for_each_batch_work_through_connect(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    for name in "abc":
        (tmp_path / "input" / f"{name}.txt").write_text(f"{name}1\n{name}2\n")
    run(sys.executable, "-m", "tests.connector.sink.connect_client", str(tmp_path))
    lines = ["a1", "a2", "b1", "b2", "c1", "c2"]
    for name, wanted in (("batch", list("01234")), ("stream", lines), ("each", lines)):
        check(tmp_path / name, wanted)
    check_last_batch(tmp_path / "stream", 2)


@pytest.mark.stress
def test_a_flow_of_a_pipeline_writes_each_row_once(tmp_path: Path) -> None:
    """Run twice: the second run continues where the first one ended."""
    source, store = tmp_path / "input", tmp_path / "store"
    source.mkdir()
    (tmp_path / "transformations").mkdir()
    options = SMALL | {"path": str(store)}
    program = PIPELINE.format(options=options, source=repr(str(source)))
    # The column of text files is called value, as is that of bodies.
    (tmp_path / "transformations" / "flow.py").write_text(program)
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(storage=(tmp_path / "storage").as_uri()))
    command = str(Path(sys.executable).with_name("spark-pipelines"))
    for number, line in enumerate("ab"):
        (source / f"{number}.txt").write_text(line + "\n")
        run(command, "run", "--spec", "spark-pipeline.yml", where=tmp_path)
        check(store, list("ab"[: number + 1]))
    check_last_batch(store, 1)
