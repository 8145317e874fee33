"""The clock of a server is set by hours while clients upload and commit: each row once, and only dead uploads go."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import BatchId, CommittedBatch, RemoteBatches, StagedFile, StoreReader
from commitlog_store.batch.staging import LEFT_OVER_AFTER_SECONDS
from commitlog_store.remote import uploads
from commitlog_store.stager import BatchStager
from tests.store.serve.cutting_proxy import CuttingProxy
from tests.store.serve.servers import ServeProcess
from tests.support.clean_store import assert_clean
from tests.support.jumping_clock import set_clock

_HOUR_MS = 3_600_000


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    return tmp_path / "clock"


def upload(batches: RemoteBatches, batch: BatchId, clock: Path, *hours: float) -> StagedFile:
    """Two rows, between which the clock is set; each has several parts."""
    with BatchStager(batches, batch, queue_counts={"orders": 1}, topic="orders") as stager:
        for row in range(2):
            stager.put(pa.table({"body": [b"%d-%d" % (batch.version, row) + bytes(1000)]}))
            for one in hours:
                set_clock(clock, one)
        staged = stager.finish()
    assert staged is not None
    return staged


def commit(batches: RemoteBatches, version: int, staged: StagedFile) -> CommittedBatch:
    return batches.commit(BatchId("loader", version), [staged], new_topic_queues=1, on_device=True)


def is_hours_ahead(committed: CommittedBatch, hours: float) -> bool:
    return abs(committed.store_timestamp - time.time() * 1000 - hours * _HOUR_MS) < _HOUR_MS / 2


@pytest.mark.parametrize(("first", "second"), [(5, -7), (-7, 5)], ids=["forward, then back", "back, then forward"])
def test_batches_are_stored_once_whatever_the_clock_shows(
    tmp_path: Path, clock: Path, monkeypatch: pytest.MonkeyPatch, first: float, second: float
) -> None:
    """It is set between upload and commit, within an upload, and between a commit and its repetition."""
    monkeypatch.setattr(uploads, "PART_SIZE", 500)
    store = tmp_path / "store"
    with ServeProcess(store, clock=clock) as server:
        place = server.url.removeprefix("grpc://")
        with CuttingProxy(int(place.rpartition(":")[2])) as proxy, RemoteBatches.connect(proxy.url) as batches:
            staged = [upload(batches, BatchId("loader", 0), clock)]
            set_clock(clock, first)
            assert is_hours_ahead(commit(batches, 0, staged[0]), first)
            staged.append(upload(batches, BatchId("loader", 1), clock, second, first))
            proxy.lose_answers(b"loader", 1, then=lambda: set_clock(clock, second))
            assert commit(batches, 1, staged[1]).already_there, "its first answer was lost"
            assert is_hours_ahead(commit(batches, 1, staged[1]), first), "the time of the first commit"
            staged.append(upload(batches, BatchId("loader", 2), clock, first, second))
            last = commit(batches, 2, staged[2])
            assert is_hours_ahead(last, max(first, second)), "store times do not go back"
        server.process.kill()
        server.process.wait()
    with ServeProcess(store, listen=place, clock=clock) as server, RemoteBatches.connect(server.url) as batches:
        for version in range(3):
            assert commit(batches, version, staged[version]).already_there
        commit(batches, 3, upload(batches, BatchId("loader", 3), clock, first))
        assert server.stop()[0] == 0
    with StoreReader.open(store) as reader:
        rows = reader.scan("orders", columns=["body", "storeTimestamp"]).read_all()
    wanted = [b"%d-%d" % (version, row) for version in range(4) for row in range(2)]
    assert [body.rstrip(b"\0") for body in rows["body"].to_pylist()] == wanted
    times = rows["storeTimestamp"].to_pylist()
    assert times == sorted(times)
    assert not [path for path in (store / "staging").rglob("*") if path.is_file()]
    assert_clean(store)


def test_dead_uploads_are_removed_and_those_under_way_are_not(tmp_path: Path, clock: Path) -> None:
    """A server looks for dead ones when it starts: they are those of applications that staged nothing for a week."""
    store = tmp_path / "store"
    with ServeProcess(store, clock=clock) as server, RemoteBatches.connect(server.url) as batches:
        dead = store / upload(batches, BatchId("dead", 1), clock).path
        staged, of_a_dead_task = (upload(batches, BatchId("loader", 1), clock) for _ in range(2))
        assert server.stop()[0] == 0
    in_three_hours = time.time() + 3 * 3600
    for path in (dead, dead.parent, dead.parent.parent):
        os.utime(path, (0, in_three_hours - LEFT_OVER_AFTER_SECONDS))
    for hours, is_left in ((-7, True), (5, False), (-7, False)):
        set_clock(clock, hours)
        with ServeProcess(store, clock=clock) as server:
            assert dead.exists() == is_left
            assert all((store / one.path).exists() for one in (staged, of_a_dead_task)), "they are of today"
            if hours == 5:
                with RemoteBatches.connect(server.url) as batches:
                    upload(batches, BatchId("other", 1), clock)
            assert server.stop()[0] == 0
    with ServeProcess(store, clock=clock) as server, RemoteBatches.connect(server.url) as batches:
        assert commit(batches, 1, staged).rows == 2
        assert [path.parent.parent.name for path in (store / "staging").rglob("*") if path.is_file()] == ["other"]
        assert server.stop()[0] == 0
    assert_clean(store)
