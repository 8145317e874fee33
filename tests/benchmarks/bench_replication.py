"""Replication: what a slave costs the putting threads, and what a put under SYNC_MASTER waits; both measured in turns.

The slave is a process of its own, which writes what it gets and syncs it before each acknowledgement.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from commitlog import BrokerRole, FlushDiskType, Message, MessageStore, MessageStoreConfig
from tests.benchmarks.measure import GIB, machine, memory_at_hand, scratch, show
from tests.support.scripted_slave import ScriptedSlave
from tests.support.waiting import wait_for

__all__ = ["main"]

_SPAWN = multiprocessing.get_context("spawn")
_ROWS = 100_000
_TURNS = 5
_SYNC_PUTS = 1_000


@contextmanager
def _master(path: Path, **settings: object) -> Iterator[MessageStore]:
    shutil.rmtree(path, ignore_errors=True)
    given = {"ha_listen_address": "127.0.0.1:0", "disk_space_warning_level_ratio": 1.0, **settings}
    try:
        with MessageStore.open(path, MessageStoreConfig.from_mapping(given)) as store:
            yield store
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _drop(address: str, request: int) -> None:
    """A slave that costs as little as one can: it takes the bytes, and drops them."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port))) as peer:
        peer.sendall(request.to_bytes(8, "big"))
        buffer = bytearray(1 << 20)
        while peer.recv_into(buffer):
            pass


def _copy(address: str, request: int, path: str) -> None:
    with ScriptedSlave(address, request, copy=Path(path)) as slave:
        slave.follow()
        slave.wait_until_closed()


@contextmanager
def _slave(store: MessageStore, target: object, *arguments: object) -> Iterator[None]:
    process = _SPAWN.Process(target=target, args=(store.ha_address, *arguments))  # type: ignore[arg-type]
    process.start()
    wait_for(lambda: any(one.request_offset >= 0 for one in store.slaves()))
    try:
        yield
    finally:
        process.kill()
        process.join()
        wait_for(lambda: not store.slaves())


def _asynchronous() -> None:
    """In turns: the same puts without and with a slave."""
    table = pa.table({"body": [b"x" * 1024] * _ROWS, "queueId": pa.array([0] * _ROWS, pa.int32())})

    def put_messages(store: MessageStore) -> float:
        memory_at_hand(GIB // 2)
        begun = time.perf_counter()
        for _ in range(3):
            store.put_messages(table, topic="orders").raise_for_status()
        return 3 * _ROWS / (time.perf_counter() - begun)

    def put_message(store: MessageStore) -> float:
        message = Message(topic="orders", body=b"x" * 100, tags="paid", queue_id=0)
        begun = time.perf_counter()
        for _ in range(_ROWS):
            store.put_message(message)
        return _ROWS / (time.perf_counter() - begun)

    for name, work, goal in (
        ("put_messages, 1k", put_messages, "goal >= 90 %"),
        ("put_message, 100b", put_message, ""),
    ):
        alone, followed, lag = [], [], 0
        with _master(scratch() / "replicated", mapped_file_size_commit_log=GIB // 4, retention_bytes=GIB) as store:
            work(store)
            for _ in range(_TURNS):
                store.clean(max_bytes=1)
                alone.append(work(store))
                store.clean(max_bytes=1)
                with _slave(store, _drop, store.physical_bounds()[1]):
                    followed.append(work(store))
                    lag = store.physical_bounds()[1] - store.slaves()[0].sent_offset
        one, two = statistics.median(alone), statistics.median(followed)
        show(f"{name}, ASYNC_MASTER, no slave", f"{one / 1e3:.1f} k msg/s")
        show(f"{name}, ASYNC_MASTER, one slave", f"{two / 1e3:.1f} k msg/s", f"{100 * two / one:.0f} %; {goal}")
        show(f"{name}, not sent when the puts ended", f"{lag / 1e6:.1f} MB")


def _synchronous() -> None:
    """The median of a put that waits for the local device alone, and of one that waits for a slave's, too."""
    message = Message(topic="orders", body=b"x" * 1024, queue_id=0)

    def median_ms(store: MessageStore) -> float:
        taken = []
        for _ in range(_SYNC_PUTS):
            begun = time.perf_counter()
            store.put_message(message).raise_for_status()
            taken.append(time.perf_counter() - begun)
        return 1000 * statistics.median(taken)

    alone, replicated = [], []
    # On a real disk: a sync of a file in memory does nothing.
    with tempfile.TemporaryDirectory(dir=os.environ.get("COMMITLOG_BENCH_DISK", "/var/tmp")) as name:
        for turn in range(_TURNS):
            path = Path(name) / str(turn)
            with _master(path, flush_disk_type=FlushDiskType.SYNC_FLUSH) as store:
                alone.append(median_ms(store))
            synchronous = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "broker_role": BrokerRole.SYNC_MASTER}
            with _master(path, **synchronous) as store, _slave(store, _copy, 0, f"{path}.copy"):
                replicated.append(median_ms(store))
    one, two = statistics.median(alone), statistics.median(replicated)
    show("put_message, SYNC_FLUSH, p50", f"{one:.3f} ms")
    show("put_message, SYNC_FLUSH and SYNC_MASTER, p50", f"{two:.3f} ms", f"{two / one:.2f} times; goal <= 2")


def main() -> None:
    print(f"  {machine()}")
    _asynchronous()
    _synchronous()
