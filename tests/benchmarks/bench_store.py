"""The read-only store without Spark: key queries, `commitlog info`, and the decode on one core."""

from __future__ import annotations

import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from commitlog import DEFAULT_COLUMNS, StoreReader
from tests.benchmarks.measure import GIB, best_of, machine, many_queues, message_store, scratch, show
from tests.support.store_builder import StoreBuilder

__all__ = ["main"]

_MESSAGES = 1_000_000


def _indexed_store() -> Path:
    path = scratch() / "indexed"
    if (path / "complete").exists():
        return path
    shutil.rmtree(path, ignore_errors=True)
    builder = StoreBuilder(path, log_file_size=GIB, queue_file_units=300_000)
    entries = []
    for first in range(0, _MESSAGES, 50_000):
        keys = [f"order-{number}" for number in range(first, first + 50_000)]
        stored = builder.now_ms
        places = builder.append("orders", [0, 1, 2, 3], [b"x" * 100] * 50_000, keys=keys).tolist()
        entries += [
            (f"orders#{key}", place, stored + row) for row, (key, place) in enumerate(zip(keys, places, strict=True))
        ]
    builder.write_index("20260101000000000", entries, slots=5_000_000)
    (path / "complete").touch()
    return path


def _key_query() -> None:
    numbers = random.Random(7).sample(range(_MESSAGES), 2_000)
    seconds = []
    with StoreReader.open(_indexed_store()) as reader:
        for number in numbers:
            begun = time.perf_counter()
            found = reader.query("orders", f"order-{number}")
            seconds.append(time.perf_counter() - begun)
            assert len(found) == 1
    seconds.sort()
    show("key query, 1 M indexed messages: p50", f"{statistics.median(seconds) * 1e3:.3f} ms", "goal at most 1 ms")
    show("key query, 1 M indexed messages: p99", f"{seconds[int(len(seconds) * 0.99)] * 1e3:.3f} ms")


def _info() -> None:
    script = "from commitlog.cli import main; main()"
    command = [sys.executable, "-c", script, "info", "--queues", str(many_queues())]
    taken = best_of(3, lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
    show("commitlog info --queues, 2,000 queues, whole process", f"{taken:.2f} s", "goal at most 2 s")


def _read_all(reader: StoreReader, columns: Sequence[str], verify_crc: bool) -> Iterator[int]:
    for queue_id in reader.queue_ids("orders"):
        for batch in reader.read("orders", queue_id, 0, columns=columns, verify_crc=verify_crc):
            yield batch.num_rows


def _decode() -> None:
    ways = (
        ("default columns", DEFAULT_COLUMNS, False),
        ("verify_crc", DEFAULT_COLUMNS, True),
        ("body alone", ["body"], False),
    )
    for label, body_size in (("1k", 1024), ("100b", 100)):
        with StoreReader.open(message_store(f"2g-{label}", body_size=body_size, size=2 * GIB)) as reader:
            for name, columns, checked in ways:
                rows = sum(_read_all(reader, columns, checked))
                taken = best_of(2, lambda c=columns, v=checked: sum(_read_all(reader, c, v)))  # type: ignore[misc]
                show(f"{label}: decode on one core, {name}", f"{rows / taken / 1e6:.3f} M rows/s")


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    _key_query()
    _info()
    _decode()
