"""Two writers commit the same batch: one writes it, the other finds it committed; and commits without disk space."""

from __future__ import annotations

import dataclasses
import errno
import multiprocessing
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import CommittedBatch, FlushDiskType, Message, MessageStore
from commitlog_store.errors import BatchConflict, CommitLogError, DiskFull
from commitlog_store.files import disk
from commitlog_store.paths import COMMIT_LOG
from commitlog_store.testing import kill
from tests.crash.batch_workloads import batch_table, commit, gate_is_open, stored_batches
from tests.crash.stored_messages import check_store, log_records
from tests.crash.workloads import small_config
from tests.support.clean_store import assert_clean
from tests.support.waiting import WAIT_LIMIT_S

CONFIG = small_config(FlushDiskType.SYNC_FLUSH)
ROWS = 110


def commit_elsewhere(path: str, answers: Connection) -> None:
    """In a process of its own: wait for the store, commit, and die without closing it."""
    try:
        store = MessageStore.open(path, CONFIG, lock_timeout_s=30)
        answers.send(commit(store, "app", 2, ROWS))
    except CommitLogError as error:
        answers.send(error)


def answers_of(path: Path, rivals: int) -> list[Any]:
    """The results of so many processes that commit at the same time."""
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(rivals)]
    processes = [context.Process(target=commit_elsewhere, args=(str(path), pipe[1])) for pipe in pipes]
    for process in processes:
        process.start()
    answers = [pipe[0].recv() for pipe in pipes]
    for process in processes:
        process.join(WAIT_LIMIT_S)
    return answers


def test_of_two_processes_that_commit_the_same_version_one_writes_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with MessageStore.open(store, CONFIG) as opened:
        commit(opened, "app", 1, 3)
    answers = answers_of(store, 2)
    assert sorted(answer.already_there for answer in answers) == [False, True], answers
    assert len({(answer.physical_offset, answer.end) for answer in answers}) == 1
    with MessageStore.open(store, CONFIG) as opened:
        with pytest.raises(BatchConflict) as caught:
            commit(opened, "app", 2, 5, "another")
        assert (caught.value.version, caught.value.committed) == (2, 2)
        assert [one.batch.version for one in opened.batches()] == [2]
    there = log_records(store)
    assert [record.topic for record in there].count("rmq_sys_commitlog_batch") == 2
    check_store(store, there)
    assert_clean(store)


