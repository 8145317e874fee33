"""The sink with failures built in: the format ``commitlog_failing``, which takes one option more, ``plan``.

``plan`` is a file that ``Failure.plan`` writes. The commit that finds it removes it, so that the failure happens once,
in the process in which Spark commits. The calls are recorded in a file beside it: see ``told``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from commitlog_store.files import disk
from pyspark_commitlog import DefaultSource
from pyspark_commitlog.options.write import parse_stream_write_options
from pyspark_commitlog.sink.columns import check_sink_schema
from pyspark_commitlog.sink.commit import plan_write
from pyspark_commitlog.sink.writers import CommitLogStreamWriter, refuse_overwrite
from tests.support.disk_changes import CHANGES

if TYPE_CHECKING:
    import pyarrow as pa


FORMAT = "commitlog_failing"
_WRITES = ("write_at", "write_mapped")
_PAGE = 4096
_TAKES_A_DESCRIPTOR = ("allocate", "write_at", "sync", "truncate", "give_name", "punch_hole")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A failure in the commit of batch ``batch``, or in the first commit when that is -1.

    It happens at the ``turn``-th file operation, of those that match ``operation`` and ``path`` (a part of it):

    - ``exit``: the process dies.
    - ``half``: it dies within the operation, and only writes count.
    - ``error``: the operation fails with ``code``.
    - ``pause``: the commit waits for a file with the suffix ``go`` beside the plan.
    - ``zombie``: the same, and the driver's JVM is killed concurrently. It happens at the commit's end when
      that has fewer operations than ``turn``, as that of a batch that comes again.
    - ``after``: JVM and process are killed when all is done.
    - ``lose``: what was staged is gone when the commit begins.

    ``odd_aborts``: every abort comes several times, and with messages that mean nothing.
    """

    kind: str = ""
    batch: int = -1
    turn: int = 1
    operation: str = ""
    path: str = ""
    code: int = 0
    odd_aborts: bool = False

    def plan(self, path: Path) -> None:
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(asdict(self)))
        unfinished.rename(path)


def told(plan: Path) -> list[dict[str, Any]]:
    """The calls, in order: commits with the numbers of their operations and writes (when they returned), and aborts."""
    path = plan.with_suffix(".told")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class FailingSource(DefaultSource):
    """``commitlog`` under another name."""

    def __init__(self, options: dict[str, str]) -> None:
        DataSource.__init__(self, {name: text for name, text in options.items() if name != "plan"})
        self._plan = options["plan"]

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        refuse_overwrite(overwrite, streaming=True)
        options = parse_stream_write_options(self.options)
        columns = check_sink_schema(schema, topic=options.topic)
        return _FailingWriter(self._plan, plan_write(options, columns))


class _FailingWriter(CommitLogStreamWriter):
    def __init__(self, plan: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._plan = Path(plan)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """With a file ``twins`` beside the plan, every task runs twice, and Spark hears of one of the two."""
        if not self._plan.with_suffix(".twins").exists():
            return super().write(iterator)
        rows = list(iterator)
        first = super().write(iter(rows))
        second = super().write(iter(rows))
        return first if len(rows) % 2 else second

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        failure = self._planned(batchId)
        if failure.kind == "lose":
            for message in messages:
                staged = getattr(message, "staged", None)
                if staged is not None:
                    os.unlink(os.path.join(self._options.path, staged.path))
        if failure.kind in ("zombie", "after"):
            # The daemon hangs up on its children when its JVM is gone.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        operations = _Operations(failure, self._plan)
        self._tell(begun=batchId, messages=len(messages))
        with operations.watched():
            super().commit(messages, batchId)
        if failure.kind == "zombie" and operations.count < failure.turn:
            operations.live_on()
        if failure.kind == "after":
            operations.kill_driver()
            os._exit(17)
        self._tell(commit=batchId, operations=operations.count, writes=operations.writes)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._tell(abort=batchId, messages=len(messages), none=messages.count(None))
        super().abort(messages, batchId)
        if self._plan.with_suffix(".odd").exists():
            odd: list[list[WriterCommitMessage | None]] = [messages, [None, *messages, None], [None], []]
            for again in odd:
                super().abort(again, batchId)
            super().abort(messages, 10**9)

    def _planned(self, batch: int) -> Failure:
        try:
            failure = Failure(**json.loads(self._plan.read_text()))
        except FileNotFoundError:
            return Failure()
        if failure.batch not in (-1, batch):
            return Failure()
        self._plan.unlink()
        if failure.odd_aborts:
            self._plan.with_suffix(".odd").touch()
        return failure

    def _tell(self, **said: int) -> None:
        with self._plan.with_suffix(".told").open("a") as stream:
            stream.write(json.dumps(said) + "\n")


class _Operations:
    """Counts the operations of a commit, and lets one go wrong."""

    def __init__(self, failure: Failure, plan: Path) -> None:
        self.count = 0
        self.writes = 0
        self._failure = failure
        self._plan = plan
        self._turns = itertools.count(1)
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name in CHANGES:
                stack.enter_context(mock.patch.object(disk, name, self._watching(name, getattr(disk, name))))
            yield

    def _watching(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            # One at a time, so that nothing else happens once it went wrong.
            with self._lock:
                self.count += 1
                self.writes += name in _WRITES
                if self._is_it(name, arguments, named):
                    self._fail(name, real, arguments, named)
                return real(*arguments, **named)

        return call

    def _is_it(self, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
        failure = self._failure
        if failure.operation not in ("", name) or (failure.kind == "half" and name not in _WRITES):
            return False
        if failure.path and failure.path not in self._path(name, arguments, named):
            return False
        return next(self._turns) == failure.turn

    def _path(self, name: str, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str:
        """The file that the operation is for."""
        first = named.get("descriptor", arguments[0]) if name not in _TAKES_A_DESCRIPTOR else arguments[0]
        return os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else str(first)

    def _fail(self, name: str, real: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        kind = self._failure.kind
        if kind == "half":
            target, data, offset = arguments
            whole = memoryview(data).cast("B")
            # The kernel stops a write between two pages; a copy into a mapping stops anywhere.
            done = len(whole) // 2 if name == "write_mapped" else (offset + len(whole)) // _PAGE * _PAGE - offset
            if done > 0:
                real(target, whole[:done], offset, **named)
        if kind in ("exit", "half"):
            with self._plan.with_suffix(".exits").open("a") as stream:
                stream.write(f"{self.writes if kind == 'half' else self.count} {name}\n")
            os._exit(17)
        if kind == "error":
            with self._plan.with_suffix(".failed").open("a") as stream:
                stream.write(self._path(name, arguments, named) + "\n")
            # As the system says it: of a descriptor it does not know the name.
            file = None if isinstance(arguments[0], int) else arguments[0]
            raise OSError(self._failure.code, "as the test wants", file)
        if kind == "pause":
            self._pause()
        if kind == "zombie":
            self.live_on()

    def live_on(self) -> None:
        """Without a driver, from when the test says so."""
        self.kill_driver()
        self._pause()

    def _pause(self) -> None:
        unfinished = self._plan.with_suffix(".unfinished")
        unfinished.write_text(str(os.getpid()))
        unfinished.rename(self._plan.with_suffix(".paused"))
        while not self._plan.with_suffix(".go").exists():
            time.sleep(0.01)

    def kill_driver(self) -> None:
        """kill -9 of the JVM that started the daemon that started this process, and live on."""
        status = Path(f"/proc/{os.getppid()}/stat").read_text()
        os.kill(int(status.rpartition(")")[2].split()[1]), signal.SIGKILL)
