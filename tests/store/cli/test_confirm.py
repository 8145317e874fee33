"""Commands that delete, move or promote show it, and ask on a terminal; nowhere else do they wait for an answer."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, StoreReader, commit_group_offsets
from commitlog_store.replication.replica_mark import ReplicaMark, read_mark, write_mark
from tests.store.cli.commands import answered, ended, lines, plain
from tests.store.retention.small_stores import SMALL, Clock, fill, log_bases, store_clock
from tests.store.verify.made_store import flip


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Old messages of topic orders, of which group billing has read 5, and a topic without a message."""
    path = tmp_path / "store"
    with store_clock(Clock()), MessageStore.open(path, SMALL) as store:
        fill(store, 100)
    commit_group_offsets(path, "billing", {("orders", 0): 5})
    return path


COMMANDS = (
    (["clean", "--older-than", "72h"], "Delete them?"),
    (["topics", "rm", "orders", "--with-messages"], "Delete them?"),
    (["groups", "reset", "billing", "--to", "latest"], "Set these positions?"),
    (["promote"], "Promote it?"),
)


def arguments(command: list[str], path: Path) -> list[object]:
    words = 2 if command[0] in ("topics", "groups") else 1
    return [*command[:words], path, *command[words:]]


def state(path: Path) -> object:
    with StoreReader.open(path) as reader:
        return log_bases(path), reader.topics(), reader.group_offsets("billing"), read_mark(str(path))


@pytest.mark.parametrize(("command", "question"), COMMANDS, ids=" ".join)
def test_a_terminal_is_asked(store: Path, command: list[str], question: str) -> None:
    if command == ["promote"]:
        write_mark(str(store), ReplicaMark("mirror", "10.0.0.7:10912"))
    before = state(store)
    # How an answer is read is one function, so one command gets every kind.
    for answer in (b"n\n", b"\n", b"maybe\n", b"\x04") if command == ["promote"] else (b"n\n",):
        code, shown, asked = answered(answer, *arguments(command, store))
        assert (code, state(store)) == (1, before), answer
        assert f"{question} [y/N]" in plain(asked)
        assert "Nothing is changed." in plain(asked)
        assert "Group billing has not read" in plain(shown)
        assert "Spark checkpoints, exports and programs that keep positions of their own are not known" in plain(shown)
    code, _, asked = answered(b"y\n", *arguments(command, store))
    assert (code, f"{question} [y/N]" in plain(asked)) == (0, True), asked
    assert state(store) != before


def put_more(path: Path) -> None:
    with store_clock(Clock()), MessageStore.open(path, SMALL) as store:
        fill(store, 40)


def read_all(path: Path) -> None:
    commit_group_offsets(path, "billing", {("orders", 0): 100})


CHANGES: tuple[tuple[list[str], Callable[[Path], object], str, str], ...] = (
    (["topics", "rm", "orders", "--with-messages"], put_more, "orders: 100 messages", "orders: 140 messages"),
    (["groups", "reset", "billing", "--to", "earliest"], read_all, "gets 5 messages again", "gets 100 messages again"),
    (["groups", "reset", "billing", "--to", "latest"], put_more, "not read 95 messages", "not read 135 messages"),
)


@pytest.mark.parametrize(("command", "change", "before", "after"), CHANGES, ids=[" ".join(one[0]) for one in CHANGES])
def test_what_has_changed_since_it_was_shown_is_shown_and_asked_again(
    store: Path, command: list[str], change: Callable[[Path], object], before: str, after: str
) -> None:
    code, shown, asked = answered(b"y\n", *arguments(command, store), before_answer=lambda: change(store))
    assert code == 0, asked
    assert 0 < shown.index(before) < shown.index(after)
    assert "The store has changed since this was shown. Nothing was done; what would be done now:" in plain(asked)
    assert asked.count("[y/N]") == 2


def test_clean_deletes_the_files_that_it_has_shown_and_no_others(store: Path) -> None:
    first, second, *_ = log_bases(store)
    command = ["clean", store, "--max-bytes", str(log_bases(store)[-1] - second)]
    code, shown, _ = answered(b"y\n", *command, before_answer=lambda: put_more(store))
    assert code == 0, shown
    assert shown.count(f"{first:020d}  ") == 2, "shown, and deleted"
    assert log_bases(store)[0] == second
    assert ended(*command, "--yes").returncode == 0
    assert log_bases(store)[0] > second, "with the new messages more was due"


