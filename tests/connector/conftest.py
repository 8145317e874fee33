"""Fixtures of the connector's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.connector.sink_failure_output import Input
from tests.connector.sink_failure_query import Query, register
from tests.connector.sized_store import NewStore, SizedStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__: list[str] = []


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


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    """A query into a new store, whose input the test decides."""
    register(spark)
    return Query(spark, tmp_path, Input(tmp_path / "input"))
