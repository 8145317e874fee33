"""``commitlog half``: pending half messages, for people and for programs, committed and rolled back by handle."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from commitlog_store import HalfMessageHandle, Message, MessageStore, StoreReader
from commitlog_store.cli.app import app
from commitlog_store.errors import InvalidValue
from commitlog_store.format.record import HEADER_SIZE
from tests.store.cli.commands import lines, run
from tests.store.half.test_damage import damage, fill_the_file
from tests.store.half.test_half_messages import stored
from tests.store.half.test_resume import given_up
from tests.store.owner.owned_store import open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A closed store with two pending half messages."""
    with open_store(tmp_path / "store") as store:
        for body in (b"first", b"second"):
            store.half_messages.prepare(Message(topic="orders", body=body, keys=["k1"], queue_id=1), "payments")
    return tmp_path / "store"


def handles(path: Path) -> list[HalfMessageHandle]:
    with StoreReader.open(path) as reader:
        return [one.handle for one in reader.pending_half_messages()]


def test_pending_half_messages_are_listed_with_their_handles(path: Path) -> None:
    first, second = lines("half", "ls", path, "--json")
    assert [first["handle"], second["handle"]] == [str(handle) for handle in handles(path)]
    assert (first["topic"], first["queueId"], first["producerGroup"]) == ("orders", 1, "payments")
    assert (first["keys"], first["checkTimes"], first["bodySize"]) == ("k1", 0, 5)
    table = run("half", "ls", path)
    assert str(handles(path)[0]) in table
    assert "payments" in table


def test_a_half_message_is_committed_and_another_one_rolled_back(path: Path) -> None:
    first, second = handles(path)
    assert f"Committed the half message {first}." in run("half", "commit", path, str(first))
    assert f"Rolled back the half message {second}." in run("half", "rollback", path, str(second), "--yes")
    assert handles(path) == []
    assert [one.body for one in stored(path, "orders")] == [b"first"]


def test_what_cannot_be_ended_is_one_sentence_and_exit_code_1(path: Path) -> None:
    first, _ = handles(path)
    run("half", "commit", path, str(first))
    ended = CliRunner().invoke(app, ["half", "rollback", str(path), str(first)])
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "has ended: it was committed" in ended.stderr
    other = CliRunner().invoke(app, ["half", "commit", str(path), str(first).replace("payments", "others")])
    assert other.exit_code == 1
    assert "producer group" in other.stderr


def test_a_text_that_is_no_handle_is_refused(path: Path) -> None:
    with pytest.raises(InvalidValue, match="handle is"):
        run("half", "commit", path, "17")


def test_the_handle_of_a_resumed_half_message_is_printed_once_the_store_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    with open_store(path, transaction_time_out=0, transaction_check_max=1) as store:
        _, copy = given_up(store)

    def fail(store: MessageStore, *_: object) -> None:
        store.close()
        raise InvalidValue("The store was not closed.")

    monkeypatch.setattr(MessageStore, "__exit__", fail)
    resumed = CliRunner().invoke(app, ["half", "resume", str(path), copy.message_id])
    assert (resumed.exit_code, resumed.stdout) == (1, "")
    assert "was not closed" in resumed.stderr


def test_a_given_up_half_message_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path, transaction_time_out=0, transaction_check_max=1) as store:
        _, copy = given_up(store)
    assert handles(path) == []
    handle = run("half", "resume", path, copy.message_id).strip()
    assert [str(one) for one in handles(path)] == [handle]
    again = CliRunner().invoke(app, ["half", "resume", str(path), copy.message_id])
    assert (again.exit_code, again.stdout) == (1, "")
    assert "is pending" in again.stderr


@pytest.mark.parametrize("options", [[], ["--from-log"]])
def test_the_list_reports_what_is_damaged_and_shows_the_rest(path: Path, options: list[str]) -> None:
    first, second = handles(path)
    with open_store(path) as store:
        fill_the_file(store)
    damage(path, first.physical_offset, HEADER_SIZE)
    listed = CliRunner().invoke(app, ["half", "ls", str(path), "--json", *options])
    assert listed.exit_code == 1
    assert str(second) in listed.stdout
    assert str(first) not in listed.stdout
    assert "damage" in listed.stderr or "cannot be read" in listed.stderr
