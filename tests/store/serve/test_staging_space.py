"""Clients stage no more than the server has room for: of batches that are not committed, and on a nearly full disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import BatchId, MessageStore, RemoteBatches, StagedFile, connect
from commitlog_store.batch.staging import staged_bytes
from commitlog_store.errors import DiskFull
from commitlog_store.serve.store_writer import StagingSpace
from commitlog_store.stager import BatchStager
from commitlog_store.testing import parts_of
from tests.store.serve.servers import ServeProcess, served

PART = 100_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store") as store:
        yield store


def stage(batches: RemoteBatches, version: int) -> StagedFile:
    with BatchStager(batches, BatchId("loader", version), queue_counts={"orders": 1}, topic="orders") as stager:
        stager.put(pa.table({"body": [os.urandom(PART)]}))
        staged = stager.finish()
    assert staged is not None
    return staged


def test_batches_that_are_not_committed_have_a_limit(store: MessageStore, tmp_path: Path) -> None:
    path = store.path
    store.close()
    with (
        ServeProcess(tmp_path / "store", "--max-staged", str(5 * PART // 2)) as server,
        RemoteBatches.connect(server.url) as batches,
    ):
        first = stage(batches, 1)
        stage(batches, 2)
        with pytest.raises(DiskFull, match=r"hold \d+ bytes, and 250000 is the limit \(--max-staged\)"):
            stage(batches, 3)
        assert staged_bytes(path, 0) < 5 * PART // 2
        with connect(server.url) as remote, pytest.raises(DiskFull, match="--max-staged"):  # noqa: SIM117
            with remote.transaction("other", 1) as batch:
                batch.put_messages([{"topic": "orders", "body": os.urandom(PART)}])
        batches.commit(BatchId("loader", 1), [first], new_topic_queues=1, on_device=True)
        stage(batches, 3)


def test_what_was_staged_before_counts_and_what_was_removed_does_not(store: MessageStore) -> None:
    now = [0.0]
    left = Path(store.path, "staging", "dead", "1", "one")
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x" * PART)
    space = StagingSpace(store, 2 * PART, clock=lambda: now[0])
    with pytest.raises(DiskFull, match=f"hold {PART} bytes"):
        space.take(PART + 1)
    left.unlink()
    with pytest.raises(DiskFull):
        space.take(PART + 1)  # it was counted a moment ago
    now[0] = 1.0
    space.take(PART + 1)
    with pytest.raises(DiskFull):
        space.take(PART)


def test_files_of_one_byte_cost_what_a_file_costs(store: MessageStore) -> None:
    space = StagingSpace(store, 10 * 4096)
    for _ in range(10):
        space.take(1, is_new=True)
    with pytest.raises(DiskFull):
        space.take(1, is_new=True)


def test_nothing_is_staged_on_a_disk_that_is_nearly_full(store: MessageStore) -> None:
    with served(owned=store) as url, RemoteBatches.connect(url) as batches:
        stage(batches, 1)
        parts_of(store).engine.state.set_disk_full("95% of the disk of / is used.")
        with pytest.raises(DiskFull, match="the disk is nearly full, and the store rejects puts, too"):
            stage(batches, 2)
        parts_of(store).engine.state.set_disk_full(None)
        stage(batches, 2)


def test_a_link_in_the_staging_area_is_not_followed(store: MessageStore, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"x" * PART)
    Path(store.path, "staging").mkdir()
    Path(store.path, "staging", "link").symlink_to(tmp_path)
    assert staged_bytes(store.path, 0) < 1_000
