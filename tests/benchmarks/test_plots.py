"""The pictures of docs/benchmarks.md show the figures of its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.plots import CHARTS, PAGE, PICTURES, Chart, described, draw, number_in, shown_by, table_of

TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CHARTS)
def test_a_picture_shows_the_figures_of_the_page(name: str) -> None:
    assert shown_by(PICTURES / f"{name}.svg") == described(CHARTS[name](TEXT)), "run `make plots`"


def test_each_picture_is_one_of_the_page_and_of_no_other() -> None:
    drawn_elsewhere = {"demo", "paths-of-a-message"}  # by docs/site/demo_picture.py, and by hand
    assert {path.stem for path in PICTURES.glob("*.svg")} - drawn_elsewhere == CHARTS.keys()
    assert all(f"](pictures/{name}.svg)" in TEXT for name in CHARTS)


def test_tables_and_their_numbers_are_found() -> None:
    page = "# P\n\n## One\n\n| a | b |\n|---|---|\n| x | 1,131 M/s = 87 % |\n\n"
    page += "text\n\n| c |\n|---|\n| **2.5** |\n\n## Two\n"
    assert table_of(page, "One") == [["a", "b"], ["x", "1,131 M/s = 87 %"]]
    assert table_of(page, "One", 1) == [["c"], ["**2.5**"]]
    assert [number_in("1,131 M/s = 87 %"), number_in("1,131 M/s = 87 %", -1), number_in("**2.5**")] == [1131, 87, 2.5]
    with pytest.raises(LookupError, match="has no table 0 below 'Two'"):
        table_of(page, "Two")


def test_a_drawn_picture_carries_its_figures_and_is_the_same_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra docs")
    chart = Chart("A title", "ms", ["one", "two"], {"here": [1, 2.5], "there": [3, 4]}, 2)
    for name in ("first.svg", "second.svg"):
        draw(chart, tmp_path / name)
    assert shown_by(tmp_path / "first.svg") == described(chart)
    assert (tmp_path / "first.svg").read_bytes() == (tmp_path / "second.svg").read_bytes()
