"""``--from-log`` and ``--on-damage`` of the commands that look."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.store.cli.commands import ended, lines, run, script
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder

__all__: list[str] = []


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
