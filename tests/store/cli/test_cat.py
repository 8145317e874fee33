"""``commitlog cat``: every message, as text that cannot harm, and as JSON."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import numpy as np
import pytest

from commitlog_store.format.consume_queue_unit import UNIT_FILE_DTYPE
from tests.store.cli.commands import COUNTS, EXPECTED, SCRIPT, ended, iso, lines, run
from tests.support import quick_programs
from tests.support.store_builder import StoreBuilder
from tests.support.waiting import WAIT_LIMIT_S


@pytest.mark.parametrize("topic", sorted(COUNTS))
def test_cat_prints_every_message_of_a_topic_in_the_order_of_the_log(golden_533: Path, topic: str) -> None:
    found = lines("cat", golden_533, topic, "--json")
    expected = sorted((m for m in EXPECTED["message"] if m["topic"] == topic), key=lambda m: m["physicalOffset"])
    assert [row["physicalOffset"] for row in found] == [m["physicalOffset"] for m in expected]
    for row, message in zip(found, expected, strict=True):
        for name in ("topic", "queueId", "queueOffset", "msgId", "bornHost", "properties"):
            assert row[name] == message[name]
        assert row["storeTimestamp"] == iso(message["storeTimestamp"])
        assert row["bornTimestamp"] == iso(message["bornTimestamp"])
        assert (row["tags"], row["keys"]) == (message.get("tags"), message.get("keys"))
        body = row["body"].encode() if "body" in row else base64.b64decode(row["bodyBase64"])
        if topic == "packed":
            assert body == f"compressed body {message['keys'].removeprefix('z')} ".encode() * 400
        else:
            assert body == base64.b64decode(message["body"])


def test_cat_for_people_has_a_line_a_message(golden_533: Path) -> None:
    text = run("cat", golden_533, "orders", "-q", "2", "-n", "3").splitlines()
    messages = [m for m in EXPECTED["message"] if (m["topic"], m["queueId"]) == ("orders", 2)][:3]
    assert [line.split("\t")[:2] for line in text] == [
        [iso(m["storeTimestamp"]), f"orders/2@{m['queueOffset']}"] for m in messages
    ]
    assert run("cat", golden_533, "orders", "-n", "0") == ""


def test_cat_starts_at_an_offset(golden_533: Path) -> None:
    found = lines("cat", golden_533, "orders", "--queue", 1, "--offset", 77, "--json")
    assert [row["queueOffset"] for row in found] == [77, 78, 79]
    assert run("cat", golden_533, "orders", "--queue", 1, "--offset", 80) == ""
    done = ended("cat", golden_533, "orders", "--queue", 1, "--offset", 81)
    assert (done.returncode, done.stdout) == (1, "")
    assert "available are [0, 80)" in done.stderr


def test_bodies_and_tags_cannot_drive_the_terminal(tmp_path: Path) -> None:
    """A message may hold escape sequences, line ends, and bytes that are no text."""
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"\x1b[31mred\nline two\ttab", b"\xff\xfe", "größer 😀".encode()], tags="a\x1b[2Jb")
    text = run("cat", builder.path, "t")
    assert "\x1b" not in text
    first, second, third = (line.split("\t") for line in text.splitlines())
    assert first[4] == "\\x1b[31mred\\nline two\\ttab"
    assert second[4] == "hex:fffe"
    assert third[4] == "größer 😀"
    assert first[2] == "a\\x1b[2Jb"
    rows = lines("cat", builder.path, "t", "--json")
    assert [row.get("body", row.get("bodyBase64")) for row in rows] == [
        "\x1b[31mred\nline two\ttab",
        "//4=",
        "größer 😀",
    ]
    assert "\x1b" not in run("get", builder.path, "0")


def test_times_that_no_calendar_has_do_not_stop_cat(tmp_path: Path) -> None:
    """A damaged or hostile time is shown as none; the message still is."""
    builder = StoreBuilder(tmp_path / "store")
    builder.now_ms = 9_000_000_000_000_000
    builder.append("t", 0, [b"from the year 287,000"])
    (row,) = lines("cat", builder.path, "t", "--json")
    assert (row["storeTimestamp"], row["body"]) == (None, "from the year 287,000")
    assert "from the year 287,000" in run("cat", builder.path, "t")
    assert "from the year 287,000" in run("get", builder.path, 0)
    assert "9000000000000000" in run("info", builder.path)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_text_that_the_terminal_cannot_show_does_not_stop_cat(tmp_path: Path, encoding: str) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, ["größer 😀".encode()] * 3)
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    command = [SCRIPT, "cat", str(builder.path), "t"]
    done = quick_programs.run(command, capture_output=True, env=environment, check=False, timeout=WAIT_LIMIT_S)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == 3
    done = quick_programs.run(
        [*command, "--json"], capture_output=True, env=environment, check=False, timeout=WAIT_LIMIT_S
    )
    assert [json.loads(line)["body"] for line in done.stdout.decode(encoding).splitlines()] == ["größer 😀"] * 3


def test_light_queues_can_be_printed(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    (place,) = builder.append("orders", 0, [b"fed"])
    unit = np.zeros(1, UNIT_FILE_DTYPE)
    unit["physical_offset"], unit["size"] = place, builder.position - place
    builder.write_units("%LMQ%me", 0, 0, unit)
    (row,) = lines("cat", builder.path, "%LMQ%me", "--json")
    assert (row["topic"], row["body"]) == ("%LMQ%me", "fed")


def test_properties_that_hold_separators_are_shown(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"x"], more="empty\x01\x02k\x01v\x01w\x02")
    (row,) = lines("get", builder.path, 0, "--json")
    assert row["properties"] == {"TAGS": "paid", "k": "v\x01w"}
    assert "k = v\\x01w" in run("get", builder.path, 0)


def test_a_doubtful_filter_is_warned_of(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", 0, [b"x"], more="x\x011\x02")
    command = [SCRIPT, "cat", str(builder.path), "orders", "--filter", "NOT x = 1"]
    ran = quick_programs.run(command, check=False, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "")
    assert ran.stderr.count("NOT x = 1 is read as (NOT x) = 1, as RocketMQ does") == 1, ran.stderr
