"""Spark's Python processes as forks of one that has imported all they use, for the Sparks that many tests share.

Spark starts a Python process for each run of a stream, and a daemon for each kind of worker in each session. They
import pyspark, pyarrow and this package: most of the time of a small query. Where a JVM has the variable ``SOCKET``,
what it starts is a stub (quick_workers) that hands its files, environment and arguments to this process, which forks.
A fork ends with its stub, so Spark may kill it as ever. Programs of the tests have processes of Spark's own.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.support.programs import child_environment
from tests.support.quick_workers.sitecustomize import DAEMON, SOCKET, STREAM, USED
from tests.support.waiting import wait_for

_LONGEST_REQUEST = 1 << 18


@contextmanager
def ready_pythons(directory: Path) -> Iterator[dict[str, str]]:
    """Run the process; what a JVM needs in its environment to use it."""
    path = directory / "socket"
    environment = {key: value for key, value in child_environment().items() if not key.startswith("PYSPARK_")}
    process = subprocess.Popen([sys.executable, "-m", __name__, path], stdin=subprocess.PIPE, env=environment)
    try:
        wait_for(lambda: path.exists() or process.poll() is not None)
        yield {SOCKET: str(path)}
    finally:
        process.communicate()


def main(path: str) -> None:
    """Fork for each connection, until standard input ends."""
    for name in ("pyarrow", *USED, *(used for several in USED.values() for used in several)):
        with suppress(ImportError):  # another version of Spark has other ones
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest; this ends with its input
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{path}.unfinished")
        listening.listen(100)
        os.rename(f"{path}.unfinished", path)
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            stub, _ = listening.accept()
            with stub:
                if not os.fork():
                    listening.close()
                    _end_with_code_of(stub)


def _end_with_code_of(stub: socket.socket) -> None:
    """The fork: what the process does that Spark has started."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    message, files, _, _ = socket.recv_fds(stub, _LONGEST_REQUEST, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    code = 1
    try:
        _become(json.loads(message), stub)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  # the fork has no caller
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError, ValueError):  # Spark has closed them
            sys.stdout.flush()
            sys.stderr.flush()
        with suppress(OSError):
            stub.send(bytes([code & 255]))
        os._exit(code & 255)


def _become(asked: dict[str, Any], stub: socket.socket) -> None:
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    os.chdir(asked["directory"])
    sys.path[:] = asked["path"]
    sys.argv = asked["arguments"]
    module = sys.argv[0]
    if module == STREAM:
        threading.Thread(target=_end_with, args=(stub,), daemon=True).start()
    else:
        # A daemon forks, so it has no threads; it ends with its standard input.
        assert module == DAEMON
    sys.modules.pop(module, None)  # it is the main module of its process
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with(stub: socket.socket) -> None:
    """Nothing more comes from a stub, so this returns when it is gone."""
    stub.recv(1)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
