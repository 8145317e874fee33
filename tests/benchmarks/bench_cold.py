"""Reading a store whose pages are not in memory, beside plain reads of the same bytes, as `cat` does, in turns."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from commitlog_store import StoreReader
from tests.benchmarks.measure import GIB, machine, message_store, show
from tests.support.local_spark import start_spark

_TURNS = 4
_READ_SIZE = 128 << 10
_PLAIN = "plain reads of the log"


def _forget(path: Path) -> None:
    """Drop the pages of all files from the page cache."""
    for file in path.rglob("*"):
        if not file.is_file():
            continue
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # a page that is not on the device stays
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _plain_reads(path: Path) -> int:
    """Read the log up to its end, and return how many bytes that were: the rest of the last file is a hole."""
    buffer = bytearray(_READ_SIZE)
    total = 0
    for file in sorted((path / "commitlog").iterdir()):
        left = file.stat().st_blocks * 512
        with file.open("rb", buffering=0) as log:
            while left > 0 and (read := log.readinto(buffer)):
                left -= read
                total += read
    return total


def _queue_by_queue(path: Path) -> None:
    with StoreReader.open(path) as reader:
        for queue in reader.queues("orders"):
            for _ in reader.read("orders", queue.queue_id, queue.min_offset):
                pass


def _side_by_side(path: Path) -> None:
    with StoreReader.open(path) as reader:
        ranges = [("orders", queue.queue_id, queue.min_offset, queue.max_offset) for queue in reader.queues("orders")]
        for _ in reader.read_side_by_side(ranges):
            pass


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        spark = start_spark(Path(name), spark__driver__memory="2g", spark__ui__showConsoleProgress="false")

        def through_spark(path: Path) -> None:
            frame = spark.read.format("commitlog").option("path", str(path)).option("subscribe", "orders").load()
            frame.write.format("noop").mode("overwrite").save()

        ways: dict[str, Callable[[Path], object]] = {
            _PLAIN: _plain_reads,
            "StoreReader.read, queue by queue": _queue_by_queue,
            "StoreReader.read_side_by_side": _side_by_side,
            "Spark's source to noop, two tasks": through_spark,
        }
        with tempfile.TemporaryDirectory(dir=os.environ.get("COMMITLOG_BENCH_DISK", "/var/tmp")) as disk:
            path = message_store("2g-1k", body_size=1024, size=2 * GIB, below=Path(disk))
            size = _plain_reads(path)
            warm: dict[str, list[float]] = {label: [] for label in ways}
            cold: dict[str, list[float]] = {label: [] for label in ways}
            for _ in range(_TURNS):
                for label, way in ways.items():
                    for found in (cold, warm):
                        if found is cold:
                            _forget(path)
                        begun = time.perf_counter()
                        way(path)
                        found[label].append(size / (time.perf_counter() - begun) / 1e9)
        spark.stop()
    plain = max(cold[_PLAIN])
    for label in ways:
        share = f"{max(cold[label]) / plain:.0%} of plain reads (goal at least 90%); "
        show(
            f"1k, cold: {label}",
            f"{max(cold[label]):.2f} GB/s",
            f"{'' if label == _PLAIN else share}warm {max(warm[label]):.2f} GB/s",
        )
