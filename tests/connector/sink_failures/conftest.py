"""Fixtures of the tests of a sink that fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.connector.sink_failures.output import Input
from tests.connector.sink_failures.query import Query, register
from tests.connector.sink_failures.reading_query import ReadingQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    """A second query, which reads the output from before the first batch to after the test's end."""
    unread_query.make_store()
    with ReadingQuery(unread_query.spark, tmp_path, unread_query.store, unread_query.source) as reader:
        yield reader


@pytest.fixture
def query(unread_query: Query, reading: ReadingQuery) -> Query:
    """A query into a new store, whose input the test decides; another query reads all the time."""
    return unread_query
