"""Progress bars on a terminal: shown while other output goes elsewhere, and erased at the end."""

from __future__ import annotations

import os
import pty
import subprocess
import threading
from pathlib import Path

import pytest

from tests.store.cli.commands import SCRIPT, lines
from tests.support import quick_programs
from tests.support.waiting import WAIT_LIMIT_S

SMALL = ("--mapped-file-size-commit-log", "1M", "--max-hash-slot-num", "100", "--max-index-num", "400")
# Moves the cursor up, and erases a line.
ERASED = "\x1b[1A\x1b[2K"


def on_a_terminal(*arguments: object, stdin: bytes | None = None) -> tuple[int, bytes, str]:
    """Run the script with stderr as a terminal: exit code, stdout (a pipe), and what the terminal got."""
    ours, terminal = pty.openpty()
    got: list[bytes] = []

    def read() -> None:
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # Linux: all other ends are closed
                return
            if not data:
                return
            got.append(data)

    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    command = [SCRIPT, *map(str, arguments)]
    with quick_programs.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=terminal, env=environment
    ) as process:
        os.close(terminal)
        reading = threading.Thread(target=read)
        reading.start()
        out, _ = process.communicate(stdin, timeout=WAIT_LIMIT_S)
        reading.join(WAIT_LIMIT_S)
    os.close(ours)
    return process.returncode, out, b"".join(got).decode()


def test_cat_shows_how_many_messages_it_has_read(golden_533: Path) -> None:
    code, out, shown = on_a_terminal("cat", golden_533, "orders", "--json")
    total = len(out.splitlines())
    assert (code, total) == (0, len(lines("cat", golden_533, "orders", "--json")))
    assert "reading" in shown
    assert f"{total}/{total}" in shown
    assert shown.rstrip("\r\n").endswith(ERASED), "the bar is gone when the command ends"


def test_produce_shows_how_many_messages_it_has_put(tmp_path: Path) -> None:
    text = b"".join(b"line %d\n" % number for number in range(3000))
    code, out, shown = on_a_terminal("produce", tmp_path / "store", "-t", "t", "--create", *SMALL, stdin=text)
    assert (code, out) == (0, b"")
    assert "putting" in shown
    assert "3000/?" in shown, "the number of lines is not known before their end"
    assert "3000 messages put in " in shown
    assert shown.rstrip("\r\n").endswith(ERASED), "the bar is gone, and the sentence above it remains"


@pytest.mark.parametrize("command", ["verify", "repair", "salvage"])
def test_commands_over_the_whole_log_show_bytes(golden_533: Path, command: str) -> None:
    code, _, shown = on_a_terminal(command, golden_533)
    assert code == 0
    assert {"verify": "verifying", "repair": "looking", "salvage": "salvaging"}[command] in shown
