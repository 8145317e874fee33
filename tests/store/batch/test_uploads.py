"""Uploads: parts that come twice, late, or not at all, and end markers that do not fit."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import BatchId, MessageStore
from commitlog_store.batch.staging import LEFT_OVER_AFTER_SECONDS, remove_up_to
from commitlog_store.batch.uploads import finish_upload, write_part
from commitlog_store.batch_id import StagedFile
from commitlog_store.engine import commit_batch
from commitlog_store.errors import CorruptStaging, InvalidValue, StagingLost
from commitlog_store.stager import BatchStager

BATCH = BatchId("loader", 3)


@pytest.fixture
def store(tmp_path: Path) -> str:
    MessageStore.open(tmp_path / "store").close()
    return str(tmp_path / "store")


def staged(store: str, *bodies: bytes) -> tuple[StagedFile, bytes]:
    """What a staged file of these bodies is, and its bytes."""
    with BatchStager(store, BATCH, queue_counts={}, topic="orders") as stager:
        for body in bodies:
            stager.put(pa.table({"body": [body]}))
        found = stager.finish()
    assert found is not None
    path = Path(store, found.path)
    data = path.read_bytes()
    path.unlink()
    return found, data


def test_parts_may_come_twice_and_the_end_too(store: str) -> None:
    whole, data = staged(store, b"a" * 100, b"b" * 100)
    cut = len(data) // 2
    for _ in range(2):
        write_part(store, BATCH, "one", 0, data[:cut])
    write_part(store, BATCH, "one", cut, data[cut:])
    write_part(store, BATCH, "one", 0, data[:cut])
    ends = [finish_upload(store, BATCH, "one", whole.rows, whole.size, whole.crc) for _ in range(2)]
    assert ends[0] == ends[1]
    assert Path(store, ends[0].path).read_bytes() == data
    with MessageStore.open(store) as owner:
        assert owner.commit_batch(BATCH, [ends[0]]).rows == 2
        assert owner.commit_batch(BATCH, [ends[0]]).already_there


def test_an_upload_that_lacks_a_part_is_not_finished_and_not_committed(store: str) -> None:
    whole, data = staged(store, b"a" * 100, b"b" * 100)
    write_part(store, BATCH, "one", 0, data[:-1])
    with pytest.raises(CorruptStaging, match=r"expected 2 rows in .* bytes with checksum .* found 2 rows in"):
        finish_upload(store, BATCH, "one", whole.rows, whole.size, whole.crc)
    with pytest.raises(StagingLost, match="what came before it was lost"):
        write_part(store, BATCH, "one", len(data), b"more")
    with MessageStore.open(store) as owner:
        with pytest.raises(CorruptStaging):
            owner.commit_batch(BATCH, [StagedFile("staging/loader/3/one", whole.rows, whole.size, whole.crc)])
        assert owner.batches() == []


@pytest.mark.parametrize("wrong", [(1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_an_end_marker_of_other_rows_size_or_checksum_is_refused(store: str, wrong: tuple[int, int, int]) -> None:
    whole, data = staged(store, b"a" * 100)
    write_part(store, BATCH, "one", 0, data)
    rows, size, crc = (right + more for right, more in zip((whole.rows, whole.size, whole.crc), wrong, strict=True))
    with pytest.raises(CorruptStaging):
        finish_upload(store, BATCH, "one", rows, size, crc)


def test_bytes_that_are_no_blocks_are_refused_at_the_end(store: str) -> None:
    write_part(store, BATCH, "one", 0, b"x" * 1000)
    with pytest.raises(CorruptStaging, match="found 0 rows"):
        finish_upload(store, BATCH, "one", 1, 1000, 0)


def test_a_late_part_of_a_removed_upload_makes_no_file(store: str) -> None:
    _, data = staged(store, b"a" * 100)
    write_part(store, BATCH, "one", 0, data[:50])
    remove_up_to(store, BATCH)
    with pytest.raises(StagingLost, match="committed or given up"):
        write_part(store, BATCH, "one", 50, data[50:])
    assert not list(Path(store, "staging").glob("*/*"))


@pytest.mark.parametrize("name", ["", "..", "a/b", "/etc/passwd", "a\0", "ä", "x" * 101, ".hidden"])
def test_names_that_lead_elsewhere_are_refused(store: str, name: str) -> None:
    with pytest.raises(InvalidValue, match="An upload is called by"):
        write_part(store, BATCH, name, 0, b"a")
    with pytest.raises(InvalidValue, match="at an offset from 0 on"):
        write_part(store, BATCH, "one", -1, b"a")


def test_nothing_is_written_through_a_symbolic_link(store: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    Path(store, "staging").symlink_to(tmp_path / "elsewhere")
    for offset in (0, 5):
        with pytest.raises(Exception, match="symbolic link"):
            write_part(store, BATCH, "one", offset, b"a")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_an_owner_removes_leftovers_once_a_day_as_it_commits(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of the store stays open for months, and opening is when they were removed."""
    write_part(store, BatchId("dead", 1), "one", 0, b"half of an upload")
    left = Path(store, "staging/dead/1/one")
    with MessageStore.open(store) as owner:
        for path in (left, left.parent, left.parent.parent):
            os.utime(path, (0, path.stat().st_mtime - LEFT_OVER_AFTER_SECONDS - 1))
        whole, data = staged(store, b"a")
        write_part(store, BATCH, "one", 0, data)
        owner.commit_batch(BATCH, [finish_upload(store, BATCH, "one", whole.rows, whole.size, whole.crc)])
        assert left.exists(), "it is not due"
        monkeypatch.setattr(commit_batch, "_LEFTOVERS_EVERY_S", 0)
        owner._engine.batches._leftovers_due = 0
        owner.commit_batch(BatchId("loader", 4), [])
        assert not left.parent.parent.exists()
