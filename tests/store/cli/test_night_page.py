"""The table of "The night page" in docs/operations.md: each symptom's commands run, and print what the page says."""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from commitlog_store import Message, MessageStore
from commitlog_store.groups.commit import commit_group_offsets
from tests.damage_table.commands import file_modes_hold
from tests.store.cli.commands import ended
from tests.store.cli.test_operations import PAGE
from tests.store.retention.small_stores import Clock, store_clock
from tests.store.verify.made_store import CONFIG, damage, files, make_store, message_place


class Row(NamedTuple):
    """A row of the table."""

    symptom: str
    command: str
    says: str
    do: str

    def commands(self) -> list[str]:
        """The command to type, and those that the last column has as they are."""
        return [self.command, *re.findall(r"`((?:doctor|groups|schedule) [^`]*)`", self.do)]


def table() -> dict[str, Row]:
    """The rows by symptom."""
    section = PAGE.partition("## The night page\n")[2].partition("\n### ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    rows = [Row(symptom, command.strip("`"), says, do) for symptom, command, says, do in cells[2:]]
    return {row.symptom: row for row in rows}


def newest_log_file_gone(store: Path) -> None:
    for file in files(store, "commitlog"):
        if int(file.name) >= 262144:  # the newest one with messages, and those created ahead
            file.unlink()


def body_damaged(store: Path) -> None:
    file, place, _ = message_place(store, "orders", 1, 100)
    damage(file, place + 100, b"XXXX")


def queues_gone(store: Path) -> None:
    shutil.rmtree(store / "consumequeue")


def group_late(store: Path) -> None:
    commit_group_offsets(store, "billing", {("orders", 0): 100, ("orders", 1): 240, ("orders", 2): 240})


def delayed_overdue(store: Path) -> None:
    shutil.rmtree(store)  # store times do not go back
    config = replace(CONFIG, schedule_enable=False)
    with store_clock(Clock(time.time() - 600)), MessageStore.open(store, config) as opened:
        opened.put_message(Message(topic="orders", body=b"x", delay_level=1)).raise_for_status()


def not_readable(store: Path) -> None:
    files(store, "commitlog")[1].chmod(0)


def nothing(_: Path) -> None:
    pass


class Trouble(NamedTuple):
    """How to get the symptom; the exit code of the row's command, and words that it prints."""

    make: Callable[[Path], None]
    exit_code: int
    words: tuple[str, ...]


TROUBLES = {
    "an alarm, and no idea why": Trouble(body_damaged, 0, ("OK  ", "next     commitlog doctor --deep ")),
    "the store does not open": Trouble(newest_log_file_gone, 1, ("DOES NOT OPEN  ", "opening  refused: ", "audit: ")),
    "reads fail, or messages are missing": Trouble(body_damaged, 1, ("DAMAGED  ", "orders: 1 lost", "queue 1: 100")),
    "topics or keys have vanished": Trouble(queues_gone, 1, ("WARNING  ", "opening  builds queues and index again")),
    "consumers are late": Trouble(group_late, 0, ("group billing is 140 messages behind",)),
    "delayed messages do not come": Trouble(
        delayed_overdue, 1, ("WARNING  ", "a message of delay level 1 has been due")
    ),
    "puts are refused": Trouble(nothing, 0, ("of the disk of",)),
    "`No permission`": Trouble(not_readable, 1, ("commitlog/00000000000000065536", "No permission to read")),
    "nothing, after a backup or a move": Trouble(nothing, 0, ("OK  ", "messages 900 found")),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("made") / "store")


def test_every_symptom_of_the_page_is_tried() -> None:
    assert table().keys() == TROUBLES.keys()


@pytest.mark.parametrize("symptom", TROUBLES)
def test_the_commands_of_a_symptom_say_what_the_page_says(symptom: str, made: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(made, tmp_path / "store"))
    trouble, row = TROUBLES[symptom], table()[symptom]
    trouble.make(store)
    first, *others = [shlex.split(command) for command in row.commands()]
    with file_modes_hold():
        done = ended(*_with_names(first, store))
        for words in others:
            assert ended(*_with_names(words, store)).returncode == 0, words
    if "disk=" not in row.command:  # the disk of this machine may be full
        assert done.returncode == trouble.exit_code, (done.stdout, done.stderr)
    for text in (*trouble.words, *re.findall(r"`([^`]+)`", row.says)):
        assert text in done.stdout


def _with_names(words: list[str], store: Path) -> list[object]:
    return [store if word == "PATH" else "billing" if word == "GROUP" else word for word in words]
