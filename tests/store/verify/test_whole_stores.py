"""Stores with nothing wrong: this package's own, RocketMQ's, retention's leavings, and one beside its owner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.columnar.scan import scan_records
from commitlog_store.errors import NotAStore, StoreNotFound
from commitlog_store.format.checkpoint import Checkpoint
from commitlog_store.log import scan as log_scan
from commitlog_store.verify.findings import Findings
from commitlog_store.verify.log import LogCheck
from commitlog_store.verify.store import verification_report, verify_store
from tests.store.verify.made_store import CONFIG, checks, files, make_store
from tests.support import golden
from tests.support.store_builder import StoreBuilder


def test_a_store_that_was_closed_is_whole(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store")
    assert len(files(path, "commitlog")) > 3
    assert len(files(path, "index")) > 1
    seen: list[tuple[int, int]] = []
    report = verification_report(path, progress=lambda done, total: seen.append((done, total)))
    assert report.findings == []
    assert (report.records, report.queues, report.index_files) == (900, 4, len(files(path, "index")))
    assert not report.aborted
    with StoreReader.open(path) as reader:
        low, high = reader.physical_bounds()
    assert report.bytes == high - low
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] >= report.bytes


@pytest.mark.parametrize("name", [golden.ROCKETMQ_533, golden.ROCKETMQ_498])
def test_a_store_that_rocketmq_wrote_is_whole(tmp_path: Path, name: str) -> None:
    path = golden.copy_golden(name, tmp_path / "store")
    expected = golden.expected(name)
    report = verification_report(path)
    assert report.findings == []
    assert report.bytes == expected["store"][0]["maxPhysicOffset"] - expected["store"][0]["minPhysicOffset"]
    assert report.aborted == (name == golden.ROCKETMQ_498)


@pytest.mark.parametrize("block_size", [200, 1000, 70_000])
@pytest.mark.parametrize("name", [golden.ROCKETMQ_533, golden.ROCKETMQ_498])
def test_where_blocks_are_cut_makes_no_difference(tmp_path: Path, name: str, block_size: int) -> None:
    path = golden.copy_golden(name, tmp_path / "store")
    store, findings = golden.expected(name)["store"][0], Findings()
    log = LogCheck(
        str(path / "commitlog"),
        findings,
        aborted=(path / "abort").exists(),
        checkpoint=Checkpoint(0, 0, 0),
        mark=None,
        block_size=block_size,
    )
    found = [at for scan in log.scans() for at in (scan.positions + scan.physical_offset).tolist()]
    log.close()
    assert findings.all() == []
    assert found == sorted(set(found))
    assert (len(found), log.end) == (verification_report(path).records, store["maxPhysicOffset"])


def test_a_store_made_by_the_builder_is_whole(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=16 << 10, queue_file_units=50)
    builder.pad_queue("late", 2, 33)
    rng = np.random.default_rng(3)
    for _ in range(5):
        builder.append("orders", [0, 1, 2], [rng.bytes(int(n)) for n in rng.integers(0, 900, 60)])
        builder.append("late", 2, [b"x"] * 20)
    assert verify_store(builder.path) == []


@pytest.mark.parametrize("before", [0, 1, 10])
@pytest.mark.parametrize("keys", [49, 50, 98, 150])
def test_the_keys_of_one_message_may_fill_index_files(tmp_path: Path, before: int, keys: int) -> None:
    """A file of 50 places has 49 entries."""
    with MessageStore.open(tmp_path, replace(CONFIG, max_index_num=50)) as store:
        for count in (before, keys, 3):
            store.put_message(Message(queue_id=0, topic="t", body=b"m", keys=[f"k{number}" for number in range(count)]))
    assert verify_store(tmp_path) == []


def test_files_that_retention_deleted_are_noted_and_not_missed(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store")
    for file in files(path, "commitlog")[:2]:
        file.unlink()
    assert checks(path) == [("files.head", "note")]
    files(path, "index")[0].unlink()
    assert checks(path) == [("files.head", "note")]
    for file in sorted((path / "consumequeue" / "orders" / "1").iterdir())[:1]:
        file.unlink()
    assert checks(path) == [("files.head", "note")]


def test_an_empty_store_is_whole(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", CONFIG):
        pass
    assert verify_store(tmp_path / "store") == []


@pytest.mark.parametrize("mode", list(FlushDiskType))
def test_beside_its_owner_a_store_is_whole_and_the_owner_undisturbed(tmp_path: Path, mode: FlushDiskType) -> None:
    """Opening and closing ``lock`` in the owner's process would drop the owner's lock."""
    config = MessageStoreConfig(
        flush_disk_type=mode,
        mapped_file_size_commit_log=CONFIG.mapped_file_size_commit_log,
        mapped_file_size_consume_queue=CONFIG.mapped_file_size_consume_queue,
        max_hash_slot_num=100,
        max_index_num=400,
    )
    with MessageStore.open(tmp_path / "store", config) as store:
        for turn in range(20):
            rows = {"body": pa.array([b"x" * 100 * turn] * 50, pa.binary()), "keys": pa.array([f"k{turn}"] * 50)}
            store.put_messages(pa.table(rows), topic="t").raise_for_status()
            store.dispatch()
            assert verify_store(store.path) == []
        assert store.put_message(Message(queue_id=0, topic="t", body=b"still mine", keys=["k"])).ok
    assert verify_store(tmp_path / "store") == []


def test_messages_appended_concurrently_are_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=16 << 10, queue_file_units=50)
    builder.append("t", 0, [b"x" * 300] * 70)
    builder.write_abort()

    def append_and_scan(*arguments: object, check_crc: bool) -> object:
        if check_crc:  # the walk, not the look at the end before it
            builder.append("t", [0, 1], [b"y" * 300] * 4)
        return scan_records(*arguments, check_crc=check_crc)  # type: ignore[arg-type]

    monkeypatch.setattr(log_scan, "scan_records", append_and_scan)
    assert verify_store(builder.path) == []


def test_nothing_is_changed(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store")
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    verify_store(path)
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


def test_a_path_that_is_not_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFound):
        verify_store(tmp_path / "nowhere")
    with pytest.raises(NotAStore):
        verify_store(tmp_path)


def test_memory_stays_bounded(tmp_path: Path) -> None:
    import tracemalloc

    builder = StoreBuilder(tmp_path / "store", log_file_size=64 << 20)
    for _ in range(8):
        builder.append("t", range(50), [bytes(20_000)] * 1000)
    tracemalloc.start()
    try:
        assert verify_store(builder.path) == []
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()
