"""The project's modules as syntax trees, for the tests that keep the tree tidy."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
_ROOTS = {"commitlog_store": PROJECT / "store", "pyspark_commitlog": PROJECT / "connector"}


@dataclass(frozen=True, kw_only=True)
class Module:
    """One source file: its dotted name, its path and its syntax tree."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


@functools.cache
def modules(package: str) -> tuple[Module, ...]:
    """The modules of ``commitlog_store`` or ``pyspark_commitlog``, sorted by name; parsed once: do not change them."""
    root = _ROOTS[package]
    found = []
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Module(name=name, path=path, tree=ast.parse(path.read_text(encoding="utf-8"), filename=str(path))))
    return tuple(found)


@functools.cache
def imported_names(module: Module, *, with_type_checking: bool = True) -> tuple[tuple[str, int], ...]:
    """Every absolute name that ``module`` imports, anywhere in it, with the line.

    ``from a.b import c`` gives ``a.b.c``, since only the file system knows whether ``c`` is a module: callers match by
    prefix. With ``with_type_checking=False``, imports under ``if TYPE_CHECKING`` are left out.
    """
    return tuple(_imported_names(module, with_type_checking=with_type_checking))


def _imported_names(module: Module, *, with_type_checking: bool) -> Iterator[tuple[str, int]]:
    skipped: set[ast.AST] = set()
    if not with_type_checking:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                skipped.update(inner for statement in node.body for inner in ast.walk(statement))
    for node in ast.walk(module.tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{_base_of(node, module)}.{alias.name}", node.lineno) for alias in node.names)


def _base_of(node: ast.ImportFrom, module: Module) -> str:
    if node.level == 0:
        return node.module or ""
    parts = module.name.split(".")
    parts = parts[: len(parts) - node.level + (1 if module.is_package else 0)]
    return ".".join([*parts, node.module] if node.module else parts)
