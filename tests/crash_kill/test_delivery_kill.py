"""``kill -9`` of processes that deliver delayed messages: each message reaches its topic exactly once."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from commitlog_store import MessageStore
from tests.crash_kill.delayed_writer import config
from tests.support import quick_programs
from tests.support.clean_store import assert_clean
from tests.support.delayed import bodies_of
from tests.support.waiting import wait_for

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "tests.crash_kill.delayed_writer"]


def _kill_one(path: Path, flush: str, first: int, lines: int) -> int:
    """Let a writer put so many messages, kill it, and return the number after the last that it said."""
    command = [*COMMAND, str(path), flush, str(first)]
    with quick_programs.Popen(command, stdout=subprocess.PIPE, cwd=PROJECT, text=True) as writer:
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(lines)]
        writer.kill()
        said += [int(line) for line in writer.stdout if line.endswith("\n")]
    return max(said) + 1


def run(path: Path, flush: str, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    following = 0
    for _ in range(kills):
        # One number more: the message that was under way may be stored.
        following = _kill_one(path, flush, following, chance.randrange(1, 300)) + 1
    with MessageStore.open(path, config(flush)) as store:
        store.dispatch()
        with store.reader() as reader:
            wait_for(lambda: not any(level.waiting for level in reader.delay_levels()))
    found = Counter(bodies_of(str(path)))
    assert found == Counter(bodies_of(str(path), "SCHEDULE_TOPIC_XXXX"))
    assert set(found.values()) == {1}
    assert len(found) >= following - kills
    assert_clean(path)


@pytest.mark.parametrize(("flush", "seed"), [("SYNC_FLUSH", 1), ("ASYNC_FLUSH", 2)])
def test_killed_owners_deliver_each_message_exactly_once(tmp_path: Path, flush: str, seed: int) -> None:
    run(tmp_path / "store", flush, 3, seed)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_many_killed_owners_deliver_each_message_exactly_once(tmp_path: Path, flush: str) -> None:
    run(tmp_path / "store", flush, 60, 100)
