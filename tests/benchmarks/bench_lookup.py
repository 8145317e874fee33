"""Look-ups by key, many at once: `StoreReader.query_keys` on one core, and `lookup` through Spark."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from commitlog_store import DEFAULT_COLUMNS, StoreReader
from pyspark_commitlog import lookup
from tests.benchmarks.measure import INDEXED_MESSAGES, best_of, indexed_store, machine, show
from tests.support.local_spark import start_spark

# A batch of Spark's, and a small one.
_BATCHES = (10_000, 1_000)
_LOOK_UPS = 200_000
_TIMES = 3


def _keys(prefix: str, count: int) -> pa.Array:
    numbers = np.random.default_rng(7).integers(0, INDEXED_MESSAGES, count)
    return pa.array([f"{prefix}{number}" for number in numbers.tolist()])


def _cpu_seconds(reader: StoreReader, keys: pa.Array, batch: int, columns: Sequence[str], found: bool) -> float:
    """Processor time, which other programs on the machine disturb least."""
    begun = time.process_time()
    for start in range(0, len(keys), batch):
        for rows in reader.query_keys("orders", keys.slice(start, batch), columns=columns):
            assert rows["queueOffset"].null_count == (0 if found else len(rows))
    return time.process_time() - begun


def _on_one_core(path: Path) -> None:
    ways: list[tuple[str, str, Sequence[str]]] = [
        ("default columns", "order-", DEFAULT_COLUMNS),
        ("queueOffset alone", "order-", ["queueOffset"]),
        ("keys that are not there", "other-", DEFAULT_COLUMNS),
    ]
    with StoreReader.open(path) as reader:
        for batch in _BATCHES:
            for name, prefix, columns in ways:
                keys = _keys(prefix, _LOOK_UPS)
                seconds = [_cpu_seconds(reader, keys, batch, columns, prefix == "order-") for _ in range(_TIMES)]
                label = f"{batch:,} keys at once, {name}, processor time"
                show(label, f"{_LOOK_UPS / min(seconds) / 1e3:.0f} k/s", "goal at least 20 k/s a core")


def _through_spark(path: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        spark = start_spark(Path(directory))
        frame = spark.range(0, INDEXED_MESSAGES, 1, 2).selectExpr("concat('order-', (id * 7919) % 1000000) as key")
        found = lookup(frame, path, "orders", "key")
        found.limit(10).collect()
        taken = best_of(_TIMES, lambda: found.write.format("noop").mode("overwrite").save())
        show("1 M rows through Spark, two tasks, default columns", f"{INDEXED_MESSAGES / taken / 1e3:.0f} k rows/s")
        spark.stop()


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    path = indexed_store()
    _on_one_core(path)
    _through_spark(path)
