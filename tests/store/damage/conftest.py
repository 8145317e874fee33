"""Fixtures of the tests with damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.damage.filled_store import LOG_FILE_SIZE, QUEUE_FILE_UNITS, fill
from tests.support.store_builder import StoreBuilder


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "store", log_file_size=LOG_FILE_SIZE, queue_file_units=QUEUE_FILE_UNITS)
    fill(builder)
    return builder
