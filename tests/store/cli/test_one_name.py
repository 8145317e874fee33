"""One name an option: what is the same in two commands has one long name, one short name and one value in both."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from commitlog_store.cli.app import app
from tests.store.cli.commands import ended, plain

# Words that stand for two things, and are clear in both places.
TWO_MEANINGS = {
    "--to": "where to: the target of an export or a salvage, and the position of a reset, as Kafka's tools have it",
    "--queues": "a row for each queue, and how many queues a new topic has",
}


def commands(found: Any = None, name: str = "commitlog") -> Iterator[tuple[str, Any]]:
    """Every command with its full name."""
    found = get_command(app) if found is None else found
    below = getattr(found, "commands", None)
    if below is None:
        yield name, found
        return
    for word, command in below.items():
        yield from commands(command, f"{name} {word}")


def options() -> Iterator[tuple[str, str, str | None, Any]]:
    """A row for each option of each command: command, long name, short name, and the option itself."""
    for name, command in commands():
        for param in command.params:
            longs = [one for one in param.opts if one.startswith("--")]
            shorts = [one for one in param.opts if not one.startswith("--") and one.startswith("-")]
            if longs and param.name != "help":
                yield name, longs[0], (shorts or [None])[0], param


OPTIONS = list(options())


def several(names: list[tuple[object, object]]) -> dict[object, set[object]]:
    """The keys that have more than one value, and their values."""
    found = defaultdict(set)
    for key, value in names:
        found[key].add(value)
    return {key: values for key, values in found.items() if len(values) > 1 and key not in TWO_MEANINGS}


def test_an_option_has_the_same_short_name_and_value_in_all_commands() -> None:
    assert several([(long, (short, param.metavar)) for _, long, short, param in OPTIONS]) == {}


def test_a_short_name_stands_for_one_option() -> None:
    assert several([(short, long) for _, long, short, _ in OPTIONS if short]) == {}


def test_a_parameter_of_the_code_has_one_option_and_an_option_one_parameter() -> None:
    """Two options of one meaning would be two names of one parameter, or a parameter with two names."""
    assert several([(param.name, long) for _, long, _, param in OPTIONS]) == {}
    assert several([(long, param.name) for _, long, _, param in OPTIONS]) == {}


def test_no_two_options_with_values_differ_by_an_ending() -> None:
    """As ``--tag`` and ``--tags`` did, and ``--queue`` and ``--queue-id``."""
    names = {long for _, long, _, param in OPTIONS if not param.is_flag and long not in TWO_MEANINGS}
    assert [(one, one + more) for one in names for more in ("s", "-id", "-name", "-size") if one + more in names] == []


def test_every_value_has_a_name_in_the_help() -> None:
    assert [(name, long) for name, long, _, param in OPTIONS if not param.is_flag and not param.metavar] == []


def test_an_argument_that_is_in_several_commands_has_one_name_in_all() -> None:
    found = [(param, one) for _, one in commands() for param in one.params if not param.opts[0].startswith("-")]
    assert several([(param.name, param.metavar) for param, _ in found]) == {}


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        (["export", ".", "--to", "csv:x", "--tags", "a"], "--tag"),
        (["produce", ".", "-t", "a", "--tags", "a"], "--tag"),
        (["produce", ".", "-t", "a", "--queue-id", "1"], "--queue"),
        (["query", ".", "orders", "k75"], "commitlog query . k75 --topic orders"),
    ],
)
def test_an_earlier_name_is_answered(typed: list[str], answer: str) -> None:
    done = ended(*typed)
    assert done.returncode == 2
    assert re.search(re.escape(answer) + r"(?![\w-])", plain(done.stderr)), "the name itself, not one that begins so"
