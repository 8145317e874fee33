"""Groups of options: a parameter of a command that is a dataclass."""

from __future__ import annotations

from dataclasses import dataclass
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
