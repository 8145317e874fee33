"""What every module keeps to: it says what is public, prints nothing, and its functions fit on a screen."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator

import pytest

from tests.support.source_tree import Module, modules

__all__: list[str] = []

LONGEST_FUNCTION_LINES = 60

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
