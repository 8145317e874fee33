"""A row that no store takes, through a real Spark: the write fails, names the row, and stores nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from commitlog_store import Message, MessageStore, StoreReader
from pyspark_commitlog.options.write import parse_batch_write_options
from tests.connector.sink.sink_helpers import SMALL, append, body_texts, messages, staged_files, stream_to
from tests.connector.sink.test_batch import error_of
from tests.connector.sink.test_stream import Files
from tests.support.clean_store import assert_clean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


BODY = "concat('m', id)"
NOT_UTF8 = "cast(X'61FF' as string)"
NO_TOPIC = "A topic is made of letters"


class Fault(NamedTuple):
    """A column that is ``bad`` in the row of id 2 and ``good`` in all others, both as SQL, and what is said of it."""

    column: str
    bad: str
    good: str
    said: str
    context: str = "topic 'orders', queue 1"
    options: Mapping[str, str] = {}
    others: Mapping[str, str] = {"body": BODY, "queueId": "1"}

    def rows(self, numbers: DataFrame, *, mended: bool = False) -> DataFrame:
        """A row for each ``id`` of ``numbers``."""
        of_fault = self.good if mended else f"if(id = 2, {self.bad}, {self.good})"
        columns = {**self.others, self.column: of_fault}
        return numbers.selectExpr(*(f"{value} AS {name}" for name, value in columns.items()))

    def is_told(self, said: str, row: int, partition: int = 0) -> bool:
        """Whether the sentence is there that finds the row, says what is wrong with it, and what became of the rest."""
        found = re.search(r"Message in (row .*)\. Nothing of this batch is in the store\.", said)
        place = f"row {row} of partition {partition} ({self.context}): "
        return found is not None and found[1].startswith(place) and self.said in found[1]


FAULTS = {
    "null body": Fault("body", "cast(null as string)", BODY, "its body is null, as that of a tombstone in Kafka"),
    "body too large": Fault(
        "body",
        "repeat('x', 1025)",
        BODY,
        "its body has 1025 bytes, the limit (maxMessageSize) is 1024",
        options={"maxMessageSize": "1k"},
    ),
    "record too large": Fault(
        "body",
        "repeat('x', 300000)",
        BODY,
        "its record takes 300139 bytes, a CommitLog file of the store has room for 262136",
    ),
    "properties too large": Fault(
        "properties",
        "map('a', repeat('x', 32768))",
        "map('a', 'b')",
        # What the store adds counts too: a unique key, and the separators.
        f"its properties take {len('a__') + 32_768 + len('UNIQ_KEY__') + 32} bytes, the limit is 32767",
    ),
    "topic of illegal characters": Fault(
        "topic", "'no topic'", "'orders'", NO_TOPIC, context="topic 'no topic', queue 1"
    ),
    "topic too long": Fault(
        "topic",
        "repeat('t', 128)",
        "'orders'",
        f"A topic has at most 127 characters here, '{'t' * 128}' has 128",
        context=f"topic '{'t' * 128}', queue 1",
    ),
    "negative queueId": Fault(
        "queueId", "-1", "1", "its queueId is -1; it must be 0 to ", context="topic 'orders', queue -1"
    ),
    "reserved property name": Fault(
        "properties",
        "map('a', 'b', 'REAL_TOPIC', 'x')",
        "map('a', 'b')",
        "it has the property 'REAL_TOPIC', which only",
    ),
    "property that is not a text": Fault(
        "properties", f"map('a', {NOT_UTF8})", "map('a', 'ü')", "the value of its property 'a' is not UTF-8 text"
    ),
    "topic that is not a text": Fault("topic", NOT_UTF8, "'orders'", NO_TOPIC, context=r"topic 'a\udcff', queue 1"),
    "tags that are no text": Fault("tags", NOT_UTF8, "'ü'", "its column tags is not UTF-8 text"),
}


KAFKAS = {"rowFormat": "kafka"}
OF_KAFKA = {"Value": BODY, "partition": "1"}
HEADER = "array(named_struct('key', 'a', 'value', {}))"
# Each column has the name that the frame gives it, not that of what it becomes.
FAULTS |= {
    "tombstone of Kafka": Fault(
        "Value",
        "cast(null as string)",
        BODY,
        "its Value is null, as that of a tombstone in Kafka, and RocketMQ has no message without a body",
        options=KAFKAS,
        others=OF_KAFKA,
    ),
    "value of Kafka too large": Fault(
        "Value",
        "repeat('x', 1025)",
        BODY,
        "its Value has 1025 bytes, the limit (maxMessageSize) is 1024",
        options=KAFKAS | {"maxMessageSize": "1k"},
        others=OF_KAFKA,
    ),
    "key of Kafka that is not a text": Fault(
        "KEY", "X'61FF'", "X'61'", "its column KEY is not UTF-8 text", options=KAFKAS, others=OF_KAFKA
    ),
    "negative partition of Kafka": Fault(
        "partition",
        "-1",
        "1",
        "its partition is -1; it must be 0 to ",
        context="topic 'orders', queue -1",
        options=KAFKAS,
        others=OF_KAFKA,
    ),
    "empty header of Kafka": Fault(
        "headers",
        HEADER.format("X''"),
        HEADER.format("X'61'"),
        "the value of its header 'a' is empty, which RocketMQ skips",
        options=KAFKAS,
        others=OF_KAFKA,
    ),
    "header of Kafka that is not a text": Fault(
        "headers",
        HEADER.format("X'FF'"),
        HEADER.format("X'61'"),
        "the value of its header 'a' is not UTF-8 text",
        options=KAFKAS,
        others=OF_KAFKA,
    ),
    "header of Kafka that only a store gives": Fault(
        "headers",
        HEADER.replace("'a'", "'REAL_TOPIC'").format("X'61'"),
        HEADER.format("X'61'"),
        "it has the header 'REAL_TOPIC', which only the store gives",
        options=KAFKAS,
        others=OF_KAFKA,
    ),
    "null value beside RocketMQ's columns": Fault(
        "value", "cast(null as string)", BODY, "its value is null", others={"value": BODY, "queueId": "1"}
    ),
    "negative QUEUEID": Fault(
        "QUEUEID",
        "-1",
        "1",
        "its QUEUEID is -1; it must be 0 to ",
        context="topic 'orders', queue -1",
        others={"body": BODY},
    ),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of one message, made without Spark."""
    options = parse_batch_write_options(SMALL | {"path": str(tmp_path / "store")})
    with MessageStore.open(options.path, options.store_config) as made:
        assert made.put_message(Message(queue_id=0, topic="orders", body=b"before")).ok
    return tmp_path / "store"


