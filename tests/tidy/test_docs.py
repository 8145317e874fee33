"""The documentation's lines fit into 120 characters, and its links lead to files, headings and project sites."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import commitlog_store.errors
import pyspark_commitlog.errors

PROJECT = Path(__file__).resolve().parents[2]
PAGES = [
    *(PROJECT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY", "CODE_OF_CONDUCT")),
    *sorted((PROJECT / "docs").rglob("*.md")),
]

LONGEST_LINE_CHARACTERS = 120
# Links lead to a project's own site: what a registry shows depends on which one it is.
REGISTRIES = ("crates.io", "npmjs.com", "pkg.go.dev", "pypi.org", "repo1.maven.org", "mvnrepository.com")

# [text](target); the text may go over a line's end.
_LINK = re.compile(r"\[[^\]]*\]\(\s*([^)\s]+)\s*\)")
_FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


def long_lines(text: str) -> list[int]:
    """The numbers of the lines that are too long, of which tables cannot and links need not be cut."""
    return [
        number
        for number, line in enumerate(text.splitlines(), start=1)
        if len(_LINK.sub("", line)) > LONGEST_LINE_CHARACTERS and not line.lstrip().startswith("|")
    ]


def links(text: str) -> Iterator[str]:
    """The targets of all links that stand outside of code."""
    without_code = re.sub(r"`[^`\n]*`", "", _FENCED.sub("", text))
    return (found[1] for found in _LINK.finditer(without_code))


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        plain = _LINK.sub(lambda link: link[0][1 : link[0].index("]")], heading)
        base = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        anchor, repeated = base, 0
        while anchor in found:
            repeated += 1
            anchor = f"{base}-{repeated}"
        found.add(anchor)
    return found


def broken(page: Path, target: str) -> str | None:
    """What is wrong with a link of a page; None when it leads somewhere."""
    if re.match(r"[a-z]+:", target):
        registries = [registry for registry in REGISTRIES if registry in target]
        return f"leads to the registry {registries[0]}: link the project's own site" if registries else None
    name, _, anchor = target.partition("#")
    file = page.parent / name if name else page
    if not file.exists():
        return "no such file"
    if anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
        return f"{file.name} has no such heading"
    return None


def test_lines_of_the_documentation_fit() -> None:
    wrong = [
        f"{page.relative_to(PROJECT)}:{number}"
        for page in PAGES
        for number in long_lines(page.read_text(encoding="utf-8"))
    ]
    assert not wrong, f"longer than {LONGEST_LINE_CHARACTERS} characters: {wrong}"


def test_links_of_the_documentation_lead_somewhere() -> None:
    wrong = [
        f"{page.relative_to(PROJECT)}: {target}: {reason}"
        for page in PAGES
        for target in links(page.read_text(encoding="utf-8"))
        if (reason := broken(page, target)) is not None
    ]
    assert not wrong, "\n".join(wrong)


def test_every_page_is_linked_from_the_readme_or_from_a_door_of_the_site() -> None:
    doors = ("README", "tutorials/README", "how-to", "reference", "explanation", "decisions/README")
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in (PROJECT / "README.md", *(PROJECT / "docs" / f"{door}.md" for door in doors))
        for target in links(page.read_text(encoding="utf-8"))
        if not re.match(r"[a-z]+:", target)
    }
    missing = [str(page.relative_to(PROJECT)) for page in PAGES[1:] if page not in linked]
    assert not missing, f"no reader finds these pages: {missing}"


def test_the_errors_in_troubleshooting_exist() -> None:
    text = (PROJECT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    first_column = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    named = {name for cell in first_column for name in re.findall(r"`([A-Z][A-Za-z]*)`", cell)}
    assert len(named) > 20
    known = {*dir(builtins), *commitlog_store.errors.__all__, *pyspark_commitlog.errors.__all__}
    assert named <= known, f"renamed or gone: {sorted(named - known)}"


@pytest.mark.parametrize(
    ("line", "fits"),
    [
        ("x" * 120, True),
        ("x" * 121, False),
        ("| " + "x" * 121 + " |", True),
        ("see [this](" + "x" * 121 + ")", True),
        ("see `" + "x" * 121 + "`", False),
    ],
)
def test_the_finder_of_long_lines_leaves_tables_and_links_alone(line: str, fits: bool) -> None:
    assert (long_lines(f"short\n{line}\n") == []) is fits


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("other.md", None),
        ("other.md#a-heading-of-other", None),
        ("other.md#a-heading-of-other-1", None),
        ("#here", None),
        ("https://rocketmq.apache.org", None),
        ("missing.md", "no such file"),
        ("other.md#not-there", "other.md has no such heading"),
        ("other.md#code", "other.md has no such heading"),
        ("https://pypi.org/project/numpy/", "leads to the registry pypi.org: link the project's own site"),
    ],
)
def test_the_finder_of_broken_links_sees_each_kind(tmp_path: Path, target: str, reason: str | None) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Here\n\n[a\nlink]({target}) and `[code](missing.md)`\n", encoding="utf-8")
    (tmp_path / "other.md").write_text(
        "# A `heading` of [other](page.md)\n\n```\n# Code\n```\n\n## A heading of other\n", encoding="utf-8"
    )
    assert [broken(page, found) for found in links(page.read_text(encoding="utf-8"))] == [reason]
