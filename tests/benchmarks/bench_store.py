"""The read-only store without Spark: key queries, `commitlog info`, and the decode on one core."""

from __future__ import annotations

import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa

from commitlog_store import DEFAULT_COLUMNS, MessageStore, MessageStoreConfig, StoreReader
from tests.benchmarks.measure import (
    GIB,
    INDEXED_MESSAGES,
    best_of,
    indexed_store,
    machine,
    many_queues,
    message_store,
    scratch,
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
    taken = best_of(3, lambda: _command("info", "--queues", str(many_queues())))
    show("commitlog info --queues, 2,000 queues, whole process", f"{taken:.2f} s", "goal at most 2 s")


def _doctor() -> None:
    """A closed store with as many log files as 1 TiB has in files of 1 GiB, and 10,000 queues of 1,000 topics."""
    path, files, queues, body = scratch() / "doctor", 1_024, 10_000, bytes(100_000)
    if not (path / "complete").exists():
        shutil.rmtree(path, ignore_errors=True)
        config = MessageStoreConfig(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=2_000)
        with MessageStore.open(path, config) as store:
            topics, queue_ids = [f"topic-{row // 10:04}" for row in range(queues)], [row % 10 for row in range(queues)]
            store.put_messages(pa.table({"topic": topics, "queueId": queue_ids, "body": [b"x"] * queues}))
            filler = pa.table({"topic": ["filler"] * 10, "queueId": [0] * 10, "body": [body] * 10})
            while store.physical_bounds()[1] < files << 20:
                store.put_messages(filler)
        (path / "complete").touch()
    taken = best_of(3, lambda: _command("doctor", str(path)))
    show("commitlog doctor, 1,024 log files, 10,000 queues, whole process", f"{taken:.2f} s", "goal at most 1 s")
    start = best_of(3, lambda: _command("--version"))
    show("commitlog --version, whole process", f"{start:.2f} s")


def _command(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "commitlog_store", *arguments], check=True, stdout=subprocess.DEVNULL)


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
    _doctor()
    _decode()
