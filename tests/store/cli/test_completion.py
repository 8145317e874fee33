"""Completion in the shell: topics, groups, queues, columns and the values of options, wherever they are typed."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path
from unittest import mock

import pytest

from commitlog_store import commit_group_offsets
from tests.store.cli.commands import ended, shell
from tests.store.cli.test_one_name import commands
from tests.store.owner.owned_store import open_store, put_ok

# What the value of an option or an argument is called in the help, and a value that is offered for it.
OFFERED = {
    "TOPIC": "orders",
    "GROUP": "billing",
    "READER": "billing",
    "QUEUE": "3",
    "NAMES": "queueOffset",
    "ZONE": "Europe/Berlin",
    "table|json|csv": "json",
    "raise|skip": "skip",
    "retry|topic": "topic",
    "CLOCK": "mtime",
    "CODEC": "zstd",
    "WHAT": "received",
    "PLACE": "latest",
    "WHERE": "earliest",
    "PERM": "4",
    "ROLE": "read",
}
# Values that no list has: numbers, times, sizes, conditions, names of files (which the shell completes), new names.
FREE = {
    "PATH", "FILE", "TARGET", "HOST:PORT", "HOST:PORT;...", "ID", "KEY", "TAG", "TIME", "DURATION", "SIZE", "COUNT",
    "OFFSET", "REGEX", "SECONDS", "SQL92", "FORMAT", "HANDLE", "MESSAGE_ID", "QUERY",
    "LIMITS", "DIR", "NAME", "ADDRESSES", "URL", "[PATH] URL", "TOPIC=KIND:ARG",
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "store"
    with open_store(path) as owned:
        for topic in ("orders", "order_lines", "payments"):
            put_ok(owned, topic, queue_id=3)
    commit_group_offsets(path, "billing", {("orders", 3): 0})
    commit_group_offsets(path, "audit", {("orders", 3): 0})
    return path


def offered(*words: object, last: str = "", by: str = "bash") -> list[str]:
    """What a shell is given for the word ``last`` after these ones."""
    line = [*(shlex.quote(str(word)) for word in words), last]
    environment = {
        "_COMMITLOG_COMPLETE": f"complete_{by}",
        "COMP_WORDS": "\n".join(line),
        "COMP_CWORD": str(len(line) - 1),
        "_TYPER_COMPLETE_ARGS": " ".join(line),
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    with mock.patch.dict(os.environ, environment):
        done = ended(*map(str, words))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def values() -> list[tuple[str, str]]:
    """Each command, and each option with a value that it has, or argument after the path. Hidden ones are refused."""
    return [
        (name, param.opts[-1] if param.opts[-1].startswith("--") else param.opts[0])
        for name, command in commands()
        for param in command.params
        if param.metavar in OFFERED and not param.hidden
    ]


@pytest.mark.parametrize(("command", "option"), values(), ids=str)
def test_a_value_that_a_list_has_is_offered(store: Path, command: str, option: str) -> None:
    found = dict(commands())[command]
    param = next(one for one in found.params if option in one.opts)
    words: list[object] = [*command.split()]
    if option.startswith("--"):
        topic = next((one for one in found.params if one.metavar == "TOPIC" and one.name != "retain"), None)
        given = [] if topic is None or not topic.opts[0].startswith("-") else ["-t", "orders"]
        before = ["host"] if command == "commitlog follow" else []
        after = ["orders"] if topic is not None and not given else []
        words += [*before, store, *after, *given, option]
    else:
        words += [store, *(["0"] if command == "commitlog offset-at" else [])]
    expected = OFFERED[param.metavar]
    assert expected in offered(*words, last=expected[:2])


def test_a_value_is_offered_or_is_none_that_a_list_has() -> None:
    names = {param.metavar for _, command in commands() for param in command.params if param.metavar}
    assert names - OFFERED.keys() - FREE == set()


def test_only_what_begins_so_is_offered(store: Path) -> None:
    assert offered("commitlog", "cat", store, last="or") == ["order_lines", "orders"]
    assert offered("commitlog", "cat", store, "payments", last="order_") == ["order_lines"]
    assert offered("commitlog", "groups", "lag", store) == ["audit", "billing"]
    assert offered("commitlog", "cat", store, "orders", "-q") == ["3"]


def test_the_last_column_of_a_list_is_offered_and_none_twice() -> None:
    found = offered("commitlog", "cat", "--columns", last="topic,queueOffset,queue")
    assert found == ["topic,queueOffset,queueId"]


def test_what_is_pending_or_committed_is_offered(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path) as owned, owned.transaction("loader", 1) as batch:
        batch.put_messages([{"topic": "t", "body": b"x"}])
    assert offered("commitlog", "txn", "reset", path, last="lo") == ["loader"]


@pytest.mark.parametrize("path", ["nowhere", "", "~/nowhere"])
def test_a_path_that_is_not_a_store_offers_nothing_and_says_nothing(path: str) -> None:
    assert offered("commitlog", "cat", path, last="or") in ([], [""])


def test_a_store_below_the_home_directory_is_found(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(store.parent))
    with mock.patch.dict(os.environ, {"HOME": str(store.parent)}):
        assert "orders" in shell(
            "export COMP_WORDS=$'commitlog\\ncat\\n~/store\\nord' COMP_CWORD=3; "
            "_COMMITLOG_COMPLETE=complete_bash commitlog"
        ).stdout.split("\n")


@pytest.mark.parametrize("by", ["zsh", "fish"])
def test_zsh_and_fish_are_given_the_same(store: Path, by: str) -> None:
    assert "order_lines" in "\n".join(offered("commitlog", "cat", store, last="or", by=by))


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["cat", "{store}", "or"], ["order_lines", "orders"]),
        (["get", "{store}", "7", "--topic", "pay"], ["payments"]),
        (["groups", "reset", "{store}", "b"], ["billing"]),
        (["cat", "{store}", "orders", "--columns", "topic,queueI"], ["topic,queueId"]),
        (["exp"], ["export"]),
    ],
    ids=" ".join,
)
def test_bash_completes_a_line(store: Path, typed: list[str], found: list[str]) -> None:
    words = ["commitlog", *(word.format(store=store) for word in typed)]
    line = (
        'eval "$(_COMMITLOG_COMPLETE=source_bash commitlog)"; '
        f"COMP_WORDS=({' '.join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}; "
        '_commitlog_completion commitlog; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = shell(line)
    assert done.stdout.split() == found
    assert done.stderr == ""
