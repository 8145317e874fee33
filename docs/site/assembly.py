"""Assembles the site's sources: pages at their places, links that lead to them, and the navigation from the doors."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from docs.site.links import entries, moved, with_links

# Pages of the project's root and their places on the site.
ROOT_PAGES: Mapping[str, str] = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
}
# The pages whose lists are the navigation. The first one lists the others.
DOORS = ("index.md", "tutorials/index.md", "how-to.md", "reference.md", "explanation.md", "decisions/index.md")
# What is made from the code, listed at the end of a door's page.
GENERATED: Mapping[str, tuple[str, ...]] = {
    "reference.md": ("api/index", "commands", "codes"),
    "how-to.md": ("examples/index",),
}
# Files that pages link to and that are no pages.
FILES = ("CITATION.cff", "LICENSE", "NOTICE")


_PICTURES = (".svg", ".png")
# A picture for light and dark pages, which Sphinx does not look into.
_PICTURE = re.compile(r'<picture>.*?<img src="([^"]*)" alt="([^"]*)">\s*</picture>', re.DOTALL)


class SiteError(Exception):
    """The pages do not make a site: a page is in no door, or in two, or a door lists what does not exist."""


def places_of(project: Path) -> dict[Path, Path]:
    """Each file of the project that the site has, and its place there."""
    docs = project / "docs"
    places = {project / name: Path(place) for name, place in ROOT_PAGES.items()}
    for page in sorted(docs.rglob("*.md")):
        place = page.relative_to(docs)
        places[page] = place.with_name("index.md") if place.name == "README.md" else place
    places |= {
        picture: picture.relative_to(docs)
        for picture in sorted(docs.rglob("pictures/*"))
        if picture.suffix in _PICTURES
    }
    places |= {program: Path("examples", f"{program.name}.md") for program in examples(project)}
    return places | {project / name: Path(name) for name in FILES}


def examples(project: Path) -> list[Path]:
    """The programs and unit files of ``examples/``."""
    return sorted(path for path in (project / "examples").iterdir() if path.suffix in {".py", ".service"})


def assemble(project: Path, target: Path, generated: Mapping[str, str]) -> None:
    """Write the site's sources into ``target``, which is made from scratch. ``generated`` has pages by place.

    ``SiteError`` unless each page is in exactly one door.
    """
    places = places_of(project)
    pages = {place.as_posix(): _text(page, places) for page, place in places.items() if page.suffix == ".md"}
    pages |= {places[program].as_posix(): _program_page(program) for program in examples(project)}
    pages["examples/index.md"] = _list_of_examples(project)
    pages |= generated
    listed = {door: list(_listed(door, pages)) for door in DOORS}
    _check_doors(listed, pages)
    shutil.rmtree(target, ignore_errors=True)
    for name, text in pages.items():
        _write(target / name, text + _toctree(door=name, listed=listed.get(name, []), text=text))
    for file, place in places.items():
        if file.suffix not in {".md", ".py", ".service"}:
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target / place)


def _text(page: Path, places: dict[Path, Path]) -> str:
    text = _PICTURE.sub(r"![\2](\1)", page.read_text(encoding="utf-8"))
    return with_links(text, lambda link: moved(link, page, places[page], places))


def _program_page(program: Path) -> str:
    kind = "python" if program.suffix == ".py" else "ini"
    return f"# {program.name}\n\n```{kind}\n{program.read_text(encoding='utf-8')}```\n"


def _list_of_examples(project: Path) -> str:
    # Pages of programs are in no door's list, so their own list is their part of the navigation.
    names = "\n".join(f"{path.name}.md" for path in examples(project))
    return f"# Examples\n\nComplete programs, each of which a test runs.\n\n```{{toctree}}\n{names}\n```\n"


def _listed(door: str, pages: Mapping[str, str]) -> Iterator[str]:
    """The pages that a door lists, as names of documents."""
    if door not in pages:
        raise SiteError(f"the page {door} is missing: it is one of the site's doors")
    for _, entry in entries(pages[door]):
        place = os.path.normpath(Path(door).parent / entry)
        if place not in pages:
            raise SiteError(f"{door} lists {entry}, which is no page of the site")
        yield place.removesuffix(".md")


def _check_doors(listed: Mapping[str, list[str]], pages: Mapping[str, str]) -> None:
    found: dict[str, str] = {}
    for door, names in listed.items():
        for name in names:
            if name in found:
                raise SiteError(f"{name} is listed by {found[name]} and by {door}: leave it in one of them")
            found[name] = door
    made = {name for names in GENERATED.values() for name in names}
    own = {"index", *made}
    missing = [name for name in _names(pages) if name not in found and name not in own and not _below(name, made)]
    if missing:
        raise SiteError(f"no door lists {', '.join(missing)}: add each to the list of one of {', '.join(DOORS)}")


def _names(pages: Mapping[str, str]) -> list[str]:
    return sorted(os.path.splitext(name)[0] for name in pages)


def _below(name: str, indexes: set[str]) -> bool:
    """Whether a page belongs to a generated folder, whose index lists it."""
    return any(index.endswith("/index") and name.startswith(index.removesuffix("index")) for index in indexes)


def _toctree(door: str, listed: list[str], text: str) -> str:
    """What follows a page's text: the navigation of a door, and a list of its pages that are made from the code."""
    places = [f"/{name}" for name in listed]
    if door == DOORS[0]:  # the names of the doors are those of its links; elsewhere pages have their own titles
        places = [f"{name} <{place}>" for (name, _), place in zip(entries(text), places, strict=True)]
    added = "\n```{toctree}\n:hidden:\n\n" + "\n".join(places) + "\n```\n" if listed else ""
    if made := GENERATED.get(door, ()):
        names = "\n".join(f"/{name}" for name in made)
        added += f"\n## From the code\n\n```{{toctree}}\n:maxdepth: 1\n\n{names}\n```\n"
    return added


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
