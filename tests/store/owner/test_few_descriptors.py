"""A store has more files and queues than its process may open, and continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.owner.calls_without_descriptors import PARTS
from tests.support import quick_programs
from tests.support.programs import run_program
from tests.support.waiting import WAIT_LIMIT_S

_SWEEP = "tests.store.owner.calls_without_descriptors"
_PROGRAM = "tests.store.owner.with_few_descriptors"


@pytest.mark.parametrize("kind", ["async", "sync", "lagging", "pooled", "queues"])
def test_a_store_works_with_more_files_than_may_be_open(tmp_path: Path, kind: str) -> None:
    done = quick_programs.run_program("-m", _PROGRAM, tmp_path / "store", kind, timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_a_log_of_more_files_than_may_be_open_is_recovered(tmp_path: Path) -> None:
    killed = quick_programs.run_program("-m", _PROGRAM, tmp_path / "store", "killed", timeout=WAIT_LIMIT_S)
    assert killed.returncode == 0, killed.stderr
    done = quick_programs.run_program("-m", _PROGRAM, tmp_path / "store", "recovered", timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


@pytest.mark.parametrize("counts", ["some", pytest.param("all", marks=pytest.mark.stress)])
@pytest.mark.parametrize("part", PARTS)
def test_without_descriptors_every_call_is_refused_by_name_and_repeated_later(
    tmp_path: Path, part: str, counts: str
) -> None:
    done = run_program("-m", _SWEEP, tmp_path, part, counts, timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stdout + done.stderr
