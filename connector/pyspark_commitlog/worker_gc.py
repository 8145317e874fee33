"""Garbage collection in Spark's Python workers: leaves out the modules that a worker has imported.

Spark's daemon collects garbage in a worker after each task, and lets the next task wait for it. A worker with pyarrow,
numpy and pyspark holds some hundred thousand objects that live as long as it does: 30 ms to look through, after a task
that took 5. Frozen once, they are not looked at again; garbage of later tasks is collected as before.

Source: PySpark ``daemon.py`` (``gc.collect()`` in ``manager``), https://docs.python.org/3/library/gc.html#gc.freeze
"""

from __future__ import annotations

import functools
import gc
import os

# Set by Spark in workers that serve one task after another, and in no other process.
_REUSED_WORKER = "SPARK_REUSE_WORKER"


@functools.cache
def leave_out_imported_modules() -> None:
    """Call it in a worker once what it needs is imported. Elsewhere, and from the second call on, it does nothing."""
    if os.environ.get(_REUSED_WORKER):
        gc.collect()
        gc.freeze()
