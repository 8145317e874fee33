"""Spark's Python daemons import what their workers import, before they fork: a worker is there at once.

A worker that a task fails in is killed, and the next one would import pyspark, pyarrow and this package again: a second
for each. Python runs this module at its start where ``quick_spark`` has put its directory, in Spark's Python processes
alone. Without it each worker imports for itself, as in a Spark of a user's.

Where the tests run a process that has imported all of it (``ready_pythons``), this one is a stub of a fork of that.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import sys

# Has the path of the socket of ``ready_pythons``.
SOCKET = "COMMITLOG_TEST_PYTHONS"
DAEMON = "pyspark.daemon"
# Plans the batches of a stream. No daemon starts it.
STREAM = "pyspark.sql.streaming.python_streaming_source_runner"
_PLANS = "pyspark_commitlog.source.batch_source"
_WRITES = "pyspark_commitlog.sink.writers"
# By the module of the worker: what it imports of this package when it is called.
USED = {
    "pyspark.worker": ["pyspark_commitlog.source.task", "pyspark_commitlog.sink.task"],
    "pyspark.sql.worker.create_data_source": ["pyspark_commitlog.source.schema"],
    "pyspark.sql.worker.plan_data_source_read": [_PLANS],
    "pyspark.sql.worker.data_source_pushdown_filters": [_PLANS],
    "pyspark.sql.worker.write_into_data_source": [_WRITES],
    "pyspark.sql.worker.commit_data_source_write": [_WRITES],
    "pyspark.sql.worker.python_streaming_sink_runner": [_WRITES],
    STREAM: ["pyspark_commitlog.source.limits_by_spark"],
}


def _import_ahead(worker: str) -> None:
    for name in ("pyarrow", worker, *USED.get(worker, ())):
        # What cannot be imported is for the worker to report.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.freeze()


def _run_in_a_fork(path: str) -> None:
    """Let a fork do what this process is for, and end with it. Returns when there is no process to fork."""
    import json
    import socket

    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError:
            return
        asked = {
            "environment": {key: value for key, value in os.environ.items() if key != SOCKET},
            "directory": os.getcwd(),
            "path": sys.path,
            "arguments": sys.orig_argv[2:],
        }
        socket.send_fds(connection, [json.dumps(asked).encode()], [0, 1, 2])
        # The fork alone has them, so that it sees their end.
        for number in (0, 1, 2):
            os.close(number)
        code = connection.recv(1)
    os._exit(code[0] if code else 1)


if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2] in (DAEMON, STREAM):
    if SOCKET in os.environ:
        _run_in_a_fork(os.environ[SOCKET])
    if sys.orig_argv[2] == DAEMON:
        _import_ahead(sys.orig_argv[3] if len(sys.orig_argv) > 3 else "pyspark.worker")
