"""Pointers into the code lead somewhere: files, modules, classes and functions that pages and docstrings name."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.source_tree import PROJECT, Module, modules

PAGES = [
    *(PROJECT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((PROJECT / "docs").rglob("*.md")),
]
# Pages about the code: each class and folder that they name is one of the project's, or of those below.
PAGES_OF_CODE = [PROJECT / "docs" / f"{name}.md" for name in ("architecture", "invariants", "extending")]
# A class of Python's, and the names of threads.
FOREIGN = frozenset({"FlushConsumerOffsetService", "SimpleQueue", "StoreJobs"})
STORE_FOLDERS = frozenset({"commitlog", "config", "consumequeue", "index", "staging"})
PYSPARKS_FILES = frozenset(
    {"context.py", "daemon.py", "python_streaming_source_runner.py", "util.py", "write_into_data_source.py"}
)

# `engine/flush.py`, also with what is in it: `engine/flush.py` (`FlushRealTimeService`, `_sync`).
_FILE = re.compile(r"`([\w./-]+\.pyi?)`(?:\s\(((?:`[\w.]+`(?:,\s|\sand\s)?)+)\))?")
_DOTTED = re.compile(r"`((?:commitlog_store|pyspark_commitlog)(?:\.\w+)+)`")
# `Class`, `Class.attribute`, with or without a call's parentheses.
# `engine/`, `tests/store/damage`
_FOLDER = re.compile(r"`(\w+/|(?:store|connector|tests|docs|examples)(?:/[\w-]+)+/?)`")
_CLASS = re.compile(r"`([A-Z][a-z]\w*[A-Z]\w*)(?:\.(\w+))?(?:\([^`]*\))?`")
_NAME = re.compile(r"[\w.]+")
_CLASS_STATEMENT = re.compile(r"^ *class (\w+)[:(]", re.MULTILINE)


@functools.cache
def files() -> tuple[Path, ...]:
    roots = (PROJECT / name for name in ("store", "connector", "tests", "examples"))
    return tuple(path.relative_to(PROJECT) for root in roots for path in root.rglob("*.py*") if path.suffix != ".pyc")


@functools.cache
def files_called() -> dict[str, list[Path]]:
    """The files of each name, without its folders."""
    found: dict[str, list[Path]] = {}
    for path in files():
        found.setdefault(path.name, []).append(path)
    return found


@functools.cache
def names_in(path: Path) -> frozenset[str]:
    """What a file defines, at any depth: functions, classes, variables and attributes."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((PROJECT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update(alias.asname or alias.name for alias in node.names)
    return frozenset(found)


@functools.cache
def classes() -> dict[str, Path]:
    """The classes of both packages and of the tests, each with its file."""
    return {
        name: path
        for path in reversed(files())
        if path.suffix == ".py"
        for name in _CLASS_STATEMENT.findall((PROJECT / path).read_text(encoding="utf-8"))
    }


def lost(text: str) -> Iterator[str]:
    """The pointers of a text to files, modules and names that do not exist."""
    for found in _FILE.finditer(text):
        named, names = found[1], _NAME.findall(found[2] or "")
        name_alone = named.rpartition("/")[2]
        places = [path for path in files_called().get(name_alone, []) if f"/{path.as_posix()}".endswith(f"/{named}")]
        if not places and name_alone not in PYSPARKS_FILES:
            yield named
        for name in names if places else ():
            if not any(name.rpartition(".")[2] in names_in(path) for path in places):
                yield f"{named} ({name})"
    for found in _DOTTED.finditer(text):
        parts = found[1].split(".")
        if not any(_leads_to("/".join(parts[:end]), parts[end:]) for end in range(1, len(parts) + 1)):
            yield found[1]