def test_clean_asks_again_when_a_group_needs_what_was_shown(store: Path) -> None:
    command = ["clean", store, "--max-bytes", "1", "--keep-for", "billing", "--keep-at-most", "9999w"]
    read_all(store)

    def go_back() -> None:
        commit_group_offsets(store, "billing", {("orders", 0): 50})

    code, shown, asked = answered(b"y\n", *command, before_answer=go_back)
    assert code == 1, "a file stays for the group"
    assert "The store has changed since this was shown." in plain(asked)
    assert "stays for consumer group billing" in shown
    with StoreReader.open(store) as reader:
        assert reader.queues("orders")[0].min_offset <= 50


@pytest.mark.parametrize(("command", "question"), COMMANDS, ids=" ".join)
def test_without_a_terminal_nothing_is_changed_and_the_exit_code_says_so(
    store: Path, command: list[str], question: str
) -> None:
    if command == ["promote"]:
        write_mark(str(store), ReplicaMark("mirror", "10.0.0.7:10912"))
    before = state(store)
    done = ended(*arguments(command, store))
    assert (done.returncode, done.stderr) == (1, "commitlog: Nothing is changed without --yes.\n")
    only_shown = ended(*arguments(command, store), "--dry-run", "--yes")
    assert (only_shown.returncode, only_shown.stdout, only_shown.stderr) == (0, done.stdout, "")
    assert state(store) == before
    assert ended(*arguments(command, store), "--yes").returncode == 0
    assert state(store) != before


def test_clean_names_groups_behind_where_the_log_is_elsewhere_too(tmp_path: Path) -> None:
    path, disk = tmp_path / "store", tmp_path / "disk"
    with store_clock(Clock()), MessageStore.open(path, replace(SMALL, store_path_commit_log=str(disk))) as store:
        fill(store, 100)
    commit_group_offsets(path, "billing", {("orders", 0): 5})
    done = ended("clean", path, "--older-than", "72h", "--commit-log", disk)
    assert "Group billing has not read" in done.stdout
    assert "No consumer group" not in done.stdout


def test_topics_with_delayed_messages_for_them_are_shown_with_these(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.put("orders", b"x", queue_id=0)
        store.put_message(Message(topic="later", body=b"x", delay_level=18)).raise_for_status()
    done = ended("topics", "rm", store.path, "later")
    assert (done.returncode, done.stdout) == (1, "")
    assert "delayed ones wait for their delivery to it" in done.stderr
    done = ended("topics", "rm", store.path, "later", "--with-messages")
    assert "later: 0 messages, 1 delayed ones that wait" in done.stdout


def test_a_damaged_delayed_message_does_not_end_the_preview(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        store.put("orders", b"x", queue_id=0)
        for body in (b"1", b"2"):
            store.put_message(Message(topic="orders", body=body, delay_level=18)).raise_for_status()
    with StoreReader.open(store.path) as reader:
        (damaged,) = reader.get_message("SCHEDULE_TOPIC_XXXX", 17, 0, 1).messages
    flip(Path(store.path, "commitlog", f"{0:020d}"), damaged.physical_offset + 4)
    done = ended("topics", "rm", store.path, "orders", "--with-messages", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "orders: 1 messages, 1 delayed ones that wait" in done.stdout
    assert "1 delayed messages that wait cannot be read: they may go to one of these topics." in done.stdout


def test_a_topic_whose_queues_are_gone_is_shown_with_its_messages_in_the_log(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "orders")
    done = ended("topics", "rm", store, "orders", "--dry-run")
    assert (done.returncode, done.stdout) == (1, "")
    assert "it has messages in the log" in done.stderr
    done = ended("topics", "rm", store, "orders", "--with-messages", "--dry-run")
    assert "orders: 100 messages" in done.stdout
    assert "Group billing has not read 95 messages of them: orders 95." in done.stdout
    assert "orders" not in ended("topics", "rm", store, "--expired", "--dry-run").stdout


def test_a_lag_that_is_not_known_is_not_taken_for_none(store: Path) -> None:
    shutil.rmtree(store / "consumequeue" / "orders")
    (row,) = lines("groups", "ls", store, "--json")
    assert row["lag"] is None
    done = ended("clean", store, "--older-than", "72h")
    assert "How many of them are unread is not known for group billing: orders." in done.stdout
    assert "No consumer group" not in done.stdout
    (report,) = lines("clean", store, "--older-than", "72h", "--dry-run", "--json")
    assert report["unread"] == [{"group": "billing", "topic": "orders", "messages": None}]
    for limit in ("--warn", "--critical"):
        done = ended("doctor", store, "--nagios", limit, "lag=10")
        assert done.returncode == 1
        assert "lag is not known for billing" in done.stdout
        assert "lag=" not in done.stdout


def test_a_position_at_the_start_of_a_retry_topic_without_messages_is_no_unknown_lag(store: Path) -> None:
    commit_group_offsets(store, "billing", {("orders", 0): 99, ("%RETRY%billing", 0): 0})
    assert ended("doctor", store, "--warn", "lag=10").returncode == 0
