"""The source and the sink in SQL: through temporary views, and through tables of a catalog with options each time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.connector.sink.sink_helpers import SMALL, append, body_texts, messages
from tests.connector.source.spark_helpers import Batches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def options_of(**options: object) -> str:
    return ", ".join(f"{name} '{value}'" for name, value in options.items())


def test_a_view_is_read_and_another_one_is_written_to(spark: SparkSession, tmp_path: Path) -> None:
    """The columns of the one that is written to are given, or the source would be asked for them."""
    given = options_of(path=tmp_path, **SMALL)
    spark.sql(f"create or replace temporary view sink (body string, tags string) using commitlog options ({given})")
    spark.sql("insert into sink values ('a', 't'), ('b', null)")
    spark.sql("insert into sink (body) select concat('n', id) from range(2)")
    assert body_texts(tmp_path) == ["a", "b", "n0", "n1"]
    assert {message.tags for message in messages(tmp_path)} == {"t", None}
    given = options_of(path=tmp_path, subscribe="orders")
    spark.sql(f"create or replace temporary view source using commitlog options ({given})")
    rows = spark.sql("select cast(body as string) body from source where tags = 't'").collect()
    assert [row.body for row in rows] == ["a"]


def test_a_view_is_not_overwritten(spark: SparkSession, tmp_path: Path) -> None:
    given = options_of(path=tmp_path, **SMALL)
    spark.sql(f"create or replace temporary view sink (body string) using commitlog options ({given})")
    with pytest.raises(Exception, match="only appended to"):
        spark.sql("insert overwrite sink values ('a')")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A table whose own options name a store, which changes nothing. The store has one message."""
    append(spark.sql("select 'a' body, 't' tags"), tmp_path / "store")
    given = options_of(path=tmp_path / "store", subscribe="orders")
    spark.sql(f"create table messages (body binary, tags string) using commitlog options ({given})")
    yield "messages"
    spark.sql("drop table if exists messages")


def test_a_table_is_read_and_written_with_the_options_of_each_query(
    spark: SparkSession, tmp_path: Path, table: str
) -> None:
    to_read = options_of(path=tmp_path / "store", subscribe="orders")
    to_write = options_of(path=tmp_path / "store", topic="orders")
    spark.sql(f"insert into {table} with ({to_write}) values (X'62', 'u')")
    spark.sql(f"insert into {table} with ({to_write}) (body) select cast('c' as binary)")
    rows = spark.sql(f"select cast(body as string) body, tags from {table} with ({to_read})").collect()
    assert sorted((row.body, row.tags) for row in rows) == [("a", "t"), ("b", "u"), ("c", None)]
    spark.sql(f"drop table {table}")
    assert body_texts(tmp_path / "store") == ["a", "b", "c"], "the store stays"


def test_a_table_is_used_from_python_with_options(spark: SparkSession, tmp_path: Path, table: str) -> None:
    path = str(tmp_path / "store")
    frame = spark.sql("select cast('b' as binary) body, 'u' tags")
    frame.writeTo(table).option("path", path).option("topic", "orders").append()
    assert spark.read.option("path", path).option("subscribe", "orders").table(table).count() == 2
    stream = spark.readStream.options(path=path, subscribe="orders", startingOffsets="earliest").table(table)
    batches = Batches(tmp_path / "checkpoint")
    assert sorted(bytes(row.body) for row in batches.run(stream)) == [b"a", b"b"]
    with pytest.raises(Exception, match="INSERT INTO name WITH"):
        frame.write.option("path", path).option("topic", "orders").insertInto(table)


@pytest.mark.parametrize(
    "statement",
    [
        "create table lost using commitlog options (subscribe 'orders') location '{path}'",
        "create table lost using commitlog options (path '{path}', topic 'orders') as select cast('b' as binary) body",
        "select * from messages",
        "insert into messages values (X'62', 'u')",
    ],
    ids=["no columns", "as select", "read", "written"],
)
def test_a_table_without_options_is_refused_with_what_to_do(
    spark: SparkSession, tmp_path: Path, table: str, statement: str
) -> None:
    with pytest.raises(Exception, match=r"SELECT \.\.\. FROM name WITH .* CREATE TEMPORARY VIEW"):
        spark.sql(statement.format(path=tmp_path / "store")).collect()
    assert body_texts(tmp_path / "store") == ["a"]


def test_spark_refuses_a_path_in_place_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY"):
        spark.sql(f"select * from commitlog.`{tmp_path}`")
