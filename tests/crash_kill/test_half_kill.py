"""``kill -9`` of processes that prepare, commit, roll back and check half messages: each ends once, none is lost."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from commitlog_store import MessageStore, MessageStoreConfig
from tests.crash_kill.half_writer import TOPIC
from tests.crash_kill.writer import SMALL
from tests.support import quick_programs
from tests.support.clean_store import assert_clean
from tests.support.stored_bodies import topic_bodies

PROJECT = Path(__file__).resolve().parents[2]


def killed(path: Path, round_: int, lines: int) -> list[tuple[str, str]]:
    """What a process said that was killed after so many lines."""
    command = [sys.executable, "-m", "tests.crash_kill.half_writer", str(path), str(round_)]
    with quick_programs.Popen(command, stdout=subprocess.PIPE, cwd=PROJECT, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        said += process.stdout.readlines()
    assert all(said), "the process ended on its own"
    return [(how, body) for how, _, body in (line.rstrip("\n").partition(" ") for line in said if line.endswith("\n"))]


def check_kills(path: Path, rounds: int, seed: str) -> None:
    chance = random.Random(seed)
    said: list[tuple[str, str]] = []
    for round_ in range(rounds):
        said += killed(path, round_, chance.randrange(1, 30))
        with MessageStore.open(path, MessageStoreConfig(**SMALL)) as store:  # type: ignore[arg-type]
            pending = Counter(one.message.body.decode() for one in store.half_messages.pending())
            store.dispatch()
        seen = Counter(body.decode() for body in topic_bodies(path, TOPIC))
        assert max((seen + pending).values(), default=0) <= 1, "seen twice, or seen and pending"
        ended = {body: how for how, body in said if how != "prepared"}
        for how, body in said:
            if how == "commit":
                assert seen[body] == 1, body
            elif how == "rollback":
                assert not (seen + pending)[body], body
            elif body not in ended and not (seen + pending)[body]:
                # The kill came while its rollback was on its way: one a process.
                assert body == [one for kind, one in said if kind == "prepared" and _round(one) == _round(body)][-1]
    assert_clean(path)


def _round(body: str) -> str:
    return body.partition(":")[0]


def test_a_killed_process_leaves_each_half_message_pending_or_ended_once(tmp_path: Path) -> None:
    check_kills(tmp_path / "store", 3, "kills")


@pytest.mark.stress
def test_killed_processes_leave_each_half_message_pending_or_ended_once(tmp_path: Path) -> None:
    check_kills(tmp_path / "store", 15, "many kills")
