"""Leftovers in the staging area of drivers that died and were not restarted are removed by their age."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import BatchId
from commitlog_store.batch.staging import (
    LEFT_OVER_AFTER_SECONDS,
    StagedWriter,
    _directory_name,
    remove_leftovers,
    staged_bytes,
)
from commitlog_store.errors import StagingLost, StoreAccessDenied
from commitlog_store.files import disk
from commitlog_store.paths import UNNAMED_WRITE_PREFIX
from commitlog_store.stager import BatchStager
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.stored_bodies import bodies

NOW = 1_800_000_000.0
OLD = NOW - LEFT_OVER_AFTER_SECONDS - 1
UNNAMED = UNNAMED_WRITE_PREFIX + "0123456789abcdef" * 2
OTHER = UNNAMED_WRITE_PREFIX + "f" * 32


def stage(store: Path, app: str = UNNAMED, *, version: int = 0, age: float = OLD) -> Path:
    """A staged file, and its directories, last written then."""
    store.mkdir(exist_ok=True)
    StagedWriter(str(store), BatchId(app, version), "part")
    (file,) = (path for path in (store / "staging" / _directory_name(app) / str(version)).iterdir())
    for path in (file, file.parent, file.parent.parent):
        os.utime(path, (age, age))
    return file


def left(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "staging").iterdir())


def test_old_leftovers_are_removed_and_young_ones_stay(tmp_path: Path) -> None:
    stage(tmp_path)
    stage(tmp_path, OTHER, age=NOW - LEFT_OVER_AFTER_SECONDS + 1)
    remove_leftovers(str(tmp_path), now=NOW)
    assert left(tmp_path) == [OTHER]


@pytest.mark.parametrize("newer", [0, 1, 2])
def test_one_thing_that_was_written_lately_keeps_all_of_a_write(tmp_path: Path, newer: int) -> None:
    """A file, the directory that got one, or the write's own: its tasks may still be at work."""
    file = stage(tmp_path)
    path = (file, file.parent, file.parent.parent)[newer]
    os.utime(path, (NOW - 60, NOW - 60))
    remove_leftovers(str(tmp_path), now=NOW)
    assert file.exists()


@pytest.mark.parametrize("app", ["loader", "0a1b2c3d-0000-4000-8000-000000000000", "a name that is hashed"])
def test_all_versions_of_an_application_are_removed_together(tmp_path: Path, app: str) -> None:
    """A query whose checkpoint is gone commits nothing any more; of one that is at work, nothing goes."""
    stage(tmp_path, app, version=3)
    stage(tmp_path, app, version=40)
    late = stage(tmp_path, OTHER, version=3)
    new = stage(tmp_path, OTHER, version=4, age=NOW - 60)
    remove_leftovers(str(tmp_path), now=NOW)
    assert (left(tmp_path), late.exists(), new.exists()) == ([OTHER], True, True)


def test_foreign_files_in_the_staging_area_stay(tmp_path: Path) -> None:
    """Neither files of another hand nor directories that are no versions."""
    file = stage(tmp_path, "loader")
    (file.parent.parent / "notes").mkdir()
    (tmp_path / "staging" / "README").touch()
    for path in (tmp_path / "staging" / "README", file.parent.parent / "notes", file.parent.parent):
        os.utime(path, (OLD, OLD))
    remove_leftovers(str(tmp_path), now=NOW)
    assert (left(tmp_path), file.exists()) == (["README", "loader"], False)


def test_an_empty_directory_of_an_old_write_is_removed(tmp_path: Path) -> None:
    file = stage(tmp_path)
    file.unlink()
    file.parent.rmdir()
    os.utime(file.parent.parent, (OLD, OLD))
    remove_leftovers(str(tmp_path), now=NOW)
    assert left(tmp_path) == []


@pytest.mark.parametrize("place", ["staging", "write", "version", "file"])
def test_nothing_is_removed_through_a_symbolic_link(tmp_path: Path, place: str) -> None:
    """Invariant 10."""
    file = stage(tmp_path / "store")
    linked = {
        "staging": tmp_path / "store" / "staging",
        "write": file.parent.parent,
        "version": file.parent,
        "file": file,
    }[place]
    outside = tmp_path / "outside"
    linked.rename(outside)
    linked.symlink_to(outside)
    os.utime(linked, (OLD, OLD), follow_symlinks=False)
    for path in (file.parent, file.parent.parent):
        os.utime(path, (OLD, OLD), follow_symlinks=False)
    before = sorted(outside.rglob("*"))
    remove_leftovers(str(tmp_path / "store"), now=NOW)
    assert outside.exists()
    assert sorted(outside.rglob("*")) == before


