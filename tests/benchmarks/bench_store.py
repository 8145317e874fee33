"""The read-only store without Spark: key queries, `commitlog info`, and the decode on one core."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from commitlog_store import DEFAULT_COLUMNS, StoreReader
from tests.benchmarks.measure import (
    GIB,
    INDEXED_MESSAGES,
    best_of,
    indexed_store,
    machine,
    many_queues,
    message_store,
    show,
)


def _key_query() -> None:
    numbers = random.Random(7).sample(range(INDEXED_MESSAGES), 2_000)
    seconds = []
    with StoreReader.open(indexed_store()) as reader:
        for number in numbers:
            begun = time.perf_counter()
            found = reader.query("orders", f"order-{number}")
            seconds.append(time.perf_counter() - begun)
            assert len(found) == 1
    seconds.sort()
    show("key query, 1 M indexed messages: p50", f"{statistics.median(seconds) * 1e3:.3f} ms", "goal at most 1 ms")
    show("key query, 1 M indexed messages: p99", f"{seconds[int(len(seconds) * 0.99)] * 1e3:.3f} ms")


def _info() -> None:
    script = "from commitlog_store.cli import main; main()"
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