def _leads_to(path: str, names: list[str]) -> bool:
    """Whether a module has this path, below its package's folder, and defines all the names."""
    for folder in ("store", "connector"):
        for name in (f"{folder}/{path}.py", f"{folder}/{path}/__init__.py", f"{folder}/{path}/__init__.pyi"):
            candidate = Path(name)
            if candidate in files_called().get(candidate.name, []) and names_in(candidate).issuperset(names):
                return True
    return False


def lost_in_code(text: str) -> Iterator[str]:
    """The folders, the classes and their attributes that do not exist."""
    for found in _FOLDER.finditer(text):
        folder = found[1].rstrip("/")
        roots = ("", "store/commitlog_store/", "connector/pyspark_commitlog/", "tests/")
        if folder not in STORE_FOLDERS and not any((PROJECT / f"{root}{folder}").is_dir() for root in roots):
            yield found[1]
    for found in _CLASS.finditer(text):
        name, attribute = found[1], found[2]
        if name in FOREIGN:
            continue
        if name not in classes():
            yield name
        elif attribute and attribute not in names_in(classes()[name]):
            yield f"{name}.{attribute}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_exists(page: Path) -> None:
    found = list(lost(page.read_text(encoding="utf-8")))
    assert not found, f"{page.relative_to(PROJECT)} names what does not exist: {found}"


@pytest.mark.parametrize("page", PAGES_OF_CODE, ids=lambda page: page.stem)
def test_the_folders_and_classes_that_a_page_about_the_code_names_exist(page: Path) -> None:
    found = list(lost_in_code(page.read_text(encoding="utf-8")))
    assert not found, f"{page.relative_to(PROJECT)} names what does not exist: {found}"


def test_a_question_is_answered_in_the_room_that_the_table_names() -> None:
    """docs/extending.md, "Where is what"."""
    text = (PROJECT / "docs" / "extending.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .*\? \| `(\w+)/`.*? \| `(\w+)[^`]*` \|$", text, re.MULTILINE)
    assert len(rows) == 12
    assert [f"{name} in {room}/" for room, name in rows if classes()[name].parts[2] != room] == []


def test_what_docstrings_and_comments_name_exists() -> None:
    wrong = [
        f"{module.path.relative_to(PROJECT)}: {pointer}"
        for module in modules("commitlog_store") + modules("pyspark_commitlog")
        for pointer in lost(_prose(module))
    ]
    assert not wrong, "\n".join(wrong)


def _prose(module: Module) -> str:
    return module.path.read_text(encoding="utf-8").replace("``", "`")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`engine/flush.py`, `flush.py` and `tests/crash/test_failing_calls.py`", []),
        ("`engine/flsh.py`", ["engine/flsh.py"]),
        ("`services/flush.py`", ["services/flush.py"]),
        ("`recovery/recover.py` (`distrust`)", []),
        ("`recovery/recover.py` (`trust_all`, `distrust`)", ["recovery/recover.py (trust_all)"]),
        ("`files/mapped_file_queue_writer.py`\n  (`MappedFileQueueWriter.cut`)", []),
        ("`commitlog_store.paths`, `commitlog_store.errors.DiskFull`, `commitlog_store.StoreReader`", []),
        ("`commitlog_store.errors.DiskEmpty` and `commitlog_store.services`", ["commitlog_store.errors.DiskEmpty"]),
    ],
)
def test_the_finder_of_lost_pointers_sees_each_kind(text: str, found: list[str]) -> None:
    assert list(lost(text))[: len(found) or 9] == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`engine/`, `config/`, `source/` and `tests/store/damage`", []),
        ("`services/` and `tests/services`", ["services/", "tests/services"]),
        ("`StoreReader.query`, `CommitLogWriter.lock`, `ReputMessageService._lock` and `StoreReader.open(path)`", []),
        ("`StoreReadr` and `StoreReader.qery`", ["StoreReadr", "StoreReader.qery"]),
    ],
)
def test_the_finder_of_lost_folders_and_classes_sees_each_kind(text: str, found: list[str]) -> None:
    assert list(lost_in_code(text)) == found
