"""Groups of options: a parameter of a command that is a dataclass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from commitlog_store.cli.option_groups import takes_groups


@dataclass(frozen=True, kw_only=True)
class Size:
    width: Annotated[int, typer.Option(help="How wide.")] = 1
    height: Annotated[int, typer.Option(help="How high.")] = 2


@dataclass(frozen=True, kw_only=True)
class Box(Size):
    depth: Annotated[int, typer.Option(help="How deep.")] = 3


USUAL = Box()


@takes_groups
def pack(name: str, first: bool = False, box: Box = USUAL, last: bool = False) -> None:
    print(name, first, box.width, box.height, box.depth, last)


@pytest.fixture
def app() -> typer.Typer:
    found = typer.Typer()
    found.command()(pack)
    return found


@pytest.mark.parametrize(
    ("given", "printed"),
    [
        (["a"], "a False 1 2 3 False"),
        (["a", "--depth", "9", "--last"], "a False 1 2 9 True"),
        (["a", "--first", "--height", "7", "--width", "8"], "a True 8 7 3 False"),
    ],
)
def test_a_command_gets_the_options_of_a_group_as_one_object(app: typer.Typer, given: list[str], printed: str) -> None:
    assert CliRunner().invoke(app, given).stdout == printed + "\n"


def test_the_options_of_a_group_are_listed_in_its_place(app: typer.Typer) -> None:
    names = [one.name for one in typer.main.get_command(app).params]
    assert names[:6] == ["name", "first", "width", "height", "depth", "last"]


LARGE = Box(width=50, height=60)


@takes_groups
def pack_large(box: Box = LARGE) -> None:
    print(box.width, box.height, box.depth)


@pytest.fixture
def large_app() -> typer.Typer:
    found = typer.Typer()
    found.command()(pack_large)
    return found


@pytest.mark.parametrize(("given", "printed"), [([], "50 60 3"), (["--width", "8"], "8 60 3")])
def test_options_that_are_not_given_are_those_of_the_default(
    large_app: typer.Typer, given: list[str], printed: str
) -> None:
    assert CliRunner().invoke(large_app, given).stdout == printed + "\n"


def test_the_help_shows_the_values_of_the_default(large_app: typer.Typer) -> None:
    shown = CliRunner().invoke(large_app, ["--help"], env={"COLUMNS": "120", "NO_COLOR": "1"}).stdout
    defaults = [line.split("[default: ")[1].split("]")[0] for line in shown.splitlines() if "[default: " in line]
    assert defaults == ["50", "60", "3"]


def test_a_group_without_a_default_is_refused_at_once() -> None:
    def no_default(box: Box) -> None: ...

    with pytest.raises(TypeError, match="'box' needs a default"):
        takes_groups(no_default)


@dataclass(frozen=True, kw_only=True)
class Labels:
    labels: Annotated[list[str], typer.Option(help="What is written on it.")] = field(default_factory=list)


NO_LABELS = Labels()


def test_a_default_factory_is_refused_at_once() -> None:
    """Typer would show the marker of dataclasses for a missing default, and hand it to the command."""

    def label(labels: Labels = NO_LABELS) -> None: ...

    with pytest.raises(TypeError, match="labels of Labels"):
        takes_groups(label)
