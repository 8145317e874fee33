"""``kill -9`` of processes that commit batches: each batch is stored exactly once, and no reader sees a part of one."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from tests.crash_kill.batch_writer import APP, QUEUES, SMALL, TOPIC, bodies_of, ends_after
from tests.support import quick_programs
from tests.support.clean_store import assert_clean
from tests.support.readable import readable
from tests.support.waiting import WAIT_LIMIT_S

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "tests.crash_kill.batch_writer"]
CONFIG = MessageStoreConfig(**SMALL)  # type: ignore[arg-type]


class Writers:
    """Starts writers on one store, one after the other, and kills each at a random moment."""

    def __init__(self, path: Path, flush: str, seed: int) -> None:
        self._path = path
        self._flush = flush
        self._chance = random.Random(seed)
        self._process = quick_programs.Popen(
            [*COMMAND, "write"], stdin=-1, stdout=-1, stderr=-1, cwd=PROJECT, bufsize=0
        )
        self._output = b""
        self.acknowledged = 0
        self.opened = 0

    def _line(self, timeout: float = WAIT_LIMIT_S) -> str | None:
        """The next line; None when none comes in time."""
        assert self._process.stdout is not None
        until = time.monotonic() + timeout
        while b"\n" not in self._output:
            if not readable(self._process.stdout, max(until - time.monotonic(), 0)):
                return None
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            assert data, "the process that starts writers is gone"
            self._output += data
        line, self._output = self._output.split(b"\n", 1)
        return line.decode()

    def kill_one(self) -> None:
        """One writer, which begins with the version that was not acknowledged, killed wherever it is."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self._flush} {self.acknowledged + 1} {self._path}\n".encode())
        child = int(self._line() or 0)
        # Some are killed while they open the store, most after that and so many commits.
        for _ in range(self._chance.choice([0, 0, 1, 2, 3, 5, 9])):
            self._note(self._line())
        until = time.monotonic() + self._chance.choice([0.001, 0.01, 0.04]) * self._chance.random()
        while (left := until - time.monotonic()) > 0:
            self._note(self._line(left))
        os.kill(child, signal.SIGKILL)
        while (line := self._line()) != "gone":
            self._note(line)

    def _note(self, line: str | None) -> None:
        assert line != "gone", "the writer has ended by itself"
        if line == "open":
            self.opened += 1
        elif line and line.isdigit() and int(line) == self.acknowledged + 1:
            self.acknowledged += 1

    def close(self) -> None:
        _, failure = self._process.communicate(timeout=WAIT_LIMIT_S)
        assert b"Traceback" not in failure, failure.decode()


@contextmanager
def watched(path: Path) -> Iterator[Callable[[], int]]:
    """A reader runs beside: waits for a look of its that begins now; how many different ends it has seen by then."""
    with quick_programs.Popen([*COMMAND, "read", str(path)], stdin=-1, stdout=-1, stderr=-1, cwd=PROJECT) as reader:

        def look() -> int:
            assert reader.stdin is not None
            assert reader.stdout is not None
            reader.stdin.write(b"\n")
            reader.stdin.flush()
            return int(reader.stdout.readline() or -1)

        try:
            yield look
        finally:
            _, failure = reader.communicate(timeout=WAIT_LIMIT_S)
        assert reader.returncode == 0, failure.decode()


def check(path: Path, acknowledged: int) -> None:
    """Each batch once, in their order; those that were acknowledged, and perhaps the one that was under way."""
    with StoreReader.open(path) as reader:
        there = {info.queue_id: info.max_offset for info in reader.queues(TOPIC)}
        ends = tuple(there.get(queue_id, 0) for queue_id in range(QUEUES))
        batches = next(number for number, bound in enumerate(ends_after()) if bound == ends or bound > ends)
        assert next(islice(ends_after(), batches, None)) == ends, "they end with a batch"
        assert batches in (acknowledged, acknowledged + 1)
        for queue_id in there:
            found = [
                body
                for rows in reader.read(TOPIC, queue_id, 0, columns=["body"], verify_crc=True)
                for body in rows.column("body").to_pylist()
            ]
            wanted = [body for version in range(1, batches + 1) for body in bodies_of(version)[queue_id::QUEUES]]
            assert found == wanted, f"queue {queue_id}"
    assert_clean(path)


def run(tmp_path: Path, flush: str, kills: int, seed: int) -> None:
    path = tmp_path / "store"
    MessageStore.open(path, CONFIG).close()
    writers = Writers(path, flush, seed)
    with watched(path) as look:
        for _ in range(kills):
            writers.kill_one()
            look()
        with MessageStore.open(path, CONFIG) as store:
            store.dispatch()
            assert [one.batch.app_id for one in store.batches()] == [APP]
        assert look() > 3, "the reader saw batches come"
    writers.close()
    check(path, writers.acknowledged)
    assert writers.opened > kills // 2
    assert writers.acknowledged > kills


@pytest.mark.parametrize(("flush", "seed"), [("SYNC_FLUSH", 1), ("ASYNC_FLUSH", 2)])
def test_killed_writers_leave_each_batch_once_and_readers_see_whole_ones(tmp_path: Path, flush: str, seed: int) -> None:
    run(tmp_path, flush, 8, seed)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 104))
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_thousand_killed_writers_leave_each_batch_exactly_once(tmp_path: Path, flush: str, seed: int) -> None:
    run(tmp_path, flush, 130, seed)
