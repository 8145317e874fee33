"""Every file operation that changes something fails once, each in its turn: no promise is broken by it.

A sync that failed has lost what it was for: no later one brings it to the device. So after each run the store is opened
twice, as the kernel has it, and as a machine leaves it that stops then.
"""

from __future__ import annotations

import errno
import itertools
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig
from commitlog_store.errors import CommitLogError, DiskFull, StoreIOError
from commitlog_store.files import disk
from commitlog_store.message import PutMessageStatus
from commitlog_store.testing import parts_of
from tests.crash.simulated_disk import CrashImages, RecordingDisk, log_is_not_mapped
from tests.crash.stored_messages import check_store, log_records
from tests.crash.workloads import small_config
from tests.support.long_runs import ONE_IN, TURN
from tests.support.waiting import wait_for

CHANGING = ("write_at", "sync", "allocate", "create_file", "create_unnamed_file")
NAMING = ("rename", "unlink", "truncate", "sync_directory", "make_directory", "give_name", "punch_hole")
FAILING = [(name, errno.EIO) for name in (*CHANGING, *NAMING)] + [(name, errno.ENOSPC) for name in CHANGING]
_FIRST_ARGUMENT_IS_A_DESCRIPTOR = ("write_at", "sync", "allocate", "truncate", "give_name", "punch_hole")


class Fault:
    """Lets the k-th call of one operation fail, once."""

    def __init__(self, operation: str, turn: int, code: int, recorder: RecordingDisk) -> None:
        self.operation = operation
        self.happened = False
        # Files that are made ahead of need may fail to be made: they are made again when they are needed.
        self.ahead = False
        self._recorder = recorder
        self.path = ""
        self._turn = turn
        self._code = code
        self._calls = itertools.count(1)
        self._lock = threading.Lock()

    @contextmanager
    def armed(self) -> Iterator[None]:
        real: Callable[..., Any] = getattr(disk, self.operation)

        def call(*arguments: Any, **named: Any) -> Any:
            with self._lock:
                failing = next(self._calls) == self._turn
            if failing:
                self.path = self._path_of(arguments[0])
                self.ahead = threading.current_thread().name == "AllocateMappedFileService"
                self.happened = True
                if self.operation == "sync":
                    self._recorder.sync_failed(arguments[0])
                # As the system says it: of a descriptor it does not know the name.
                name = None if isinstance(arguments[0], int) else arguments[0]
                raise OSError(self._code, f"injected into {self.operation}", name)
            return real(*arguments, **named)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(disk, self.operation, call)
            yield

    def _path_of(self, argument: int | str) -> str:
        if self.operation in _FIRST_ARGUMENT_IS_A_DESCRIPTOR:
            return str(Path(f"/proc/self/fd/{argument}").readlink())
        return str(argument)

    @property
    def waits(self) -> bool:
        """Whether it is one that dispatch waits out: no space for a queue or the index, which the log has anyway."""
        if not self.happened or self._code != errno.ENOSPC or self.operation == "sync":
            return False
        # An index file that is being made is made again, as space is allocated again; what a failed write left in one
        # is unknown.
        again = self.half_made or self.operation == "allocate"
        return "/consumequeue/" in self.path or ("/index" in self.path and again)

    @property
    def refuses(self) -> bool:
        """Whether a put is refused for want of space in the log, and the next one may find some."""
        return self.operation == "allocate" and self._code == errno.ENOSPC and "/commitlog" in self.path

    @property
    def half_made(self) -> bool:
        """Whether it concerns a file that is being made, which has another name or none."""
        unnamed = self.operation == "create_unnamed_file" or self.path.endswith(" (deleted)")
        return unnamed or self.path.endswith(".tmp")

    def is_named_in(self, text: str) -> bool:
        """Whether a text says which file it was; the directory's or the final file's name will do."""
        path = self.path.removesuffix(".tmp").removesuffix(" (deleted)")
        return path in text or str(Path(path).parent) in text


