"""Spark's Python daemons import what their workers import, before they fork: a worker is there at once.

A worker that a task fails in is killed, and the next one would import pyspark, pyarrow and this package again: a second
for each. Python runs this module at its start where ``quick_spark`` has put its directory, in Spark's Python processes
alone. Without it each worker imports for itself, as in a Spark of a user's.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys

_DAEMON = "pyspark.daemon"
_PLANS = "pyspark_commitlog.source.batch_source"
_WRITES = "pyspark_commitlog.sink.writers"
# By the module of the worker: what it imports of this package when it is called.
_USED = {
    "pyspark.worker": ["pyspark_commitlog.source.task", "pyspark_commitlog.sink.task"],
    "pyspark.sql.worker.create_data_source": ["pyspark_commitlog.source.schema"],
    "pyspark.sql.worker.plan_data_source_read": [_PLANS],
    "pyspark.sql.worker.data_source_pushdown_filters": [_PLANS],
    "pyspark.sql.worker.write_into_data_source": [_WRITES],
    "pyspark.sql.worker.commit_data_source_write": [_WRITES],
    "pyspark.sql.worker.python_streaming_sink_runner": [_WRITES],
}


def _import_ahead(worker: str) -> None:
    for name in ("pyarrow", worker, *_USED.get(worker, ())):
        # What cannot be imported is for the worker to report.
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.freeze()


if sys.orig_argv[1:3] == ["-m", _DAEMON]:
    _import_ahead(sys.orig_argv[3] if len(sys.orig_argv) > 3 else "pyspark.worker")
