"""Every command that looks works on a read-only mount."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.cli.on_a_read_only_mount import COMMANDS
from tests.support import quick_programs
from tests.support.programs import may_mount
from tests.support.waiting import WAIT_LIMIT_S


def test_looking_needs_no_right_to_write(golden_498: Path, tmp_path: Path) -> None:
    if not may_mount(tmp_path):
        pytest.skip("this user may not mount")
    mount = tmp_path / "mount"
    mount.mkdir()
    program = "tests.store.cli.on_a_read_only_mount"
    done = quick_programs.run_with_own_mounts(program, golden_498, mount, timeout=WAIT_LIMIT_S)
    assert done.stderr == ""
    found = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines())
    assert found == {command: "1" if command.startswith("query") else "0" for command in COMMANDS}
