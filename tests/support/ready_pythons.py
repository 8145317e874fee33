"""Runners of streams: forks of one process that has imported Spark, for the Sparks that many tests share.

Spark starts a Python process for each run of a stream, which imports pyspark, pyarrow and this package: most of the
time of a small query. Where a JVM has the variable ``SOCKET``, that process is a stub (quick_workers): it hands its
files, environment and arguments to this one, which forks, and it waits for the end of the fork. The fork ends with its
stub, so Spark may kill it as ever. Programs that the tests start have processes of Spark's own.
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

from tests.support.programs import child_environment
from tests.support.waiting import wait_for

# The environment variable with the socket's path. The stub has it too, and cannot import this module.
SOCKET = "COMMITLOG_TEST_STREAM_RUNNERS"
_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
_USED = ("pyarrow", _RUNNER, "pyspark_commitlog.source.schema", "pyspark_commitlog.source.limits_by_spark")
_LONGEST_REQUEST = 1 << 18


@contextmanager
def stream_runners(directory: Path) -> Iterator[dict[str, str]]:
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
    for name in _USED:
        with suppress(ImportError):  # an older Spark has other ones
            importlib.import_module(name)
    # A runner is the main module of its process.
    sys.modules.pop(_RUNNER, None)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{path}.unfinished")
        listening.listen()
        os.rename(f"{path}.unfinished", path)
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            stub, _ = listening.accept()
            with stub:
                if not os.fork():
                    listening.close()
                    _run(stub)


def _run(stub: socket.socket) -> None:
    """The fork: become the process that Spark started."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    message, files, _, _ = socket.recv_fds(stub, _LONGEST_REQUEST, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    asked = json.loads(message)
    os.environ.clear()
    os.environ.update(asked["environment"])
    time.tzset()
    os.chdir(asked["directory"])
    sys.path[:] = asked["path"]
    sys.argv = asked["arguments"]
    threading.Thread(target=_end_with, args=(stub,), daemon=True).start()
    code = 1
    try:
        runpy.run_module(_RUNNER, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  # the fork has no caller
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        stub.send(bytes([code & 255]))
        os._exit(code & 255)


def _end_with(stub: socket.socket) -> None:
    """Nothing more comes from a stub, so this returns when it is gone."""
    stub.recv(1)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
