"""The site's sources: every page is in one door, and every link of the assembled pages leads to an assembled file."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import commitlog_store
from commitlog_store.paths import COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX
from docs.site.__main__ import build, pages_from_the_code
from docs.site.assembly import FILES, ROOT_PAGES, SiteError, assemble
from tests.support.local_spark import PROJECT
from tests.tidy.test_docs import broken, links


@pytest.fixture(scope="module")
def assembled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site") / "source"
    assemble(PROJECT, target, pages_from_the_code())
    return target


def test_the_site_has_every_page_of_the_project(assembled: Path) -> None:
    for page in (PROJECT / "docs").rglob("*.md"):
        place = page.relative_to(PROJECT / "docs")
        assert (assembled / place.with_name("index.md" if place.name == "README.md" else place.name)).exists()
    assert all((assembled / place).exists() for place in ROOT_PAGES.values())
    assert (assembled / "examples" / "demo.py.md").exists()
    assert (assembled / "api" / "store.rst").exists()


def test_links_of_the_assembled_pages_lead_somewhere(assembled: Path) -> None:
    wrong = [
        f"{page.relative_to(assembled)}: {target}: {reason}"
        for page in assembled.rglob("*.md")
        for target in links(page.read_text(encoding="utf-8"))
        if (reason := broken(page, target)) is not None
    ]
    assert not wrong, "\n".join(wrong)


def test_a_picture_for_light_and_dark_pages_is_the_light_one(assembled: Path) -> None:
    for page in ("overview.md", "dashboard.md"):
        assert "](pictures/dashboard-light.png)" in (assembled / page).read_text(encoding="utf-8")
    assert 0 < (assembled / "pictures" / "dashboard-light.png").stat().st_size < 150_000


def test_the_picture_of_the_architecture_names_what_exists(assembled: Path) -> None:
    assert "](pictures/paths-of-a-message.svg)" in (assembled / "architecture.md").read_text(encoding="utf-8")
    picture = ET.parse(assembled / "pictures" / "paths-of-a-message.svg").getroot()
    words = " ".join(one.text or "" for one in picture.iter("{http://www.w3.org/2000/svg}text"))
    classes = {word for word in re.findall(r"[A-Z]\w+", words) if hasattr(commitlog_store, word)}
    assert classes == {"MessageStore", "StoreReader"}
    assert set(re.findall(r"(\w+)/", words)) <= {COMMIT_LOG, CONSUME_QUEUE, INDEX, CONFIG}


def test_the_doors_list_is_the_navigation(assembled: Path) -> None:
    text = (assembled / "index.md").read_text(encoding="utf-8")
    doors = ["Tutorials </tutorials/index>", "How-to </how-to>", "Reference </reference>", "Explanation </explanation>"]
    doors += ["Overview </overview>", "Changelog </changelog>"]
    assert text.endswith("```{toctree}\n:hidden:\n\n" + "".join(f"{door}\n" for door in doors) + "```\n")


def test_assembling_again_leaves_nothing_of_before(tmp_path: Path) -> None:
    project = small_project(tmp_path)
    assemble(project, tmp_path / "source", GENERATED)
    (tmp_path / "source" / "old.md").write_text("# Old\n")
    assemble(project, tmp_path / "source", GENERATED)
    assert not (tmp_path / "source" / "old.md").exists()


GENERATED = {"api/index.rst": "API\n===\n", "commands.md": "# Commands\n", "codes.md": "# Codes\n"}


def small_project(directory: Path) -> Path:
    """A project with one page for each door, and the files that a site needs."""
    project = directory / "project"
    pages = {
        "docs/README.md": "# Home\n\n- [T](tutorials/README.md)\n- [H](how-to.md)\n- [R](reference.md)\n"
        "- [E](explanation.md)\n- [O](../README.md)\n",
        "docs/tutorials/README.md": "# Tutorials\n\n- [A](a.md)\n",
        "docs/tutorials/a.md": "# A\n\nSee [b](../b.md#here).\n",
        "docs/how-to.md": "# How\n\n- [B](b.md)\n- [C](../CONTRIBUTING.md)\n- [C](../CODE_OF_CONDUCT.md)\n"
        "- [S](../SECURITY.md)\n",
        "docs/b.md": "# B\n\n## Here\n\n```crontab\n* * * * * x\n```\n",
        "docs/reference.md": "# Reference\n\n- [L](../CHANGELOG.md)\n",
        "docs/explanation.md": "# Explanation\n\n- [D](decisions/README.md)\n",
        "docs/decisions/README.md": "# Decisions\n\n| | |\n|---|---|\n| [1](0001-x.md) | x |\n",
        "docs/decisions/0001-x.md": "# X\n",
        "examples/x.py": "print(1)\n",
        **dict.fromkeys(FILES, ""),
        **{name: f"# {name}\n" for name in ROOT_PAGES},
    }
    for name, text in pages.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    return project


def in_no_door(docs: Path) -> None:
    (docs / "new.md").write_text("# New\n")


def in_two_doors(docs: Path) -> None:
    with (docs / "reference.md").open("a") as page:
        page.write("- [B](b.md)\n")


def without_its_page(docs: Path) -> None:
    with (docs / "reference.md").open("a") as page:
        page.write("- [X](x.md)\n")


def without_a_door(docs: Path) -> None:
    (docs / "how-to.md").unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (in_no_door, "no door lists new: add each"),
        (in_two_doors, "b is listed by how-to.md and by reference.md"),
        (without_its_page, "reference.md lists x.md, which is no page of the site"),
        (without_a_door, "index.md lists how-to.md, which is no page of the site"),
    ],
)
def test_pages_that_make_no_site_are_named(tmp_path: Path, change: Callable[[Path], None], said: str) -> None:
    project = small_project(tmp_path)
    change(project / "docs")
    with pytest.raises(SiteError, match=said):
        assemble(project, tmp_path / "source", GENERATED)


def has_sphinx() -> bool:
    return all(find_spec(name) is not None for name in ("myst_parser", "pydata_sphinx_theme", "sphinx"))


@pytest.mark.skipif(not has_sphinx(), reason="needs the extra docs")
def test_sphinx_builds_the_pages_and_refuses_a_lost_heading(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    project = small_project(tmp_path)
    assert build(project, tmp_path, GENERATED, builder="html") == 0, capfd.readouterr().err
    assert 'href="../b.html#here"' in (tmp_path / "html" / "tutorials" / "a.html").read_text()
    (project / "docs" / "b.md").write_text("# B\n\n## Elsewhere\n")
    assert build(project, tmp_path, GENERATED, builder="html") != 0
    assert "a.md:3: WARNING: local id not found in doc 'b': 'here'" in capfd.readouterr().err
