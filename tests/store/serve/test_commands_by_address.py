"""Every command with the address of a server that owns its store, in place of the directory, with right and wrong
arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from commitlog_store import Message, MessageStore, StoreReader
from commitlog_store.cli.app import _MODULES
from tests.store.cli.commands import ended, plain
from tests.store.serve.servers import served


class Served(NamedTuple):
    """The address of a server, and the directory of the store that it owns."""

    url: str
    path: str
    message_id: str


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with MessageStore.open(tmp_path_factory.mktemp("owned") / "store") as store:
        store.create_topic("orders", 2)
        for number in range(40):
            store.put(
                "orders", b"body %d" % number, tags="AB"[number % 2], keys=[f"k{number % 5}"], queue_id=number % 2
            )
        store.put_message(Message(topic="orders", body=b"later", delay_level=18)).raise_for_status()
        store.put("orders", b"tomorrow", delay=timedelta(days=1))
        store.put("%DLQ%billing", b"dead", queue_id=0)
        with store.transaction("loader", 7) as batch:
            batch.put_messages([{"topic": "audit", "body": b"a", "queueId": 0}])
        store.half_messages.prepare(Message(topic="orders", body=b"half"), "payments")
        store.commit_group_offsets("billing", {("orders", 0): 3, ("orders", 1): 20})
        store.dispatch()
        store.flush()
        with StoreReader.open(store.path) as reader, served(owned=store) as url:
            yield Served(url, store.path, reader.message_at(0).message_id)


RIGHT = (
    ["info", "PATH"],
    ["info", "PATH", "--queues", "--sizes", "-o", "csv"],
    ["doctor", "PATH"],
    ["doctor", "PATH", "--deep", "--warn", "lag=100000,disk=100%,overdue=5d"],
    ["verify", "PATH", "--topics"],
    ["offset-at", "PATH", "1h"],
    ["offset-at", "PATH", "2026-01-01", "orders", "--json"],
    ["cat", "PATH", "orders"],
    ["cat", "PATH", "orders", "--queue", "1", "--offset", "5", "-n", "3", "--json"],
    ["cat", "PATH", "orders", "--tag", "A", "--filter", "TAGS = 'A'"],
    ["cat", "PATH", "ord*", "--since", "1h"],
    ["tail", "PATH", "orders", "-n", "7"],
    ["get", "PATH", "0"],
    ["get", "PATH", "MESSAGE_ID"],
    ["query", "PATH", "k3"],
    ["query", "PATH", "k3", "--topic", "orders", "--since", "1h", "--json"],
    ["export", "PATH", "--to", "ndjson:FILE", "--topic", "orders"],
    ["schedule", "ls", "PATH"],
    ["txn", "ls", "PATH", "--json"],
    ["half", "ls", "PATH"],
    ["groups", "ls", "PATH"],
    ["groups", "lag", "PATH", "billing"],
    ["dlq", "ls", "PATH"],
    ["dlq", "export", "PATH", "billing", "--to", "csv:FILE"],
    ["topics", "ls", "PATH"],
    ["topics", "rm", "PATH", "orders", "--with-messages", "--dry-run"],
)

WRONG = (
    ["doctor", "PATH", "--nagios", "--critical", "lag=1"],
    ["doctor", "PATH", "--warn", "lack=1"],
    ["offset-at", "PATH", "1h", "no-such-topic"],
    ["offset-at", "PATH", "no time", "orders"],
    ["cat", "PATH", "no-such-topic"],
    ["cat", "PATH", "orders", "--queue", "9"],
    ["cat", "PATH", "orders", "--filter", "TAGS = "],
    ["tail", "PATH", "no-such-topic"],
    ["get", "PATH", "1"],
    ["get", "PATH", "0" * 32],
    ["get", "PATH", "no id"],
    ["query", "PATH", "k3", "--topic", "no-such-topic"],
    ["query", "PATH", "no such key"],
    ["query", "PATH", "unknown"],
    ["export", "PATH", "--to", "xml:FILE", "--topic", "orders"],
    ["export", "PATH", "--to", "ndjson:FILE", "--topic", "no-such-topic"],
    ["groups", "lag", "PATH", "unknown"],
    ["groups", "reset", "PATH", "unknown", "--to", "earliest"],
    ["groups", "reset", "PATH", "billing", "--to", "5"],
    ["dlq", "redrive", "PATH", "unknown"],
    ["topics", "rm", "PATH", "no-such-topic"],
    ["produce", "PATH"],
    ["produce", "PATH", "--topic", "no/topic"],
    ["clean", "PATH"],
    ["clean", "PATH", "--older-than", "1h", "--keep-for", "/no/such/checkpoint"],
)

# They need the directory, and say so.
DIRECTORY_ONLY = (
    ["verify", "PATH", "--commit-log", "/tmp"],
    ["doctor", "PATH", "--deep", "--config", "broker.conf"],
    ["dump-log", "PATH"],
    ["dump-queue", "PATH", "orders"],
    ["dump-index", "PATH"],
    ["produce", "PATH", "--topic", "orders", "--async"],
    ["serve", "PATH", "--read-only"],
    ["follow", "127.0.0.1:1", "PATH"],
    ["promote", "PATH", "--yes"],
    ["repair", "PATH"],
    ["salvage", "PATH", "--to", "FILE"],
    ["txn", "reset", "PATH", "loader", "--yes", "--config", "broker.conf"],
    ["archive", "PATH", "file://FILE"],
    ["cat", "PATH", "orders", "--from-log"],
    ["info", "PATH", "--commit-log", "/tmp"],
)


def outcome(command: list[str], place: Served, where: str, target: Path) -> tuple[int, str, str]:
    """Exit code, output and errors, without what differs between two runs and two places."""
    words = {"PATH": where, "MESSAGE_ID": place.message_id}
    done = ended(*(words.get(one, one.replace("FILE", str(target))) for one in command))
    texts = []
    for text in (done.stdout, plain(done.stderr)):
        shown = text.replace(place.url, "PATH").replace(place.path, "PATH").replace(str(target), "FILE")
        timeless = re.sub(
            r"in [0-9.]+ s|(< )?[0-9.]+ s\b|[0-9]+ (ms|seconds?)|\d+m? ?\d*s\b|\d\d:\d\d:\d\d(\.\d+)?", "", shown
        )
        # A column is as wide as its longest time.
        texts.append(re.sub(" +", " ", timeless))
    return done.returncode, *texts  # type: ignore[return-value]


@pytest.mark.parametrize("command", RIGHT, ids=" ".join)
def test_right_arguments_give_what_the_directory_gives(place: Served, tmp_path: Path, command: list[str]) -> None:
    far, near = (outcome(command, place, where, tmp_path / str(n)) for n, where in enumerate((place.url, place.path)))
    assert far == near
    assert far[0] == 0
    assert far[1]


@pytest.mark.parametrize("command", WRONG, ids=" ".join)
def test_wrong_arguments_are_refused_as_for_the_directory(place: Served, tmp_path: Path, command: list[str]) -> None:
    far, near = (outcome(command, place, where, tmp_path / "target") for where in (place.url, place.path))
    assert far == near
    assert far[0] != 0


@pytest.mark.parametrize("command", DIRECTORY_ONLY, ids=" ".join)
def test_what_needs_the_directory_says_so(place: Served, tmp_path: Path, command: list[str]) -> None:
    code, shown, said = outcome(command, place, place.url, tmp_path / "target")
    assert (code in (1, 2), shown) == (True, "")
    assert "director" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("command", ["verify", "doctor"])
def test_an_option_for_a_directory_is_named(place: Served, tmp_path: Path, command: str) -> None:
    _, _, said = outcome([command, "PATH", "--commit-log", "/tmp"], place, place.url, tmp_path / "target")
    assert "Invalid value for --commit-log: It is for a directory" in " ".join(said.replace("│", " ").split())


@pytest.mark.parametrize("command", [["doctor", "PATH"], ["txn", "reset", "PATH", "app"]], ids=" ".join)
def test_an_empty_option_for_a_directory_is_refused_too(place: Served, tmp_path: Path, command: list[str]) -> None:
    """That of a variable that is not set."""
    code, _, said = outcome([*command, "--config", ""], place, place.url, tmp_path / "target")
    assert code == 2
    assert "Invalid value for --config: It is for a directory" in " ".join(said.replace("│", " ").split())


def test_no_command_is_left_out() -> None:
    """What administers a store, with right arguments, is in test_same_administration.py."""
    assert {one[0] for one in (*RIGHT, *WRONG, *DIRECTORY_ONLY)} == _MODULES.keys() - {
        "restore",
        "stats",
        "token",
        "top",
    }
