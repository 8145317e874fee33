"""Batches over a network that delays, cuts, doubles and reorders connections: each once, and none seen in part."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import BatchId, RemoteBatches, StagedFile, StoreReader
from commitlog_store.errors import QueueNotFound, TopicNotFound
from commitlog_store.remote import uploads
from commitlog_store.stager import BatchStager
from tests.store.serve.servers import ServeProcess
from tests.support.clean_store import assert_clean
from tests.support.long_runs import LONG_RUN_S, Progress
from tests.support.tcp_proxy import TcpProxy
from tests.support.waiting import wait_for

# Each application writes to two queues of its own, of each batch as many rows to one as to the other.
APPS, ROWS = 3, 40


def row_of(app: int, version: int, number: int) -> tuple[bytes, int]:
    """Body and queue."""
    return b"%d-%d-%d-" % (app, version, number) + bytes(100), 2 * app + number % 2


def upload(url: str, app: int, version: int, part: int) -> StagedFile:
    """Half of a batch, as a task of Spark does it."""
    rows = [row_of(app, version, number) for number in range(part * ROWS // 2, (part + 1) * ROWS // 2)]
    queues = pa.array([queue for _, queue in rows], pa.int32())
    table = pa.table({"body": [body for body, _ in rows], "queueId": queues})
    counts = {"orders": 2 * APPS}
    with (
        RemoteBatches.connect(url) as batches,
        BatchStager(batches, batch_of(app, version), queue_counts=counts, topic="orders", partition=part) as stager,
    ):
        stager.put(table)
        staged = stager.finish()
    assert staged is not None
    return staged


def batch_of(app: int, version: int) -> BatchId:
    return BatchId(f"app-{app}", version)


def write(url: str, app: int, version: int) -> None:
    """A batch, committed by another client than its tasks, and again by one that does not know of it."""
    staged = [upload(url, app, version, part) for part in range(2)]
    for is_known in (False, True):
        with RemoteBatches.connect(url) as batches:
            committed = batches.commit(batch_of(app, version), staged, new_topic_queues=2 * APPS, on_device=True)
        assert committed.already_there or not is_known


@contextmanager
def watching(store: Path) -> Iterator[None]:
    """A reader that looks at the ends of all queues again and again: they are those of whole batches."""
    seen: set[tuple[int, ...]] = set()
    stop = threading.Event()

    def watch() -> None:
        with StoreReader.open(store) as reader:
            while not stop.wait(0.002):
                for app in range(APPS):
                    with suppress(TopicNotFound, QueueNotFound):  # its first batch has yet to come
                        infos = reader.queue_infos([("orders", 2 * app), ("orders", 2 * app + 1)])
                        seen.add(tuple(info.max_offset for info in infos))

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(watch)
        try:
            yield
        finally:
            stop.set()
        done.result()
    assert len(seen) > 2, "it saw batches come"
    assert all(one == other and one % (ROWS // 2) == 0 for one, other in seen), f"part of a batch was seen: {seen}"


def check_chaos(store: Path, seed: int, count: int) -> dict[str, int]:
    """What the proxy did to ``count`` batches of each application."""

    def write_all(app: int, url: str) -> None:
        for version in range(count):
            write(url, app, version)

    versions = itertools.count(count)

    def a_commit_removes_what_came_late() -> bool:
        """A server may still be busy with it, though its connection is closed."""
        version = next(versions)
        for app in range(APPS):
            write(server.url, app, version)
        return not [path for path in (store / "staging").rglob("*") if path.is_file()]

    with ServeProcess(store) as server:
        with TcpProxy(int(server.url.rpartition(":")[2]), seed) as proxy:
            proxy.chaos = 0.03
            with watching(store), ThreadPoolExecutor(APPS) as pool:
                for done in [pool.submit(write_all, app, proxy.url) for app in range(APPS)]:
                    done.result()
        wait_for(a_commit_removes_what_came_late)
        assert server.stop()[0] == 0
    written = range(next(versions))
    with StoreReader.open(store) as reader:
        for queue_id in range(2 * APPS):
            rows = [row_of(queue_id // 2, version, number) for version in written for number in range(ROWS)]
            end = reader.queue_info("orders", queue_id).max_offset
            batches = reader.read("orders", queue_id, 0, end, columns=["body"])
            found = [body for batch in batches for body in batch["body"].to_pylist()]
            assert found == [body for body, queue in rows if queue == queue_id], f"queue {queue_id}"
    assert_clean(store)
    return proxy.done


@pytest.mark.parametrize("seed", [1, 2])
def test_batches_in_chaos_are_stored_once_and_seen_whole(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "PART_SIZE", 1_000)
    done = check_chaos(tmp_path / "store", seed, 5)
    assert sum(done.values()) > 0, "the proxy did nothing"


@pytest.mark.stress
@pytest.mark.timeout(LONG_RUN_S)
@pytest.mark.parametrize("seed", range(10, 30))
def test_many_batches_in_chaos_are_stored_once_and_seen_whole(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, progress: Progress
) -> None:
    monkeypatch.setattr(uploads, "PART_SIZE", 1_000)
    done = check_chaos(tmp_path / "store", seed, 60)
    progress.count("connections cut, doubled or late", done["cut"] + done["double"] + done["late"])
