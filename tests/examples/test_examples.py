"""Each program in ``examples/`` is run as a user runs it; some of them share a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.local_spark import PROJECT, make_java_available
from tests.support.spark_programs import SparkPrograms

# What a program must have said, beside exiting with 0. A new example gets a line here.
SAYS = {
    "archive_to_delta.py": ["Run 1: 278 rows added. Run 2: 0 rows added.", "278 rows at 278 different positions"],
    "aggregate_with_watermark.py": ["9 minutes are final, 1 still open", "the same as counted by hand."],
    "consume_beside_an_owner.py": ["Killed a consumer after", "All 300 orders were consumed"],
    "demo.py": ["Stopped midway.", "Reached the end of the store.", "none twice.", "same"],
    "exactly_once.py": ["Kill 1", "saw a part of a batch 0 times.", "Each row is in the output once, in order."],
    "foreach_batch.py": ["Failed in batch 1: 200 orders in archive", "archive: 300 of 300", "review: 57 of 57"],
    "from_kafka.py": [
        "columns: key, value, topic, partition, offset, timestamp, timestampType, headers",
        "28 of 28 large orders",
        "Each of 10 customers in one partition: True",
        "shops: {'berlin'}",
    ],
    "parquet_to_store.py": ["Run 2 of version 1: the store has 1000", "Found by its key", "Each order is there once."],
    "producer_consumer.py": ["a transaction of 2 rows", "Consumed 1002 messages"],
    "tail_live_store.py": ["batch 0:", "all of them."],
    "topic_to_parquet.py": ["Run 1: 278 rows added", "Run 2: 0 rows added", "278 different positions"],
}
# What an example is given here to be done sooner.
ARGUMENTS = {"exactly_once.py": ["--kills", "1", "--rows", "4000"]}
WITHOUT_SPARK = {"archive_to_delta.py", "consume_beside_an_owner.py", "producer_consumer.py"}
# It starts its Sparks in processes of its own, and so shows that a process of its own is enough.
OWN_PROCESS = {"exactly_once.py"} | WITHOUT_SPARK
SHARED_PROCESS = SAYS.keys() - OWN_PROCESS
LIMIT_S = 240


def test_every_example_is_run() -> None:
    assert {path.name for path in (PROJECT / "examples").glob("*.py")} == SAYS.keys()


def check(name: str, ran: subprocess.CompletedProcess[str], directory: Path) -> None:
    assert ran.returncode == 0, ran.stdout + ran.stderr + spark_log(directory)
    missing = [text for text in SAYS[name] if text not in ran.stdout]
    assert not missing, ran.stdout
    assert "differs" not in ran.stdout


def run_in_its_own_process(name: str, directory: Path) -> None:
    if name not in WITHOUT_SPARK:
        make_java_available()
    # PYSPARK_PYTHON is left out: the examples must do without it.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    environment["TMPDIR"] = str(directory)
    ran = subprocess.run(
        [sys.executable, PROJECT / "examples" / name, *ARGUMENTS.get(name, [])],
        check=False,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    check(name, ran, directory)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in WITHOUT_SPARK else [pytest.mark.spark]) for name in sorted(OWN_PROCESS)],
)
def test_example_runs_in_its_own_process(name: str, tmp_path: Path) -> None:
    run_in_its_own_process(name, tmp_path)


@pytest.mark.parametrize("name", sorted(SHARED_PROCESS))
def test_example_runs_in_a_shared_process(name: str, spark_programs: SparkPrograms, tmp_path: Path) -> None:
    """A Spark's start takes longer than most of the examples."""
    check(name, spark_programs.run(PROJECT / "examples" / name, directory=tmp_path), tmp_path)


@pytest.mark.spark
@pytest.mark.stress
@pytest.mark.parametrize("name", sorted(SHARED_PROCESS))
def test_each_example_runs_in_its_own_process(name: str, tmp_path: Path) -> None:
    run_in_its_own_process(name, tmp_path)


def spark_log(directory: Path) -> str:
    """What the examples that start Spark in another process kept of its log."""
    return "".join(path.read_text() for path in directory.glob("*/spark.log"))
