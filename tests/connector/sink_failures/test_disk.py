"""A disk that is full, or fails, within a commit: the query fails, stores no part of a batch, and continues later."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.connector.sink.sink_helpers import staged_files
from tests.connector.sink_failures.output import Input, Watcher, check_output
from tests.connector.sink_failures.query import Query
from tests.support.long_runs import some_of
from tests.support.programs import OWN_MOUNTS, may_mount, run_program

ENOSPC, EIO = errno.ENOSPC, errno.EIO
# What fails, and the path it is for; the others are the same for the sink.
FAILURES = [
    ("write_at", "/commitlog/", ENOSPC),
    ("allocate", "/commitlog/", ENOSPC),
    # Of a file that is in use: one that is made ahead has no name yet, and is made again when it is needed.
    ("sync", "/commitlog/0", EIO),
    ("open_for_writing", "/commitlog/", EIO),
]
OPERATIONS = (
    *("create_file", "allocate", "write_at", "sync", "rename", "unlink", "open_for_writing", "sync_directory"),
    *("create_unnamed_file", "give_name"),
)
ALL_FAILURES = [
    (operation, path, code)
    for operation in OPERATIONS
    for path in ("", "/commitlog/", "/consumequeue/", "/config/", "/checkpoint")
    for code in (ENOSPC, EIO)
]
STRESS_FAILURES = some_of(ALL_FAILURES)


@pytest.fixture
def source(tmp_path: Path) -> Input:
    return Input(tmp_path / "input", queues=range(6))


def says_what_failed(error: str, path: str, code: int) -> bool:
    """An error of the store's own, with the path: no naked ``OSError``, and nothing that it led to later."""
    # A file that cannot be opened, such as the lock, is ReadFailed: nothing was written.
    names = ("DiskFull", "StoreIOError", "ReadFailed") if code == ENOSPC else ("StoreIOError", "ReadFailed")
    named = any(f"commitlog_store.errors.{name}: Cannot " in error for name in names)
    # A new file has no name yet, but a directory; one that is written whole is reported by its final name; and a lock
    # that fails is reported by the path of the store.
    told_of = path.partition("/#")[0].removesuffix(".tmp").removesuffix("/lock")
    return named and f" {told_of}" in error and "as the test wants" in error


def fail_each(query: Query, failures: Sequence[tuple[str, str, int]], turns: int) -> int:
    """Let each happen in the commit of a batch of its own; how many of them failed the query."""
    source = query.source
    source.add()
    failed = 0
    with Watcher(query.store, source):
        query.run_well()
        for operation, path, code in failures:
            for turn in range(1, turns + 1):
                # A file of 16 KiB is seldom enough for two of these batches, so the log grows at once.
                source.add()
                query.fail("error", batch=source.count - 1, operation=operation, path=path, turn=turn, code=code)
                error = query.run()
                query.plan.unlink(missing_ok=True)
                assert not error or says_what_failed(error, query.failed[-1], code), error
                failed += bool(error)
                assert not error or not staged_files(query.store), "Spark aborted it"
        query.run_well()
    check_output(query.store, source)
    return failed


def test_a_full_or_failing_disk_in_a_commit_fails_the_query_and_leaves_no_part(query: Query) -> None:
    query.source.extra_rows = 60
    assert fail_each(query, FAILURES, 1) == len(FAILURES)


@pytest.mark.stress
@pytest.mark.timeout(3600)
def test_each_operation_of_a_commit_on_a_full_or_failing_disk_leaves_no_part(query: Query) -> None:
    query.source.extra_rows = 60
    assert fail_each(query, STRESS_FAILURES, 2) > len(STRESS_FAILURES) // 3


@pytest.mark.spark
@pytest.mark.stress
@pytest.mark.timeout(400)
def test_a_query_continues_after_a_real_file_system_was_full(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()
    if not may_mount(mount):
        pytest.skip("mounting a small file system takes root, or a system that lets users have mounts of their own")
    module = "tests.connector.sink_failures.full_disk"
    ran = run_program("-m", module, tmp_path, mount, timeout=300, within=OWN_MOUNTS)
    assert (ran.returncode, ran.stdout) == (0, "fine\n"), ran.stderr[-3000:]
