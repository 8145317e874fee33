"""Options of a write that set up the store, through a real Spark: each does what docs/sink.md says."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from commitlog_store import LogFollower, MessageExt, MessageStore, StoreReader
from commitlog_store.format.index_file import file_size
from commitlog_store.format.sys_flag import COMPRESSED_FLAG
from pyspark_commitlog.options.write import parse_batch_write_options
from tests.connector.sink.sink_helpers import SMALL, append, body_texts, messages, rows_of, staged_files
from tests.connector.sink.test_batch import error_of
from tests.connector.sink.test_stream import Files
from tests.connector.source.spark_helpers import read
from tests.support import quick_programs
from tests.support.clean_store import assert_clean
from tests.support.local_spark import PROJECT
from tests.support.programs import child_environment
from tests.support.waiting import WAIT_LIMIT_S, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def find(store: Path, key: str) -> list[MessageExt]:
    """The messages of a key, as readers look for them in the index."""
    with StoreReader.open(store) as reader:
        return reader.query("orders", key)


def sizes(directory: Path) -> set[int]:
    return {file.stat().st_size for file in directory.rglob("*") if file.is_file()}


def make_store(store: Path) -> None:
    """An empty store of small files, without Spark."""
    options = parse_batch_write_options(SMALL | {"path": str(store)})
    MessageStore.open(options.path, options.store_config).close()


def test_asynchronous_flush_writes_the_same_rows_and_closes_the_store(spark: SparkSession, tmp_path: Path) -> None:
    append(rows_of(spark, [(f"m{i}",) for i in range(6)], "body string", 2), tmp_path, flush="async")
    assert body_texts(tmp_path) == [f"m{i}" for i in range(6)]
    assert {bytes(row.body) for row in read(spark, tmp_path, "body binary", subscribe="orders").collect()} == {
        f"m{i}".encode() for i in range(6)
    }
    assert not staged_files(tmp_path)
    assert_clean(tmp_path)
    # What lies on the device when the commit returned cannot be seen from here. That the store was closed can, and
    # closing brings it there.
    with StoreReader.open(tmp_path) as reader:
        assert not reader.aborted


def _free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return f"127.0.0.1:{one.getsockname()[1]}"


def test_a_replicated_write_is_in_two_stores_when_it_returns(spark: SparkSession, tmp_path: Path) -> None:
    address = _free_address()
    sink = {"flush": "replicated", "haListenAddress": address}
    config = parse_batch_write_options(SMALL | {"path": "/"}).store_config
    with LogFollower(address, tmp_path / "copy", config=config) as follower:
        for turn in range(2):
            rows = [(f"m{turn}-{number}",) for number in range(30)]
            append(rows_of(spark, rows, "body string", 2), tmp_path / "store", **sink)
            with StoreReader.open(tmp_path / "store") as reader:
                assert follower.status.end == reader.physical_bounds()[1]
    assert body_texts(tmp_path / "copy") == body_texts(tmp_path / "store")
    assert len(body_texts(tmp_path / "copy")) == 60


def test_a_replicated_write_without_a_replica_writes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rows = rows_of(spark, [("a",)], "body string", 1)
    with pytest.raises(Exception, match="No replica has connected") as caught:
        append(rows, tmp_path, flush="replicated", haListenAddress=_free_address(), replicaTimeout=0.2)
    assert "Nothing was written" in str(caught.value)
    assert not staged_files(tmp_path)
    with StoreReader.open(tmp_path) as reader:
        assert not reader.topics()


def test_a_topic_is_listed_with_its_queues_as_rocketmq_lists_it(spark: SparkSession, tmp_path: Path) -> None:
    append(spark.sql("select 'a' body, 'clicks' topic union all select 'b', null"), tmp_path, queues=2)
    append(spark.sql("select 'c' body, 'late' topic union all select 'd', null"), tmp_path, queues=6)
    listed = json.loads((tmp_path / "config/topics.json").read_text())["topicConfigTable"]
    queues = {topic: (entry["writeQueueNums"], entry["readQueueNums"]) for topic, entry in listed.items()}
    assert queues == {"clicks": (2, 2), "orders": (2, 2), "late": (6, 6)}, "one that is there keeps its own"


def test_without_an_index_keys_find_nothing_until_a_write_with_an_index(spark: SparkSession, tmp_path: Path) -> None:
    schema = "body string, keys string"
    append(rows_of(spark, [("first", "k")], schema), tmp_path, messageIndexEnable="false")
    (first,) = messages(tmp_path)
    assert first.unique_key is not None
    assert not list((tmp_path / "index").iterdir())
    assert find(tmp_path, "k") == find(tmp_path, first.unique_key) == []
    with StoreReader.open(tmp_path) as reader:
        assert reader.index_files() == []
    assert_clean(tmp_path)
    append(rows_of(spark, [("second", "k")], schema), tmp_path)
    assert [message.body for message in find(tmp_path, "k")] == [b"first", b"second"], "built from the whole log"
    assert [message.body for message in find(tmp_path, first.unique_key)] == [b"first"]
    assert_clean(tmp_path)


def test_the_largest_body_is_what_the_option_says(spark: SparkSession, tmp_path: Path) -> None:
    """Above the default as well as below it; the limit itself is taken."""
    frame = spark.sql("select repeat('x', 1024) body")
    append(frame, tmp_path, maxMessageSize="1k")
    said = error_of(lambda: append(frame, tmp_path, maxMessageSize="1023"))
    assert "its body has 1024 bytes, the limit (" in said
    assert "maxMessageSize) is 1023." in said
    assert body_texts(tmp_path) == ["x" * 1024]


def test_a_body_above_the_default_limit_needs_the_option(spark: SparkSession, tmp_path: Path) -> None:
    large = (4 << 20) + 1
    frame = spark.sql(f"select repeat('x', {large}) body")
    options = {"mappedFileSizeCommitLog": "5m"}
    said = error_of(lambda: append(frame, tmp_path, **options))
    assert f"its body has {large} bytes, the limit (" in said
    assert f"maxMessageSize) is {large - 1}." in said
    assert body_texts(tmp_path) == []
    append(frame, tmp_path, **options, maxMessageSize=large)
    (message,) = messages(tmp_path)
    assert len(message.body) == large
    (row,) = read(spark, tmp_path, "body binary", subscribe="orders").collect()
    assert len(row.body) == large


def test_bodies_of_more_than_compress_over_bytes_are_compressed(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql("select repeat('x', 4096 + id) body, int(id) queueId from range(0, 2, 1, 1)")
    append(frame, tmp_path, bodyCompression="zstd")
    append(frame, tmp_path, bodyCompression="zlib", compressOver=0)
    append(frame, tmp_path, compressOver=0)
    packed: dict[int, list[bool]] = {0: [], 1: []}
    for message in messages(tmp_path):
        assert message.body == b"x" * (4096 + message.queue_id)
        packed[message.queue_id].append(bool(message.sys_flag & COMPRESSED_FLAG))
    assert packed == {0: [False, True, False], 1: [True, True, False]}, "default, all, none"


def test_the_files_of_a_new_store_have_the_sizes_given_and_keep_them(spark: SparkSession, tmp_path: Path) -> None:
    frame = rows_of(spark, [("m", "k")], "body string, keys string")
    append(frame, tmp_path, mappedFileSizeCommitLog="64k", maxHashSlotNum=10, maxIndexNum=20)
    larger = dict.fromkeys(("mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"), "128000")
    append(frame, tmp_path, **larger)
    assert sizes(tmp_path / "commitlog") == {64 << 10}
    assert sizes(tmp_path / "consumequeue") == {4000}
    assert sizes(tmp_path / "index") == {file_size(10, 20)}
    assert body_texts(tmp_path) == ["m", "m"]
    assert_clean(tmp_path)


@contextmanager
def owner_of(store: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the store's lock, until its standard input is closed."""
    command = [sys.executable, "-m", "tests.store.owner.lock_holder", "lock", str(store / "lock")]
    environment = child_environment()
    with quick_programs.Popen(
        command, cwd=PROJECT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


@pytest.mark.parametrize("timeout", ["0", "0.2"])
def test_another_process_that_owns_the_store_is_named_after_the_lock_timeout(
    spark: SparkSession, tmp_path: Path, timeout: str
) -> None:
    make_store(tmp_path)
    with owner_of(tmp_path) as owner:
        said = error_of(lambda: append(spark.sql("select 'x' body"), tmp_path, lockTimeout=timeout))
        assert f"process {owner.pid} (" in said
        assert ("Waited 0.2 s for it. Nothing was written." in said) == (timeout == "0.2")
        assert "Nothing was written. The option lockTimeout says how long to wait." in said
    assert body_texts(tmp_path) == []
    assert not staged_files(tmp_path)


def test_a_write_waits_for_an_owner_that_ends_within_the_lock_timeout(spark: SparkSession, tmp_path: Path) -> None:
    store = tmp_path / "store"
    make_store(store)
    files = Files(spark, tmp_path / "input")
    files.add("a", "b")
    writer = files.frame.writeStream.format("commitlog").options(**SMALL, lockTimeout="60")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    with owner_of(store) as owner:
        query = writer.start(str(store))
        wait_for(lambda: staged_files(store))
        assert body_texts(store) == [], "staged, while the owner has the store"
        assert query.isActive
        assert owner.stdin is not None
        owner.stdin.close()
        assert query.awaitTermination(WAIT_LIMIT_S)
    assert body_texts(store) == ["a", "b"]
    assert not staged_files(store)
