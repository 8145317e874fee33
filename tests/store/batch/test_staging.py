"""Staged files: the conditions for a commit, and their removal."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import BatchId, StagedFile
from commitlog_store.batch.staging import StagedWriter, remove_batch, remove_files, remove_up_to
from commitlog_store.errors import CorruptStaging, InvalidValue, PutRefused, StagingFailed, StagingLost
from commitlog_store.stager import BatchStager
from commitlog_store.testing import parts_of
from tests.store.batch.batches import commit, expected, table
from tests.store.owner.owned_store import open_store
from tests.support.stored_bodies import topic_bodies


def test_missing_or_changed_staged_files_commit_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        batch = BatchId("loader", 1)
        encoded = list(parts_of(store).engine.bulk.encoded(table("a"), "orders"))

        def stage() -> tuple[Path, object]:
            with StagedWriter(str(tmp_path), batch) as writer:
                for one in encoded:
                    writer.append(one)
                staged = writer.finish()
            return tmp_path / staged.path, staged

        path, gone = stage()
        path.unlink()
        with pytest.raises(StagingLost, match=str(path)):
            store.commit_batch(batch, [gone])  # type: ignore[list-item]
        path, changed = stage()
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 97):
            data[at] ^= 0x40
            path.write_bytes(data)
            with pytest.raises(CorruptStaging, match="Block"):
                store.commit_batch(batch, [changed])  # type: ignore[list-item]
            data[at] ^= 0x40
        path.write_bytes(data[:-1])
        with pytest.raises(CorruptStaging, match="Size"):
            store.commit_batch(batch, [changed])  # type: ignore[list-item]
        assert store.physical_bounds()[1] == 0
        path.write_bytes(data)
        assert store.commit_batch(batch, [changed]).rows == 30  # type: ignore[list-item]
        assert not path.exists(), "what was staged is removed"
    assert topic_bodies(tmp_path) == expected("a")


def stage_file(path: Path, batch: BatchId) -> StagedFile:
    with BatchStager(path, batch, queue_counts={}, topic="orders") as stager:
        stager.put(pa.table({"body": [b"row of %d" % batch.version]}))
        staged = stager.finish()
    assert staged is not None
    return staged


def test_a_file_that_is_named_twice_or_of_another_batch_commits_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        batch = BatchId("loader", 5)
        own, later, foreign = (stage_file(tmp_path, one) for one in (batch, BatchId("loader", 6), BatchId("other", 5)))
        with pytest.raises(InvalidValue, match=f"{own.path} is named twice in batch 5 of 'loader'"):
            store.commit_batch(batch, [own, own])
        for one in (later, foreign):
            with pytest.raises(InvalidValue, match=f"{one.path} is not one of batch 5 of 'loader'"):
                store.commit_batch(batch, [own, one])
        with pytest.raises(InvalidValue, match="named twice"):
            store.commit_batch(BatchId(""), [foreign, foreign])
        assert store.physical_bounds() == (0, 0)
        assert store.commit_batch(batch, [own]).rows == 1
        assert store.commit_batch(batch, [own, own]).already_there, "the ledger is asked first"
    assert topic_bodies(tmp_path) == [b"row of 5"]


@pytest.mark.parametrize("link", ["file", "version", "application"])
def test_a_staged_file_behind_a_symbolic_link_commits_nothing(tmp_path: Path, link: str) -> None:
    path, batch = tmp_path / "store", BatchId("loader", 5)
    with open_store(path) as store:
        staged = stage_file(path, batch)
        linked = {
            "file": path / staged.path,
            "version": path / "staging/loader/5",
            "application": path / "staging/loader",
        }
        moved = linked[link].rename(tmp_path / "elsewhere")
        linked[link].symlink_to(moved)
        with pytest.raises(InvalidValue, match="leads through, a symbolic link"):
            store.commit_batch(batch, [staged])
        assert store.physical_bounds() == (0, 0)
        linked[link].unlink()
        moved.rename(linked[link])
        assert store.commit_batch(batch, [staged]).rows == 1


def test_files_staged_by_a_program_that_died_are_removed_by_the_next_commit(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for version in (1, 2, 3):
            StagedWriter(str(tmp_path), BatchId("loader", version), "orphan")
        StagedWriter(str(tmp_path), BatchId("another", 1), "alive")
        commit(store, 2)
    left = {str(path.relative_to(tmp_path / "staging").parent) for path in (tmp_path / "staging").rglob("*-*")}
    assert left == {"loader/3", "another/1"}


@pytest.mark.parametrize("app", ["", ".", "..", "../../etc", "a/b", "a b", "ä" * 100, "x" * 600])
def test_an_application_may_have_any_name_and_stays_in_the_staging_area(tmp_path: Path, app: str) -> None:
    with open_store(tmp_path / "store") as store:
        if not app:
            with pytest.raises(InvalidValue, match="application"):
                store.transaction(app, 1)
            return
        assert commit(store, 1, app=app)
        assert not commit(store, 1, app=app)
    assert os.listdir(tmp_path) == ["store"]


def test_nothing_is_removed_through_a_symbolic_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "3").mkdir(parents=True)
    kept = [outside / "file", outside / "3" / "file"]
    for path in kept:
        path.write_bytes(b"keep me")
    with open_store(tmp_path / "store") as store:
        staging = tmp_path / "store" / "staging"
        (staging / "loader").mkdir(parents=True)
        (staging / "loader" / "3").symlink_to(outside)
        (staging / "another").symlink_to(outside)
        assert commit(store, 4)
        with pytest.raises(StagingFailed, match="symbolic link"):
            commit(store, 3, app="another")
        store.commit_batch(BatchId("another", 5), [])
    assert all(path.exists() for path in kept)


def test_empty_directories_below_a_symbolic_link_stay(tmp_path: Path) -> None:
    """Invariant 10."""
    outside = tmp_path / "outside"
    (outside / "loader" / "1").mkdir(parents=True)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "staging").symlink_to(outside)
    remove_batch(str(tmp_path / "store"), BatchId("loader", 1))
    remove_up_to(str(tmp_path / "store"), BatchId("loader", 2))
    remove_files(str(tmp_path / "store"), [StagedFile("staging/loader/1/rows", 1, 1, 0)])
    assert (outside / "loader" / "1").is_dir()


@pytest.mark.parametrize("delay_level", [0, 3])
def test_the_first_row_that_the_store_does_not_take_is_reported_whatever_is_wrong_with_it(
    tmp_path: Path, delay_level: int
) -> None:
    """A record that is too long is reported with its own topic and queue, also where the schedule's would hold it."""
    bodies = [b"", b"x" * 1000, b""]
    rows = pa.table({"body": bodies, "queueId": [0, 2, -1], "delayLevel": [0, delay_level, 0]})
    told = r"row 2 of partition 0 \(topic 'orders', queue 2\): its record takes 1\d\d\d bytes"
    with BatchStager(tmp_path, BatchId("loader"), queue_counts={}, topic="orders", largest_record=500) as stager:
        stager.put(rows.slice(0, 1))
        with pytest.raises(PutRefused, match=told):
            stager.put(rows)
