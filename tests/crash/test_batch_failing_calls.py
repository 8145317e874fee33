"""Every file operation of a commit, and of the close after it, fails once in its turn; and anything is interrupted.

After each run the store is opened twice: as the kernel has it, and as a machine leaves it that stops then.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import random
import shutil
import threading
from pathlib import Path

import pytest

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig
from commitlog_store.errors import CommitLogError, DiskFull, Refused, StoreIOError
from commitlog_store.testing import kill
from tests.crash.batch_workloads import commit, gate_is_open, stored_batches
from tests.crash.simulated_disk import CrashImages, RecordingDisk, log_is_not_mapped
from tests.crash.stored_messages import check_store, log_records
from tests.crash.test_failing_calls import CHANGING, FAILING, Fault
from tests.crash.workloads import small_config
from tests.support.clean_store import assert_clean
from tests.support.interrupter import Interrupter
from tests.support.long_runs import ONE_IN
from tests.support.waiting import wait_for

SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH
BEFORE = [("app", 1), ("loader", 1)]
# The batches of a run, and of how many rows: the first lies in several files.
BATCHES = [("app", 2, 110), ("loader", 2, 4)]
# Of the operations that are many, and of those that are few, the default run lets one of so many fail.
_MANY, _SOME = 37, 11


class Outcome:
    """What a run observed."""

    def __init__(self) -> None:
        self.there: list[tuple[str, int]] = []
        self.absent: list[tuple[str, int]] = []
        self.puts: dict[int, bytes] = {}
        self.errors: list[CommitLogError] = []
        self.halted_by_full_disk = False


def try_commit(store: MessageStore, app: str, version: int, rows: int, outcome: Outcome) -> None:
    """Commit, and once more when nothing was written and the store continues: space is available again."""
    for turn in range(2):
        try:
            commit(store, app, version, rows)
        except CommitLogError as error:
            outcome.errors.append(error)
            # With the path of the store itself, the commit was rejected because dispatch had found the disk full.
            own = isinstance(error, DiskFull) and error.path != store.path
            outcome.halted_by_full_disk |= own and not store.writable
            no_room = isinstance(error, StoreIOError | DiskFull) and error.errno == errno.ENOSPC
            nothing = isinstance(error, Refused)
            if not (store.writable and turn == 0 and (no_room or nothing)):
                if nothing:
                    outcome.absent.append((app, version))
                return
        else:
            outcome.there.append((app, version))
            return


def put_beside(store: MessageStore, outcome: Outcome, begun: threading.Event) -> None:
    for number in range(12):
        body = f"beside {number}".encode() * 20
        result = store.put_message(Message(topic="beside", body=body, queue_id=number % 2))
        if result.ok:
            outcome.puts[result.physical_offset] = body
        begun.set()


def run(path: Path, config: MessageStoreConfig, fault: Fault) -> Outcome:
    """Commit while another thread puts, and close: whatever fails, only errors of this package come out."""
    outcome = Outcome()
    store = MessageStore.open(path, config)
    begun = threading.Event()
    beside = threading.Thread(target=put_beside, args=(store, outcome, begun))
    with fault.armed():
        beside.start()
        begun.wait()
        for app, version, rows in BATCHES:
            try_commit(store, app, version, rows, outcome)
        beside.join()
        try:
            store.close()
        except CommitLogError as error:
            outcome.errors.append(error)
    return outcome


def check_reopened(path: Path, config: MessageStoreConfig, outcome: Outcome, *, safe: bool) -> None:
    """Whole batches, those that were committed among them, each once; and the store takes what is missing."""
    with MessageStore.open(path, config) as store:
        there = log_records(path)
        batches = stored_batches(there)
        assert batches[: len(BEFORE)] == BEFORE
        assert not set(outcome.absent) & set(batches), "it was said that nothing was written"
        assert gate_is_open(path)
        assert {one.batch.app_id: one.batch.version for one in store.batches()} == dict(batches)
        if safe:
            assert set(outcome.there) <= set(batches), "committed and lost"
            bodies = {record.physical_offset: record.body for record in there}
            assert all(bodies.get(place) == body for place, body in outcome.puts.items()), "acknowledged and lost"
        for app, version, rows in BATCHES:
            assert commit(store, app, version, rows).already_there == ((app, version) in batches)
        assert store.put_message(Message(topic="beside", body=b"after", queue_id=1)).ok
    after = log_records(path)
    assert sorted(stored_batches(after)) == sorted([*BEFORE, *(batch[:2] for batch in BATCHES)])
    check_store(path, after)
    assert_clean(path)


def begin(path: Path, config: MessageStoreConfig) -> None:
    with MessageStore.open(path, config) as store:
        for app, version in BEFORE:
            commit(store, app, version, 15)


def check_failing(flush: FlushDiskType, operation: str, code: int, step: int, memory: Path) -> None:
    config = small_config(flush)
    begin(memory / "begin", config)
    for turn in itertools.count(1, step):
        root = memory / f"run-{turn}"
        path = root / "store"
        shutil.copytree(memory / "begin", path)
        recorder = RecordingDisk(root)
        fault = Fault(operation, turn, code, recorder)
        with recorder.recording(), log_is_not_mapped():
            outcome = run(path, config, fault)
        where = f"call {turn} of {operation}, at {fault.path}: {outcome.errors}"
        crashes = CrashImages(recorder)
        crashes.advance(recorder.now)
        crashes.write(memory / "stopped", random.Random(where))
        try:
            assert fault.happened or not outcome.errors
            assert not outcome.halted_by_full_disk
            assert len(outcome.there) == len(BATCHES) or outcome.errors
            check_reopened(path, config, outcome, safe=True)
            check_reopened(memory / "stopped" / "store", config, outcome, safe=flush is SYNC)
        except Exception as error:
            raise AssertionError(where) from error
        shutil.rmtree(root)
        if not fault.happened:
            return


@pytest.mark.parametrize(("operation", "code"), FAILING, ids=lambda value: errno.errorcode.get(value, value))
def test_a_failing_call_leaves_whole_batches(operation: str, code: int, memory: Path) -> None:
    step = _MANY if operation in CHANGING[:2] else 2 if operation in ("unlink", "rename", "punch_hole") else _SOME
    check_failing(SYNC if code == errno.EIO else ASYNC, operation, code, step, memory)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("operation", "code"), FAILING, ids=lambda value: errno.errorcode.get(value, value))
@pytest.mark.parametrize("flush", list(FlushDiskType), ids=lambda flush: flush.value)
def test_each_failing_call_leaves_whole_batches(flush: FlushDiskType, operation: str, code: int, memory: Path) -> None:
    check_failing(flush, operation, code, ONE_IN, memory)


# The modules that the thread of a caller runs in a commit, a flush or a close.
INTERRUPTED = (
    *("transaction.py", "put_table.py", "store.py", "owned_store.py", "running_state.py", "staging.py"),
    *("threads/jobs.py", "threads/calls.py", "threads/wakeup.py", "commit_log_writer.py", "/threading.py"),
)


def check_interrupts(flush: FlushDiskType, step: int, memory: Path) -> None:
    config = small_config(flush)
    begin(memory / "begin", config)
    app, version, rows = BATCHES[0]
    for turn in itertools.count(1, step):
        path = memory / f"store-{turn}"
        shutil.copytree(memory / "begin", path)
        store = MessageStore.open(path, config)
        interrupter = Interrupter(turn, INTERRUPTED)
        outcome = Outcome()
        try:
            with contextlib.suppress(KeyboardInterrupt):
                interrupter.run(functools.partial(commit, store, app, version, rows))
            try_commit(store, app, version, rows, outcome)
            outcome.absent.clear()  # what the second call did not write, the first one may have written
            store.put_message(Message(topic="beside", body=b"behind", queue_id=0))
            kill(store)
            check_reopened(path, config, outcome, safe=True)
        except Exception as error:
            raise AssertionError(f"interrupted at {interrupter.where}, {outcome.errors}") from error
        shutil.rmtree(path)
        if not interrupter.where:
            assert outcome.there
            return


@pytest.mark.parametrize("flush", list(FlushDiskType), ids=lambda flush: flush.value)
def test_a_commit_that_is_interrupted_anywhere_is_stored_exactly_once(flush: FlushDiskType, memory: Path) -> None:
    """The program may go on, and commit again in the same store."""
    check_interrupts(flush, 59, memory)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flush", list(FlushDiskType), ids=lambda flush: flush.value)
def test_a_commit_that_is_interrupted_at_any_line_is_stored_exactly_once(flush: FlushDiskType, memory: Path) -> None:
    check_interrupts(flush, ONE_IN, memory)


def check_interrupted_ends(flush: FlushDiskType, step: int, memory: Path) -> None:
    """Flush and close are interrupted; closing again ends everything that still runs."""
    config = small_config(flush)
    begin(memory / "begin", config)
    for turn in itertools.count(1, step):
        path = memory / f"store-{turn}"
        shutil.copytree(memory / "begin", path)
        store = MessageStore.open(path, config)
        interrupter = Interrupter(turn, INTERRUPTED)
        outcome = Outcome()
        try_commit(store, *BATCHES[0], outcome)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                interrupter.run(lambda store=store: (store.flush(), store.close()))  # type: ignore[misc]
            with contextlib.suppress(CommitLogError):  # the interrupt may have halted it
                store.close()
            wait_for(lambda: not _threads_of_stores())
            check_reopened(path, config, outcome, safe=True)
        except Exception as error:
            raise AssertionError(f"interrupted at {interrupter.where}, {outcome.errors}") from error
        shutil.rmtree(path)
        if not interrupter.where:
            return


def _threads_of_stores() -> list[str]:
    """Those that have not ended: the thread of the last job ends after it has said that the job is done."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.endswith(("Service", "StoreJobs"))]


def test_a_flush_or_close_that_is_interrupted_anywhere_loses_nothing(memory: Path) -> None:
    check_interrupted_ends(ASYNC, 61, memory)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flush", list(FlushDiskType), ids=lambda flush: flush.value)
def test_a_flush_or_close_that_is_interrupted_at_any_line_loses_nothing(flush: FlushDiskType, memory: Path) -> None:
    check_interrupted_ends(flush, ONE_IN, memory)
