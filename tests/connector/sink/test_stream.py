"""Streaming writes through a real Spark: each row once, whatever is run again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.connector.sink.sink_helpers import SMALL, append, body_texts, messages, rows_of, staged_files, stream_to
from tests.connector.source.spark_helpers import stream
from tests.support.clean_store import assert_clean
from tests.support.waiting import WAIT_LIMIT_S, wait_for

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Files:
    """A streaming source of text files, each of which is a batch."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self._path = path
        self._count = 0
        path.mkdir()
        self.frame: DataFrame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(path))

    def add(self, *lines: str) -> None:
        unfinished = self._path / f".{self._count}.txt"
        unfinished.write_text("\n".join(lines) + "\n")
        unfinished.rename(self._path / f"{self._count}.txt")
        self._count += 1


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, tmp_path / "input")


def replay_last(checkpoint: Path) -> None:
    """Leave the checkpoint as a driver leaves it that dies between the sink's commit and the checkpoint's own."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)  # where the file system keeps checksums


def test_batches_are_written_once_each(files: Files, tmp_path: Path) -> None:
    store, checkpoint = tmp_path / "store", tmp_path / "check point"
    files.add("a", "b")
    files.add("c")
    stream_to(files.frame, store, checkpoint)
    files.add("d")
    stream_to(files.frame, store, checkpoint)
    assert body_texts(store) == ["a", "b", "c", "d"]
    replay_last(checkpoint)
    stream_to(files.frame, store, checkpoint)
    assert body_texts(store) == ["a", "b", "c", "d"]
    assert not staged_files(store)
    assert_clean(store)


def test_the_ledger_has_the_query_its_batch_and_a_fingerprint(files: Files, tmp_path: Path) -> None:
    files.add("a")
    stream_to(files.frame, tmp_path / "store", (tmp_path / "check point").as_uri())
    ledger = json.loads((tmp_path / "store/config/batchLedger.json").read_text())["batches"]
    (query_id,) = ledger
    (checkpoint,) = tmp_path.glob("check*point")
    assert json.loads((checkpoint / "metadata").read_text())["id"] == query_id
    assert ledger[query_id]["version"] == 0
    assert len(ledger[query_id]["fingerprint"]) == 32


def test_a_batch_that_was_planned_again_is_refused(files: Files, tmp_path: Path) -> None:
    """An older copy of the checkpoint is put back, and batch 1 now holds other rows than those that were written."""
    from pyspark.errors import StreamingQueryException

    store, checkpoint = tmp_path / "store", tmp_path / "checkpoint"
    files.add("a")
    stream_to(files.frame, store, checkpoint)
    shutil.copytree(checkpoint, tmp_path / "copy")
    files.add("b")
    stream_to(files.frame, store, checkpoint)
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "copy", checkpoint)
    files.add("c")
    with pytest.raises(StreamingQueryException, match="BatchConflict"):
        stream_to(files.frame, store, checkpoint)
    assert body_texts(store) == ["a", "b"]
    assert not staged_files(store)


def test_a_new_checkpoint_is_a_new_query(files: Files, tmp_path: Path) -> None:
    files.add("a")
    for name in ("one", "two"):
        stream_to(files.frame, tmp_path / "store", tmp_path / name)
    assert body_texts(tmp_path / "store") == ["a", "a"]


def test_empty_batches_write_nothing(files: Files, tmp_path: Path) -> None:
    for line in ("a", "skip", "b"):
        files.add(line)
    stream_to(files.frame.where("value != 'skip'"), tmp_path / "store", tmp_path / "checkpoint")
    assert body_texts(tmp_path / "store") == ["a", "b"]
    assert len(messages(tmp_path / "store", "rmq_sys_commitlog_batch")) == 2


def test_the_checkpoint_may_be_under_the_sessions_root(spark: SparkSession, files: Files, tmp_path: Path) -> None:
    name = "spark.sql.streaming.checkpointLocation"
    files.add("a")
    spark.conf.set(name, str(tmp_path / "root"))
    try:
        writer = files.frame.writeStream.format("commitlog").options(**SMALL).queryName("my query")
        writer.trigger(availableNow=True).start(str(tmp_path / "store")).awaitTermination(WAIT_LIMIT_S)
    finally:
        spark.conf.unset(name)
    (entry,) = json.loads((tmp_path / "store/config/batchLedger.json").read_text())["batches"].values()
    assert entry["fingerprint"]


def test_a_stream_copies_a_store_to_a_store(spark: SparkSession, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    append(rows_of(spark, [(f"m{i}", i % 4) for i in range(50)], "body string, queueId int", 2), first)
    source = stream(spark, first, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger="20")
    stream_to(source.select("body", "queueId", "topic"), second, tmp_path / "checkpoint", topic=None)
    assert [(message.queue_id, message.body) for message in messages(second)] == [
        (message.queue_id, message.body) for message in messages(first)
    ]


def test_for_each_batch_with_a_version_writes_each_batch_once(files: Files, tmp_path: Path) -> None:
    store, checkpoint = tmp_path / "store", tmp_path / "checkpoint"

    def write(frame: DataFrame, batch_id: int) -> None:
        append(frame, store, txnAppId="loader", txnVersion=batch_id)

    def run() -> None:
        writer = files.frame.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(WAIT_LIMIT_S)

    files.add("a")
    files.add("b")
    run()
    replay_last(checkpoint)
    run()
    assert body_texts(store) == ["a", "b"]


@pytest.mark.parametrize(
    ("mode", "options", "said"),
    [
        ("complete", {}, "foreachBatch"),
        ("update", {}, "does not support Update mode"),
        ("append", {"txnAppId": "a"}, "txnAppId is for batch writes"),
        ("append", {"flsh": "sync"}, "Did you mean flush?"),
    ],
)
def test_an_impossible_write_fails_before_the_first_row(
    files: Files, tmp_path: Path, mode: str, options: dict[str, str], said: str
) -> None:
    from pyspark.errors import StreamingQueryException

    files.add("a")
    frame = files.frame.groupBy("value").count().drop("count") if mode != "append" else files.frame
    writer = frame.writeStream.format("commitlog").options(**SMALL, **options).outputMode(mode)
    query = writer.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "store"))
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(WAIT_LIMIT_S)
    assert said in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_a_continuous_trigger_loses_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """Spark calls no writer of Python's under it, and still has each epoch committed."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", 100).load().selectExpr("string(value) as body")
    writer = rows.writeStream.format("commitlog").options(**SMALL).option("checkpointLocation", str(tmp_path / "state"))
    query = writer.trigger(continuous="200 milliseconds").start(str(tmp_path / "store"))
    try:
        # A task reports the end of an epoch when it has handed over the epoch before: that one's commit came by then.
        wait_for(lambda: len(list((tmp_path / "state" / "offsets").glob("[0-9]*"))) > 3)
    finally:
        query.stop()
    assert not list((tmp_path / "state" / "commits").glob("[0-9]*"))
    assert body_texts(tmp_path / "store") == []
