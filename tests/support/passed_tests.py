"""``make stress`` in parts: ``--again`` leaves out the tests that have passed on the same commit.

Each test that passes is a line of the file beside ``STRESS_LOG`` whose name ends in ``.passed``: commit, a tab, and the
test's id. A run without ``--again`` begins with an empty file. While files of the repository differ from the commit, or
where git knows none, no test counts as passed, and none is left out.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

# How long the file was at the start of this run, in bytes, for pytest's workers: all of them have to leave out the
# same tests, also one that is started late for another that has crashed.
_KNOWN_BYTES = "STRESS_PASSED_BYTES"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--again", action="store_true", help="leave out what `make stress` has passed on this commit")


def pytest_configure(config: pytest.Config) -> None:
    """Where ``STRESS_LOG`` names a log; elsewhere ``--again`` has nothing to go by."""
    log, again = os.environ.get("STRESS_LOG"), config.getoption("--again")
    if log is None and again:
        raise pytest.UsageError("--again goes by the log of `make stress`: set STRESS_LOG, or run make stress")
    if log is None:
        return
    path, commit = Path(f"{log}.passed"), _commit(config.rootpath)
    if not hasattr(config, "workerinput"):
        if not again:
            path.unlink(missing_ok=True)
        path.touch()
        os.environ[_KNOWN_BYTES] = str(path.stat().st_size)
    config.pluginmanager.register(_PassedTests(path, commit), "passed tests")


class _PassedTests:
    """Leaves out what has passed, and writes down what passes. ``commit`` is "" when no test counts."""

    def __init__(self, path: Path, commit: str) -> None:
        self._path = path
        self._commit = commit
        self._call_passed = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        known = self._path.read_bytes()[: int(os.environ[_KNOWN_BYTES])].decode()
        lines = (line.split("\t", 1) for line in known.splitlines())
        passed = {test for commit, test in lines if self._commit and commit == self._commit}
        left_out = [item for item in items if item.nodeid in passed]
        if left_out:
            items[:] = [item for item in items if item.nodeid not in passed]
            config.hook.pytest_deselected(items=left_out)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """By the process that ran the test: xdist's controller gets the same report, with its ``node``."""
        if hasattr(report, "node") or not self._commit:
            return
        if report.when == "call":
            self._call_passed = report.nodeid if report.passed else ""
        elif report.when == "teardown" and report.passed and self._call_passed == report.nodeid:
            with self._path.open("a") as stream:
                stream.write(f"{self._commit}\t{report.nodeid}\n")


def _commit(root: Path) -> str:
    """The commit that the files at ``root`` are of; "" when they differ from it, or git does not say."""
    try:
        changed, commit = (
            subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout.strip()
            for words in (["status", "--porcelain"], ["rev-parse", "HEAD"])
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return "" if changed else commit
