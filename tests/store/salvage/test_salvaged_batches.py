"""Batches in a salvaged store: whole ones stay frames, and a batch that was committed is not written again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageStore, MessageStoreConfig, SalvageReport, StoreReader, salvage_store
from commitlog_store.batch.frames import FoundFrame, frame_of
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.paths import BATCH_TOPIC
from commitlog_store.verify.store import verify_store
from tests.support.clean_store import assert_clean

FILE_SIZE = 16 << 10
SMALL = MessageStoreConfig(
    mapped_file_size_commit_log=FILE_SIZE,
    mapped_file_size_consume_queue=4000,
    max_hash_slot_num=100,
    max_index_num=4000,
)
VERSIONS = 6


def bodies(app: str, version: int) -> list[bytes]:
    return [b"%s %d %d, " % (app.encode(), version, row) * 5 for row in range(20 + version)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Batches of two applications, with a plain message after each pair of them."""
    path = tmp_path_factory.mktemp("batches") / "store"
    with MessageStore.open(path, SMALL) as store:
        for version in range(VERSIONS):
            for app in ("one", "two"):
                with store.transaction(app, version) as batch:
                    batch.put_messages(pa.table({"body": bodies(app, version)}), topic="rows")
            if version < VERSIONS - 1:
                store.put_messages(pa.table({"body": [b"plain %d" % version]}), topic="plain")
    return path


def frames(store: Path) -> list[FoundFrame]:
    log = CommitLog(str(store / "commitlog"))
    log.refresh()
    with StoreReader.open(store) as reader:
        info = reader.queue_info(BATCH_TOPIC, 0)
        columns = reader.read(BATCH_TOPIC, 0, info.min_offset, columns=["physicalOffset"])
        places = [place for batch in columns for place in batch.column("physicalOffset").to_pylist()]
    found = [frame_of(log.read_record(place)) for place in places]
    log.close()
    return [frame for frame in found if frame is not None]


def salvaged(
    whole: Path, tmp_path: Path, at: int, *, of_log_alone: bool = False, uncommitted: bool = False
) -> SalvageReport:
    """The salvage of a copy with four bytes damaged."""
    store = shutil.copytree(whole, tmp_path / "damaged")
    with (store / "commitlog" / f"{at // FILE_SIZE * FILE_SIZE:020d}").open("r+b") as file:
        file.seek(at % FILE_SIZE)
        file.write(b"\xde\xad\xbe\xef")
    source = store / "commitlog" if of_log_alone else store
    return salvage_store(source, tmp_path / "target", config=SMALL, uncommitted=uncommitted)


def batches_of(store: Path) -> list[tuple[str, int]]:
    with StoreReader.open(store) as reader:
        return [(one.batch.app_id, one.batch.version) for one in reader.batches()]


def rows_of(store: Path) -> list[bytes]:
    with StoreReader.open(store) as reader:
        return sorted(
            body
            for info in reader.queues("rows")
            for batch in reader.read("rows", info.queue_id, info.min_offset, columns=["body"])
            for body in batch.column("body").to_pylist()
        )


def assert_skips_versions_up_to(store: Path, version: int) -> None:
    before = rows_of(store)
    with MessageStore.open(store, SMALL, rebuild=True) as opened:
        for app in ("one", "two"):
            with opened.transaction(app, version) as batch:
                assert batch.already_there
    assert rows_of(store) == before
    assert_clean(store)


def test_whole_batches_stay_frames(whole: Path, tmp_path: Path) -> None:
    report = salvage_store(whole, tmp_path / "target", config=SMALL)
    assert report.is_whole
    assert frames(tmp_path / "target") == frames(whole)
    assert verify_store(tmp_path / "target") == []
    assert_skips_versions_up_to(tmp_path / "target", VERSIONS - 1)


def test_frames_that_moved_have_checksums_and_lengths_that_hold(whole: Path, tmp_path: Path) -> None:
    first = frames(whole)[0]
    report = salvaged(whole, tmp_path, first.end + 300)  # within the second one
    assert [(one.app_id, one.version, one.committed, one.taken) for one in report.batches] == [("two", 0, True, True)]
    found, before = frames(tmp_path / "target"), frames(whole)
    assert [one.frame.batch for one in found] == [one.frame.batch for one in (before[0], *before[2:])]
    moved = [one for one, other in zip(found[1:], before[2:], strict=True) if one != other]
    assert moved
    assert verify_store(tmp_path / "target") == []


