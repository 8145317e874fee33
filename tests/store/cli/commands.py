"""The command run in this process and as the installed script, and RocketMQ's answers about the golden store."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock

from typer.testing import CliRunner

from commitlog_store.cli import main
from commitlog_store.cli.app import app
from tests.support import golden, quick_programs
from tests.support.waiting import WAIT_LIMIT_S

SCRIPT = str(Path(sys.executable).parent / "commitlog")
EXPECTED = golden.expected(golden.ROCKETMQ_533)
COUNTS = Counter(message["topic"] for message in EXPECTED["message"])


def run(*arguments: object) -> str:
    """The command in this process: what it prints. It must succeed and say nothing else."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def lines(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*arguments).splitlines()]


def plain(text: str) -> str:
    """A text without line breaks and the boxes that help and wrong usage are printed in."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


def ended(*arguments: object) -> subprocess.CompletedProcess[str]:
    """How the script ends, its entry point called in this process: an interpreter's start takes longer than most."""
    command = ["commitlog", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code: object = 0
    with mock.patch("sys.argv", command), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    assert isinstance(code, int)
    printed, said = (stream.buffer.getvalue().decode(errors="surrogateescape") for stream in (out, err))
    return subprocess.CompletedProcess(command, code, printed, said)


def script(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The installed script as a process, a fork of one that has imported it."""
    command = [SCRIPT, *map(str, arguments)]
    return quick_programs.run(command, capture_output=True, text=True, timeout=WAIT_LIMIT_S, **options)


def new_script(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The installed script, as a user runs it."""
    command = [SCRIPT, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT_LIMIT_S, **options)


def shell(command: str, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """How a shell ends that has the command; one that would only start it is not needed."""
    if re.fullmatch(r"commitlog( ([^\s'\"|&;<>$`*?#\\]+|'[^']*'))*( +#.*)?", command):
        return ended(*shlex.split(command, comments=True)[1:])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command, "bash", *arguments],
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",
        check=False,
        cwd=cwd,
        env=os.environ | {"PATH": path},
        timeout=WAIT_LIMIT_S,
    )


def on_a_terminal(width: int, *arguments: object) -> str:
    """What the script prints to a terminal of some width."""
    main, side = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(width), "TERM": "xterm"}
    command = [SCRIPT, *map(str, arguments)]
    with quick_programs.Popen(command, stdout=side, stderr=subprocess.PIPE, env=environment) as process:
        os.close(side)
        printed = b""
        while True:
            try:
                data = os.read(main, 65536)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            printed += data
        assert process.wait(timeout=WAIT_LIMIT_S) == 0
    os.close(main)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", printed.decode())


def answered(
    answer: bytes, *arguments: object, before_answer: Callable[[], object] | None = None
) -> tuple[int, str, str]:
    """Run the script on a terminal and type an answer: exit code, stdout (a pipe), and what the terminal got.

    ``before_answer`` is called when the command has asked, and the answer is typed again to each further question.
    """
    ours, terminal = pty.openpty()
    got: list[bytes] = []

    def read() -> None:
        asked = 0
        while True:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:  # Linux: all other ends are closed
                return
            if not data:
                return
            got.append(data)
            if b"".join(got).count(b"[y/N] ") > asked:
                if not asked and before_answer is not None:
                    before_answer()
                asked += 1
                os.write(ours, answer)

    command = [SCRIPT, *map(str, arguments)]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    with quick_programs.Popen(
        command, stdin=terminal, stdout=subprocess.PIPE, stderr=terminal, env=environment, text=True
    ) as process:
        os.close(terminal)
        reading = threading.Thread(target=read)
        reading.start()
        out, _ = process.communicate(timeout=WAIT_LIMIT_S)
        reading.join(WAIT_LIMIT_S)
    os.close(ours)
    return process.returncode, out, b"".join(got).decode()


def iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc).isoformat(timespec="milliseconds")
