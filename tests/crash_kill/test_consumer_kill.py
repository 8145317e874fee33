"""kill -9 of a consumer, again and again: nothing is lost; with positions in transactions, nothing is repeated."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageStore, StoreReader
from tests.crash_kill.consumer_program import CONFIG
from tests.support import quick_programs
from tests.support.source_tree import PROJECT

MESSAGES = 3_000
QUEUES = 3


@pytest.mark.parametrize("how", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize(
    "kills", [2, pytest.param(40, marks=[pytest.mark.stress, pytest.mark.timeout(1_800)])], ids=["few", "many"]
)
def test_killed_consumers_lose_nothing(tmp_path: Path, how: str, kills: int) -> None:
    path = tmp_path / "store"
    with MessageStore.open(path, CONFIG) as store:
        rows = {
            "topic": ["in"] * MESSAGES,
            "queueId": pa.array([number % QUEUES for number in range(MESSAGES)], pa.int32()),
            "body": [b"%d" % number for number in range(MESSAGES)],
        }
        store.put_messages(pa.table(rows)).raise_for_status()
    source = random.Random(how)
    for _ in range(kills):
        run(path, how, kill_after=source.randint(1, MESSAGES // 50 // (kills + 1) + 1))
    run(path, how, kill_after=None)
    copies = Counter(bodies(path))
    assert set(copies) == set(range(MESSAGES)), "nothing is lost"
    if how == "exactly-once":
        assert set(copies.values()) == {1}, "nothing is repeated"


def run(path: Path, how: str, *, kill_after: int | None) -> None:
    """Run the program, and kill it after so many steps, wherever it is by then."""
    command = [sys.executable, "-m", "tests.crash_kill.consumer_program", str(path), how]
    with quick_programs.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = ""
        for steps, line in enumerate(process.stdout, 1):
            if kill_after is not None and steps >= kill_after:
                process.kill()
                return
            last = line
    assert (process.returncode, last) == (0, "done\n")


def bodies(path: Path) -> list[int]:
    with StoreReader.open(path) as reader:
        return [
            int(body)
            for queue in reader.queues("out")
            for batch in reader.read("out", queue.queue_id, 0, columns=["body"])
            for body in batch.column("body").to_pylist()
        ]
