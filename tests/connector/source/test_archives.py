"""Spark reads an archive of a store as it reads the store's directory, and a checkpoint is of both."""

from __future__ import annotations

import pickle
import shutil
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

import pyspark_commitlog
from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.archive.archiver import ArchiveSettings, archive_store, open_archiver
from commitlog_store.errors import FileMissing
from commitlog_store.object_storage.address import StorageAddress
from commitlog_store.object_storage.counted import counted_storage
from commitlog_store.object_storage.object_store import ObjectStore
from commitlog_store.storage_stats import StorageStats
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.stream_planner import StreamPlanner
from pyspark_commitlog.source.task import ReadTask
from tests.support.hdfs_server import hdfs_server
from tests.support.s3_server import KEYS, options_for, s3_server
from tests.support.store_builder import StoreBuilder

S3 = "s3://past/orders"


def _add(builder: StoreBuilder, count: int) -> None:
    bodies = [b"%d" % number * 30 for number in range(count)]
    builder.append("orders", [0, 1, 2], bodies, tags=["ab"[number % 2] for number in range(count)])


def test_batches_and_streams_have_the_rows_of_the_directory(spark: SparkSession, tmp_path: Path) -> None:
    store, url = tmp_path / "store", f"archive+file://{tmp_path}/past"
    builder = StoreBuilder(store, log_file_size=16 << 10)
    _add(builder, 300)
    archive_store(store, f"file://{tmp_path}/past", with_last=True)
    reader = spark.read.format("commitlog").option("subscribe", "orders").option("tags", "a")
    of_archive = reader.option("cacheDir", str(tmp_path / "cache")).load(url).orderBy("queueId", "queueOffset")
    of_directory = reader.load(f"here={store},past={url}").where("store = 'here'").drop("store")
    assert of_archive.collect() == of_directory.orderBy("queueId", "queueOffset").collect()
    assert of_archive.count() == 150
    assert list((tmp_path / "cache").rglob("*-0"))
    tables = spark.read.format("commitlog").option("metadata", "queues")
    queues = tables.load(str(store)).collect()
    assert tables.option("cacheDir", str(tmp_path / "cache")).load(url).collect() == queues
    rows: list[int] = []
    for path in (url, str(store), url):
        frame = spark.readStream.format("commitlog").option("subscribe", "orders").option("startingOffsets", "earliest")
        writer = frame.load(path).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        rows.append(sum(one["numInputRows"] for one in query.recentProgress))
        _add(builder, 30)
        archive_store(store, f"file://{tmp_path}/past", with_last=True)
    assert rows == [300, 30, 30]


