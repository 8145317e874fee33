"""Workers of Spark leave the modules they have imported out of garbage collection; other processes do not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import gc
from pyspark_commitlog.worker_gc import leave_out_imported_modules
before = gc.get_freeze_count()
leave_out_imported_modules()
first = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
leave_out_imported_modules()
print(first - before > 1000, gc.get_freeze_count() == first)
"""


@pytest.mark.parametrize(("worker", "frozen"), [("1", True), (None, False)])
def test_modules_are_frozen_once_and_in_workers_only(worker: str | None, frozen: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
    if worker:
        environment["SPARK_REUSE_WORKER"] = worker
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, check=True, capture_output=True, text=True)
    assert ran.stdout.split() == [str(frozen), "True"]