def contents(store: Path) -> dict[str, bytes]:
    """Every file of a store, those that wait in its staging area among them."""
    return {str(file.relative_to(store)): file.read_bytes() for file in store.rglob("*") if file.is_file()}


def stopped(frame: DataFrame, store: Path, checkpoint: Path, options: Mapping[str, str]) -> str:
    """Run a streaming query to its failure: what is said."""
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException) as caught:
        stream_to(frame, store, checkpoint, **options)
    return str(caught.value)


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_bad_row_fails_a_batch_write_and_nothing_of_it_is_stored(
    spark: SparkSession, store: Path, fault: Fault
) -> None:
    before = contents(store)
    said = error_of(lambda: append(fault.rows(spark.range(0, 4, 1, 1)), store, **fault.options))
    assert fault.is_told(said, row=2), said
    assert contents(store) == before, "neither the good rows nor anything that was staged"
    assert body_texts(store) == ["before"]


def test_a_body_that_is_not_utf8_is_written(spark: SparkSession, store: Path) -> None:
    """No other column may hold such bytes; a body is bytes, whatever Spark calls them."""
    append(spark.sql(f"select {NOT_UTF8} body, 'ü' tags, 2 queueId"), store)
    (message,) = (one for one in messages(store) if one.queue_id == 2)
    assert (message.body, message.tags) == (b"a\xff", "ü")


