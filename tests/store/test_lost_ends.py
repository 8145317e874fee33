"""Readers say that a store knows of messages after the ends that they read up to; and say nothing where it does not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader, export_store
from commitlog_store.errors import CorruptRecord, FileMissing
from tests.store.cli.commands import ended
from tests.store.verify.made_store import CONFIG, damage, files, make_store
from tests.store.verify.test_assessment import newest_file

ENDS = "The consume queues do not end where they ended when the store was closed."


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


@pytest.fixture
def killed(path: Path) -> Path:
    """A copy of the store while its owner had it open: all is flushed."""
    copy = path.with_name("killed")
    with MessageStore.open(path, CONFIG) as store:
        store.put("orders", b"last")
        store.flush()
        store.dispatch()
        store.flush()
        shutil.copytree(path, copy)
    return copy


def lost_ends(path: Path) -> list[str]:
    with StoreReader.open(path) as reader:
        return reader.lost_ends()


def last_unit(path: Path) -> tuple[Path, int]:
    """The file with the last unit of queue 0 of audit, and its place."""
    file = files(path, "consumequeue/audit/0")[-1]
    return file, -(-len(file.read_bytes().rstrip(b"\0")) // 20) * 20 - 20


def test_nothing_is_said_of_a_store_that_is_whole(path: Path, killed: Path) -> None:
    assert lost_ends(path) == lost_ends(killed) == []
    with MessageStore.open(path, CONFIG) as store:
        store.put("orders", b"more")
        assert lost_ends(path) == []


def test_a_queue_without_its_last_unit_is_known_in_a_closed_store(path: Path) -> None:
    file, at = last_unit(path)
    damage(file, at, bytes(20))
    assert lost_ends(path) == [ENDS]


def test_cat_ends_with_1_when_a_queue_has_lost_its_end(path: Path) -> None:
    file, at = last_unit(path)
    damage(file, at, bytes(20))
    for words in (["cat", path, "orders"], ["tail", path, "audit"]):
        done = ended(*words)
        assert (done.returncode, done.stderr) == (
            1, f"commitlog: Messages are missing: {ENDS} More: commitlog doctor {path}\n"
        )  # fmt: skip
    assert ended("cat", path, "orders", "-n", "3").returncode == 0
    assert ended("cat", path, "orders", "--until", "2001-01-01").returncode == 0


def test_an_export_ends_with_1_when_a_queue_has_lost_its_end(path: Path, tmp_path: Path) -> None:
    files(path, "consumequeue/audit/0")[-1].unlink()
    done = ended("export", path, "--to", f"ndjson:{tmp_path / 'all.ndjson'}", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["lostEnds"] == export_store(path, f"csv:{tmp_path / 'all.csv'}").lost_ends
    assert export_store(path, f"csv:{tmp_path / 'old.csv'}", until=1_000_000).lost_ends == []


def test_a_queue_file_that_is_gone_is_known_in_a_store_that_was_killed(killed: Path) -> None:
    files(killed, "consumequeue/audit/0")[-1].unlink()
    assert lost_ends(killed) == ["Of 11 consume-queue files, 10 exist."]


def test_queue_files_that_retention_has_removed_are_not_missing(path: Path) -> None:
    files(path, "commitlog")[0].unlink()
    files(path, "consumequeue/audit/0")[0].unlink()
    assert lost_ends(path) == []


@pytest.mark.parametrize("zeroed", [False, True])
def test_a_killed_store_that_has_lost_flushed_messages_is_not_read_as_if_a_crash_explained_it(
    killed: Path, zeroed: bool
) -> None:
    newest = newest_file(killed)
    if zeroed:
        damage(newest, 0, bytes(newest.stat().st_size))
    else:
        for file in files(killed, "commitlog"):
            if file >= newest:
                file.unlink()
    with StoreReader.open(killed) as reader, pytest.raises((CorruptRecord, FileMissing)):
        reader.scan("orders").read_all()
    assert ended("cat", killed, "orders").returncode == 1


def test_a_log_that_ends_before_its_mark_is_known_when_its_queues_are_derived(path: Path, killed: Path) -> None:
    for store, when in ((path, "when the store was closed."), (killed, "at least, by its checkpoint.")):
        newest = newest_file(store)
        damage(newest, 0, bytes(newest.stat().st_size))
        with StoreReader.open(store, from_log=True) as reader:
            (problem,) = reader.lost_ends()
        assert problem.startswith("The log ends at physical offset 262104, and it ended at ")
        assert problem.endswith(when)


def test_a_broker_has_left_nothing_to_compare_with(path: Path) -> None:
    checkpoint = path / "checkpoint"
    checkpoint.write_bytes(checkpoint.read_bytes()[:40].ljust(4096, b"\0"))
    file, at = last_unit(path)
    damage(file, at, bytes(20))
    assert lost_ends(path) == []
    os.unlink(checkpoint)
    assert lost_ends(path) == []
