"""Selective reads through a real Spark: batches and streams, and what a user sees of a bad filter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.read import parse_options
from tests.connector.source.spark_helpers import Batches, read, stream
from tests.support.spark_programs import SparkPrograms
from tests.support.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


@pytest.fixture
def built(tmp_path: Path) -> StoreBuilder:
    builder = StoreBuilder(tmp_path / "store", log_file_size=1 << 20)
    grow(builder)
    return builder


def grow(builder: StoreBuilder, count: int = 400) -> None:
    """Each hundredth message is tagged ``refunded``; amounts go round from 0 to 99, every seventh is no number."""
    rows = range(count)
    builder.append(
        "orders",
        [0, 1],
        [b"x" * 100] * count,
        tags=["refunded" if row % 100 == 50 else "paid" for row in rows],
        keys=[f"k{row} all" for row in rows],
        more=[f"amount\x01{'n/a' if row % 7 == 0 else row % 100}\x02" for row in rows],
    )


def numbers(rows: list[Row]) -> list[int]:
    """The numbers of messages, by their first key."""
    return sorted(int(str(row.keys).split()[0][1:]) for row in rows)


def test_a_batch_gives_what_matches(spark: SparkSession, built: StoreBuilder) -> None:
    cases: list[tuple[dict[str, str], list[int]]] = [
        ({"tags": "refunded"}, [50, 150, 250, 350]),
        ({"tags": "none || refunded"}, [50, 150, 250, 350]),
        ({"filter": "amount >= 98"}, [99, 198, 199, 298, 299, 398]),
        ({"keys": "k7 k8 k400"}, [7, 8]),
        ({"tags": "paid", "filter": "amount = 51 OR amount = 50", "keys": "k50 k51 k151 all"}, [51, 151, 251, 351]),
        ({"tags": "none"}, []),
        ({"tags": "*"}, list(range(400))),
    ]
    for options, expected in cases:
        for more in ({}, {"minPartitions": "5"}, {"fromLog": "true"}):
            rows = read(spark, built.path, "body binary, keys string", subscribe="orders", **options, **more).collect()
            assert numbers(rows) == expected, (options, more)
            assert all(bytes(row.body) == b"x" * 100 for row in rows)


def test_a_stream_moves_over_messages_that_do_not_match(
    spark: SparkSession, built: StoreBuilder, tmp_path: Path
) -> None:
    """Limits count what is read: each trigger has 100 messages, whatever matches, and a restart repeats none."""
    frame = stream(
        spark,
        built.path,
        "keys string",
        subscribe="orders",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="100",
        tags="refunded",
        filter="amount > 0",
    )
    batches = Batches(tmp_path / "checkpoint")
    assert numbers(batches.run(frame)) == [50, 150, 250]
    assert len(batches.by_id) == 4
    grow(built, count=200)
    assert numbers(batches.run(frame)) == [50, 150]
    assert len(batches.by_id) == 6


def test_a_bad_filter_is_refused_before_any_job(spark: SparkSession, built: StoreBuilder) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="filter 'amount > 5 # 3', at character 12: expected") as caught:
        read(spark, built.path, subscribe="orders", filter="amount > 5 # 3").count()
    assert "OptionError" in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("tags", "||", "expected tags separated by"),
        ("tags", "a || *", "expected tags, or"),
        ("filter", "", "expected an expression"),
        ("filter", "amount >", "at its end: expected a property"),
        ("filter", "amount > 'x'", "only numbers are compared"),
        ("keys", " ", "expected at least one key"),
    ],
)
def test_the_options_say_what_is_wrong(option: str, value: str, expected: str) -> None:
    with pytest.raises(OptionError, match=expected) as caught:
        parse_options({"path": "/store", "subscribe": "orders", option: value})
    assert (caught.value.option, caught.value.value) == (option, value)
    assert str(caught.value).startswith(f"Option {option} ")


DOUBTFUL = """
import sys
from pyspark.sql import SparkSession
import pyspark_commitlog
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
given = {"subscribe": "orders", "filter": "NOT amount = 1"}
assert spark.read.format("commitlog").options(**given).load(sys.argv[1]).count() == 0
print("stream", file=sys.stderr, flush=True)
frame = spark.readStream.format("commitlog").options(**given, startingOffsets="earliest", maxOffsetsPerTrigger="200")
writer = frame.load(sys.argv[1]).writeStream.format("noop").option("checkpointLocation", sys.argv[2])
writer.trigger(availableNow=True).start().awaitTermination()
"""


def test_a_not_before_a_comparison_is_warned_of_once_for_each_query(
    spark_programs: SparkPrograms, built: StoreBuilder, tmp_path: Path
) -> None:
    script = tmp_path / "doubtful.py"
    script.write_text(DOUBTFUL)
    ran = spark_programs.run(script, built.path, tmp_path / "checkpoint", directory=tmp_path)
    assert ran.returncode == 0, ran.stderr[-3000:]
    said = "Option filter: NOT amount = 1 is read as (NOT amount) = 1, as RocketMQ does"
    assert [part.count(said) for part in ran.stderr.split("stream\n", 1)] == [1, 1], ran.stderr
