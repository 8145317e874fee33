"""The writing store: bulk and single puts, group commit, dispatch, open and recovery."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig
from commitlog_store.format import checksum
from tests.benchmarks.measure import GIB, best_of, machine, memory_at_hand, scratch, show

_ROWS = 100_000
# What a chunk of the baseline writes at once: as many rows as a chunk of put_messages.
_CHUNK = 16_384
# Record bytes beside the body, of the tables below.
_OVERHEAD = 133
_SYNC_PUTS = 3_000


def _table(body_size: int, first: int = 0) -> pa.Table:
    random = np.random.default_rng(first)
    raw = random.integers(32, 127, body_size * _ROWS, dtype=np.uint8)
    offsets = np.arange(0, (_ROWS + 1) * body_size, body_size, dtype=np.int32)
    return pa.table(
        {
            "body": pa.Array.from_buffers(pa.binary(), _ROWS, [None, pa.py_buffer(offsets), pa.py_buffer(raw)]),
            "tags": random.choice(["created", "paid", "shipped", "returned"], _ROWS).tolist(),
            "keys": [f"order-{number:08d}" for number in range(first, first + _ROWS)],
            "queueId": pa.array(np.arange(_ROWS) % 4, pa.int32()),
        }
    )


@contextmanager
def _store(name: str, **settings: object) -> Iterator[tuple[Path, MessageStore]]:
    path = scratch() / name
    shutil.rmtree(path, ignore_errors=True)
    try:
        with MessageStore.open(path, MessageStoreConfig.from_mapping(settings)) as store:
            yield path, store
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _baseline(table: pa.Table, repeats: int, crc32: Callable[[bytes], int]) -> float:
    """Rows a second of the least that a log must do: a CRC a message, and one write a chunk into an allocated file."""
    bodies = table["body"].chunk(0)
    size = len(bodies[0].as_py()) + _OVERHEAD
    path = scratch() / "baseline"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.posix_fallocate(descriptor, 0, size * _ROWS * repeats)
        chunks = [bodies.slice(at, _CHUNK).to_numpy(zero_copy_only=False) for at in range(0, _ROWS, _CHUNK)]
        blobs = [os.urandom(size * len(chunk)) for chunk in chunks]
        at = 0
        begun = time.perf_counter()
        for _ in range(repeats):
            for chunk, blob in zip(chunks, blobs, strict=True):
                for body in chunk:
                    crc32(body)
                os.pwrite(descriptor, blob, at)
                at += len(blob)
        return _ROWS * repeats / (time.perf_counter() - begun)
    finally:
        os.close(descriptor)
        path.unlink()


def _bulk() -> None:
    for label, body_size, repeats, goal in (("1k", 1024, 15, 600), ("100b", 100, 40, 1200)):
        table = _table(body_size)
        # Memory that is touched for the first time costs more than anything else here.
        rates = []
        ceilings: dict[str, list[float]] = {"zlib.crc32": [], "zlib-ng's crc32": []}
        for _ in range(3):
            with _store(f"bulk-{label}") as (_, store):
                memory_at_hand(3 * GIB)
                begun = time.perf_counter()
                for _ in range(repeats):
                    store.put_messages(table, topic="orders").raise_for_status()
                rates.append(_ROWS * repeats / (time.perf_counter() - begun))
            for name, crc32 in zip(ceilings, (zlib.crc32, checksum.crc32), strict=True):
                memory_at_hand(3 * GIB)
                ceilings[name].append(_baseline(table, repeats, crc32))
        rate = max(rates)
        show(f"{label}: put_messages, ASYNC_FLUSH", f"{rate / 1e3:.0f} k msg/s", f"goal {goal} k")
        for name, found in ceilings.items():
            ceiling = max(found)
            ratio = f"put_messages is {100 * rate / ceiling:.0f} % of it"
            show(f"{label}: {name} and write alone", f"{ceiling / 1e3:.0f} k msg/s", ratio)


def _single() -> None:
    body = b"x" * 100
    with _store("single", mapped_file_size_commit_log=GIB // 4) as (_, store):

        def put(count: int = 100_000) -> None:
            for number in range(count):
                store.put_message(
                    Message(topic="orders", body=body, tags="paid", keys=(f"order-{number}",), queue_id=number & 3)
                )

        taken = best_of(3, put)
        show("put_message, ASYNC_FLUSH, one thread", f"{100 / taken:.1f} k msg/s", "goal at least 40 k")


def _bare_sync(directory: Path, size: int) -> float:
    """Writes a second of one thread that writes and syncs, each time, an allocated file."""
    path = directory / "bare"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.posix_fallocate(descriptor, 0, size * _SYNC_PUTS)
        os.fsync(descriptor)
        blob = b"z" * size
        begun = time.perf_counter()
        for number in range(_SYNC_PUTS):
            os.pwrite(descriptor, blob, number * size)
            os.fdatasync(descriptor)
        return _SYNC_PUTS / (time.perf_counter() - begun)
    finally:
        os.close(descriptor)
        path.unlink()


def _sync_puts(directory: Path, threads: int) -> float:
    config = MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH, mapped_file_size_commit_log=GIB // 8)
    path = directory / "sync"
    body = b"x" * 1024
    with MessageStore.open(path, config) as store:

        def put(queue_id: int) -> None:
            for number in range(_SYNC_PUTS):
                message = Message(topic="orders", body=body, tags="paid", keys=(f"k{number}",), queue_id=queue_id)
                store.put_message(message).raise_for_status()

        workers = [threading.Thread(target=put, args=(queue_id,)) for queue_id in range(threads)]
        begun = time.perf_counter()
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        taken = time.perf_counter() - begun
    shutil.rmtree(path)
    return _SYNC_PUTS * threads / taken


def _sync() -> None:
    """On a real disk: a sync of a file in memory does nothing."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("COMMITLOG_BENCH_DISK", "/var/tmp")) as name:
        directory = Path(name)
        runs = [
            (_bare_sync(directory, 1024 + _OVERHEAD), _sync_puts(directory, 1), _sync_puts(directory, 8))
            for _ in range(3)
        ]
    bare, one, eight = (max(run[which] for run in runs) for which in range(3))
    show("pwrite and fdatasync of 1 KiB records, bare", f"{bare:.0f} /s")
    show("put_message, SYNC_FLUSH, one thread", f"{one:.0f} /s = {100 * one / bare:.0f} %", "goal at least 70 %")
    show("put_message, SYNC_FLUSH, 8 threads", f"{eight:.0f} /s = {eight / one:.1f} x", "goal at least 3 x")


