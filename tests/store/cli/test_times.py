"""Times on the command line: how they are parsed and printed."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from commitlog_store.cli.times import parse_time, parse_zone
from tests.store.cli.commands import EXPECTED, ended, iso, lines, plain, run, script
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder


@pytest.mark.parametrize("as_iso", [False, True])
def test_cat_prints_the_messages_between_two_times(golden_533: Path, as_iso: bool) -> None:
    times = sorted(m["storeTimestamp"] for m in EXPECTED["message"] if m["topic"] == "orders")
    begin, end = times[60], times[200]
    since, until = (iso(begin), iso(end)) if as_iso else (begin, end)
    found = lines("cat", golden_533, "orders", "--since", since, "--until", until, "--json")
    assert len(found) == sum(begin <= stored < end for stored in times)
    assert all(iso(begin) <= row["storeTimestamp"] < iso(end) for row in found)
    assert run("cat", golden_533, "orders", "--since", until, "--until", since) == ""


def test_times_are_utc_unless_they_say_otherwise(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"0", b"1", b"2"], step_ms=60_000)
    second = datetime.fromtimestamp(FIRST_STORE_TIME / 1000 + 60, tz=timezone.utc)
    for since, zone in (
        (second.strftime("%Y-%m-%dT%H:%M:%S"), "UTC"),
        (second.strftime("%Y-%m-%d %H:%M:%S"), "Asia/Tokyo"),
        (second.strftime("%Y-%m-%dT%H:%M:%SZ"), "Asia/Tokyo"),
        (second.strftime("%Y-%m-%d %H:%M:%S+00:00"), "Asia/Tokyo"),
        (str(FIRST_STORE_TIME + 60_000), "Asia/Tokyo"),
        (second.astimezone(timezone(timedelta(hours=9))).isoformat(), "America/New_York"),
    ):
        done = script("cat", builder.path, "t", "--since", since, "--json", env={**os.environ, "TZ": zone})
        assert [json.loads(line)["body"] for line in done.stdout.splitlines()] == ["1", "2"], (since, zone, done.stderr)


def test_times_that_info_and_cat_print_can_be_typed(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"0", b"1", b"2"], step_ms=60_000)
    environment = {**os.environ, "TZ": "Asia/Tokyo"}
    printed = script("info", builder.path, env=environment).stdout.splitlines()[-1]
    last = " ".join(printed.split()[-2:])
    assert last == datetime.fromtimestamp(FIRST_STORE_TIME / 1000 + 120, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    done = script("cat", builder.path, "t", "--since", last, env=environment)
    (row,) = done.stdout.splitlines()
    assert script("cat", builder.path, "t", "--since", row.split("\t")[0], env=environment).stdout == done.stdout


@pytest.mark.parametrize("command", ["cat", "query"])
def test_the_help_of_every_time_says_which_zone(command: str) -> None:
    text = plain(run(command, "--help"))
    assert text.count("TIME") == text.count("UTC unless it or --tz says otherwise") == 2


@pytest.mark.parametrize("text", ["tomorrow", "", "2h30", "--", "2026-13-01", "²", "12:00", "1e9", "-5"])
def test_an_argument_that_is_not_a_time_is_wrong_usage(golden_533: Path, text: str) -> None:
    done = ended("cat", golden_533, "orders", f"--since={text}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a time" in plain(done.stderr)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", "2026-11-21T07:30:00+00:00"),
        ("-2h", "2026-11-21T07:30:00+00:00"),
        ("1d12h", "2026-11-19T21:30:00+00:00"),
        ("-90s", "2026-11-21T09:28:30+00:00"),
        ("2w", "2026-11-07T09:30:00+00:00"),
        ("15m", "2026-11-21T09:15:00+00:00"),
        ("now", "2026-11-21T09:30:00+00:00"),
        ("today", "2026-11-21T00:00:00+09:00"),
        ("Yesterday", "2026-11-20T00:00:00+09:00"),
        ("2026-11-20", "2026-11-20T00:00:00+09:00"),
        ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00+00:00"),
        ("1795250230000", "2026-11-21T08:37:10+00:00"),
        ("0", "1970-01-01T00:00:00+00:00"),
    ],
)
def test_times_are_relative_to_now_or_of_the_chosen_zone(text: str, expected: str) -> None:
    now = datetime(2026, 11, 21, 9, 30, tzinfo=timezone.utc)
    found = parse_time(text, parse_zone("Asia/Tokyo"), now)
    assert found == datetime.fromisoformat(expected).timestamp() * 1000


@pytest.mark.parametrize("command", ["cat", "query", "offset-at"])
def test_seconds_are_recognised_and_refused_with_the_milliseconds(golden_533: Path, command: str) -> None:
    arguments = {
        "cat": ["cat", golden_533, "orders", "--since", "1795250230"],
        "query": ["query", golden_533, "k1", "--until", "1795250230"],
        "offset-at": ["offset-at", golden_533, "1795250230"],
    }
    done = ended(*arguments[command])
    assert (done.returncode, done.stdout) == (2, "")
    assert "1795250230 looks like seconds: give 1795250230000." in plain(done.stderr)


def test_a_relative_time_begins_with_a_minus_on_the_command_line(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"old"])
    builder.now_ms = int(datetime.now(timezone.utc).timestamp() * 1000) - 60_000
    builder.append("t", 0, [b"new"])
    for since in ("-2h", "2h"):
        (row,) = lines("cat", builder.path, "t", "--since", since, "--json")
        assert row["body"] == "new"
    assert [row["body"] for row in lines("cat", builder.path, "t", "--until", "30s", "--json")] == ["old", "new"]
    assert [row["body"] for row in lines("cat", builder.path, "t", "--until", "2h", "--json")] == ["old"]
    for where in ([builder.path, "-2h", "t"], [builder.path, "-90m"], ["--tz", "local", builder.path, "-1h60m"]):
        (found,) = lines("offset-at", *where, "--json")
        assert (found["offset"], found["maxOffset"]) == (1, 2)


def test_a_misspelt_option_is_no_time(golden_533: Path) -> None:
    done = ended("offset-at", golden_533, "-x")
    assert (done.returncode, done.stdout) == (2, "")
    assert "No such option: -x" in plain(done.stderr)


def test_times_are_printed_and_read_in_the_chosen_zone(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"0", b"1"], step_ms=60_000)
    stored = datetime.fromtimestamp(FIRST_STORE_TIME / 1000 + 60, tz=timezone(timedelta(hours=9)))
    for zone in ("+09:00", "Asia/Tokyo"):
        (row,) = lines(
            "cat", builder.path, "t", "--tz", zone, "--since", stored.strftime("%Y-%m-%dT%H:%M:%S"), "--json"
        )
        assert row["storeTimestamp"] == stored.isoformat(timespec="milliseconds")
    assert stored.strftime("%Y-%m-%d %H:%M:%S") in run("info", builder.path, "--tz", "+0900")
    assert "T07:13:20.000+09:00" in run("get", builder.path, 0, "--tz", "Asia/Tokyo")
    done = ended("cat", builder.path, "t", "--tz", "Mars/Olympus")
    assert done.returncode == 2
    assert "is not a time zone" in plain(done.stderr)