class Outcome:
    """What a run observed: the puts that were acknowledged, the failures and errors in order."""

    def __init__(self) -> None:
        self.acknowledged: list[tuple[int, bytes]] = []
        self.reasons: list[str] = []
        self.errors: list[CommitLogError] = []
        self.ok_after_failure = 0
        self.failed = False

    def put(self, result: Any, bodies: list[bytes]) -> None:
        if result.ok:
            self.acknowledged.append((result.physical_offset, bodies[0]))
            self.ok_after_failure += self.failed
        else:
            self.note(result.status, result.reason)

    def note(self, status: PutMessageStatus, reason: str) -> None:
        self.reasons.append(reason)
        # Nothing was written when the disk had no space for a file; the next put may find some. Nothing is lost while
        # dispatch waits for space.
        no_room = status is PutMessageStatus.CREATE_MAPEDFILE_FAILED or "once there is space" in reason
        # The list of topics is written whole by the next put of a new topic, and nothing else was written.
        self.failed |= not (no_room or "cannot be listed for consumers" in reason)


def run(path: Path, config: MessageStoreConfig, fault: Fault, puts: int) -> Outcome:
    """Open, put, flush, close: whatever fails, only errors of this package come out."""
    outcome = Outcome()
    try:
        store = MessageStore.open(path, config)
    except CommitLogError as error:
        outcome.errors.append(error)
        return outcome
    for number in range(puts):
        body = f"{number:03d}".encode() * 100
        message = Message(topic=f"topic-{number % 2}", body=body, keys=[f"key-{number}"], queue_id=number % 2)
        outcome.put(store.put_message(message), [body])
        if number == 6:
            _try(store.flush, outcome)
            if fault.waits:
                wait_for(lambda: store.writable)
        if number == 10:
            _put_table(store, outcome)
    _try(store.flush, outcome)
    if fault.waits:
        store.dispatch()  # space is available again
    body = b"the last one"
    outcome.put(store.put_message(Message(queue_id=0, topic="topic-0", body=body, keys=["last"])), [body])
    # The lock file's content is never read, and a file that is half made is removed at the next chance.
    spared = fault.ahead or fault.half_made or fault.path.endswith("lock") or fault.waits or fault.refuses
    # The list of topics is written again before the next message that needs it; a file that cannot be settled says
    # nothing, and where it cannot be unsettled, dispatch tries again.
    must_fail = fault.happened and not spared and not fault.path.endswith(("config", "settled"))
    _try(store.close, outcome)
    assert parts_of(store).engine.state.failure is not None or not must_fail, (
        f"{fault.operation} at {fault.path} halted nothing"
    )
    return outcome


def _put_table(store: MessageStore, outcome: Outcome) -> None:
    bodies = [f"row {number}".encode() * 30 for number in range(10)]
    result = store.put_messages(pa.table({"body": bodies}), topic="tables")
    rows = result.rows.to_pylist()
    for row, body in zip(rows, bodies, strict=True):
        if row["status"] == "PUT_OK":
            outcome.acknowledged.append((row["physicalOffset"], body))
            outcome.ok_after_failure += outcome.failed
    if not result.ok:
        outcome.note(result.status, result.reason)


def _try(call: Callable[[], None], outcome: Outcome) -> None:
    try:
        call()
    except CommitLogError as error:
        outcome.errors.append(error)
        outcome.failed |= not (isinstance(error, StoreIOError | DiskFull) and error.errno == errno.ENOSPC)


def left_by_an_owner(path: Path, config: MessageStoreConfig) -> None:
    """A store in which an owner was interrupted: its end is torn, and a file follows it."""
    with MessageStore.open(path, config) as store:
        for number in range(12):
            store.put_message(
                Message(queue_id=0, topic="topic-0", body=b"old" * 200, keys=[f"old-{number}"])
            ).raise_for_status()
        end = store.physical_bounds()[1]
    log = sorted((path / "commitlog").iterdir())
    last = max(file for file in log if int(file.name) < end)
    with open(last, "r+b") as stream:
        stream.seek(end - int(last.name))
        stream.write(b"torn" * 10)
    (path / "abort").touch()


