"""Plans and tasks of the source with few descriptors: ``python -m tests.connector.source.without_descriptors DIR``.

It prints one line, ``fine``, or what is not.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark_commitlog.options.read import parse_batch_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.task import ReadTask
from tests.connector.source.test_task import SCHEMA, partition
from tests.store.owner.calls_without_descriptors import sweep
from tests.support.store_builder import StoreBuilder


def main(base: Path) -> None:
    """A plan of a batch read, and a task that reads its ranges one by one, or at once."""
    builder = StoreBuilder(base / "store", log_file_size=16 << 10, queue_file_units=20)
    builder.append("orders", 0, [bytes(1000)] * 100)
    builder.append("audit", 0, [b"a"] * 3)
    projection = check_schema(SCHEMA)
    path = str(builder.path)
    options = parse_batch_options({"path": path, "subscribe": "orders"})
    task = ReadTask(options, projection)
    faults = [
        *sweep("plan", lambda: CommitLogBatchReader(options, projection).partitions()),
        *sweep("task", lambda: list(task.read(partition()))),
        *sweep("task at once", lambda: list(task.read(partition(short=True)))),
    ]
    print("\n".join(faults) or "fine")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
