"""Stage and commit a batch that has more bytes than the memory.

    python -m tests.store.batch.stage_in_little_memory DIR

It prints one line, ``fine``, or fails with a ``MemoryError``.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from commitlog_store import BatchId, MessageStore, MessageStoreConfig
from commitlog_store.stager import BatchStager

_TABLES, _ROWS, _BODY_SIZE = 10, 16_384, 1024
# Of 160 MiB that are staged and committed, so much may be in memory: a few chunks, each some times over, and the
# stacks of the store's threads.
_MOST_MEMORY = 112 << 20


def main(path: Path) -> None:
    """Half of the tables have large bodies, half large properties."""
    batch = BatchId("loader", 1)
    with MessageStore.open(path, MessageStoreConfig(mapped_file_size_commit_log=128 << 20)) as store:
        with BatchStager(path, batch, queue_counts={}, topic="orders") as stager:
            stager.put(_table(0).slice(0, 10))
            _limit_memory()
            for number in range(_TABLES):
                stager.put(_table(number))
            staged = stager.finish()
        assert staged is not None
        assert staged.size > _TABLES * _ROWS * _BODY_SIZE
        committed = store.commit_batch(batch, [staged])
        assert committed.rows == _TABLES * _ROWS + 10
        store.dispatch()
    print("fine")


def _table(number: int) -> pa.Table:
    raw = np.random.default_rng(number).integers(32, 127, _BODY_SIZE * _ROWS, dtype=np.uint8)
    bounds = np.arange(0, len(raw) + 1, _BODY_SIZE, dtype=np.int32)
    values = pa.StringArray.from_buffers(_ROWS, pa.py_buffer(bounds), pa.py_buffer(raw))
    if number % 2 == 0:
        return pa.table({"body": values})
    names, each = pa.array(["note"] * _ROWS), pa.array(np.arange(_ROWS + 1, dtype=np.int32))
    return pa.table({"body": pa.array([b""] * _ROWS), "properties": pa.MapArray.from_arrays(each, names, values)})


def _limit_memory() -> None:
    """Whatever is allocated from now on, in this process, is at most so much more than now."""
    status = Path("/proc/self/status").read_text()
    used = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + _MOST_MEMORY, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
