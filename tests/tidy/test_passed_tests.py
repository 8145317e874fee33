"""``make stress ARGS=--again`` leaves out what has passed on the same commit, and nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.programs import child_environment
from tests.support.waiting import WAIT_LIMIT_S

TESTS = """
import pathlib
import pytest

def test_passes(): pass

def test_fails_at_first(): assert pathlib.Path({mended!r}).exists()

@pytest.fixture
def broken_end():
    yield
    assert pathlib.Path({mended!r}).exists()

def test_fails_in_its_teardown_at_first(broken_end): pass

@pytest.mark.parametrize("name", ["a\\tb", "a b"])
def test_odd_names(name): pass
"""


def git(path: Path, *words: str) -> None:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *words], cwd=path, check=True, capture_output=True, timeout=WAIT_LIMIT_S)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a test that passes and two that fail until the file ``mended`` is there, outside of it."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "pytest.ini").write_text("[pytest]\n")
    (project / "conftest.py").write_text(
        "from tests.support.passed_tests import pytest_addoption, pytest_configure  # noqa: F401\n"
    )
    (project / "test_some.py").write_text(TESTS.format(mended=str(tmp_path / "mended")))
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "tests")
    return project


def counts(project: Path, *arguments: str, log: bool = True) -> dict[str, int]:
    """What a run counts at its end, such as ``{"passed": 3, "failed": 1}``."""
    environment = {**child_environment(), "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {name: value for name, value in environment.items() if not name.startswith(("STRESS_", "PYTEST_"))}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # their imports take longer than the tests
    if log:
        environment["STRESS_LOG"] = str(project.parent / "stress.log")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    done = subprocess.run(
        command, cwd=project, env=environment, check=False, capture_output=True, text=True, timeout=WAIT_LIMIT_S
    )
    last = (done.stdout or done.stderr).rstrip().splitlines()[-1]
    return {word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", last)} or {done.stderr: 0}


@pytest.mark.parametrize(
    "workers",
    [
        pytest.param([], id="one process"),
        pytest.param(["-p", "xdist", "-n", "2"], id="two workers", marks=pytest.mark.stress),
    ],
)
def test_what_failed_is_run_again_and_what_passed_is_not(project: Path, workers: list[str]) -> None:
    if workers:
        pytest.importorskip("xdist")
    first = counts(project, *workers)
    assert (first["passed"], first["failed"], first["error"]) == (4, 1, 1)
    (project.parent / "mended").touch()
    again = counts(project, *workers, "--again")
    assert again["passed"] == 2, "the one that failed, and the one whose teardown did"
    assert "failed" not in again
    assert "passed" not in counts(project, *workers, "--again"), "none is left"
    assert counts(project, *workers)["passed"] == 5, "without --again all are run, and the log begins from scratch"


def test_nothing_counts_on_another_commit_or_beside_changed_files(project: Path) -> None:
    (project.parent / "mended").touch()
    assert counts(project)["passed"] == 5
    (project / "module.py").write_text("x = 1\n")
    assert counts(project, "--again")["passed"] == 5, "a file that is not of the commit"
    git(project, "add", ".")
    git(project, "commit", "-q", "-m", "another")
    assert counts(project, "--again")["passed"] == 5
    assert "passed" not in counts(project, "--again")
    git(project, "checkout", "-q", "HEAD~1")
    assert "passed" not in counts(project, "--again"), "what had passed there still counts"


def test_without_a_repository_all_are_run(project: Path) -> None:
    (project.parent / "mended").touch()
    os.rename(project / ".git", project.parent / "elsewhere")
    assert [counts(project, "--again")["passed"] for _ in range(2)] == [5, 5]


def test_again_without_a_log_is_refused(project: Path) -> None:
    (said,) = counts(project, "--again", log=False)
    assert "set STRESS_LOG, or run make stress" in said
