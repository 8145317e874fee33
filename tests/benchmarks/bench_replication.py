"""Replication: what a slave costs the putting threads, what a put under SYNC_MASTER waits, and how fast one catches up.

Each is measured in turns with what it is compared to. The other side is a process of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from commitlog_store import BrokerRole, FlushDiskType, LogFollower, Message, MessageStore, MessageStoreConfig
from tests.benchmarks.measure import GIB, machine, memory_at_hand, scratch, show
from tests.support.waiting import wait_for

_SPAWN = multiprocessing.get_context("spawn")
_ROWS = 100_000
_TURNS = 5
_SYNC_PUTS = 1_000
_CATCH_UP = GIB
_FILE_SIZE = GIB // 4


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


def _mirror(address: str, path: str) -> None:
    with LogFollower(address, path, ack="synced"):
        threading.Event().wait()


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
    """The median of a put that waits for the local device alone, and of one that waits for a mirror's, too.

    Two machines have a device each. Here the mirror's is the master's own, or memory: what is measured lies between.
    """
    message = Message(topic="orders", body=b"x" * 1024, queue_id=0)

    def median_ms(store: MessageStore) -> float:
        taken = []
        for _ in range(_SYNC_PUTS):
            begun = time.perf_counter()
            store.put_message(message).raise_for_status()
            taken.append(time.perf_counter() - begun)
        return 1000 * statistics.median(taken)

    alone = []
    replicated: dict[str, list[float]] = {"on the same device": [], "in memory": []}
    synchronous = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "broker_role": BrokerRole.SYNC_MASTER}
    with (
        # On a real disk: a sync of a file in memory does nothing.
        tempfile.TemporaryDirectory(dir=os.environ.get("COMMITLOG_BENCH_DISK", "/var/tmp")) as disk,
        tempfile.TemporaryDirectory(dir=scratch()) as memory,
    ):
        for turn in range(_TURNS):
            path = Path(disk) / str(turn)
            with _master(path, flush_disk_type=FlushDiskType.SYNC_FLUSH) as store:
                alone.append(median_ms(store))
            for medians, base in zip(replicated.values(), (disk, memory), strict=True):
                with _master(path, **synchronous) as store, _slave(store, _mirror, f"{base}/mirror-{turn}"):
                    medians.append(median_ms(store))
    one = statistics.median(alone)
    show("put_message, SYNC_FLUSH, p50", f"{one:.3f} ms")
    for where, medians in replicated.items():
        two = statistics.median(medians)
        show(f"the same, SYNC_MASTER, mirror {where}", f"{two:.3f} ms", f"{two / one:.2f} times; goal <= 2")


def _receive(address: str, target: str, size: int) -> float:
    """Copy ``size`` bytes from a socket to a file, and sync it. Seconds."""
    host, _, port = address.rpartition(":")
    begun = time.perf_counter()
    buffer = memoryview(bytearray(1 << 20))
    with socket.create_connection((host, int(port))) as peer, open(target, "wb", buffering=0) as file:
        while count := peer.recv_into(buffer):
            file.write(buffer[:count])
        assert file.tell() == size
        os.fdatasync(file.fileno())
    return time.perf_counter() - begun


def _follow(address: str, target: str, size: int) -> float:
    """Follow until the first ``size`` bytes are in the mirror and on the device. Seconds."""
    begun = time.perf_counter()
    config = MessageStoreConfig(mapped_file_size_commit_log=_FILE_SIZE)
    with LogFollower(address, target, ack="synced", config=config) as follower:
        assert follower.wait_for(size, timeout_s=600)
        return time.perf_counter() - begun


def _copied_by_socket(log: Path, target: Path, size: int) -> float:
    """A plain copy: one thread sends the files with ``os.sendfile``, another process stores them."""

    def send() -> None:
        peer, _ = listening.accept()
        with peer:
            left = size
            for path in sorted(log.iterdir()):
                with path.open("rb") as file:
                    sent = 0
                    while left and (count := os.sendfile(peer.fileno(), file.fileno(), sent, min(left, _FILE_SIZE))):
                        sent += count
                        left -= count

    with socket.create_server(("127.0.0.1", 0)) as listening, _SPAWN.Pool(1) as pool:
        sending = threading.Thread(target=send)
        sending.start()
        taken: float = pool.apply(_receive, (f"127.0.0.1:{listening.getsockname()[1]}", str(target), size))
        sending.join()
    target.unlink()
    return taken


def _catch_up() -> None:
    """How fast a new mirror gets a log, synced and with its queues, beside a plain copy of the same bytes."""
    for name, body_size in (("1k", 1024), ("100b", 100)):
        table = pa.table({"body": [b"x" * body_size] * _ROWS})
        copied, followed = [], []
        with (
            _master(scratch() / "replicated", mapped_file_size_commit_log=_FILE_SIZE) as store,
            tempfile.TemporaryDirectory(dir=os.environ.get("COMMITLOG_BENCH_DISK", "/var/tmp")) as directory,
        ):
            while store.physical_bounds()[1] < _CATCH_UP:
                store.put_messages(table, topic="orders").raise_for_status()
            size = store.physical_bounds()[1]
            for turn in range(3):
                target = Path(directory) / str(turn)
                copied.append(_copied_by_socket(scratch() / "replicated" / "commitlog", target, size))
                with _SPAWN.Pool(1) as pool:
                    followed.append(pool.apply(_follow, (store.ha_address, str(target), size)))
                shutil.rmtree(target)
        one, two = (size / min(taken) / 1e6 for taken in (copied, followed))
        show(f"socket copy with fdatasync, {name}", f"{one:.0f} MB/s")
        show(f"catch-up of a mirror, {name}", f"{two:.0f} MB/s", f"{100 * two / one:.0f} %; goal >= 60 %")


def main() -> None:
    print(f"  {machine()}")
    _asynchronous()
    _synchronous()
    _catch_up()