@pytest.mark.stress
def test_an_archive_in_hdfs_has_the_rows_of_the_directory(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's jars are fetched, so this is a long run."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=16 << 10)
    builder.append("orders", [0, 1, 2], [b"%d" % number * 30 for number in range(300)])
    with hdfs_server(tmp_path) as server:
        url = f"{server.url}/past/orders"
        archive_store(tmp_path / "store", url, with_last=True)
        reader = spark.read.format("commitlog").option("subscribe", "orders")
        expected = reader.load(str(tmp_path / "store")).orderBy("queueId", "queueOffset").collect()
        assert len(expected) == 300
        assert reader.load(url).orderBy("queueId", "queueOffset").collect() == expected
        for file in sorted((tmp_path / "store" / "commitlog").iterdir())[:1]:
            file.unlink()
        history = reader.option("archive", url).load(str(tmp_path / "store"))
        assert history.orderBy("queueId", "queueOffset").collect() == expected


@pytest.mark.parametrize(
    ("topics", "queues", "archive"), [(1, 4, ""), (1, 40, ""), (4, 1, ""), (4, 10, ""), (1, 4, "past")]
)
def test_tasks_fetch_the_log_of_interleaved_queues_once(tmp_path: Path, topics: int, queues: int, archive: str) -> None:
    """Queues that are a third of the log have messages in all of its pages."""
    builder = StoreBuilder(tmp_path / "store", log_file_size=4 << 20)
    for _ in range(40):
        for topic in range(topics):
            builder.append(f"orders-{topic}", list(range(queues)), [b"x" * 2000] * (40 // topics))
        builder.append("audit", 0, [b"x" * 2000] * 80)
    size, url = builder.position, f"archive+file://{tmp_path}/past"
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    path = {"path": str(tmp_path / "store"), "archive": url} if archive else {"path": url}
    if archive:  # the head is in the archive alone
        for file in sorted((tmp_path / "store" / "commitlog").iterdir())[:-1]:
            file.unlink()
    options = {**path, "subscribePattern": "orders-.*", "startingOffsets": "earliest", "minPartitions": "4"}
    parsed = parse_stream_options(options)
    planner, schema = StreamPlanner(parsed, clock=lambda: 0.0), StructType([StructField("queueOffset", LongType())])
    start = planner.initial_offset()
    partitions = planner.partitions(start, planner.latest_offset(start, limited=True))
    task = ReadTask(parsed, check_schema(schema))
    with counted_storage() as asked:
        rows = sum(batch.num_rows for one in partitions for batch in task.read(one))
    assert rows == 1600
    assert len(partitions) >= 4
    assert asked.stats.bytes_fetched < 1.5 * size


@pytest.mark.parametrize("kind", ["batch", "stream", "stream of a history"])
def test_tasks_begin_with_the_manifest_of_the_plan(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They list nothing, and where the cache has all that they read, they ask for nothing."""
    is_history = kind == "stream of a history"
    builder = StoreBuilder(tmp_path / "store", log_file_size=(2 if is_history else 4) << 20)
    for _ in range(40):
        builder.append("orders", [0, 1, 2, 3], [b"x" * 2000] * 40)
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    options = {"path": f"archive+file://{tmp_path}/past", "subscribe": "orders", "startingOffsets": "earliest"}
    if is_history:
        min((tmp_path / "store" / "commitlog").iterdir()).unlink()
        options |= {"path": str(tmp_path / "store"), "archive": options["path"]}
    partitions, task = _planned({**options, "minPartitions": "4", "cacheDir": str(tmp_path / "cache")}, kind)
    assert len(partitions) >= 4
    monkeypatch.delattr(ObjectStore, "list")
    cold = [_asked(task, one) for one in partitions]
    # Planning has left units and catalog in the cache: the log is left, and the manifest for the first task.
    assert [one.requests for one in cold] == [2] + [1] * (len(partitions) - 1) or is_history
    monkeypatch.delattr(StorageAddress, "connect")
    assert [_asked(task, one).requests for one in partitions] == [0] * len(partitions)
    assert max(len(pickle.dumps(one)) for one in partitions) < 2000


def test_a_task_whose_manifest_was_deleted_since_reads_the_newest_one(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store", log_file_size=16 << 10)
    _add(builder, 90)
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    partitions, task = _planned({"path": f"archive+file://{tmp_path}/past", "subscribe": "orders"}, "batch")
    [manifest] = (tmp_path / "past" / "manifest").iterdir()
    _add(builder, 90)
    archive_store(tmp_path / "store", f"file://{tmp_path}/past", with_last=True)
    manifest.unlink()
    assert sum(batch.num_rows for one in partitions for batch in task.read(one)) == 90
    manifest.write_bytes(b"{}")
    assert sum(batch.num_rows for one in partitions for batch in task.read(one)) == 90


@pytest.mark.parametrize("left", ["the queue's end", "no queue"])
def test_a_task_reads_what_was_archived_and_deleted_since_the_plan(tmp_path: Path, left: str) -> None:
    """The planned manifest does not have the queue at all."""
    store, past = tmp_path / "store", f"file://{tmp_path}/past"
    builder = StoreBuilder(store, log_file_size=16 << 10)
    _add(builder, 90)
    archive_store(store, past, with_last=True)
    builder.append("new", 0, [b"x" * 1000] * 20)
    partitions, task = _planned({"path": str(store), "archive": f"archive+{past}", "subscribe": "new"}, "batch")
    builder.append("new", 0, [b"x" * 1000] * 60)
    archive_store(store, past, with_last=True)
    for file in sorted((store / "commitlog").iterdir())[:-1]:
        file.unlink()
    if left == "no queue":
        shutil.rmtree(store / "consumequeue" / "new")
    assert sum(batch.num_rows for one in partitions for batch in task.read(one)) == 20


def _planned(options: dict[str, str], kind: str) -> tuple[list[RangePartition], ReadTask]:
    """The partitions of a query as Spark gets them, and their task."""
    schema = check_schema(StructType([StructField("queueOffset", LongType())]))
    if kind == "batch":
        parsed = parse_batch_options(options)
        found = CommitLogBatchReader(parsed, schema).partitions()
    else:
        parsed = parse_stream_options(options)
        planner = StreamPlanner(parsed, clock=lambda: 0.0)
        start = planner.initial_offset()
        found = list(planner.partitions(start, planner.latest_offset(start, limited=True)))
    return pickle.loads(pickle.dumps(found)), ReadTask(parsed, schema)


def _asked(task: ReadTask, partition: RangePartition) -> StorageStats:
    """What the task of a partition asks of object storage."""
    with counted_storage() as asked:
        for _ in task.read(partition):
            pass
    return asked.stats


def test_lookups_have_the_messages_of_the_directory(spark: SparkSession, tmp_path: Path) -> None:
    store, url = tmp_path / "store", f"archive+file://{tmp_path}/past"
    with MessageStore.open(store, MessageStoreConfig.embedded(mapped_file_size_commit_log=4 << 10)) as owner:
        for number in range(60):
            owner.put("orders", b"%d" % number * 60, keys=[f"k{number}"], queue_id=0)
    archive_store(store, f"file://{tmp_path}/past", with_last=True)
    live = shutil.copytree(store, tmp_path / "live")
    for file in sorted((live / "commitlog").iterdir())[:2]:
        file.unlink()
    keys = spark.createDataFrame([("no such key",), ("k1",), ("k55",)], "key string")
    found = [
        pyspark_commitlog.lookup(keys, path, "orders", "key", columns=["queueOffset", "body"], **given).collect()
        for path, given in (
            (store, {}),
            (url, {"cache_dir": tmp_path / "cache"}),
            (live, {"archive": url}),
        )
    ]
    assert found[0] == found[1] == found[2]
    assert found[0][1]["message"]["body"] == b"1" * 60
    assert list((tmp_path / "cache").rglob("*-0"))
    with pytest.raises(OptionError, match="cache_size is for an archive"):
        pyspark_commitlog.lookup(keys, store, "orders", "key", cache_size=1 << 30)


def test_options_of_an_archive_reach_its_reader(tmp_path: Path) -> None:
    given = {"path": S3, "subscribe": "orders", "endpoint": "http://127.0.0.1:9000", "cacheDir": str(tmp_path)}
    parsed = parse_batch_options({**given, "cacheSize": "1g"})
    assert parsed.remote.of(S3) == {
        "storage_options": {"endpoint": "http://127.0.0.1:9000"},
        "cache_dir": str(tmp_path),
        "cache_size": 1 << 30,
    }
    assert parsed.remote.of("/data/store") == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "/data/store", "cacheDir": "/cache"}, "cacheDir is for an archive"),
        ({"path": S3, "token": "t"}, "token is for a store that commitlog serve shows"),
        ({"path": S3, "fromLog": "true"}, "path is the address of an archive"),
        ({"path": S3, "endpoint": "http://key:secret@host"}, "no keys"),
        ({"path": S3, "commitGroup": "g"}, "commitGroup is for a store that keeps positions"),
    ],
)
def test_options_that_do_not_go_with_an_archive_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as refused:
        parse_stream_options({"subscribe": "orders", **options})
    assert "secret" not in str(refused.value)


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(Exception, match="No archive at"):
        StoreReader.open(f"archive+file://{tmp_path}/empty")


def test_lookups_and_lost_messages_in_s3(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers have the credentials in their environment. What retention took before it was archived is lost there."""
    store = tmp_path / "store"
    with MessageStore.open(store, MessageStoreConfig.embedded(mapped_file_size_commit_log=4 << 10)) as owner:
        for number in range(60):
            owner.put("orders", b"%d" % number * 60, keys=[f"k{number}"], queue_id=0)
    keys = spark.createDataFrame([("no such key",), ("k1",), ("k55",)], "key string")
    for name, value in KEYS.items():
        monkeypatch.setenv(f"AWS_{name.upper()}", value)
        monkeypatch.setitem(spark.sparkContext.environment, f"AWS_{name.upper()}", value)
    with s3_server() as endpoint:
        asked = partial(
            pyspark_commitlog.lookup, keys, topic="orders", key_column="key", columns=["queueOffset", "body"]
        )
        archive_store(store, S3, with_last=True, options=options_for(endpoint))
        assert asked(S3, endpoint=endpoint).collect() == asked(store).collect()
        url = f"archive+file://{tmp_path}/past"
        archiver = open_archiver(store, url, ArchiveSettings(allow_gap=True, with_last=True))
        archiver.run_once()
        for file in sorted((store / "commitlog").iterdir())[1:3]:
            file.unlink()
        while not archiver.run_once():
            pass
        archiver.close()
    with StoreReader.open(url) as reader, pytest.raises(FileMissing) as missing:
        list(reader.read("orders", 0, 0))
    lost = missing.value
    frame = spark.read.format("commitlog").option("subscribe", "orders").option("startingOffsets", "earliest")
    with pytest.raises(Exception, match=rf"\[{lost.start}, {lost.stop}\) cannot be read.*before it was archived"):
        frame.load(url).count()
    rows = frame.option("failOnDataLoss", "false").load(url).select("queueOffset").orderBy("queueOffset").collect()
    assert [row.queueOffset for row in rows] == [*range(lost.start), *range(lost.stop, 60)]