def test_a_damaged_batch_that_was_committed_is_taken_and_not_written_again(whole: Path, tmp_path: Path) -> None:
    last = frames(whole)[-1]
    report = salvaged(whole, tmp_path, last.end - 300)
    (loss,) = report.batches
    rows = len(bodies("two", VERSIONS - 1))
    assert loss[:2] == ("two", VERSIONS - 1)
    assert (loss.rows, loss.committed, loss.taken) == (rows, True, True)
    assert rows - 2 <= loss.rows_found < rows
    assert len(rows_of(tmp_path / "target")) == len(rows_of(whole)) - (loss.rows - loss.rows_found)
    assert batches_of(tmp_path / "target") == [("one", VERSIONS - 1), ("two", VERSIONS - 1)]
    assert_skips_versions_up_to(tmp_path / "target", VERSIONS - 1)


def test_a_batch_whose_frame_record_is_damaged_is_known_by_the_ledger(whole: Path, tmp_path: Path) -> None:
    last = frames(whole)[-1]
    report = salvaged(whole, tmp_path, last.physical_offset + 100)
    assert report.records > 0
    assert rows_of(tmp_path / "target") == rows_of(whole)
    assert batches_of(tmp_path / "target") == batches_of(whole)
    assert_skips_versions_up_to(tmp_path / "target", VERSIONS - 1)


@pytest.mark.parametrize("uncommitted", [False, True])
def test_what_a_crash_left_of_a_batch_is_taken_only_on_request(whole: Path, tmp_path: Path, uncommitted: bool) -> None:
    last = frames(whole)[-1]
    # The log alone does not say that the batch was committed: it is the last thing there, and not whole.
    report = salvaged(whole, tmp_path, last.end - 300, of_log_alone=True, uncommitted=uncommitted)
    (loss,) = report.batches
    assert (loss.committed, loss.taken) == (False, uncommitted)
    missing = loss.rows if not uncommitted else loss.rows - loss.rows_found
    assert len(rows_of(tmp_path / "target")) == len(rows_of(whole)) - missing
    with MessageStore.open(tmp_path / "target", SMALL) as opened, opened.transaction("two", VERSIONS - 1) as batch:
        assert not batch.already_there
        batch.put_messages(pa.table({"body": [b"again"]}), topic="rows")
    assert_clean(tmp_path / "target")


def test_positions_of_consumers_are_copied(whole: Path, tmp_path: Path) -> None:
    store = shutil.copytree(whole, tmp_path / "store")
    text = '{"offsetTable":{"rows@group":{0:7}}}'
    (store / "config" / "consumerOffset.json").write_text(text)
    salvage_store(store, tmp_path / "target", config=SMALL)
    assert (tmp_path / "target" / "config" / "consumerOffset.json").read_text() == text
    assert "abort" not in os.listdir(tmp_path / "target")


def test_a_log_of_a_later_file_whose_only_record_is_a_frame_record_gives_a_store_that_opens(
    whole: Path, tmp_path: Path
) -> None:
    """The frame record is not taken, so no file has the end at which the file of the record begins."""
    found = next(one for one in frames(whole) if one.physical_offset > FILE_SIZE)
    base = found.physical_offset // FILE_SIZE * FILE_SIZE
    start, stop = found.physical_offset - base, found.end - found.frame.length - base
    content = (whole / "commitlog" / f"{base:020d}").read_bytes()
    log, target = tmp_path / "log", tmp_path / "target"
    log.mkdir()
    (log / f"{base:020d}").write_bytes(bytes(start) + content[start:stop] + bytes(FILE_SIZE - stop))
    report = salvage_store(log, target, config=SMALL, uncommitted=True)
    assert [loss.rows_found for loss in report.batches] == [0]
    assert_clean(target)
    with MessageStore.open(target, SMALL) as store:
        assert store.put("orders", b"first").queue_offset == 0
