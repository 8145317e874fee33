"""What an unnamed write leaves in the staging area when its driver dies goes by its age, and nothing else does."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog import BatchId
from commitlog.errors import StagingLost, StoreAccessDenied
from commitlog.files import disk
from commitlog.log import staging_leftovers
from commitlog.log.staging import StagedWriter
from commitlog.log.staging_leftovers import LEFT_OVER_AFTER_SECONDS, remove_leftovers
from commitlog.paths import UNNAMED_WRITE_PREFIX
from commitlog.stager import BatchStager
from tests.store.owner.owned_store import bodies, open_store, put_ok

__all__: list[str] = []

NOW = 1_800_000_000.0
OLD = NOW - LEFT_OVER_AFTER_SECONDS - 1
UNNAMED = UNNAMED_WRITE_PREFIX + "0123456789abcdef" * 2
OTHER = UNNAMED_WRITE_PREFIX + "f" * 32


def stage(store: Path, app: str = UNNAMED, *, version: int = 0, age: float = OLD) -> Path:
    """A staged file, and its directories, last written then."""
    store.mkdir(exist_ok=True)
    StagedWriter(str(store), BatchId(app, version), "part")
    (file,) = (path for path in (store / "staging" / app / str(version)).iterdir())
    for path in (file, file.parent, file.parent.parent):
        os.utime(path, (age, age))
    return file


def left(store: Path) -> list[str]:
    return sorted(path.name for path in (store / "staging").iterdir())


def test_what_is_old_goes_and_what_is_not_stays(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("app", "version"),
    [
        ("loader", 0),
        ("write-orders", 0),
        (UNNAMED + "0", 0),
        (UNNAMED.upper(), 0),
        (UNNAMED, 1),
    ],
)
def test_what_a_named_application_staged_waits_for_its_next_commit(tmp_path: Path, app: str, version: int) -> None:
    file = stage(tmp_path, app, version=version)
    remove_leftovers(str(tmp_path), now=NOW)
    assert file.exists()


def test_an_empty_directory_of_an_old_write_goes(tmp_path: Path) -> None:
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
def test_what_cannot_be_removed_does_not_keep_a_store_from_opening(
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


def test_one_write_that_cannot_be_looked_at_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(tmp_path)
    stage(tmp_path, OTHER)
    real = staging_leftovers._last_change

    def failing(directory: str, depth: int) -> float:
        if directory.endswith(UNNAMED):
            raise FileNotFoundError(2, "gone meanwhile", directory)
        return real(directory, depth)

    monkeypatch.setattr(staging_leftovers, "_last_change", failing)
    remove_leftovers(str(tmp_path), now=NOW)
    assert left(tmp_path) == [UNNAMED]


def test_directories_that_go_on_for_ever_keep_nobody_from_opening(tmp_path: Path) -> None:
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
