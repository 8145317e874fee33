"""Links of pages: which are found, and how they change when a page moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.site.links import entries, moved, with_links

PAGE = Path("/project/docs/tutorials/first.md")
PLACES = {
    PAGE: Path("tutorials/first.md"),
    Path("/project/docs/source.md"): Path("source.md"),
    Path("/project/docs/decisions/README.md"): Path("decisions/index.md"),
    Path("/project/CHANGELOG.md"): Path("changelog.md"),
    Path("/project/examples/demo.py"): Path("examples/demo.py.md"),
}


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("../source.md", "../source.md"),
        ("../source.md#options", "../source.md#options"),
        ("../decisions/README.md", "../decisions/index.md"),
        ("../../CHANGELOG.md#unreleased", "../changelog.md#unreleased"),
        ("../../examples/demo.py", "../examples/demo.py.md"),
        ("#here", "#here"),
        ("https://rocketmq.apache.org/docs.md", "https://rocketmq.apache.org/docs.md"),
        ("missing.md", "missing.md"),
    ],
)
def test_a_link_leads_to_the_new_place(target: str, expected: str) -> None:
    assert moved(target, PAGE, PLACES[PAGE], PLACES) == expected


def test_links_change_and_code_does_not() -> None:
    text = "[a](x.md) `[b](x.md)` [over\ntwo lines](x.md#y)\n\n```python\n[c](x.md)\n```\n\n[d]( x.md )\n"
    expected = "[a](Z) `[b](x.md)` [over\ntwo lines](Z)\n\n```python\n[c](x.md)\n```\n\n[d]( Z )\n"
    assert with_links(text, lambda _: "Z") == expected


def test_the_entries_of_a_door_are_what_its_list_and_its_table_begin_with() -> None:
    text = "See [this](prose.md).\n\n- [One](one.md): with [a link](other.md)\n- [Out](https://x.org)\n\n"
    text += "| | |\n|---|---|\n| [0001](0001-a.md#b) | text |\n"
    assert list(entries(text)) == [("One", "one.md"), ("0001", "0001-a.md")]
