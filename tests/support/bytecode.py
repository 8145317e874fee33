"""The bytecode of all tests, made once, before pytest's workers start.

Each worker collects all tests. In a new clone each would compile all of them, since the workers collect at once: a
quarter of a minute for each. Here as many processes as there are processors do that first, each for its share.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.local_spark import PROJECT

_TESTS = PROJECT / "tests"
_COLLECT = (sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:xdist", "-p", "no:cacheprovider")


def compile_tests() -> None:
    """Nothing to do where most tests have bytecode: the workers compile what has changed."""
    modules = sorted(_TESTS.rglob("test_*.py"))
    compiled = sum(1 for _ in _TESTS.rglob("test_*-pytest-*.pyc"))
    if compiled > len(modules) // 2:
        return
    # What cannot be collected is reported by the workers.
    count = os.cpu_count() or 1
    processes = [_collect(modules[number::count]) for number in range(count)]
    for process in processes:
        process.wait()


def _collect(modules: list[Path]) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return subprocess.Popen(
        [*_COLLECT, *map(str, modules)],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
