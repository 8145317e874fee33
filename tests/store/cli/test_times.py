"""Times on the command line: how they are parsed and printed."""

from __future__ import annotations

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.store.cli.commands import EXPECTED, iso, lines, run, script
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder

__all__: list[str] = []


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
    text = " ".join(run(command, "--help").split())
    assert text.count("TIME") == text.count("UTC unless it says otherwise") == 2


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "²", "12:00", "1e9", "-5"])
def test_an_argument_that_is_not_a_time_is_wrong_usage(golden_533: Path, text: str) -> None:
    done = script("cat", golden_533, "orders", f"--since={text}")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a time" in " ".join(done.stderr.split())
