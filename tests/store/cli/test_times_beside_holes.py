"""Times on a store with a hole, as they are typed: an answer where messages exist, else the missing file's name."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.store.cli.commands import ended, lines, script
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder

GROUP = '{"offsetTable":{"orders@billing":{0:1}}}'


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """100 messages a second apart, 14 to a file of the log, of which the fourth is gone: offsets 42 to 55."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=16 << 10)
    builder.append("orders", 0, [b"x" * 1000] * 100, step_ms=1000)
    (builder.path / "config" / "consumerOffset.json").write_text(GROUP)
    missing(builder.path).unlink()
    return builder.path


def missing(store: Path) -> Path:
    return store / "commitlog" / f"{3 * (16 << 10):020d}"


def at(offset: int) -> str:
    """The store time of a message, as people type it."""
    return datetime.fromtimestamp(FIRST_STORE_TIME / 1000 + offset, timezone.utc).isoformat()


@pytest.mark.parametrize("offset", [0, 20, 41, 57, 70, 99])
def test_offset_at_answers_where_messages_exist(store: Path, offset: int) -> None:
    (row,) = lines("offset-at", store, at(offset), "orders", "--json")
    assert (row["offset"], row["storeTimestamp"][:19]) == (offset, at(offset)[:19])


@pytest.mark.parametrize(
    "command",
    [
        ["offset-at", "STORE", "TIME", "orders"],
        ["cat", "STORE", "orders", "--since", "TIME"],
        ["cat", "STORE", "orders", "--until", "TIME"],
        ["export", "STORE", "--topic", "orders", "--to", "TARGET", "--since", "TIME"],
        ["groups", "reset", "STORE", "billing", "--topic", "orders", "--to", "TIME"],
    ],
)
def test_a_time_in_the_hole_names_the_missing_file(store: Path, tmp_path: Path, command: list[str]) -> None:
    words = {"STORE": store, "TIME": at(50), "TARGET": f"ndjson:{tmp_path}/target"}
    done = ended(*(words.get(word, word) for word in command))
    assert done.returncode == 1
    assert f"offsets [42, 56) cannot be read, since {missing(store)} is missing" in done.stderr
    assert f"commitlog doctor {store}" in done.stderr
    assert "the log holds" not in done.stderr


def test_cat_since_a_time_after_the_hole_reads_the_rest(store: Path) -> None:
    assert [row["queueOffset"] for row in lines("cat", store, "orders", "--since", at(90), "--json")] == [
        *range(90, 100)
    ]


def test_cat_until_a_time_before_the_hole_reads_the_messages_before_it(store: Path) -> None:
    assert [row["queueOffset"] for row in lines("cat", store, "orders", "--until", at(9), "--json")] == [*range(9)]


def test_what_is_skipped_at_a_time_in_the_hole_is_reported(store: Path) -> None:
    done = ended("cat", store, "orders", "--since", at(50), "--json", "--on-damage", "skip")
    assert [json.loads(line)["queueOffset"] for line in done.stdout.splitlines()] == [*range(56, 100)]
    assert done.returncode == 1
    assert "14 messages skipped because of damage" in done.stderr


def test_a_group_is_reset_to_a_time_beside_the_hole(store: Path) -> None:
    reset = ["groups", "reset", store, "billing", "--topic", "orders", "--json", "--dry-run", "--to"]
    done = ended(*reset, at(80))
    assert (done.returncode, json.loads(done.stdout)["to"]) == (0, 80)
    done = script(*reset, at(50), "--on-damage", "skip")
    assert (done.returncode, json.loads(done.stdout)["to"]) == (0, 56)
    assert missing(store).name in done.stderr


def test_groups_lag_names_the_missing_file(store: Path) -> None:
    (store / "config" / "consumerOffset.json").write_text(GROUP.replace("0:1", "0:45"))
    (row,) = lines("groups", "lag", store, "billing", "--json")
    assert missing(store).name in row["error"]
