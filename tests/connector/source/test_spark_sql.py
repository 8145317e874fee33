"""The source and the sink in SQL: through temporary views, since tables of a catalog get no options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commitlog import StoreReader
from tests.connector.sink.sink_helpers import SMALL, append, body_texts, messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__: list[str] = []


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


@pytest.mark.parametrize(
    "statements",
    [
        ("create table lost using commitlog options (subscribe 'orders') location '{path}'",),
        ("create table lost (body binary) using commitlog location '{path}'", "select * from lost"),
        ("create table lost (body string) using commitlog location '{path}'", "insert into lost values ('x')"),
    ],
    ids=["created", "read", "written"],
)
def test_a_table_of_a_catalog_is_refused_with_what_to_use_instead(
    spark: SparkSession, tmp_path: Path, statements: tuple[str, ...]
) -> None:
    append(spark.sql("select 'a' body"), tmp_path)
    try:
        *before, last = (text.format(path=tmp_path) for text in statements)
        for text in before:
            spark.sql(text)
        with pytest.raises(Exception, match="CREATE TEMPORARY VIEW"):
            spark.sql(last).collect()
    finally:
        spark.sql("drop table if exists lost")
    assert body_texts(tmp_path) == ["a"]
    with StoreReader.open(tmp_path) as reader:
        assert "orders" in reader.topics()
