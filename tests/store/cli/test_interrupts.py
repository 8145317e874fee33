"""Ctrl-C while the command is still starting: it ends quietly with 130, as later."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.cli.commands import SCRIPT
from tests.support.programs import child_environment
from tests.support.waiting import WAIT_LIMIT_S

_SMALLEST_PIPE = 4096


@pytest.mark.parametrize("command", [["-m", "commitlog_store"], [SCRIPT]], ids=["module", "script"])
@pytest.mark.parametrize("module", ["numpy.version", "pyarrow.lib", "rich.console"])
def test_ctrl_c_while_modules_are_imported_ends_quietly(command: list[str], module: str, golden_533: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", *command, "info", str(golden_533)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        env=child_environment(),
    )
    assert process.stderr is not None
    # Of the report of its imports, the process can be only a few lines ahead of what has been read.
    fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, _SMALLEST_PIPE)
    seen = any(line.split(b"|")[-1].strip() == module.encode() for line in process.stderr)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=WAIT_LIMIT_S)
    said = [line for line in err.splitlines() if not line.startswith(b"import time:")]
    assert (seen, _shell_code(process.returncode), out, said) == (True, 130, b"", [])


def _shell_code(returncode: int) -> int:
    """The code that a shell shows.

    With ``-m``, CPython ends by the signal itself where the interrupt came in an ``exec`` of text, such as that of a
    data class, though it was caught.
    """
    return 128 - returncode if returncode < 0 else returncode
