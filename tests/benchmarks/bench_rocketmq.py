"""The store beside RocketMQ's own, in turns in one run: puts in memory and synced to a disk, and reading.

RocketMQ's side is ``tests/interop/java/benchmark/StoreBenchmark.java``, which puts and reads in its own process. Both
read the store that RocketMQ wrote.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig, StoreReader
from tests.benchmarks.measure import GIB, machine, memory_at_hand, scratch, show
from tests.interop.rocketmq import RocketMqUnavailable, benchmark_command
from tests.support.local_spark import make_java_available

VERSION = "5.3.3"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "pyspark-commitlog" / "rocketmq"
_TURNS = 3
# Rounds of a turn in one process: the first ones warm the Java machine.
_ROUNDS = 4
# Messages that a thread puts in a round.
_PUTS = 400_000
_SYNC_PUTS = 3_000
_CHUNK = 100_000
# More than a turn writes.
_TOUCHED = 4 * GIB


def _rocketmq(*arguments: object) -> float:
    """Messages a second of RocketMQ's best round."""
    command = benchmark_command(VERSION, CACHE, *arguments, _ROUNDS)
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(f"RocketMQ's side failed:\n{ran.stderr[-2_000:]}")
    return max(float(line) for line in ran.stdout.splitlines())


@contextmanager
def _directory(below: Path) -> Iterator[Path]:
    memory_at_hand(_TOUCHED)
    with tempfile.TemporaryDirectory(dir=below) as name:
        yield Path(name) / "store"


def _best_round(store: MessageStore, work: Callable[[MessageStore], int]) -> float:
    """Messages a second, with dispatch done before the next round, as on RocketMQ's side."""
    rates = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        count = work(store)
        rates.append(count / (time.perf_counter() - begun))
        store.dispatch()
    return max(rates)


def _put_messages(body_size: int) -> Callable[[MessageStore], int]:
    table = pa.table(
        {
            "body": [b"x" * body_size] * _CHUNK,
            "tags": ["paid"] * _CHUNK,
            "keys": [f"order-{number}" for number in range(_CHUNK)],
            "queueId": pa.array([number & 3 for number in range(_CHUNK)], pa.int32()),
        }
    )

    def work(store: MessageStore) -> int:
        for _ in range(_PUTS // _CHUNK):
            store.put_messages(table, topic="orders").raise_for_status()
        return _PUTS

    return work


def _put_message(body_size: int, count: int, threads: int) -> Callable[[MessageStore], int]:
    body = b"x" * body_size

    def put(store: MessageStore, thread: int) -> None:
        for number in range(count):
            queue_id = number & 3 if threads == 1 else thread
            message = Message(topic="orders", body=body, tags="paid", keys=(f"order-{number}",), queue_id=queue_id)
            store.put_message(message).raise_for_status()

    def work(store: MessageStore) -> int:
        workers = [threading.Thread(target=put, args=(store, thread)) for thread in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return count * threads

    return work


def _turn(below: Path, flush: FlushDiskType, work: Callable[[MessageStore], int]) -> float:
    with _directory(below) as path, MessageStore.open(path, MessageStoreConfig(flush_disk_type=flush)) as store:
        return _best_round(store, work)


def _read(path: Path) -> float:
    """Messages a second of the default columns, queue by queue as RocketMQ reads, on one thread."""
    rates = []
    with StoreReader.open(path) as reader:
        for _ in range(_ROUNDS):
            begun = time.perf_counter()
            count = 0
            for queue in reader.queues("orders"):
                count += sum(batch.num_rows for batch in reader.read("orders", queue.queue_id, queue.min_offset))
            rates.append(count / (time.perf_counter() - begun))
    return max(rates)


def _in_memory(label: str, body_size: int, goal: str) -> None:
    theirs, single, bulk, read, theirs_read = [], [], [], [], []
    for _ in range(_TURNS):
        with _directory(scratch()) as path:
            theirs.append(_rocketmq("put", path, "ASYNC_FLUSH", 1, body_size, _PUTS))
            theirs_read.append(_rocketmq("read", path))
            read.append(_read(path))
        single.append(_turn(scratch(), FlushDiskType.ASYNC_FLUSH, _put_message(body_size, _PUTS // 4, 1)))
        bulk.append(_turn(scratch(), FlushDiskType.ASYNC_FLUSH, _put_messages(body_size)))
    show(f"{label}: RocketMQ's putMessage, one thread", f"{max(theirs) / 1e3:.0f} k/s")
    _beside(f"{label}: put_message, one thread", max(single), max(theirs), goal)
    _beside(f"{label}: put_messages", max(bulk), max(theirs))
    show(f"{label}: RocketMQ reads to objects, one thread", f"{max(theirs_read) / 1e3:.0f} k/s")
    _beside(f"{label}: StoreReader.read to columns, one thread", max(read), max(theirs_read), "goal 1.2 at 1 KiB")


def _synced(disk: Path) -> None:
    for threads in (1, 8):
        theirs, ours = [], []
        for _ in range(_TURNS):
            with _directory(disk) as path:
                theirs.append(_rocketmq("put", path, "SYNC_FLUSH", threads, 1024, _SYNC_PUTS))
            ours.append(_turn(disk, FlushDiskType.SYNC_FLUSH, _put_message(1024, _SYNC_PUTS, threads)))
        show(f"1k: RocketMQ's putMessage, SYNC_FLUSH, {threads} threads", f"{max(theirs) / 1e3:.1f} k/s")
        goal = "goal 1" if threads > 1 else ""
        _beside(f"1k: put_message, SYNC_FLUSH, {threads} threads", max(ours), max(theirs), goal)


def _beside(label: str, ours: float, theirs: float, goal: str = "") -> None:
    show(label, f"{ours / 1e3:.1f} k/s", f"{ours / theirs:.2f} times RocketMQ {goal}".rstrip())


def has_rocketmq() -> bool:
    """Whether RocketMQ's store is here, or can be had; else says why not."""
    make_java_available()
    CACHE.mkdir(parents=True, exist_ok=True)
    try:
        benchmark_command(VERSION, CACHE)
    except RocketMqUnavailable as error:
        print(f"  without RocketMQ: {error}")
        return False
    return True


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    if not has_rocketmq():
        return
    for label, body_size, goal in (("1k", 1024, "goal 0.7"), ("100b", 100, "goal 0.5")):
        _in_memory(label, body_size, goal)
    with tempfile.TemporaryDirectory(dir=os.environ.get("COMMITLOG_BENCH_DISK", "/var/tmp")) as disk:
        _synced(Path(disk))