def test_the_owner_removes_them_when_it_opens_the_store(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    stage(tmp_path, age=time.time() - LEFT_OVER_AFTER_SECONDS - 60)
    stage(tmp_path, OTHER, age=time.time())
    with open_store(tmp_path) as store:
        assert left(tmp_path) == [OTHER]
        put_ok(store)
    assert bodies(tmp_path) == [b"body"]


def test_a_write_that_was_taken_for_dead_commits_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        with BatchStager(tmp_path, BatchId(UNNAMED), queue_counts={}, topic="orders") as stager:
            stager.put(pa.table({"body": [b"late"]}))
            staged = stager.finish()
        assert staged is not None
        remove_leftovers(str(tmp_path), now=time.time() + LEFT_OVER_AFTER_SECONDS + 60)
        with pytest.raises(StagingLost):
            store.commit_batch(BatchId(""), [staged])
        assert store.physical_bounds() == (0, 0)
        put_ok(store)


@pytest.mark.parametrize("call", ["list_names", "modified_at", "unlink", "remove_directory"])
@pytest.mark.parametrize("failure", [OSError(5, "injected"), StoreAccessDenied("injected", path="x")])
def test_a_leftover_that_cannot_be_removed_does_not_keep_a_store_from_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, failure: Exception
) -> None:
    open_store(tmp_path).close()
    stage(tmp_path, age=time.time() - LEFT_OVER_AFTER_SECONDS - 60)
    real = getattr(disk, call)

    def failing(path: str) -> object:
        if UNNAMED in path or path.endswith("staging"):
            raise failure
        return real(path)

    monkeypatch.setattr(disk, call, failing)
    with open_store(tmp_path) as store:
        put_ok(store)
    assert left(tmp_path) == [UNNAMED]


def test_an_unreadable_leftover_does_not_keep_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(tmp_path)
    stage(tmp_path, OTHER)
    real = disk.modified_at

    def failing(path: str) -> float:
        if path.endswith(UNNAMED):
            raise FileNotFoundError(2, "removed concurrently", path)
        return real(path)

    monkeypatch.setattr(disk, "modified_at", failing)
    remove_leftovers(str(tmp_path), now=NOW)
    assert left(tmp_path) == [UNNAMED]


def test_a_version_that_cannot_be_listed_keeps_the_others_of_its_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its files were written is unknown, and one that is new shows that the application is at work."""
    file, unreadable = stage(tmp_path, version=3), stage(tmp_path, version=4)
    real, real_scan = disk.list_names, os.scandir

    def listing(path: str) -> list[str]:
        if path == str(unreadable.parent):
            raise StoreAccessDenied("injected", path=path)
        return real(path)

    def scan(path: str) -> AbstractContextManager[Iterator[os.DirEntry[str]]]:
        if path == str(unreadable.parent):
            raise PermissionError(errno.EACCES, "injected", path)
        return real_scan(path)

    monkeypatch.setattr(disk, "list_names", listing)
    monkeypatch.setattr(os, "scandir", scan)
    remove_leftovers(str(tmp_path), now=NOW)
    assert file.exists()


def test_staged_bytes_are_counted_without_following_a_link(tmp_path: Path) -> None:
    file = stage(tmp_path / "store")
    assert staged_bytes(str(tmp_path / "store"), 4096) == 4096
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "large").write_bytes(b"x" * 10_000)
    (file.parent / "link").symlink_to(tmp_path / "outside")
    assert staged_bytes(str(tmp_path / "store"), 4096) == 2 * 4096, "a link takes space, too"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "staging").symlink_to(tmp_path / "outside")
    assert staged_bytes(str(tmp_path / "other"), 4096) == 4096


def test_endlessly_nested_directories_do_not_keep_a_store_from_opening(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    at = os.open(tmp_path, os.O_RDONLY)
    for name in ("staging", UNNAMED, "0", *["d"] * 1500):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, dir_fd=at)
        at, before = os.open(name, os.O_RDONLY, dir_fd=at), at
        os.close(before)
    os.close(at)
    with open_store(tmp_path) as store:
        put_ok(store)
    subprocess.run(["rm", "-rf", str(tmp_path / "staging")], check=True)  # Python's own way recurses too
