"""The unit file for systemd: systemd accepts it, the command has its options, and it grants little."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.local_spark import PROJECT
from tests.support.programs import run_program

UNIT = PROJECT / "examples" / "commitlog-serve.service"
INSTALLED = "/opt/commitlog/bin/commitlog"


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The file with a command that exists: systemd looks for it."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace(INSTALLED, str(Path(sys.executable).with_name("commitlog"))))
    return path


def systemd_analyze(*arguments: str | Path) -> str:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: it comes with systemd")
    command = ["systemd-analyze", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if "Unknown option" in done.stderr or "unrecognized option" in done.stderr:
        pytest.skip("this version of systemd cannot check a unit file by itself")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def test_systemd_accepts_it(unit: Path) -> None:
    assert UNIT.name not in systemd_analyze("verify", "--man=no", unit)


def test_it_grants_little(unit: Path) -> None:
    systemd_analyze("security", "--offline=true", "--threshold=20", unit)


def test_the_command_has_its_options() -> None:
    lines = UNIT.read_text().replace("\\\n", " ").splitlines()
    started = next(line for line in lines if line.startswith("ExecStart="))
    program, command, _, *options = shlex.split(started.removeprefix("ExecStart="))
    assert (program, command) == (INSTALLED, "serve")
    known = run_program("-m", "commitlog_store", "serve", "--help", timeout=60).stdout
    names = [one for one in options if one.startswith("--")]
    assert "--tokens" in names
    assert not [name for name in names if not re.search(rf"(^|\s){name}\b", known)]