def test_of_threads_that_commit_the_same_version_one_writes_it(memory: Path) -> None:
    """Each stages what it commits; the first one's commit takes away what the others have staged."""
    store, results, errors = memory / "store", [], []
    begin = threading.Barrier(4)

    def rival(opened: MessageStore) -> None:
        try:
            with opened.transaction("app", 1, "same") as batch:
                batch.put_messages(batch_table("app", 1, ROWS))
                begin.wait()
            results.append(batch.result)
        except CommitLogError as error:
            errors.append(error)

    with MessageStore.open(store, CONFIG) as opened:
        threads = [threading.Thread(target=rival, args=(opened,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
    assert sorted(result.already_there for result in results if result is not None) == [False, True, True, True]
    assert sum(record.topic.startswith("batch-") for record in log_records(store)) == ROWS
    assert_clean(store)


@pytest.mark.parametrize("reopened", ["", "closed", "killed"])
@pytest.mark.parametrize("ledger", ["kept", "lost"])
def test_versions_below_the_last_are_found_by_the_chain_of_frames(reopened: str, ledger: str, memory: Path) -> None:
    store = memory / "store"
    opened = MessageStore.open(store, CONFIG)
    versions = [1, 2, 5, 6, 9]
    committed: dict[int, CommittedBatch] = {}
    for version in versions:
        committed[version] = commit(opened, "app", version, 3 + version)
        commit(opened, f"other-{version}", version, 2)
    if reopened:
        kill(opened) if reopened == "killed" else opened.close()
        if ledger == "lost":
            for path in (store / "config").glob("batchLedger.json*"):
                path.unlink()
        opened = MessageStore.open(store, CONFIG)
    for version in versions:
        again = commit(opened, "app", version, 3 + version)
        assert dataclasses.replace(again, already_there=False) == committed[version]
        assert again.already_there
        with pytest.raises(BatchConflict, match=f"{version}"):
            commit(opened, "app", version, 3 + version, "another")
    with pytest.raises(BatchConflict, match="not among the frames"):
        commit(opened, "app", 7, 1)
    assert commit(opened, "app", 7, 1, "").already_there, "without a fingerprint, what is below was committed"
    opened.close()
    assert len(stored_batches(log_records(store))) == 2 * len(versions)


class FullDisk:
    """From some number of bytes on, no file of the log gets space; or every call of one kind fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, chosen: Callable[[str], bool]) -> None:
        self.full = False
        real = getattr(disk, name)

        def call(first: int | str, *arguments: Any, **named: Any) -> Any:
            path = first if isinstance(first, str) else str(Path(f"/proc/self/fd/{first}").readlink())
            if self.full and chosen(path):
                raise OSError(errno.ENOSPC, "no space", path)
            return real(first, *arguments, **named)

        monkeypatch.setattr(disk, name, call)


def beyond_five_files(path: str) -> bool:
    """The one that is being made has no name yet."""
    return f"/{COMMIT_LOG}/" in path and len(list(Path(path).parent.iterdir())) >= 5


SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH


@pytest.mark.parametrize(
    ("flush", "pool"), [(SYNC, False), (ASYNC, False), (ASYNC, True)], ids=["sync", "async", "pool"]
)
def test_a_batch_without_disk_space_leaves_nothing_and_takes_no_space(
    pool: bool, flush: FlushDiskType, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or the disk would stay full of the files that were made for it."""
    store = memory / "store"
    config = small_config(flush, pool=pool)
    disk_full = FullDisk(monkeypatch, "allocate", beyond_five_files)
    with MessageStore.open(store, config) as opened:
        commit(opened, "app", 1, 5)
        opened.put_message(Message(topic="topic", body=b"before", queue_id=0)).raise_for_status()
        end = opened.physical_bounds()[1]
        disk_full.full = True
        for _ in range(2):
            with pytest.raises(DiskFull):
                commit(opened, "app", 2, 400)
            assert opened.writable
            assert opened.physical_bounds()[1] == end
            assert len(list((store / COMMIT_LOG).iterdir())) <= 3, "one that is written, and two made ahead"
        opened.put_message(Message(topic="topic", body=b"beside", queue_id=0)).raise_for_status()
        assert not commit(opened, "app", 2, 20).already_there
        disk_full.full = False
        assert not commit(opened, "app", 3, 400).already_there
        opened.put_message(Message(topic="topic", body=b"behind", queue_id=0)).raise_for_status()
    there = log_records(store)
    assert stored_batches(there) == [("app", 1), ("app", 2), ("app", 3)]
    assert [one.body for one in there if one.topic == "topic"] == [b"before", b"beside", b"behind"]
    check_store(store, there)
    assert_clean(store)


def test_a_ledger_without_disk_space_is_written_later(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has all that it knows. An open store writes its ledger once in 256 batches."""
    store = memory / "store"
    disk_full = FullDisk(monkeypatch, "write_at", lambda path: "batchLedger" in path)
    with MessageStore.open(store, CONFIG) as opened:
        commit(opened, "app", 1, 5)
        disk_full.full = True
        for version in range(2, 302):
            assert not commit(opened, "app", version, 2).already_there
        assert opened.writable
    with MessageStore.open(store, CONFIG) as opened:
        assert opened.recovered is None
        assert [one.batch.version for one in opened.batches()] == [301]
        assert commit(opened, "app", 300, 2).already_there
        with pytest.raises(DiskFull):
            opened.forget_batches("app")
        assert commit(opened, "app", 300, 2).already_there, "nothing was forgotten"
        assert opened.writable
    disk_full.full = False
    with MessageStore.open(store, CONFIG) as opened:
        assert gate_is_open(store)
        assert commit(opened, "app", 4, 2).already_there


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE])
def test_an_unreadable_staged_file_fails_the_batch_and_not_the_store(
    code: int, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = memory / "store"
    real, failing = disk.read_at, True

    def read_at(descriptor: int, length: int, offset: int) -> bytes:
        if failing and "staging" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(code, "injected")
        return real(descriptor, length, offset)

    monkeypatch.setattr(disk, "read_at", read_at)
    with MessageStore.open(store, CONFIG) as opened:
        with pytest.raises(CommitLogError):
            commit(opened, "app", 1, ROWS)
        assert opened.writable
        failing = False
        assert not commit(opened, "app", 1, ROWS).already_there
    assert stored_batches(log_records(store)) == [("app", 1)]
    assert_clean(store)
