"""The picture of the demonstration shows what its program says, and loads nothing from another host."""

from __future__ import annotations

import html
import io
import re

from rich.console import Console

from docs.site.demo_picture import PICTURE, picture_of
from tests.examples.test_examples import SAYS

# Names of formats and of the program that made the picture; nothing is loaded from there.
NAMES = {"http://www.w3.org/2000/svg", "https://www.textualize.io"}


def test_the_picture_shows_what_the_demo_says() -> None:
    text = html.unescape(re.sub(r"<[^>]+>", "", PICTURE.read_text(encoding="utf-8"))).replace("\N{NO-BREAK SPACE}", " ")
    assert [said for said in SAYS["demo.py"] if said not in text] == []


def test_a_picture_loads_nothing_from_another_host_and_is_the_same_again() -> None:
    drawn = []
    for _ in range(2):
        console = Console(record=True, width=40, file=io.StringIO())
        console.print("[bold]batch[/bold] 0: 150 rows")
        drawn.append(picture_of(console))
    assert drawn[0] == drawn[1]
    assert "batch" in drawn[0]
    assert set(re.findall(r"https?://[^\s\"')>]+", drawn[0])) <= NAMES
    assert set(re.findall(r"https?://[^\s\"')>]+", PICTURE.read_text(encoding="utf-8"))) <= NAMES
