"""``--from-log`` and ``--on-damage`` of the commands that look."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.store.cli.commands import ended, lines, run, script
from tests.store.damage.flipped_bodies import BAD, COUNT, FlippedStore, make
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture
def log_only(tmp_path: Path) -> StoreBuilder:
    """A store of which only the log is left."""
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", [0, 1], [f"order {number}".encode() for number in range(10)], keys=["k"] * 10)
    for name in ("consumequeue", "index"):
        shutil.rmtree(builder.path / name)
    return builder


@pytest.fixture
def flipped(tmp_path: Path) -> FlippedStore:
    """Ten messages, a byte of the body of one of which was flipped."""
    return make("put alone", tmp_path / "store")


def test_the_queues_are_derived_from_the_log(log_only: StoreBuilder) -> None:
    assert [row["body"] for row in lines("cat", log_only.path, "orders", "--from-log", "--json")] == [
        f"order {number}" for number in range(10)
    ]
    assert len(lines("tail", log_only.path, "orders", "-n", 3, "--from-log", "--json")) == 3
    assert len(lines("query", log_only.path, "k", "-t", "orders", "--from-log", "--json")) == 10
    found = lines("offset-at", log_only.path, FIRST_STORE_TIME + 4, "--from-log", "--json")
    assert [row["offset"] for row in found] == [2, 2]
    assert run("get", log_only.path, 0, "--from-log", "--body") == "order 0"
    (summary,) = lines("info", log_only.path, "--from-log", "--json")
    assert [queue["messages"] for queue in summary["topics"][0]["queues"]] == [5, 5]


def test_damage_ends_a_command_or_is_skipped_and_reported(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    places = builder.append("t", 0, [f"message {number}".encode() for number in range(10)]).tolist()
    (path,) = (builder.path / "commitlog").iterdir()
    with path.open("r+b") as file:
        file.seek(places[4] + 4)
        file.write(b"????")
    done = ended("cat", builder.path, "t", "--json")
    assert done.returncode == 1
    assert "MAGICCODE" in done.stderr
    left = [f"message {number}" for number in range(10) if number != 4]
    for options in (["--on-damage", "skip"], ["--on-damage", "skip", "--from-log"]):
        done = script("cat", builder.path, "t", "--json", *options)
        assert done.returncode == 1
        assert [row["body"] for row in rows(done.stdout)] == left
        assert f"[{places[4]}, {places[5]})" in done.stderr
        assert "commitlog: 1 message skipped because of damage.\n" in done.stderr
        assert all(line.startswith("commitlog: ") for line in done.stderr.splitlines())
    done = ended("info", builder.path, "--from-log", "--json")
    assert done.returncode == 1
    assert rows(done.stdout)[0]["topics"][0]["queues"][0]["maxOffset"] == 10
    assert f"commitlog: 1 stretch of the log, {places[5] - places[4]} bytes, cannot be read.\n" in done.stderr


# Each prints the damaged message, as it would be typed.
@pytest.mark.parametrize(
    "command",
    [
        ["cat", "{path}", "orders"],
        ["cat", "{path}", "orders", "--json"],
        ["cat", "{path}", "orders", "-o", "csv"],
        ["cat", "{path}", "orders", "--format", "%o %s\\n"],
        ["cat", "{path}", "orders", "--grep", "."],
        ["cat", "{path}", "orders", "--grep", ".", "--columns", "queueOffset"],
        ["cat", "{path}", "orders", "-q", "0", "--offset", str(BAD), "-n", "1", "--body"],
        ["tail", "{path}", "orders"],
        ["tail", "{path}", "orders", "--json"],
        ["query", "{path}", f"k{BAD}", "-t", "orders"],
        ["query", "{path}", f"k{BAD}", "-t", "orders", "--json"],
        ["get", "{path}", "{place}"],
        ["get", "{path}", "{place}", "--body"],
    ],
    ids=" ".join,
)
def test_a_body_that_does_not_match_its_crc_is_printed_only_with_no_verify_crc(
    flipped: FlippedStore, command: list[str]
) -> None:
    typed = [part.format(path=flipped.path, place=flipped.place) for part in command]
    done = ended(*typed)
    assert done.returncode == 1
    assert "commitlog: BODYCRC of the record" in done.stderr
    assert "--no-verify-crc" in done.stderr
    assert flipped.changed[BAD].decode() not in done.stdout
    done = ended(*typed, "--no-verify-crc")
    assert (done.returncode, done.stderr) == (0, "")
    shown = str(BAD) if "--columns" in command else flipped.changed[BAD].decode()
    assert shown in done.stdout


@pytest.mark.parametrize("command", [["cat"], ["cat", "--json"], ["cat", "--grep", "."], ["tail"], ["cat", "--body"]])
def test_a_body_that_does_not_match_its_crc_is_skipped_and_counted(flipped: FlippedStore, command: list[str]) -> None:
    done = script(command[0], flipped.path, "orders", *command[1:], "--on-damage", "skip")
    assert done.returncode == 1
    assert flipped.changed[BAD].decode() not in done.stdout
    assert all(body.decode() in done.stdout for body in flipped.good)
    assert "commitlog: 1 message skipped because of damage.\n" in done.stderr


def test_a_query_says_that_it_skipped_the_message_of_the_key(flipped: FlippedStore) -> None:
    done = script("query", flipped.path, f"k{BAD}", "-t", "orders", "--on-damage", "skip")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "skipped a record, which may have the key: BODYCRC of the record" in done.stderr
    assert "commitlog: 1 message skipped because of damage.\n" in done.stderr


def test_what_reads_no_body_checks_none(flipped: FlippedStore) -> None:
    assert len(lines("cat", flipped.path, "orders", "--columns", "queueOffset,keys", "--json")) == COUNT
    assert run("cat", flipped.path, "orders", "--format", "%o ").split() == [str(number) for number in range(COUNT)]
