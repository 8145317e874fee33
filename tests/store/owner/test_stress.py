"""Eight writers, five readers and dispatch at once: every message once, contiguous, in each writer's order."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from tests.store.owner.owned_store import SYNC
from tests.store.owner.stress_reader import TOPIC, follow
from tests.support import quick_programs
from tests.support.clean_store import assert_clean

PROJECT = Path(__file__).resolve().parents[3]
WRITERS, READERS, QUEUES = 8, 4, 3
SIZES = {
    "mapped_file_size_commit_log": 256 << 10,
    "mapped_file_size_consume_queue": 1_000 * 20,
    "max_hash_slot_num": 1_000,
    "max_index_num": 5_000,
}


def _write(store: MessageStore, writer: int, until: float) -> dict[int, list[int]]:
    """Put single messages, batches and tables in turn; each queue's numbers as they were put."""
    put: dict[int, list[int]] = {queue_id: [] for queue_id in range(QUEUES)}
    number = 0
    while time.monotonic() < until:
        queue_id, count = number % QUEUES, (1, 1, 1, 5, 30)[number % 5]
        numbers = list(range(number, number + count))
        bodies = [b"%d:%d " % (writer, one) * (1 + one % 20) for one in numbers]
        number += count
        if count == 1:
            message = Message(topic=TOPIC, queue_id=queue_id, body=bodies[0], keys=[f"w{writer}"])
            store.put_message(message).raise_for_status()
        elif count == 5:
            batch = [Message(topic=TOPIC, queue_id=queue_id, body=body) for body in bodies]
            store.put_message_batch(batch).raise_for_status()
        else:
            store.put_messages(
                pa.table({"body": bodies, "queueId": [queue_id] * count}), topic=TOPIC
            ).raise_for_status()
        put[queue_id] += numbers
    return put


def _read(path: str, stop: threading.Event) -> int:
    seen: dict[int, int] = {}
    with StoreReader.open(path) as reader:
        while not stop.is_set():
            follow(reader, seen)
            reader.query(TOPIC, "w0", limit=5)
        follow(reader, seen)
    return sum(seen.values())


def _check(path: Path, put: list[dict[int, list[int]]]) -> int:
    """How many messages there are, each of which was put once, in its writer's order."""
    total = 0
    with StoreReader.open(path) as reader:
        for queue_id in range(QUEUES):
            found: list[bytes] = []
            for batch in reader.read(TOPIC, queue_id, 0, columns=["body", "queueOffset"], verify_crc=True):
                offsets = batch["queueOffset"].to_pylist()
                assert offsets == list(range(len(found), len(found) + len(offsets)))
                found += batch["body"].to_pylist()
            numbers: dict[int, list[int]] = {}
            for body in found:
                writer, number = map(int, body.split(b" ")[0].split(b":"))
                numbers.setdefault(writer, []).append(number)
            assert numbers == {writer: of_writer[queue_id] for writer, of_writer in enumerate(put)}
            total += len(found)
    assert_clean(path)
    return total


def _run(path: Path, seconds: float, **settings: Any) -> None:
    stop = threading.Event()
    command = [sys.executable, "-m", "tests.store.owner.stress_reader", str(path)]
    with (
        MessageStore.open(path, MessageStoreConfig(**SIZES | settings)) as store,
        ThreadPoolExecutor(WRITERS + READERS) as threads,
        quick_programs.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT) as other,
    ):
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        until = time.monotonic() + seconds
        writing = [threads.submit(_write, store, writer, until) for writer in range(WRITERS)]
        reading = [threads.submit(_read, store.path, stop) for _ in range(READERS)]
        try:
            put = [one.result() for one in writing]
            store.flush()
        finally:
            stop.set()
        total = sum(len(numbers) for of_writer in put for numbers in of_writer.values())
        assert [one.result() for one in reading] == [total] * READERS
        other.stdin.close()
        assert other.stdout.read() == f"{total}\n"
        assert store.stats().put_message_times_total == total
        assert store.writable
    assert _check(path, put) == total
    with MessageStore.open(path) as store:
        assert store.recovered is None


@pytest.mark.parametrize("settings", [{}, {"flush_disk_type": SYNC}], ids=["async", "sync"])
def test_readers_see_every_message_once_in_order_beside_writers(tmp_path: Path, settings: dict[str, Any]) -> None:
    _run(tmp_path, 1.2, **settings)


@pytest.mark.stress
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "settings",
    [{}, {"flush_disk_type": SYNC}, {"transient_store_pool_enable": True, "commit_interval_commit_log": 5}],
    ids=["async", "sync", "pool"],
)
def test_readers_see_every_message_once_in_order_beside_writers_for_a_minute(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    _run(tmp_path, 60, **settings)
