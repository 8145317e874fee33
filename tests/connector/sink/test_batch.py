"""Batch writes through a real Spark, read back by ``StoreReader`` and by the source."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commitlog_store import MessageStore
from commitlog_store.files.local_address import local_address
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.save_modes import explain_modes
from tests.connector.sink.sink_helpers import SMALL, append, body_texts, messages, rows_of, staged_files
from tests.connector.source.spark_helpers import read
from tests.support.clean_store import assert_clean

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def error_of(action: Callable[[], object]) -> str:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def test_every_column_is_written_and_read_back(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "a store"
    born = datetime(2024, 5, 6, 7, 8, 9, 123_000)  # noqa: DTZ001  # Spark takes it as UTC, which conftest sets
    row = (b"\x00body", "clicks", "paid", ["k1", "k2"], 2, "user-1", {"a": "1", "b": "ü"}, 7, born, None)
    schema = (
        "body binary, topic string, tags string, keys array<string>, queueId int, shardingKey string, "
        "properties map<string,string>, flag int, bornTimestamp timestamp, delayLevel int"
    )
    append(rows_of(spark, [row], schema), store)
    (message,) = messages(store, "clicks")
    assert (message.body, message.tags, message.keys) == (b"\x00body", "paid", ("k1", "k2"))
    assert (message.queue_id, message.flag) == (2, 7)
    assert message.born_timestamp == int(born.replace(tzinfo=timezone.utc).timestamp() * 1000)
    assert message.born_host == message.store_host == f"{local_address()}:10911"
    assert message.properties == {
        "a": "1",
        "b": "ü",
        "UNIQ_KEY": message.unique_key,
        "KEYS": "k1 k2",
        "__SHARDINGKEY": "user-1",
        "TAGS": "paid",
    }
    (found,) = read(spark, store, subscribe="clicks", includeProperties="true").collect()
    assert bytes(found.body) == b"\x00body"
    assert (found.topic, found.tags, found.keys, found.queueId) == ("clicks", "paid", "k1 k2", 2)
    assert found.bornTimestamp == born
    assert found.properties == dict(message.properties)
    assert_clean(store)


def test_aliases_texts_and_other_integers_are_written(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows_of(spark, [("text", "k", 1, 1)], "VALUE string, Key string, queueid bigint, flag smallint")
    append(frame, tmp_path / "store")
    (message,) = messages(tmp_path / "store")
    assert (message.body, message.keys, message.queue_id, message.flag) == (b"text", ("k",), 1, 1)


def test_a_delayed_message_waits_in_the_schedule(spark: SparkSession, tmp_path: Path) -> None:
    append(rows_of(spark, [("later", 3, 1), ("now", 0, 1)], "body string, delayLevel int, queueId int"), tmp_path)
    (waiting,) = messages(tmp_path, "SCHEDULE_TOPIC_XXXX")
    assert (waiting.body, waiting.queue_id) == (b"later", 2)
    assert waiting.properties["REAL_TOPIC"] == "orders"
    assert waiting.properties["REAL_QID"] == "1"
    assert body_texts(tmp_path) == ["now"]


def test_a_delay_is_the_time_of_a_level_too(spark: SparkSession, tmp_path: Path) -> None:
    for number, delay in enumerate(("'10s'", "interval 10 seconds", "3")):
        append(spark.sql(f"select '{number}' body, {delay} delayLevel, 1 queueId"), tmp_path)
    assert [message.queue_id for message in messages(tmp_path, "SCHEDULE_TOPIC_XXXX")] == [2, 2, 2]
    for delay in ("90", "'90s'", "interval 90 seconds"):
        said = error_of(lambda: append(spark.sql(f"select 'x' body, {delay} delayLevel, 1 queueId"), tmp_path))  # noqa: B023
        assert "it must be one of the levels 1 (1s), 2 (5s)" in said


def test_maps_of_sql_that_hold_nothing_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    """Spark gives them the types MAP<VOID,VOID> and MAP<STRING,VOID>."""
    for number, properties in enumerate(("map()", "map('a', null)", "map('a', null, 'b', 'c')")):
        append(spark.sql(f"select '{number}' body, {properties} properties, 0 queueId"), tmp_path)
    found = [set(message.properties) for message in messages(tmp_path)]
    assert found == [{"UNIQ_KEY"}, {"UNIQ_KEY"}, {"UNIQ_KEY", "b"}]


def test_appending_twice_appends_twice(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows_of(spark, [(f"m{i}",) for i in range(100)], "body string", partitions=3)
    append(frame, tmp_path)
    append(frame, tmp_path)
    assert Counter(body_texts(tmp_path)) == {f"m{i}": 2 for i in range(100)}
    assert not list((tmp_path / "staging").iterdir())
    assert_clean(tmp_path)


def test_a_named_version_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    for version, text in ((1, "first"), (1, "first"), (2, "second"), (1, "first")):
        append(rows_of(spark, [(text,)], "body string"), tmp_path, txnAppId="my/loader", txnVersion=version)
    assert body_texts(tmp_path) == ["first", "second"]
    assert not staged_files(tmp_path)


def test_the_same_write_has_the_same_unique_keys_and_queues(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows_of(spark, [(f"m{i}", "s" if i % 3 else None) for i in range(20)], "body string, shardingKey string", 2)
    found = []
    for name in ("one", "two"):
        append(frame, tmp_path / name, txnAppId="a", txnVersion=1)
        found.append([(message.body, message.queue_id, message.unique_key) for message in messages(tmp_path / name)])
    assert found[0] == found[1]
    assert len({key for _, _, key in found[0]}) == 20


def test_rows_without_a_queue_are_spread_evenly(spark: SparkSession, tmp_path: Path) -> None:
    append(rows_of(spark, [(f"m{i}",) for i in range(40)], "body string", 2), tmp_path, queues=5)
    assert Counter(message.queue_id for message in messages(tmp_path)) == dict.fromkeys(range(5), 8)


def test_writes_of_one_row_take_the_queues_in_turn(spark: SparkSession, tmp_path: Path) -> None:
    for version in range(4):
        append(rows_of(spark, [("m",)], "body string"), tmp_path, txnAppId="loader", txnVersion=version)
    assert Counter(message.queue_id for message in messages(tmp_path)) == dict.fromkeys(range(4), 1)


def test_a_listed_topic_keeps_its_number_of_queues(spark: SparkSession, tmp_path: Path) -> None:
    append(rows_of(spark, [("a",)], "body string"), tmp_path, queues=2)
    append(rows_of(spark, [(f"m{i}",) for i in range(8)], "body string"), tmp_path, queues=8)
    assert {message.queue_id for message in messages(tmp_path)} == {0, 1}


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_compressed_bodies_are_read_back(spark: SparkSession, tmp_path: Path, compression: str) -> None:
    frame = rows_of(spark, [("x" * 10_000,), ("y" * 10,)], "body string")
    append(frame, tmp_path, bodyCompression=compression, compressOver=100)
    assert body_texts(tmp_path) == ["x" * 10_000, "y" * 10]
    sizes = {message.body[:1]: message.store_size for message in messages(tmp_path)}
    assert sizes[b"x"] < 1000
    rows = read(spark, tmp_path, "body binary", subscribe="orders").collect()
    assert sorted(len(row.body) for row in rows) == [10, 10_000]


def test_large_bodies_and_a_batch_over_many_files_are_read_back(spark: SparkSession, tmp_path: Path) -> None:
    sizes = [3_000_000, 1, 2_000_000, 4 << 20]
    append(
        rows_of(spark, [(bytearray(b"z" * size),) for size in sizes], "body binary", 2),
        tmp_path,
        mappedFileSizeCommitLog="5m",
    )
    assert sorted(len(message.body) for message in messages(tmp_path)) == sorted(sizes)
    assert len(list((tmp_path / "commitlog").iterdir())) > 1
    assert_clean(tmp_path)


def test_a_frame_without_rows_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    append(spark.range(10).where("id < 0").selectExpr("cast(id as string) body"), tmp_path)
    append(spark.createDataFrame([], "body string"), tmp_path)
    assert body_texts(tmp_path) == []
    append(spark.range(0, 10, 1, 5).where("id = 7").selectExpr("cast(id as string) body"), tmp_path)
    assert body_texts(tmp_path) == ["7"]


def test_a_batch_copies_a_store_to_a_store(spark: SparkSession, tmp_path: Path, golden_533: Path) -> None:
    source = read(spark, golden_533, subscribe="orders,clicks").drop("queueOffset", "storeTimestamp")
    append(source, tmp_path)
    copied = read(spark, tmp_path, subscribe="orders,clicks").drop("queueOffset", "storeTimestamp")
    assert copied.count() > 0
    assert source.exceptAll(copied).count() == copied.exceptAll(source).count() == 0


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("1 as body", {}, "Column body is INT; expected BINARY or STRING."),
        ("'x' as bodi", {}, "Unknown column 'bodi'. Did you mean body?"),
        ("'x' as tags", {}, "The column body (or value) is missing"),
        ("'x' as body, 1L as bornTimestamp", {}, "as timestamp_millis(bornTimestamp) makes of milliseconds"),
        ("'x' as body", {"topic": "SCHEDULE_TOPIC_XXXX"}, "takes it from no producer"),
        ("'x' as body", {"topic": None}, "The rows have no topic"),
        ("'x' as body", {"topics": "a"}, "Unknown option 'topics'. Did you mean topic?"),
        ("'x' as body", {"txnVersion": "1"}, "txnVersion is given without txnAppId"),
    ],
)
def test_an_impossible_write_fails_before_the_first_row(
    spark: SparkSession, tmp_path: Path, columns: str, options: dict[str, str | None], said: str
) -> None:
    assert said in error_of(lambda: append(spark.sql(f"select {columns}"), tmp_path / "store", **options))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (None, "save() without a mode means errorifexists, which is not for a log"),
        ("errorifexists", "save() without a mode means errorifexists, which is not for a log"),
        ("error", "save() without a mode means errorifexists, which is not for a log"),
        ("ignore", 'mode("ignore") leaves an existing store as it is, which is not for a log'),
    ],
)
def test_a_missing_mode_is_answered_with_the_right_one(
    spark: SparkSession, tmp_path: Path, mode: str | None, said: str
) -> None:
    writer = spark.sql("select 'x' body").write.format("commitlog").options(**SMALL).mode(mode)
    for save in (writer.save, lambda path: writer.save(path, format="CommitLog", mode=mode)):
        with pytest.raises(OptionError) as caught:
            save(str(tmp_path / "store"))
        assert str(caught.value).startswith(said)
        assert 'Use .mode("append").' in str(caught.value)
        assert "UNSUPPORTED_DATA_SOURCE_SAVE_MODE" in str(caught.value.__cause__)
    assert not (tmp_path / "store").exists()


def test_the_mode_overwrite_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    writer = spark.sql("select 'x' body").write.format("commitlog").options(**SMALL).mode("overwrite")
    assert 'Use mode("append")' in error_of(lambda: writer.save(str(tmp_path / "store")))
    assert not (tmp_path / "store").exists()


def test_other_formats_are_saved_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql.readwriter import DataFrameWriter

    for _ in range(2):
        explain_modes("commitlog")  # as an import in a program of many modules
    assert inspect.signature(DataFrameWriter.save) == inspect.signature(inspect.unwrap(DataFrameWriter.save))
    frame = spark.sql("select 'x' value")
    frame.write.format("text").save(str(tmp_path / "text"))
    assert "already exists" in error_of(lambda: frame.write.format("text").save(str(tmp_path / "text")))


def test_a_bad_row_fails_the_write_and_none_of_its_rows_is_stored(spark: SparkSession, tmp_path: Path) -> None:
    rows = [(f"m{i}", "good" if i != 57 else "b\x01d") for i in range(100)]
    said = error_of(lambda: append(rows_of(spark, rows, "body string, tags string", 2), tmp_path))
    assert "row 7 of partition 1 (topic 'orders'" in said
    assert body_texts(tmp_path) == []
    # The other task may go on for a moment after Spark has aborted the write, and leave its file.
    assert [path for path in staged_files(tmp_path) if not path.rpartition("/")[2].startswith("0-")] == []


def test_a_write_waits_for_a_store_in_use_and_names_its_owner(spark: SparkSession, tmp_path: Path) -> None:
    import os

    frame = rows_of(spark, [("x",)], "body string")
    append(frame, tmp_path)
    with MessageStore.open(tmp_path):
        said = error_of(lambda: append(frame, tmp_path, lockTimeout="0.1"))
    assert str(os.getpid()) in said
    assert "option lockTimeout" in said
    assert body_texts(tmp_path) == ["x"]
    assert not staged_files(tmp_path)
