"""Public names of ``commitlog_store``: every public name is listed, and listed names exist."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import commitlog_store

# Type checkers take each name from the stub, and so do not know this list.
PUBLIC: list[str] = vars(commitlog_store)["__all__"]


def test_dir_lists_every_public_name() -> None:
    assert set(PUBLIC) <= set(dir(commitlog_store))


def test_every_public_name_exists() -> None:
    for name in PUBLIC:
        assert getattr(commitlog_store, name) is not None


def test_a_star_import_gives_every_public_name() -> None:
    found: dict[str, object] = {}
    exec("from commitlog_store import *", found)
    assert {*PUBLIC, "StoreReader", "assess_store", "__version__"} <= found.keys()


def test_each_line_of_the_list_of_public_names_is_read() -> None:
    """A line in another form would be a name that type checkers know and programs do not."""
    stub = Path(commitlog_store.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    imported = {
        alias.name for node in ast.walk(ast.parse(stub)) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == {*PUBLIC, "errors"} - {"__version__"}
    assert commitlog_store.errors is import_module("commitlog_store.errors")


def test_the_version_is_a_release_number() -> None:
    assert [part.isdigit() for part in commitlog_store.__version__.split(".")] == [True] * 3