def check_failing(
    begin: str, flush: FlushDiskType, operation: str, code: int, turns: Iterator[int], memory: Path
) -> None:
    """Run once with each of these calls failing, until none is left."""
    config = small_config(flush, log_size=8 << 10)
    if begin == "crashed":
        left_by_an_owner(memory / "begin", config)
    for turn in turns:
        root = memory / f"run-{turn}"
        root.mkdir()
        path = root / "store"
        if begin == "crashed":
            shutil.copytree(memory / "begin", path)
        recorder = RecordingDisk(root)
        fault = Fault(operation, turn, code, recorder)
        with recorder.recording(), fault.armed(), log_is_not_mapped():
            outcome = run(path, config, fault, puts=2 if begin == "crashed" else 14)
        where = f"call {turn} of {operation}, at {fault.path}"
        check_outcome(outcome, fault, code, where)
        crashes = CrashImages(recorder)
        crashes.advance(recorder.now)
        crashes.write(memory / "stopped", random.Random(f"{flush}/{where}"))
        check_reopened(path, config, outcome.acknowledged, where)
        safe = outcome.acknowledged if flush is FlushDiskType.SYNC_FLUSH else []
        check_reopened(memory / "stopped" / "store", config, safe, f"{where}, then the machine stopped")
        shutil.rmtree(root)
        if not fault.happened:
            assert not outcome.errors
            assert not outcome.reasons
            return


def in_each_case(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test with each kind of call that fails, on each kind of store."""
    for mark in (
        pytest.mark.parametrize(("operation", "code"), FAILING, ids=lambda value: errno.errorcode.get(value, value)),
        pytest.mark.parametrize("flush", list(FlushDiskType), ids=lambda flush: flush.value),
        pytest.mark.parametrize("begin", ["new", "crashed"]),
    ):
        test = mark(test)
    return test


@in_each_case
def test_a_failing_call_breaks_no_promise(
    begin: str, flush: FlushDiskType, operation: str, code: int, memory: Path
) -> None:
    """One call in 16, one in 32 where there are most: other ones on each of the four kinds of store."""
    kind = (begin == "crashed") + 2 * (flush is FlushDiskType.SYNC_FLUSH)
    if operation in ("write_at", "sync"):
        turns = itertools.count(1 + 8 * kind + 4 * (code == errno.ENOSPC), 32)
    else:
        step = 4 if operation in ("unlink", "rename", "punch_hole") else 16
        turns = itertools.count(1 + kind * step // 4, step)
    check_failing(begin, flush, operation, code, turns, memory)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@in_each_case
def test_each_failing_call_breaks_no_promise(
    begin: str, flush: FlushDiskType, operation: str, code: int, memory: Path
) -> None:
    check_failing(begin, flush, operation, code, itertools.count(1 + TURN, ONE_IN), memory)


def check_outcome(outcome: Outcome, fault: Fault, code: int, where: str) -> None:
    told = [*outcome.reasons, *map(str, outcome.errors)]
    if told:
        assert fault.happened, told
        assert fault.is_named_in(told[0]), f"{where}: {told[0]}"
    assert not outcome.ok_after_failure, f"{where}: a put was acknowledged after a failure (invariant 2): {told}"
    if code == errno.EIO:
        assert not any(isinstance(error, DiskFull) for error in outcome.errors), where


def check_reopened(path: Path, config: MessageStoreConfig, safe: list[tuple[int, bytes]], where: str) -> None:
    """Without faults everything acknowledged is there, in order, and the store works."""
    try:
        with MessageStore.open(path, config) as store:
            there = log_records(path)
            check_store(path, there)
            assert store.put_message(Message(topic="topic-1", body=b"after", queue_id=1)).ok
        check_store(path, log_records(path))
    except Exception as error:
        raise AssertionError(where) from error
    bodies = {record.physical_offset: record.body for record in there}
    assert all(bodies.get(place) == body for place, body in safe), f"{where}: acknowledged and lost"