def _resident_mib() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _dispatch() -> None:
    """Ten million puts: does dispatch keep up, does memory stay flat; then the same log dispatched from nothing."""
    table = _table(100)
    path = scratch() / "dispatch"
    shutil.rmtree(path, ignore_errors=True)
    with MessageStore.open(path) as store:
        memory = []
        begun = time.perf_counter()
        for number in range(100):
            store.put_messages(table, topic="orders").raise_for_status()
            if number in (9, 99):
                memory.append(_resident_mib())
        taken = time.perf_counter() - begun
        waited = time.perf_counter()
        last = store.reader()
        store.dispatch()
        last.close()
        lag = time.perf_counter() - waited
    show("10 M messages of 100 B", f"{10 / taken:.2f} M msg/s")
    show("lag of dispatch at their end", f"{lag:.2f} s", "goal at most 1 s")
    show("anonymous memory after 1 M and after 10 M", f"{memory[0]:.0f}, {memory[1]:.0f} MiB", "goal: flat")
    begun = time.perf_counter()
    with MessageStore.open(path, rebuild=True) as store:
        taken = time.perf_counter() - begun
    show("queues and index rebuilt, CRC checked", f"{10 / taken:.2f} M msg/s", "goal at least 1 M")
    with MessageStore.open(path, MessageStoreConfig(message_index_enable=False), rebuild=True) as store:
        pass
    shutil.rmtree(path)


def _filled(name: str, size: int, topics: int) -> Path:
    """A store of messages of 1 KiB in four queues of each topic."""
    path = scratch() / name
    shutil.rmtree(path, ignore_errors=True)
    table = _table(1024)
    table = table.append_column("topic", pa.array([f"topic-{row % topics:03d}" for row in range(_ROWS)]))
    with MessageStore.open(path) as store:
        while store.physical_bounds()[1] < size:
            store.put_messages(table).raise_for_status()
    return path


def _recovery(path: Path) -> float:
    """Bytes a second of recovery, where nothing is known of what was flushed."""
    (path / "abort").touch()
    (path / "checkpoint").unlink()
    begun = time.perf_counter()
    with MessageStore.open(path) as store:
        taken = time.perf_counter() - begun
        assert store.recovered is not None
        return store.recovered.end / taken


def _open() -> None:
    path = _filled("open", 8 * GIB, 250)
    seconds = []
    for _ in range(3):
        begun = time.perf_counter()
        store = MessageStore.open(path)
        seconds.append(time.perf_counter() - begun)
        assert store.recovered is None
        store.close()
    show("clean open, 8 GiB and 1,000 queues", f"{1e3 * min(seconds):.0f} ms", "goal at most 100 ms")
    rate = _recovery(path)
    show("recovery of 1 KiB, 1,000 queues, all checked", f"{rate / 1e9:.2f} GB/s", "goal at least 0.8")
    shutil.rmtree(path)
    path = _filled("open", 4 * GIB, 1)
    rate = _recovery(path)
    show("recovery of 1 KiB, four queues, all checked", f"{rate / 1e9:.2f} GB/s", "goal at least 0.8")
    shutil.rmtree(path)


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    _bulk()
    _single()
    _sync()
    _dispatch()
    _open()
