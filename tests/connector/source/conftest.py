"""Fixtures of the source's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connector.source.sized_store import NewStore, SizedStore


@pytest.fixture
def new_store(tmp_path: Path) -> Iterator[NewStore]:
    """Makes empty stores, each in a directory of its own; the reader of the one before is closed."""
    made: list[SizedStore] = []

    def make(**settings: Any) -> SizedStore:
        if made:
            made[-1].close()
        made.append(SizedStore(tmp_path / f"store-{len(made)}", **settings))
        return made[-1]

    yield make
    if made:
        made[-1].close()
