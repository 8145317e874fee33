"""``txn reset``, ``half rollback`` and ``repair --drop-kept`` show what they will do, and ask, as typed by a person."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import Message, StoreReader
from commitlog_store.repair import kept_pieces
from tests.crash.test_repair import damaged_store
from tests.store.batch.batches import commit
from tests.store.cli.commands import answered, ended, plain
from tests.store.owner.owned_store import open_store


def handle_of(path: Path) -> str:
    with StoreReader.open(path) as reader:
        return str(reader.pending_half_messages()[0].handle)


def state(path: Path) -> object:
    with StoreReader.open(path) as reader:
        return (
            [(one.batch.app_id, one.batch.version) for one in reader.batches()],
            [str(one.handle) for one in reader.pending_half_messages()],
            kept_pieces(path),
        )


def store_with_a_batch(path: Path) -> list[str]:
    with open_store(path) as store:
        assert commit(store, 9, app="night loader", count=12)
    return ["txn", "reset", str(path), "night loader"]


def store_with_a_half_message(path: Path) -> list[str]:
    with open_store(path) as store:
        store.half_messages.prepare(Message(topic="orders", body=b"first", keys=["k1"], queue_id=1), "payments")
    return ["half", "rollback", str(path), handle_of(path)]


def store_with_a_kept_piece(path: Path) -> list[str]:
    _, bad = damaged_store(path)
    assert ended("repair", path, "--cut-at", bad.physical_offset).returncode == 0
    return ["repair", str(path), "--drop-kept"]


COMMANDS = (
    (store_with_a_batch, "Forget it?", "It would forget 'night loader', whose last batch was 9, of 12 messages"),
    (store_with_a_half_message, "Roll it back?", "for topic orders, queue 1, keys k1: 5 bytes."),
    (store_with_a_kept_piece, "Remove them? They cannot be put back after that.", " would be removed: "),
)
of_each_command = pytest.mark.parametrize(("make", "question", "shown"), COMMANDS, ids=["txn", "half", "repair"])


@of_each_command
def test_a_terminal_is_asked(tmp_path: Path, make: Callable[[Path], list[str]], question: str, shown: str) -> None:
    command = make(tmp_path / "store")
    before = state(tmp_path / "store")
    code, printed, asked = answered(b"n\n", *command)
    assert (code, state(tmp_path / "store")) == (1, before)
    assert shown in printed
    assert f"{question} [y/N]" in plain(asked)
    code, _, asked = answered(b"y\n", *command)
    assert (code, f"{question} [y/N]" in plain(asked)) == (0, True), asked
    assert state(tmp_path / "store") != before


@of_each_command
def test_without_a_terminal_nothing_is_changed_and_the_exit_code_says_so(
    tmp_path: Path, make: Callable[[Path], list[str]], question: str, shown: str
) -> None:
    command = make(tmp_path / "store")
    before = state(tmp_path / "store")
    done = ended(*command)
    assert (done.returncode, done.stderr) == (1, "commitlog: Nothing is changed without --yes.\n"), question
    assert shown in done.stdout
    assert state(tmp_path / "store") == before
    done = ended(*command, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert state(tmp_path / "store") != before


def test_a_batch_that_came_after_the_last_one_was_shown_is_shown_and_asked_about(tmp_path: Path) -> None:
    command = store_with_a_batch(tmp_path / "store")

    def commit_more() -> None:
        with open_store(tmp_path / "store") as store:
            assert commit(store, 10, app="night loader")

    code, shown, asked = answered(b"y\n", *command, before_answer=commit_more)
    assert code == 0, asked
    assert 0 < shown.index("whose last batch was 9") < shown.index("whose last batch was 10")
    assert "The store has changed since this was shown." in plain(asked)


def test_kept_pieces_are_shown_to_programs_and_none_is_nothing_to_ask_about(tmp_path: Path) -> None:
    command = store_with_a_kept_piece(tmp_path / "store")
    done = ended(*command, "--json")
    shown = json.loads(done.stdout)
    assert (done.returncode, shown["dryRun"], len(shown["dropped"])) == (1, True, 1)
    removed = json.loads(ended(*command, "--json", "--yes").stdout)
    assert (removed["dryRun"], removed["dropped"]) == (False, shown["dropped"])
    done = ended(*command)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'store'} has no kept pieces.\n")


def test_a_position_of_the_store_itself_is_named(tmp_path: Path) -> None:
    """As docs/delayed-messages.md says, to deliver a level again."""
    store_with_a_batch(tmp_path / "store")
    done = ended("txn", "reset", tmp_path / "store", "rmq-schedule/3")
    assert (done.returncode, done.stderr) == (1, "commitlog: Nothing is changed without --yes.\n")
    assert done.stdout == "It would forget the position 'rmq-schedule/3' of the store itself.\n"
