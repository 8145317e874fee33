"""``commitlog schedule ls``, and what ``info`` says about delayed messages."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commitlog_store import StoreReader
from commitlog_store.cli.app import app
from commitlog_store.delayed.levels import DelayOffsetFile
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.testing import parts_of
from tests.store.owner.owned_store import open_store
from tests.support.delayed import delayed, timer_of


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(tmp_path, schedule_enable=False) as opened:
        for level in (3, 3, 3, 18):
            assert opened.put_message(delayed(b"x", level)).ok
    DelayOffsetFile(str(tmp_path)).write({3: 1})
    return tmp_path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_levels_are_listed_with_what_waits(store: Path) -> None:
    rows = [json.loads(line) for line in run("schedule", "ls", store, "--json").splitlines()]
    shown = [(row["level"], row["delaySeconds"], row["waiting"], row["position"], row["maxOffset"]) for row in rows]
    assert shown == [(3, 10, 2, 1, 3), (18, 7200, 1, 0, 1)]
    assert all(row["oldest"] < row["nextDue"] for row in rows)
    heading, *lines = run("schedule", "ls", store).splitlines()
    assert heading.split() == [
        "level", "delaySeconds", "waiting", "nextDue", "oldest", "position", "minOffset", "maxOffset"
    ]  # fmt: skip
    assert len(lines) == 2


@pytest.mark.parametrize("tags_code", [3433164, -(2**63) + 5], ids=["hash code", "address in consumequeue_ext"])
def test_a_unit_without_a_time_of_delivery_shows_none(store: Path, tags_code: int) -> None:
    """RocketMQ 4 writes the first while it recovers, and the second with enableConsumeQueueExt."""
    with open(store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / "17" / f"{0:020d}", "r+b") as units:
        units.seek(UNIT_SIZE - 8)
        units.write(tags_code.to_bytes(8, "big", signed=True))
    row = json.loads(run("schedule", "ls", store, "--json").splitlines()[-1])
    assert (row["level"], row["waiting"], row["nextDue"], row["delaySeconds"]) == (18, 1, None, None)
    assert (row["oldest"] is not None, row["overdueMs"]) == (True, None)


HOUR_MS = 3_600_000


def make_due(store: Path, level: int, offset: int, ago_ms: int) -> None:
    """Let a delayed message have been due some time ago."""
    with open(store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / str(level - 1) / f"{0:020d}", "r+b") as units:
        units.seek(UNIT_SIZE * (offset + 1) - 8)
        units.write((time.time_ns() // 1_000_000 - ago_ms).to_bytes(8, "big", signed=True))


def test_overdue_messages_are_named_with_their_delay(store: Path) -> None:
    make_due(store, 3, 1, 3 * HOUR_MS + 12 * 60_000 + 5_000)
    shown = run("schedule", "ls", store)
    assert shown.splitlines()[-1] == "Level 3 is overdue by 3 h 12 min."
    late, other = (json.loads(line)["overdueMs"] for line in run("schedule", "ls", store, "--json").splitlines())
    assert (late // 60_000, other) == (3 * 60 + 12, 0)
    assert "3 delayed messages waiting, to be delivered by the owner, overdue by 3 h 12 min" in run("info", store)
    assert json.loads(run("info", store, "--json"))["delayedOverdueMs"] // 60_000 == 3 * 60 + 12


def test_what_a_live_broker_may_have_delivered_is_not_overdue(store: Path) -> None:
    """It notes its positions every 10 seconds."""
    make_due(store, 3, 1, 10_000)
    assert "overdue" not in run("schedule", "ls", store)
    assert "overdue" not in run("info", store)


def test_a_store_without_delayed_messages_has_no_levels(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    assert run("schedule", "ls", tmp_path, "--json") == ""


def test_info_says_who_delivers_and_names_a_timer_wheel(store: Path) -> None:
    assert "3 delayed messages waiting, to be delivered by the owner" in run("info", store)
    (store / "timerwheel").write_bytes(b"")
    text = run("info", store)
    assert "to be delivered by a broker, as shown by the timer wheel" in text
    assert "timer wheel of RocketMQ 5 (timerwheel, timerlog): left to the broker" in text
    found = json.loads(run("info", store, "--json"))
    assert (found["delayedWaiting"], found["timerWheel"]) == (3, True)


def test_timer_messages_are_a_row_of_their_own(tmp_path: Path) -> None:
    due = time.time_ns() // 1_000_000 + HOUR_MS
    with open_store(tmp_path, schedule_enable=False) as opened:
        opened.put_message(delayed(b"x", 3))
        for ahead in (5_000, 0, 9_000):
            opened.put("orders", b"x", deliver_at=due + ahead)
        opened.dispatch()
        deliverer = timer_of(opened)
        deliverer.now = (due + 5_000) / 1000
        while deliverer.step() == 0:
            pass
        # Beside a live owner, before and after its checkpoint counts the message.
        for _ in range(2):
            timer, level = (json.loads(line) for line in run("schedule", "ls", tmp_path, "--json").splitlines())
            assert (timer["level"], timer["waiting"], timer["position"], timer["maxOffset"]) == (0, 1, 2, 3)
            assert (level["level"], level["waiting"]) == (3, 1)
            parts_of(opened).engine.run(deliverer.service._save_flushed)
    assert run("schedule", "ls", tmp_path).splitlines()[1].split()[:3] == ["timer", "-", "1"]
    with StoreReader.open(tmp_path) as reader:
        waiting = reader.waiting_timers()
        assert waiting["deliverAt"].cast("int64").to_pylist() == [due + 9_000]
        assert reader.message_at(waiting["physicalOffset"][0].as_py()).properties["REAL_TOPIC"] == "orders"
    assert "2 delayed ones that wait" in run("topics", "rm", tmp_path, "orders", "--with-messages", "--dry-run")


def test_timer_messages_that_no_one_delivers_are_overdue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path, schedule_enable=False) as opened:
        opened.put("orders", b"x", deliver_at=time.time_ns() // 1_000_000 + 1_000)
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + 17 * 10**9)
    assert re.search(r"Timer messages are overdue by 1[5-9] s", run("schedule", "ls", tmp_path))
    assert "1 delayed message waiting, to be delivered by the owner, overdue" in run("info", tmp_path)