def test_a_version_whose_write_failed_is_written_when_its_row_is_corrected(spark: SparkSession, store: Path) -> None:
    fault, version = FAULTS["null body"], {"txnAppId": "loader", "txnVersion": 1}
    numbers = spark.range(0, 4, 1, 2)
    before = contents(store)
    assert fault.is_told(error_of(lambda: append(fault.rows(numbers), store, **version)), row=0, partition=1)
    left = contents(store)
    # Spark may end a task just after it has staged its rows: Spark does not know of these, and the next commit removes
    # them.
    staged = {name for name in left if name.startswith("staging/loader/1/0-")}
    assert {name: left[name] for name in left.keys() - staged} == before, "nothing else of either partition"
    append(fault.rows(numbers, mended=True), store, **version)
    assert body_texts(store) == ["before", "m0", "m1", "m2", "m3"]
    assert not staged_files(store)
    assert_clean(store)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (["'t' AS tags"], "The column body (or value) is missing"),
        (["'x' AS body", "'1' AS queueId"], "Column queueId is STRING; expected INT"),
        (["'x' AS body", "map('a', 1) AS properties"], "Column properties is MAP<STRING,INT>; expected MAP<STRING,"),
    ],
    ids=["no body", "queueId of texts", "properties of numbers"],
)
def test_wrong_columns_fail_a_batch_write_into_an_existing_store(
    spark: SparkSession, store: Path, columns: list[str], said: str
) -> None:
    before = contents(store)
    assert said in error_of(lambda: append(spark.range(0, 2, 1, 1).selectExpr(*columns), store))
    assert contents(store) == before


def run_into(fault: Fault, files: Files, directory: Path) -> DataFrame:
    """A stream of three batches, the second of which has the bad row, run until that fails; what all of it is made of.

    The store and the checkpoint are in ``directory``, the files of the batches in ``directory/input``.
    """
    for number, lines in enumerate((["0"], ["1", "2", "3"], ["4"])):
        files.add(*lines)
        # In this order, whatever the clock's steps are.
        os.utime(directory / "input" / f"{number}.txt", (number, number))
    numbers = files.frame.selectExpr("cast(value AS int) AS id")
    said = stopped(fault.rows(numbers), directory / "store", directory / "checkpoint", fault.options)
    assert fault.is_told(said, row=1), said
    assert body_texts(directory / "store") == ["m0"], "the batch before, and nothing of the bad one"
    assert not staged_files(directory / "store")
    with StoreReader.open(directory / "store") as reader:
        assert [one.batch.version for one in reader.batches()] == [0]
    return numbers


@pytest.mark.parametrize("name", ["topic of illegal characters", "tags that are no text"])
def test_a_stream_stops_at_a_bad_row_and_continues_when_the_query_corrects_it(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    fault = FAULTS[name]
    numbers = run_into(fault, Files(spark, tmp_path / "input"), tmp_path)
    mended = fault.rows(numbers, mended=True)
    stream_to(mended, tmp_path / "store", tmp_path / "checkpoint", **fault.options)
    assert body_texts(tmp_path / "store") == ["m0", "m1", "m2", "m3", "m4"]
    assert_clean(tmp_path / "store")


def test_a_stream_continues_when_its_input_is_corrected(spark: SparkSession, tmp_path: Path) -> None:
    """Restarted unchanged, it fails again; then it writes the corrected row."""
    fault, store, checkpoint = FAULTS["null body"], tmp_path / "store", tmp_path / "checkpoint"
    rows = fault.rows(run_into(fault, Files(spark, tmp_path / "input"), tmp_path))
    assert fault.is_told(stopped(rows, store, checkpoint, {}), row=1)
    assert body_texts(store) == ["m0"]
    (tmp_path / "input" / "1.txt").write_text("1\n20\n3\n")
    stream_to(rows, store, checkpoint)
    assert body_texts(store) == ["m0", "m1", "m20", "m3", "m4"]
    assert not staged_files(store)
    assert_clean(store)


def test_a_stream_continues_when_its_columns_are_right(spark: SparkSession, tmp_path: Path) -> None:
    store, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    files = Files(spark, tmp_path / "input")
    files.add("a")
    stream_to(files.frame, store, checkpoint)
    files.add("b")
    before = contents(store)
    said = stopped(files.frame.selectExpr("value", "'1' AS queueId"), store, checkpoint, {})
    assert "Column queueId is STRING; expected INT" in said
    assert contents(store) == before
    stream_to(files.frame.selectExpr("value", "1 AS queueId"), store, checkpoint)
    assert body_texts(store) == ["a", "b"]
    assert_clean(store)
