"""Columns of text look as a table of rich without lines: the same text, with styles on a terminal."""

from __future__ import annotations

import io
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

from commitlog_store.cli import text_columns
from commitlog_store.cli.text_columns import TextColumn, print_columns

CELLS = st.text("ab-1 ü漢字é…", max_size=12).map(str.strip)


def console(*, terminal: bool) -> Console:
    colors: Literal["256"] | None = "256" if terminal else None
    return Console(file=io.StringIO(), force_terminal=terminal, color_system=colors, soft_wrap=True, width=10_000)


def written(shown: Console) -> str:
    assert isinstance(shown.file, io.StringIO)
    return shown.file.getvalue()


def columns_as_text(columns: list[TextColumn], styles: list[str] | None = None, *, terminal: bool = False) -> str:
    shown = console(terminal=terminal)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_columns, "uncut_console", lambda: shown)
        print_columns(columns, styles)
    return written(shown)


@given(st.data())
def test_text_is_that_of_richs_table(data: st.DataObject) -> None:
    count, rows = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 4))
    columns = [
        TextColumn(
            heading=data.draw(CELLS.filter(bool)),
            cells=data.draw(st.lists(CELLS, min_size=rows, max_size=rows)),
            right=data.draw(st.booleans()),
        )
        for _ in range(count)
    ]
    table = Table(box=None, pad_edge=False)
    for one in columns:
        table.add_column(Text(one.heading), justify="right" if one.right else "left", no_wrap=True)
    for row in zip(*(one.cells for one in columns), strict=True):
        table.add_row(*map(Text, row))
    expected = console(terminal=False)
    expected.print(table)
    assert columns_as_text(columns) == written(expected)


def test_heading_and_first_cells_have_styles_on_a_terminal() -> None:
    columns = [
        TextColumn(heading="topic", cells=["orders", "rmq_sys_x"], right=False),
        TextColumn(heading="queues", cells=["4", "12"]),
    ]
    assert columns_as_text(columns, ["cyan", "dim"], terminal=True) == (
        "\x1b[1mtopic      queues\x1b[0m\n\x1b[36morders   \x1b[0m       4\n\x1b[2mrmq_sys_x\x1b[0m      12\n"
    )
