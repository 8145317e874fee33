"""``kill -9`` of a writing process, again and again on one store: process death loses nothing that was acknowledged."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader
from tests.crash_kill.writer import QUEUES, TOPIC, body_of
from tests.support import quick_programs
from tests.support.clean_store import assert_clean
from tests.support.readable import readable
from tests.support.waiting import WAIT_LIMIT_S

PROJECT = Path(__file__).resolve().parents[2]
# Queue, queue offset, count, name of the first body, message id.
Acknowledged = tuple[int, int, int, str, str]


class Killer:
    """Starts writers on one store, one after the other, and kills each at a random moment."""

    def __init__(self, path: Path, flush: str, seed: int) -> None:
        self._path = path
        self._flush = flush
        self._chance = random.Random(seed)
        self.acknowledged: list[Acknowledged] = []
        self.opened = 0
        # The puts that the writers were left time for, at least, however slow the machine is.
        self.awaited = 0

    def kill_one(self, round_: int) -> None:
        """One writer: killed after it has opened the store, mostly while it writes."""
        command = [sys.executable, "-m", "tests.crash_kill.writer", self._flush, str(self._path), str(round_)]
        process = quick_programs.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PROJECT)
        assert process.stdout is not None
        assert process.stderr is not None
        puts = self._chance.choice([0, 0, 1, 3, 10, 30])
        after = self._chance.choice([0.0, 0.001, 0.01, 0.05]) * self._chance.random()
        lines = b""
        while lines.count(b"\n") < 2 + puts:  # it is open, and has put so often
            assert readable(process.stdout, WAIT_LIMIT_S)
            data = os.read(process.stdout.fileno(), 1 << 16)
            assert data, f"round {round_} ended: {process.stderr.read().decode()}"
            lines += data
        self.awaited += puts
        time_to_write = time.monotonic() + after
        while (left := time_to_write - time.monotonic()) > 0:
            if readable(process.stdout, left):
                lines += os.read(process.stdout.fileno(), 1 << 16)
        process.send_signal(signal.SIGKILL)
        with process:
            lines += process.stdout.read()
            failure = process.stderr.read().decode()
        assert process.returncode == -signal.SIGKILL, f"round {round_}: {failure}"
        assert "Traceback" not in failure, f"round {round_}: {failure}"
        self._note(lines)

    def _note(self, output: bytes) -> None:
        whole = output[: output.rfind(b"\n") + 1].decode().splitlines()
        self.opened += output.startswith(b"opening\nopen\n")
        for line in whole[2:]:
            queue_id, offset, count, name, message_id = line.split()
            self.acknowledged.append((int(queue_id), int(offset), int(count), name, message_id))


def _kill_while_opening(path: Path, flush: str, round_: int, seconds: float) -> None:
    """A writer that is killed some time after it has begun to open the store: recovering, or writing."""
    command = [sys.executable, "-m", "tests.crash_kill.writer", flush, str(path), str(round_)]
    with quick_programs.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PROJECT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"opening\n"
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        assert process.stderr is not None
        failure = process.stderr.read().decode()
    assert "Traceback" not in failure, failure


def _check(path: Path, acknowledged: list[Acknowledged], *, whole: bool) -> None:
    """Every queue counts without a gap, in each writer's order, and holds what was acknowledged where it was."""
    with StoreReader.open(path) as reader:
        found: dict[int, list[bytes]] = {}
        for queue_id in reader.queue_ids(TOPIC):
            batches = reader.read(TOPIC, queue_id, 0, columns=["queueOffset", "body"], verify_crc=True)
            rows = [row for batch in batches for row in batch.to_pylist()]
            assert [row["queueOffset"] for row in rows] == list(range(len(rows))), "contiguous"
            found[queue_id] = [row["body"] for row in rows]
        for queue_id, offset, count, name, message_id in acknowledged:
            round_, number = map(int, name.split(":"))
            wanted = [body_of(round_, number + at) for at in range(count)]
            assert found[queue_id][offset : offset + count] == wanted, f"queue {queue_id}, offset {offset}: {name}"
            if message_id != "-":
                assert reader.message_by_id(message_id).body == wanted[0]
        places = {}
        for queue_id, bodies in found.items():
            order = [tuple(map(int, body.split(b":")[:2])) for body in bodies]
            assert len(set(order)) == len(order), "each message once"
            numbers: dict[int, list[int]] = {}
            for round_, number in order:
                numbers.setdefault(round_, []).append(number)
            assert all(ordered == sorted(ordered) for ordered in numbers.values())
            assert list(numbers) == sorted(numbers), "rounds one after the other"
            places[queue_id] = len(order)
        assert set(found) <= set(range(QUEUES))
        if whole:
            hits = reader.query(TOPIC, "k", limit=10**6)
            assert len(hits) == sum(places.values()), "the index finds every message, and each once"
    if whole:
        assert_clean(path)


def _run(tmp_path: Path, flush: str, kills: int, seed: int) -> None:
    path = tmp_path / "store"
    killer = Killer(path, flush, seed)
    since_last = 0
    for round_ in range(kills):
        killer.kill_one(round_)
        if round_ % 5 == 4:
            with MessageStore.open(path, accept_lost_log=False) as store:
                assert store.recovered is not None
                # What older rounds left was checked already; bounds keep the check from growing with the store.
                _check(path, killer.acknowledged[since_last:], whole=False)
            since_last = len(killer.acknowledged)
    assert killer.opened == kills
    with MessageStore.open(path) as store:
        store.dispatch()
        _check(path, killer.acknowledged, whole=True)
    assert len(killer.acknowledged) >= killer.awaited > kills, "they wrote something before they were killed"


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_killed_writers_lose_nothing_that_was_acknowledged(tmp_path: Path, flush: str) -> None:
    _run(tmp_path, flush, 6, seed=10)


@pytest.mark.parametrize("rounds", [6, pytest.param(90, marks=pytest.mark.stress)])
def test_writers_killed_while_they_open_the_store_leave_it_whole(tmp_path: Path, rounds: int) -> None:
    """Recovery may itself be cut short anywhere, and starts again from what it left."""
    path = tmp_path / "store"
    killer = Killer(path, "ASYNC_FLUSH", seed=10)
    chance = random.Random(10)
    for round_ in range(0, rounds, 3):
        killer.kill_one(round_)
        for again in (1, 2):
            _kill_while_opening(path, "ASYNC_FLUSH", round_ + again, chance.random() * 0.1)
    with MessageStore.open(path) as store:
        store.dispatch()
        _check(path, killer.acknowledged, whole=True)
    assert len(killer.acknowledged) >= killer.awaited > 0


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_thousand_killed_writers_lose_nothing_that_was_acknowledged(tmp_path: Path, flush: str, seed: int) -> None:
    _run(tmp_path, flush, 60, seed=100 + seed)
