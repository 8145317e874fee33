"""Spark's workers run the driver's interpreter, unless another one is configured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import WAIT_LIMIT_S

REPORT = "import json, os; print(json.dumps(os.environ.get('PYSPARK_PYTHON')))"


def run(script: str, python: str = sys.executable, **environment: str) -> tuple[str | None, str]:
    """PYSPARK_PYTHON at the end of a script in a new interpreter, and what it wrote to stderr."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "PYTHON_WORKER"))}
    ran = subprocess.run(
        [python, "-c", f"{script}\n{REPORT}"],
        check=False,
        capture_output=True,
        text=True,
        env=clean | environment,
        timeout=WAIT_LIMIT_S,
    )
    assert ran.returncode == 0, ran.stderr
    value: str | None = json.loads(ran.stdout.splitlines()[-1])
    return value, ran.stderr


@pytest.fixture
def elsewhere(tmp_path: Path) -> str:
    """A PATH on which ``python3`` is an interpreter without this package."""
    directory = tmp_path / "bin"
    directory.mkdir()
    script = directory / "python3"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


def test_workers_get_the_interpreter_of_an_environment_that_is_not_activated(elsewhere: str) -> None:
    assert run("import pyspark_commitlog", PATH=elsewhere)[0] == sys.executable


def test_an_activated_environment_needs_no_setting() -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    assert run("import pyspark_commitlog", PATH=path)[0] is None


def test_the_users_choice_stands(elsewhere: str) -> None:
    assert run("import pyspark_commitlog", PATH=elsewhere, PYSPARK_PYTHON="/opt/python")[0] == "/opt/python"


def test_a_setting_for_the_driver_does_not_count_for_the_workers(elsewhere: str) -> None:
    """Workers read PYSPARK_PYTHON alone, so those of a notebook would run without this package."""
    assert run("import pyspark_commitlog", PATH=elsewhere, PYSPARK_DRIVER_PYTHON="jupyter")[0] == sys.executable


def test_the_interpreter_chosen_by_spark_submit_is_kept(elsewhere: str) -> None:
    assert run("import pyspark_commitlog", PATH=elsewhere, PYSPARK_GATEWAY_PORT="1")[0] is None


ACTIVE = (
    "from pyspark import SparkContext; SparkContext._active_spark_context = type('C', (), {{'pythonExec': {0!r}}})()\n"
)


def test_importing_after_the_session_was_made_is_warned_about(elsewhere: str) -> None:
    value, said = run(ACTIVE.format("python3") + "import pyspark_commitlog", PATH=elsewhere)
    assert value is None
    assert "Import pyspark_commitlog before making the SparkSession" in said
    assert f"PYSPARK_PYTHON={sys.executable}" in said


def test_importing_late_is_not_warned_about_if_the_workers_have_the_package(elsewhere: str) -> None:
    assert "Import" not in run(ACTIVE.format(sys.executable) + "import pyspark_commitlog", PATH=elsewhere)[1]


def test_without_pyspark_one_sentence_says_what_to_install() -> None:
    script = """
import sys
sys.modules["pyspark"] = sys.modules["pyspark.sql"] = None
try:
    import pyspark_commitlog
except ImportError as error:
    assert "pip install 'pyspark-commitlog[spark]'" in str(error), error
else:
    raise SystemExit("it was imported")
"""
    run(script)
