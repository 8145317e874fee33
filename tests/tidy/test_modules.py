"""Every module has a docstring, public modules list their names, none prints, and modules and functions stay short."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator

import pytest

from tests.support.source_tree import Module, modules

LONGEST_FUNCTION_LINES = 60  # its docstring apart
LONGEST_MODULE_LINES = 700
# Modules that are one subject and longer: the most lines of each, and why it is not divided.
LONGER_MODULES = {
    "commitlog_store.errors": (900, "the tree of errors is read as a whole"),
    "commitlog_store.reader": (1_000, "the public face of a store: signatures and docstrings, and a line to delegate"),
}

# Users import from these.
PUBLIC_MODULES = {
    *("commitlog_store", "commitlog_store.errors", "commitlog_store.paths", "commitlog_store.testing"),
    *("pyspark_commitlog", "pyspark_commitlog.errors"),
}

UNSAFE_WAITS = {"Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "Timer", "Queue", "LifoQueue"}

# "# -----", "# ====", "####", "# -- a part --": a module that needs them is two modules.
SECTION_BANNER = re.compile(r"^\s*#\s*(?:[-=*#~_─═]{2,})", re.MULTILINE)


def all_modules() -> tuple[Module, ...]:
    return modules("commitlog_store") + modules("pyspark_commitlog")


def test_listed_names_exist() -> None:
    wrong: list[str] = []
    for module in all_modules():
        if module.path.name == "__main__.py":
            continue
        loaded = importlib.import_module(module.name)
        names = list(getattr(loaded, "__all__", []))
        wrong += [f"{module.path}: __all__ names {name!r}" for name in names if not hasattr(loaded, name)]
        wrong += [f"{module.path}: {name} is private" for name in names if name[0] == "_" and name != "__version__"]
        wrong += [f"{module.path}: __all__ repeats a name"] if len(set(names)) < len(names) else []
    assert not wrong, "\n".join(wrong)


def test_only_public_modules_and_those_that_pass_names_on_list_their_names() -> None:
    listing = [
        module.name
        for module in all_modules()
        if module.name not in PUBLIC_MODULES
        and (names := _listed(module.tree)) is not None
        and not names & _imported(module.tree)
    ]
    assert not listing, f"their names need no __all__: {listing}"


def _listed(tree: ast.Module) -> set[object] | None:
    """The names in ``__all__``; None without one."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return {one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)}
    return None


def _imported(tree: ast.Module) -> set[str]:
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {name.asname or name.name for node in imports for name in node.names}


def test_modules_have_docstrings() -> None:
    missing = [str(module.path) for module in all_modules() if not ast.get_docstring(module.tree)]
    assert not missing, f"these do not say what they are: {missing}"


def _unindented_examples(docstring: str) -> list[str]:
    """The lines that announce an example, which Sphinx does not find: no line after them is indented further."""
    lines = docstring.splitlines()
    announced = [place for place, line in enumerate(lines) if line.rstrip().endswith("::")]
    after = {place: next((line for line in lines[place + 1 :] if line.strip()), "") for place in announced}
    return [lines[place] for place in announced if _indentation(after[place]) <= _indentation(lines[place])]


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def test_examples_in_docstrings_are_found_by_the_site() -> None:
    found = [
        f"{module.path}: {line}"
        for module in all_modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for line in _unindented_examples(ast.get_docstring(node) or "")
    ]
    assert not found, "\n".join(found)


def test_the_finder_of_examples_sees_one_that_is_the_whole_rest_of_its_docstring() -> None:
    """Python takes the indentation that all lines but the first have for that of the text."""
    assert _unindented_examples(inspect.cleandoc("Does this::\n\n        do(this)\n    ")) == ["Does this::"]
    assert not _unindented_examples(inspect.cleandoc("Does\n    this::\n\n        do(this)\n    "))


def test_only_the_command_line_prints() -> None:
    printing = [
        f"{module.path}:{node.lineno}"
        for module in all_modules()
        if not module.name.startswith("commitlog_store.cli")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"print", "pprint"}
    ]
    assert not printing, f"log, or return the text: {printing}"


def test_the_store_waits_for_nothing_that_an_interrupt_leaves_waiting() -> None:
    """docs/decisions/0011."""
    found = [
        f"{module.path}:{getattr(node, 'lineno', 0)}"
        for module in modules("commitlog_store")
        for node in ast.walk(module.tree)
        if _waits_unsafely(node)
    ]
    assert not found, f"made of locks that Ctrl-C may leave locked; use Wakeup, locks and SimpleQueue: {found}"


def _waits_unsafely(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in {"threading", "queue"}:
        return node.attr in UNSAFE_WAITS
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith("concurrent") or (
            node.module in {"threading", "queue"} and any(name.name in UNSAFE_WAITS for name in node.names)
        )
    return isinstance(node, ast.Import) and any(name.name.startswith("concurrent") for name in node.names)


def test_functions_fit_on_a_screen() -> None:
    long = [
        f"{module.path}:{function.lineno}: {function.name} has {lines} lines"
        for module in all_modules()
        for function in _functions(module)
        if (lines := _lines_without_docstring(function)) > LONGEST_FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def test_modules_are_divided_by_subject() -> None:
    lengths = {module.name: len(module.path.read_text(encoding="utf-8").splitlines()) for module in all_modules()}
    most = {name: lines for name, (lines, _) in LONGER_MODULES.items()}
    long = [
        f"{name} has {lines} lines" for name, lines in lengths.items() if lines > most.get(name, LONGEST_MODULE_LINES)
    ]
    assert not long, "\n".join(long)
    short = [name for name in LONGER_MODULES if lengths[name] <= LONGEST_MODULE_LINES]
    assert not short, f"no exceptions any more: {short}"


def _functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _lines_without_docstring(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def test_no_module_has_section_banners() -> None:
    found = [
        f"{module.path}: {banner.group().strip()!r}"
        for module in all_modules()
        if (banner := SECTION_BANNER.search(module.path.read_text(encoding="utf-8")))
    ]
    assert not found, "a file with section banners is two files: " + ", ".join(found)


@pytest.mark.parametrize("line", ["# ---", "    # -- reading ------", "# === x ===", "########", "#--- x", "# ── x ──"])
def test_the_banner_finder_sees_banners(line: str) -> None:
    assert SECTION_BANNER.search(f"x = 1\n{line}\ny = 2\n")


@pytest.mark.parametrize("line", ["# a comment - with a dash -- or two", "x = 1  # why", "#!/bin/sh", "# -1 is none"])
def test_the_banner_finder_leaves_comments_alone(line: str) -> None:
    assert not SECTION_BANNER.search(f"x = 1\n{line}\ny = 2\n")
