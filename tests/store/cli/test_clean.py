"""``commitlog clean``: it shows first, and deletes with --yes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader
from tests.store.cli.commands import ended, lines, plain, run
from tests.store.retention.small_stores import SMALL, Clock, fill, log_bases, store_clock


@pytest.fixture
def old_store(tmp_path: Path) -> Path:
    """A store with seven files of old messages, closed."""
    path = tmp_path / "store"
    with store_clock(Clock()), MessageStore.open(path, SMALL) as store:
        fill(store, 100)
    return path


def test_it_only_shows_without_yes_and_deletes_the_same_with_it(old_store: Path) -> None:
    before = log_bases(old_store)
    looked = ended("clean", old_store, "--older-than", "72h", "--json")
    shown = json.loads(looked.stdout)
    assert (looked.returncode, looked.stderr) == (1, "commitlog: Nothing is changed without --yes.\n")
    assert shown["dryRun"]
    assert list(shown) == [
        *("path", "dryRun", "files", "freedBytes", "logStart", "queueFiles", "indexFiles", "extFiles", "held"),
        *("holders", "unread"),
    ]
    assert lines("clean", old_store, "--older-than", "72h", "--json", "--dry-run") == [shown]
    assert run("clean", old_store, "--older-than", "72h", "--yes", "--dry-run").count("by age") == len(shown["files"])
    assert log_bases(old_store) == before
    done = lines("clean", old_store, "--older-than", "72h", "--yes", "--json")[0]
    assert done["files"] == shown["files"]
    assert not done["dryRun"]
    assert log_bases(old_store)[0] == done["logStart"] == before[len(done["files"])]
    assert "Nothing to delete: 0 files" in run("clean", old_store, "--older-than", "72h")


def test_it_shows_beside_an_owner_and_does_not_delete_there(old_store: Path) -> None:
    with MessageStore.open(old_store, SMALL):
        assert "It would delete" in run("clean", old_store, "--max-bytes", "40K", "--dry-run")
        done = ended("clean", old_store, "--max-bytes", "40K", "--yes")
        assert done.returncode == 1
        assert "open already" in done.stderr


def test_a_reader_that_holds_a_file_is_named_and_ends_with_1(old_store: Path) -> None:
    (old_store / "config").mkdir(exist_ok=True)
    (old_store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"orders@billing":{0:50}}}')
    command = ["clean", old_store, "--max-bytes", "1", "--keep-for", "billing", "--keep-at-most", "9999w", "--yes"]
    done = ended(*command)
    assert done.returncode == 1
    assert "stays for consumer group billing" in done.stdout
    with StoreReader.open(old_store) as reader:
        assert 35 < reader.queues("orders")[0].min_offset <= 50
    done = ended(*command[:-2], "1h", "--json", "--yes")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["files"][0]["overruled"] == "consumer group billing"


def test_it_shows_which_groups_have_not_read_what_would_go(old_store: Path) -> None:
    (old_store / "config").mkdir(exist_ok=True)
    table = '{"orders@billing":{0:5},"orders@audit":{0:100},"orders@CID_RMQ_SYS_X":{0:0}}'
    (old_store / "config" / "consumerOffset.json").write_text(f'{{"offsetTable":{table}}}')
    shown = ended("clean", old_store, "--older-than", "72h", "--dry-run", "--json")
    (unread,) = json.loads(shown.stdout)["unread"]
    assert run("clean", old_store, "--older-than", "72h", "--yes").startswith("000")
    with StoreReader.open(old_store) as reader:
        lost = reader.groups("billing")[0].lost
    assert unread == {"group": "billing", "topic": "orders", "messages": lost}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "Give --older-than or --max-bytes"),
        (["--older-than", "soon"], "not a length of time"),
        (["--older-than", "9d", "--keep-for", "billing"], "hold nothing"),
        (["--older-than", "9d", "--clock", "sun"], "clock is"),
    ],
)
def test_wrong_usage_is_explained(old_store: Path, arguments: list[str], why: str) -> None:
    done = ended("clean", old_store, *arguments)
    assert done.returncode == 2
    assert why in plain(done.stderr)
