"""Help, shell completion, colours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.store.cli.commands import ended, new_script


def test_help_exists_for_every_command_and_without_a_command() -> None:
    for arguments in (
        ["--help"],
        *([name, "--help"] for name in ("info", "cat", "tail", "get", "query", "verify", "repair", "produce")),
    ):
        done = ended(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        assert "Usage: commitlog" in done.stdout
    assert new_script().returncode in {0, 2}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_offered(shell: str) -> None:
    # --show-completion looks at which shell started it, which in CI is none of these.
    done = new_script(env={**os.environ, "_COMMITLOG_COMPLETE": f"source_{shell}"})
    assert done.returncode == 0, done.stderr
    assert "_COMMITLOG_COMPLETE" in done.stdout


def test_shell_completion_knows_the_commands() -> None:
    environment = {**os.environ, "_COMMITLOG_COMPLETE": "complete_bash", "COMP_WORDS": "commitlog ", "COMP_CWORD": "1"}
    done = new_script(env=environment)
    assert {"info", "cat", "tail", "get", "query", "verify", "repair", "produce"} <= set(done.stdout.split())


def test_colours_are_printed_only_to_a_terminal(golden_533: Path) -> None:
    assert "\x1b[" not in new_script("info", golden_533).stdout
    coloured = new_script("info", golden_533, env={**os.environ, "FORCE_COLOR": "1", "TERM": "xterm-256color"})
    assert "\x1b[" in coloured.stdout
    assert "\x1b[" not in new_script("cat", golden_533, "orders", env={**os.environ, "FORCE_COLOR": "1"}).stdout
