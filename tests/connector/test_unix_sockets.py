"""Importing the connector lets Spark use Unix domain sockets, where the user has not chosen and they are possible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.local_spark import make_java_available
from tests.support.programs import python_path
from tests.support.spark_programs import SparkPrograms
from tests.support.waiting import WAIT_LIMIT_S

IMPORT = "import pyspark_commitlog"


def last_line(script: str, **environment: str) -> object:
    """What a script prints last in a new interpreter, as JSON."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON_WORKER"))}
    ran = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        env=clean | {"PYTHONPATH": python_path()} | environment,
        timeout=WAIT_LIMIT_S,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def variable(script: str = IMPORT, **environment: str) -> object:
    return last_line(f"{script}\nimport json, os; print(json.dumps(os.environ.get('PYSPARK_UDS_MODE')))", **environment)


@pytest.fixture
def long_directory(tmp_path: Path) -> str:
    """The path of a socket in it would be too long."""
    directory = tmp_path / ("long" * 25)
    directory.mkdir()
    return str(directory)


def test_the_import_asks_for_them() -> None:
    assert variable() == "true"


@pytest.mark.parametrize("choice", ["false", "true", ""])
def test_the_users_choice_stands(choice: str) -> None:
    assert variable(PYSPARK_UDS_MODE=choice) == choice


@pytest.mark.parametrize("name", ["PYSPARK_GATEWAY_PORT", "PYTHON_WORKER_FACTORY_SOCK_PATH"])
def test_nothing_is_asked_for_in_a_process_that_spark_has_launched(name: str) -> None:
    """By spark-submit, or a worker: the JVM has chosen, and the two sides must agree."""
    assert variable(**{name: "1"}) is None


def test_nothing_is_asked_for_once_a_jvm_runs() -> None:
    """PySpark reads the variable when it makes a context, and would not agree with the JVM."""
    running = f"from pyspark import SparkContext; SparkContext._gateway = object()\n{IMPORT}"
    assert variable(running) is None


def test_a_directory_whose_path_is_too_long_is_noticed(long_directory: str) -> None:
    assert variable(TMPDIR=long_directory) is None
    assert variable(JDK_JAVA_OPTIONS=f"-Xmx1g -Djava.io.tmpdir={long_directory}") is None


def test_a_directory_in_which_no_socket_can_be_made_is_noticed(tmp_path: Path) -> None:
    assert variable(PYSPARK_SUBMIT_ARGS=f"--driver-java-options '-Djava.io.tmpdir={tmp_path}/none' x") is None
    assert variable(JAVA_TOOL_OPTIONS="-Djava.io.tmpdir=/proc") is None


def test_a_system_without_such_sockets_is_noticed() -> None:
    assert variable(f"import socket; del socket.AF_UNIX\n{IMPORT}") is None


def test_trying_leaves_no_file() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:  # that of a test may be too long for a socket's name
        assert variable(TMPDIR=directory) == "true"
        assert os.listdir(directory) == []


SESSION = """
import json, os
import pyspark_commitlog
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for name, value in {settings!r}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
context = spark.sparkContext
of_workers = context.parallelize([0], 1).map(lambda _: os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED")).collect()
messages = spark.read.format("commitlog").option("subscribe", "orders").load({store!r})
counter = context.accumulator(0)
messages.select("queueOffset").foreach(lambda row: counter.add(1))
print(json.dumps([type(context._accumulatorServer).__name__, *of_workers, messages.count() == counter.value]))
spark.stop()
"""
SOCKETS = ["AccumulatorUnixServer", "True", True]
TCP = ["AccumulatorTCPServer", None, True]


SETTING = {"spark.python.unix.domain.socket.enabled": "false"}


@pytest.mark.parametrize(("settings", "expected"), [({}, SOCKETS), (SETTING, TCP)], ids=["as imported", "setting"])
def test_a_session_uses_what_was_chosen_on_both_sides(
    spark_programs: SparkPrograms, golden_533: Path, tmp_path: Path, settings: dict[str, str], expected: list[object]
) -> None:
    """The JVM has started with what the import asked for, as in any program."""
    program = tmp_path / "program.py"
    program.write_text(SESSION.format(store=str(golden_533), settings=settings))
    ran = spark_programs.run(program, directory=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == expected


@pytest.mark.spark
@pytest.mark.stress
@pytest.mark.parametrize(
    ("environment", "settings", "expected"),
    [
        pytest.param({}, {}, SOCKETS, id="as imported"),
        pytest.param({}, SETTING, TCP, id="setting"),
        pytest.param({"PYSPARK_UDS_MODE": "false"}, {}, TCP, id="variable"),
        pytest.param({"TMPDIR": "long"}, {}, TCP, id="long directory"),
    ],
)
def test_a_session_of_its_own_process_uses_what_was_chosen_on_both_sides(
    golden_533: Path,
    long_directory: str,
    environment: dict[str, str],
    settings: dict[str, str],
    expected: list[object],
) -> None:
    make_java_available()
    given = {name: long_directory if value == "long" else value for name, value in environment.items()}
    assert last_line(SESSION.format(store=str(golden_533), settings=settings), **given) == expected
