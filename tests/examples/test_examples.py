"""Each program in ``examples/`` is run as a user runs it, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.local_spark import PROJECT, make_java_available

__all__: list[str] = []

# What a program must have said, beside exiting with 0. A new example gets a line here.
SAYS = {
    "demo.py": ["Stopped midway.", "Reached the end of the store.", "none twice.", "same"],
}


def test_every_example_is_run() -> None:
    assert {path.name for path in (PROJECT / "examples").glob("*.py")} == SAYS.keys()


@pytest.mark.spark
@pytest.mark.parametrize("name", sorted(SAYS))
def test_example_runs(name: str, tmp_path: os.PathLike[str]) -> None:
    make_java_available()
    # PYSPARK_PYTHON is left out: the examples must do without it.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
    ran = subprocess.run(
        [sys.executable, PROJECT / "examples" / name],
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    missing = [text for text in SAYS[name] if text not in ran.stdout]
    assert not missing, ran.stdout
    assert "differs" not in ran.stdout
