"""A query whose store lies on a disk that fills up, and is freed again.

    python -m tests.connector.sink_failures.full_disk BASE MOUNT

It runs in a mount namespace of its own, mounts a small file system at MOUNT, and prints ``fine`` at the end, or fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from commitlog_store import StoreReader
from tests.connector.sink.sink_helpers import staged_files
from tests.connector.sink_failures.driver import QUICK_DRIVER
from tests.connector.sink_failures.output import Input, Watcher, check_output
from tests.connector.sink_failures.query import Query, register
from tests.connector.sink_failures.reading_query import ReadingQuery
from tests.support.local_spark import start_spark

SIZE = 8 << 20
# With less than a tenth free nothing is written at all, so that much is left when a batch is staged; it needs more.
LEFT_TO_COMMIT = SIZE // 8


def main(base: str, mount: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", mount], check=True)
    spark = start_spark(Path(base, "scratch"), **QUICK_DRIVER)
    register(spark)
    source = Input(Path(base, "input"))
    source.extra_rows = 9_000
    query = Query(spark, Path(base), source, Path(mount, "store"))
    source.add()
    query.make_store()
    with Watcher(query.store, source), ReadingQuery(spark, Path(base), query.store, source):
        query.run_well()
        with StoreReader.open(query.store) as reader:
            size = reader.physical_bounds()[1]
        assert size > LEFT_TO_COMMIT
        ballast = Path(mount, "ballast")
        for _ in range(2):
            with ballast.open("wb") as stream:
                found = os.statvfs(mount)
                os.posix_fallocate(stream.fileno(), 0, found.f_bavail * found.f_bsize - size - LEFT_TO_COMMIT)
            source.add()
            error = query.run()
            assert "DiskFull" in error, error
            assert "begun" in query.told[-2], "it failed in the commit"
            assert not staged_files(query.store)
            ballast.unlink()
            query.run_well()
    check_output(query.store, source)
    print("fine")


if __name__ == "__main__":
    main(*sys.argv[1:])
