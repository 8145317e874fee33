"""A fork of a ready process is what a new interpreter is, to its program and to the test that starts it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import quick_programs
from tests.support.programs import child_environment
from tests.support.waiting import WAIT_LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere they are new interpreters")

# Prints what a program sees of its process.
_SEEN = """
import json, os, resource, signal, sys, threading
streams = (sys.stdin, sys.stdout, sys.stderr)
print(json.dumps({
    "arguments": [sys.argv, sys.orig_argv],
    "paths": sys.path,
    "directory": os.getcwd(),
    "environment": dict(os.environ),
    "parent": os.getppid(),
    "group": [os.getpgid(0), os.getsid(0)],
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "streams": [[one.fileno(), one.encoding, one.errors, one.line_buffering, one.isatty()] for one in streams],
    "signals": [str(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "limits": [resource.getrlimit(one) for one in (resource.RLIMIT_NOFILE, resource.RLIMIT_STACK)],
    "threads": threading.active_count(),
    "main": [__name__, threading.current_thread() is threading.main_thread(), os.umask(0)],
}))
"""
# By how it ends: the exit code, and the last line that it says.
_ENDS = {
    "print('done')": (0, ""),
    "import sys; sys.exit(3)": (3, ""),
    "import sys; sys.exit('a reason')": (1, "a reason"),
    "raise ValueError('a fault')": (1, "ValueError: a fault"),
    "import os; os._exit(4)": (4, ""),
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": (-signal.SIGKILL, ""),
    "import atexit, sys; atexit.register(print, 'at exit', file=sys.stderr)": (0, "at exit"),
    "import sys, threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.1), print('waited', file=sys.stderr))).start()": (0, "waited"),
}


@pytest.mark.parametrize("kind", ["-c", "-m"])
def test_a_program_sees_what_it_sees_in_a_new_interpreter(kind: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(_SEEN)
    command = [sys.executable, *(["-c", _SEEN] if kind == "-c" else ["-m", "program"]), "one", "-two"]

    def seen(by: Any) -> Any:
        environment = child_environment() | {"MINE": "größer", "TZ": "Asia/Tokyo"}
        done = by.run(command, capture_output=True, stdin=subprocess.DEVNULL, cwd=tmp_path, env=environment, check=True)
        return json.loads(done.stdout)

    assert seen(quick_programs) == seen(subprocess)


@pytest.mark.parametrize("program", _ENDS)
def test_a_program_ends_as_in_a_new_interpreter(program: str) -> None:
    done = quick_programs.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_LIMIT_S)
    assert (done.returncode, "".join(done.stderr.splitlines()[-1:])) == _ENDS[program]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_it(number: signal.Signals) -> None:
    program = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    with quick_programs.Popen([sys.executable, "-c", program], stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == process.pid
        assert process.poll() is None
        process.send_signal(number)
        _, said = process.communicate(timeout=WAIT_LIMIT_S)
    assert process.returncode == -number
    assert ("KeyboardInterrupt" in said) == (number is signal.SIGINT)


def test_what_an_interpreter_reads_when_it_starts_is_left_to_a_new_one() -> None:
    environment = os.environ | {"PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-c", "import sys; print(sys.stdout.encoding, 'typer' in sys.modules)"]
    assert quick_programs.run(command, capture_output=True, text=True, env=environment).stdout == "iso8859-1 False\n"
    assert quick_programs.run(command, capture_output=True, text=True).stdout.endswith("True\n")
