"""The manual page: made from the commands, up to date, and installed by the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from commitlog_store.cli.exit_codes import EXIT_CODES
from tests.store.cli.commands import run
from tests.store.cli.test_one_name import commands
from tests.support.local_spark import PROJECT
from tests.support.waiting import WAIT_LIMIT_S

PAGE = PROJECT / "docs" / "commitlog.1"


def shown(command: list[str]) -> str:
    """What a program makes of the page, as plain text; it must have nothing to say about it."""
    environment = {**os.environ, "MANWIDTH": "100", "MAN_KEEP_FORMATTING": "", "LC_ALL": "C.UTF-8", "GROFF_NO_SGR": "1"}
    done = subprocess.run(
        [*command, str(PAGE)], capture_output=True, text=True, check=True, timeout=WAIT_LIMIT_S, env=environment
    )
    assert done.stderr == ""
    return done.stdout


def test_the_page_is_that_of_the_commands() -> None:
    assert PAGE.read_text(encoding="utf-8") == run("--man"), "run `make man`"


def test_the_page_has_every_command_option_and_exit_code() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("\\-", "-")
    for name, command in commands():
        assert f".SS \\fB{name}\\fR" in text
        for param in command.params:
            assert all(f"\\fB{one}\\fR" in text for one in param.opts if one.startswith("-"))
    assert all(meaning in text for meaning in EXIT_CODES.values())


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_groff_finds_nothing_wrong() -> None:
    text = shown(["groff", "-man", "-ww", "-Tascii", "-P-cbou"])
    assert "commitlog tail PATH TOPIC ... [OPTIONS]" in text
    assert r"$ commitlog cat /data/store orders --format '%t/%q@%o %k %s\n'" in text


@pytest.mark.skipif(shutil.which("man") is None, reason="needs man")
def test_man_shows_the_page() -> None:
    assert "inspect, verify, repair and write" in shown(["man", "-l"])


def test_the_wheel_installs_the_page(tmp_path: Path) -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel")
    (built,) = wheel.WheelBuilder(str(PROJECT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as files:
        (name,) = [one for one in files.namelist() if one.endswith("share/man/man1/commitlog.1")]
        assert ".data/data/" in name
        assert files.read(name) == PAGE.read_bytes()
