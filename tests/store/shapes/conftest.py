"""Fixtures of the tests with shapes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.shapes.numbered_bodies import SMALL_LOG, UNITS
from tests.support.store_builder import StoreBuilder


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", log_file_size=SMALL_LOG, queue_file_units=UNITS)
