"""What every module keeps to: it says what is public, prints nothing, has one subject, and stands on the map."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.source_tree import PROJECT, Module, modules

__all__: list[str] = []

LONGEST_FUNCTION_LINES = 60
LONGEST_MODULE_LINES = 400

UNSAFE_WAITS = {"Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "Timer", "Queue", "LifoQueue"}

# "# -----", "# ====", "####", "# -- a part --": a module that needs them is two modules.
SECTION_BANNER = re.compile(r"^\s*#\s*(?:[-=*#~_─═]{2,})", re.MULTILINE)

ALL_MODULES = [*modules("commitlog"), *modules("pyspark_commitlog")]


@pytest.mark.parametrize("module", ALL_MODULES, ids=lambda module: module.name)
def test_module_lists_its_public_names_and_they_exist(module: Module) -> None:
    loaded = importlib.import_module(module.name)
    if module.path.name == "__main__.py":
        return
    assert hasattr(loaded, "__all__"), f"{module.path} has no __all__"
    names = list(loaded.__all__)
    missing = [name for name in names if not hasattr(loaded, name)]
    assert not missing, f"{module.path}: __all__ names {missing}, which it does not have"
    assert len(set(names)) == len(names), f"{module.path}: __all__ names something twice"
    assert not [name for name in names if name.startswith("_") and name != "__version__"]


@pytest.mark.parametrize("module", ALL_MODULES, ids=lambda module: module.name)
def test_module_has_a_docstring(module: Module) -> None:
    assert ast.get_docstring(module.tree), f"{module.path} does not say what it is for"


@pytest.mark.parametrize("module", ALL_MODULES, ids=lambda module: module.name)
def test_only_the_command_line_prints(module: Module) -> None:
    if module.name.startswith("commitlog.cli"):
        return
    printing = [
        node.lineno
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"print", "pprint"}
    ]
    assert not printing, f"{module.path} prints on lines {printing}; log, or return what there is to say"


@pytest.mark.parametrize("module", modules("commitlog"), ids=lambda module: module.name)
def test_the_store_waits_for_nothing_that_an_interrupt_leaves_waiting(module: Module) -> None:
    """docs/decisions/0011."""
    found = [f"{module.path}:{getattr(node, 'lineno', 0)}" for node in ast.walk(module.tree) if _waits_unsafely(node)]
    assert not found, f"made of locks that Ctrl-C may leave behind; use Wakeup, locks and SimpleQueue: {found}"


def _waits_unsafely(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in {"threading", "queue"}:
        return node.attr in UNSAFE_WAITS
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith("concurrent") or (
            node.module in {"threading", "queue"} and any(name.name in UNSAFE_WAITS for name in node.names)
        )
    return isinstance(node, ast.Import) and any(name.name.startswith("concurrent") for name in node.names)


@pytest.mark.parametrize("module", ALL_MODULES, ids=lambda module: module.name)
def test_functions_fit_on_a_screen(module: Module) -> None:
    long = [
        f"{module.path}:{function.lineno}: {function.name} has {lines} lines"
        for function in _functions(module)
        if (lines := _lines_without_docstring(function)) > LONGEST_FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def _functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _lines_without_docstring(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


@pytest.mark.parametrize("module", ALL_MODULES, ids=lambda module: module.name)
def test_module_has_one_subject(module: Module) -> None:
    text = module.path.read_text(encoding="utf-8")
    lines = text.count("\n")
    assert lines <= LONGEST_MODULE_LINES, f"{module.path} has {lines} lines; make two modules of it"
    banner = SECTION_BANNER.search(text)
    assert banner is None, f"{module.path} has the section banner {banner.group().strip()!r}; make two modules of it"


@pytest.mark.parametrize("line", ["# ---", "    # -- reading ------", "# === x ===", "########", "#--- x", "# ── x ──"])
def test_the_banner_finder_sees_banners(line: str) -> None:
    assert SECTION_BANNER.search(f"x = 1\n{line}\ny = 2\n")


@pytest.mark.parametrize("line", ["# a comment - with a dash -- or two", "x = 1  # why", "#!/bin/sh", "# -1 is none"])
def test_the_banner_finder_leaves_comments_alone(line: str) -> None:
    assert not SECTION_BANNER.search(f"x = 1\n{line}\ny = 2\n")


def test_every_module_is_named_in_the_architecture() -> None:
    """A file name that both packages have has to be there twice."""
    page = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    files = Counter(module.path.name for module in ALL_MODULES if not module.is_package)
    missing = [
        str(module.path.relative_to(PROJECT))
        for module in ALL_MODULES
        if not module.is_package
        and len(re.findall(rf"(?<![\w.]){re.escape(module.path.name)}(?!\w)", page)) < files[module.path.name]
    ]
    assert not missing, "docs/architecture.md does not name: " + ", ".join(missing)
