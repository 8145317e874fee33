"""Runs tests in each supported version of Spark and Python: ``python -m tests.versions [name ...] [-- pytest's own]``.

A name is ``spark-4.0.1`` or ``python-3.12``; a part of one, such as ``spark``, stands for all that begin so. For each,
a virtual environment is made in ``.venv-versions`` with what the tests need. In a Spark, the tests of the connector run
(``SPARK_TESTS``, or what is given after ``--``); in a Python, all tests. The last lines say what became of each.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.local_spark import PROJECT, make_java_available

# The first and the newest release of each line; of 4.0 also the one that Databricks 17.3 LTS is nearest to.
SPARKS = ("4.0.1", "4.1.0", "4.2.0", "4.3.0")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
SPARK_TESTS = (
    "tests/connector/source/test_limits_by_position.py",
    "tests/connector/source/test_spark_4_0.py",
    "tests/connector/source/test_spark_batch.py",
    "tests/connector/source/test_metadata_source.py",
    "tests/connector/source/test_lookup.py",
    "tests/connector/source/test_spark_stream.py",
    "tests/connector/source/test_listener_numbers.py",
    "tests/connector/source/test_spark_several_stores.py",
    "tests/connector/source/test_spark_crash.py",
    "tests/connector/sink/test_batch.py",
    "tests/connector/sink/test_stream.py",
    "tests/connector/sink/test_retry.py",
    "tests/connector/sink_failures",
)
# PySpark 4.0 and 4.1 leave sockets open and files unclosed, of which Python warns.
QUIET = ("ignore::pytest.PytestUnraisableExceptionWarning", "default::ResourceWarning", "default::DeprecationWarning")
ENVIRONMENTS = PROJECT / ".venv-versions"


class Target(NamedTuple):
    """One version: its name, the interpreter, and what pip and pytest are given."""

    name: str
    python: str | None
    requirements: tuple[str, ...]
    tests: tuple[str, ...]


def targets() -> list[Target]:
    """All versions; those without an interpreter here have None for it."""
    quiet = tuple(f"-W{one}" for one in QUIET)
    sparks = [
        Target(f"spark-{version}", sys.executable, (f"pyspark=={version}",), ("-n", "0", *quiet, *SPARK_TESTS))
        for version in SPARKS
    ]
    pythons = [
        Target(f"python-{version}", find_python(version), (), ("-n", "3", "--dist", "loadscope")) for version in PYTHONS
    ]
    return sparks + pythons


def find_python(version: str) -> str | None:
    """An interpreter of this version that runs: from PATH, or pyenv's newest."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    of_pyenv = sorted(root.glob(f"versions/{version}.*/bin/python"), key=lambda path: path.stat().st_mtime)
    for candidate in (*reversed(of_pyenv), shutil.which(f"python{version}")):
        if candidate is not None:
            asked = subprocess.run(
                [candidate, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"],
                check=False,
                capture_output=True,
                text=True,
            )
            if asked.stdout.strip() == version:
                return str(candidate)
    return None


def prepare(target: Target) -> Path:
    """The interpreter of the target's environment, which is made or brought up to date. ``CalledProcessError``."""
    assert target.python is not None
    environment = ENVIRONMENTS / target.name
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.run([target.python, "-m", "venv", environment], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "--editable", ".[dev]", *target.requirements], check=True, cwd=PROJECT)
    subprocess.run([python, "-m", "tests.support.quick_spark"], check=False, cwd=PROJECT, capture_output=True)
    return python


def run(target: Target, own: Sequence[str]) -> tuple[bool, str]:
    """Run the tests of one target. Whether they passed, and pytest's last line."""
    if target.python is None:
        return True, "not run: no such Python in PATH or pyenv"
    begin = time.monotonic()
    try:
        python = prepare(target)
    except subprocess.CalledProcessError as error:
        return False, f"its environment cannot be made: {error}"
    tests = [one for one in target.tests if not own or one not in SPARK_TESTS]
    command = [str(python), "-m", "pytest", "-q", *tests, *own]
    print("==", target.name, " ".join(command), flush=True)
    last = ""
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line.strip() or last
    summary = re.sub(r"^=+ | =+$", "", last)
    return process.returncode == 0, f"{summary}; {time.monotonic() - begin:.0f} s in all"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what ``arguments`` name, and return an exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    names, own = (given[: given.index("--")], given[given.index("--") + 1 :]) if "--" in given else (given, [])
    known = targets()
    chosen = [one for one in known if not names or any(one.name.startswith(name) for name in names)]
    unknown = [name for name in names if not any(one.name.startswith(name) for one in known)]
    if unknown:
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(one.name for one in known)}", file=sys.stderr)
        return 2
    make_java_available()
    results = [(one.name, *run(one, own)) for one in chosen]
    print("\nversion         result")
    for name, passed, said in results:
        print(f"{name:<15} {'' if passed else 'FAILED: '}{said}")
    return int(not all(passed for _, passed, _ in results))


if __name__ == "__main__":
    raise SystemExit(main())
