"""Public names of ``commitlog_store``: every public name is listed, and listed names exist."""

from __future__ import annotations

import commitlog_store

__all__: list[str] = []


def test_dir_lists_every_public_name() -> None:
    assert set(commitlog_store.__all__) <= set(dir(commitlog_store))


def test_every_public_name_exists() -> None:
    for name in commitlog_store.__all__:
        assert getattr(commitlog_store, name) is not None


def test_the_version_is_a_release_number() -> None:
    assert [part.isdigit() for part in commitlog_store.__version__.split(".")] == [True] * 3
