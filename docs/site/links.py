"""Links of Markdown pages: which ones a page has, and how they change when a page moves."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

# [text](target); the text may go over a line's end.
_LINK = re.compile(r"(\[[^\]]*\]\(\s*)([^)\s]+)(\s*\))")
_CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
# A line of a list, or a row of a table, that begins with a link: an entry of a door's page.
_ENTRY = re.compile(r"^(?:- |\| )\[([^\]]*)\]\(([^)\s]+)\)", re.MULTILINE)
_ELSEWHERE = re.compile(r"[a-z]+:|#")


def with_links(text: str, changed: Callable[[str], str]) -> str:
    """The text with each link's target as ``changed`` gives it; code is left alone."""
    pieces: list[str] = []
    end = 0
    for code in _CODE.finditer(text):
        pieces += [_changed(text[end : code.start()], changed), code[0]]
        end = code.end()
    return "".join([*pieces, _changed(text[end:], changed)])


def _changed(text: str, changed: Callable[[str], str]) -> str:
    return _LINK.sub(lambda found: f"{found[1]}{changed(found[2])}{found[3]}", text)


def entries(text: str) -> Iterator[tuple[str, str]]:
    """The pages that a door's page lists, in order: the link's text, and the path from the door, without its anchor."""
    for name, target in _ENTRY.findall(text):
        if not _ELSEWHERE.match(target):
            yield name, target.partition("#")[0]


def moved(target: str, page: Path, place: Path, places: dict[Path, Path]) -> str:
    """A link of ``page`` as it must be when the page is at ``place``.

    ``places`` has the new place of each file of the project; a link to another file stays as it is, and so do links to
    other hosts and within the page.
    """
    if _ELSEWHERE.match(target):
        return target
    name, mark, anchor = target.partition("#")
    file = Path(os.path.normpath(page.parent / name))
    if file not in places:
        return target
    return Path(os.path.relpath(places[file], place.parent)).as_posix() + mark + anchor
