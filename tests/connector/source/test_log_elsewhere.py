"""Option ``storePathCommitLog``: stores whose log lies in another directory, read and written by Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.errors import LogNotFound
from pyspark_commitlog import lookup
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.read import parse_batch_options
from pyspark_commitlog.options.write import parse_batch_write_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.schema import check_schema, default_schema
from tests.support.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def store_at(path: Path, text: str) -> tuple[Path, Path]:
    """A store of one message, and the directory of its log."""
    StoreBuilder(path).append("orders", 0, [text.encode()], keys=["k"])
    log = path.with_name(f"{path.name}-log")
    shutil.move(path / "commitlog", log)
    return path, log


def test_several_stores_name_the_logs_of_some(tmp_path: Path) -> None:
    one, log = store_at(tmp_path / "one", "one")
    StoreBuilder(tmp_path / "other").append("orders", 0, [b"other"])
    options = parse_batch_options(
        {"path": f"a={one},b={tmp_path}/other", "storepathcommitlog": f"a={log}", "subscribe": "orders"}
    )
    reader = CommitLogBatchReader(options, check_schema(default_schema(options)))
    rows = [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]
    assert {(row["store"], row["body"]) for row in rows} == {("a", b"one"), ("b", b"other")}


@pytest.mark.parametrize(
    ("path", "log", "words"),
    [
        ("/s", "/a,/b", "one directory: a log in several (RocketMQ's MultiPath) is not read"),
        ("/s", "s3a://bucket/log", "on a local or mounted file system"),
        ("a=/s,b=/t", "/log", "by the names of the stores in path"),
        ("a=/s,b=/t", "c=/log", "names of the stores in path, a, b; found 'c'"),
    ],
)
def test_a_wrong_directory_is_refused_with_what_is_expected(path: str, log: str, words: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_batch_options({"path": path, "storePathCommitLog": log, "subscribe": "orders"})
    assert words in str(caught.value)
    assert caught.value.option == "storePathCommitLog"


def test_the_sinks_store_has_its_log_there(tmp_path: Path) -> None:
    options = parse_batch_write_options({"path": str(tmp_path / "s"), "storePathCommitLog": str(tmp_path / "log")})
    assert options.store_config.store_path_commit_log == str(tmp_path / "log")


def test_spark_writes_and_reads_a_store_with_its_log_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    store, log = tmp_path / "store", tmp_path / "disk"
    frame = spark.createDataFrame([(f"row {number}", "k") for number in range(20)], "body string, keys string")
    sized = {"mappedFileSizeCommitLog": "1m", "diskSpaceWarningLevelRatio": "1"}
    options = {"path": str(store), "storePathCommitLog": str(log)}
    for _ in range(2):
        made = frame.selectExpr("cast(body as binary) body", "array(keys) keys")
        made.write.format("commitlog").mode("append").options(**options, **sized, topic="orders").save()
    assert not (store / "commitlog").exists()
    assert spark.read.format("commitlog").options(**options, subscribe="orders").load().count() == 40
    files = spark.read.format("commitlog").options(**options).option("metadata", "files").load()
    assert "commitlog" in {row["kind"] for row in files.collect()}
    keys = spark.createDataFrame([("k",)], "key string")
    found = lookup(keys, store, "orders", "key", store_path_commit_log=str(log)).collect()
    assert bytes(found[0]["message"]["body"]).startswith(b"row ")
    query = (
        spark.readStream.format("commitlog").options(**options, subscribe="orders", startingOffsets="earliest").load()
        .writeStream.format("memory").queryName("elsewhere").option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert spark.sql("select count(*) from elsewhere").collect()[0][0] == 40
    with pytest.raises(LogNotFound):
        StoreReader.open(store)
    with MessageStore.open(store, MessageStoreConfig(store_path_commit_log=str(log))) as owner:
        assert owner.recovered is None
        assert len(owner.get_message("orders", 0, 0, 100).messages) > 0
