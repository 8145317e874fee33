"""Beside an owner that puts, dispatches, deletes and replaces files, nothing that is only not yet done is damage."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from commitlog_store.verify.assessment import Verdict, assess_store
from tests.support import quick_programs
from tests.support.long_runs import LONG_RUN_S, Progress
from tests.support.programs import child_environment


def test_a_living_owner_is_no_damage(tmp_path: Path, progress: Progress) -> None:
    check_beside_an_owner(tmp_path / "store", 2.0, progress)


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
def test_a_living_owner_is_no_damage_for_minutes(tmp_path: Path, progress: Progress) -> None:
    check_beside_an_owner(tmp_path / "store", 180.0, progress)


def check_beside_an_owner(path: Path, seconds: float, progress: Progress) -> None:
    """Deep and quick in turns, both at least twice."""
    command = [sys.executable, "-m", "tests.store.verify.busy_owner", str(path)]
    with quick_programs.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment()) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == "open\n"
            deadline = time.monotonic() + seconds
            looks = 0
            while time.monotonic() < deadline or looks < 4:
                found = assess_store(path, deep=looks % 2 == 0)
                assert owner.poll() is None, "the owner has failed"
                errors = [one for one in found.findings if one.severity == "error"]
                assert (errors, found.lost, found.verdict) == ([], 0, Verdict.OK), (looks, found.findings)
                looks += 1
                progress.count("looks beside an owner", looks)
        finally:
            owner.kill()
