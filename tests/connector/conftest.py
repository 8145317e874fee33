"""Fixtures of the connector's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.connector.sink_failure_output import Input
from tests.connector.sink_failure_query import Query, register
from tests.connector.sink_failure_reader import ReadingQuery
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
def source(tmp_path: Path) -> Input:
    """The input of ``query``."""
    return Input(tmp_path / "input")


@pytest.fixture
def unread_query(spark: SparkSession, tmp_path: Path, source: Input) -> Query:
    """A query into a new store, which it makes itself."""
    register(spark)
    return Query(spark, tmp_path, source)


@pytest.fixture
def reading(unread_query: Query, tmp_path: Path) -> Iterator[ReadingQuery]:
    """A second query, which reads the output from before the first batch to behind the test's end."""
    unread_query.make_store()
    with ReadingQuery(unread_query.spark, tmp_path, unread_query.store, unread_query.source) as reader:
        yield reader


@pytest.fixture
def query(unread_query: Query, reading: ReadingQuery) -> Query:
    """A query into a new store, whose input the test decides; another query reads all the time."""
    return unread_query
