"""Spark reads a store that ``commitlog serve`` shows as it reads its directory, and a checkpoint is of both."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructField, StructType

import pyspark_commitlog
from commitlog_store import MessageStore, StoreReader, connect
from commitlog_store.errors import RemoteFailed
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.options.remote import RemoteOptions
from pyspark_commitlog.source.group_commits import GroupCommits
from pyspark_commitlog.source.limits_by_spark import CommitLogStreamReader
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.stream_offset import StreamOffset
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.connector.source.spark_helpers import Batches, stream
from tests.store.retention.small_stores import SMALL, fill
from tests.store.serve.servers import ServeProcess

PLACE = StructType([StructField("topic", StringType()), StructField("queueOffset", LongType())])


def _put(path: Path, count: int, first: int = 0) -> None:
    with MessageStore.open(path) as store:
        bodies = [b"%d" % number for number in range(first, first + count)]
        keys = [f"k{number}" for number in range(first, first + count)]
        columns = {"topic": ["orders"] * count, "body": bodies, "tags": ["a", "b"] * (count // 2), "keys": keys}
        store.put_messages(pa.table(columns))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("served") / "store"
    _put(path, 400)
    return path


@pytest.fixture(scope="module")
def url(store: Path) -> Iterator[str]:
    with ServeProcess(store, "--read-only") as server:
        yield server.url


def test_a_batch_has_the_rows_of_the_directory(spark: SparkSession, store: Path, url: str) -> None:
    reader = spark.read.format("commitlog").option("subscribe", "orders")
    frames = [
        reader.option("tags", "a").load(path).orderBy("queueId", "queueOffset").collect() for path in (url, str(store))
    ]
    assert len(frames[0]) == 200
    assert frames[0] == frames[1]
    several = reader.load(f"near={store},far={url}").groupBy("store").count().collect()
    assert sorted(map(tuple, several)) == [("far", 200), ("near", 200)]


def test_a_checkpoint_goes_on_with_the_address_and_with_the_directory(
    spark: SparkSession, store: Path, url: str, tmp_path: Path
) -> None:
    rows: list[int] = []
    for path in (url, str(store), url):
        frame = spark.readStream.format("commitlog").option("subscribe", "orders").option("startingOffsets", "earliest")
        writer = frame.load(path).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        rows.append(sum(one["numInputRows"] for one in query.recentProgress))
        _put(store, 10, 1000)
    assert rows == [400, 10, 10]


def test_filters_tables_and_lookups_are_those_of_the_directory(spark: SparkSession, store: Path, url: str) -> None:
    frames: list[Any] = []
    for path in (str(store), url):
        reader = spark.read.format("commitlog")
        chosen = reader.option("subscribe", "orders").option("filter", "TAGS = 'b' AND KEYS <> 'k1'")
        if path == url:
            chosen = chosen.option("filterAt", "server")
        queues = spark.read.format("commitlog").option("metadata", "queues").option("path", path)
        if path == url:
            queues = queues.option("rpcTimeout", "60s")
        keys = spark.createDataFrame([("no such key",), ("k7",)], "key string")
        found = pyspark_commitlog.lookup(keys, path, "orders", "key", columns=["queueOffset"], rpc_timeout_s=60)
        frames.append(
            [
                chosen.load(path).orderBy("queueId", "queueOffset").collect(),
                queues.load().orderBy("queueId").collect(),
                found.collect(),
            ]
        )
    assert frames[0] == frames[1]
    assert len(frames[0][0]) >= 199


def test_a_stream_whose_positions_retention_has_removed_at_the_server(spark: SparkSession, tmp_path: Path) -> None:
    """It ends with the same error as beside the directory, and goes on where that is allowed."""
    path, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(
        f"mappedFileSizeCommitLog={16 << 10}\nmappedFileSizeConsumeQueue=200\nmaxHashSlotNum=50\nmaxIndexNum=60\n"
    )
    with MessageStore.open(path, SMALL) as store:
        fill(store, 30)
    with ServeProcess(path, "--config", conf) as server:

        def run(place: str, checkpoint: Path, fail: str) -> list[int]:
            options = {"subscribe": "orders", "startingOffsets": "earliest", "failOnDataLoss": fail}
            frame = stream(spark, place, **options).select("queueOffset")
            return [row.queueOffset for row in Batches(checkpoint).run(frame)]

        assert sorted(run(server.url, tmp_path / "address", "true")) == list(range(30))
        shutil.copytree(tmp_path / "address", tmp_path / "directory")
        with connect(server.url) as remote:
            fill(remote, 100)
            assert remote.clean(max_bytes=40_000).deleted
        with StoreReader.open(server.url) as reader:
            first = reader.queues("orders")[0].min_offset
        assert first > 30
        said = []
        for place, checkpoint in ((server.url, tmp_path / "address"), (str(path), tmp_path / "directory")):
            with pytest.raises(StreamingQueryException, match="DataLossError") as caught:
                run(place, checkpoint, "true")
            said.append(str(caught.value).partition("DataLossError")[2].splitlines()[0])
            assert sorted(run(place, checkpoint, "false")) == list(range(first, 130))
        assert f"wanted offsets [30, 130), available are [{first}, 130)" in said[0]
        assert said[0] == said[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "/data/store", "token": "x"}, "is for a store that commitlog serve shows"),
        ({"token": "a b"}, "is not a token"),
        ({"token": "x", "tokenFile": "/nowhere"}, "exclude each other"),
        ({"tokenFile": "/nowhere"}, "cannot be read: No such file or directory. It is read on the driver."),
        ({"rpcTimeout": "soon"}, "a time such as"),
        ({"filterAt": "here"}, "reader or server"),
        ({"fromLog": "true"}, "needs the files of the store"),
        ({"storePathCommitLog": "/log"}, "needs the files of the store"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_batch_options({"path": "grpc://host:1", "subscribe": "orders", **options})


def test_options_of_a_served_store(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("clt_secret\n")
    given = {"path": "grpc+tls://host:1/a", "subscribe": "orders", "tokenFile": str(token), "rpcTimeout": "5s"}
    given["filterAt"] = "Server"
    parsed = parse_batch_options(given)
    assert parsed.path == "grpc+tls://host:1/a"
    assert parsed.remote.of(parsed.path) == {
        "token": "clt_secret",
        "tls_root_certificates": None,
        "rpc_timeout_s": 5.0,
        "filter_at": "server",
    }
    assert "clt_secret" not in repr(parsed)
    assert parse_batch_options({"path": "a=grpc://h:1,b=/data", "subscribe": "t"}).stores == {
        "a": "grpc://h:1",
        "b": "/data",
    }
    with pytest.raises(OptionError, match="fromLog needs the files"):
        parse_stream_options({**given, "fromLog": "true"})


def test_a_group_follows_a_query_through_the_server_that_owns_the_store(tmp_path: Path) -> None:
    _put(tmp_path / "store", 40)
    with ServeProcess(tmp_path / "store") as server:
        given = {"path": server.url, "subscribe": "orders", "startingOffsets": "earliest", "commitGroup": "billing"}
        reader = CommitLogStreamReader(parse_stream_options(given), check_schema(PLACE))
        first = reader.initialOffset()
        end = reader.latestOffset(first, ReadAllAvailable())
        with StoreReader.open(server.url) as remote:
            assert remote.group_offsets("billing") == {}, "no batch has ended"
            reader.latestOffset(end, ReadAllAvailable())
            committed = remote.group_offsets("billing")
            assert committed == {(one.topic, one.queue_id): one.max_offset for one in remote.queues("orders")}
        reader.stop()
        assert server.stop()[0] == 0
    with StoreReader.open(tmp_path / "store") as local:
        assert local.group_offsets("billing") == committed


@pytest.mark.parametrize("reason", ["read only", "away"])
def test_a_group_that_cannot_follow_at_a_server_does_not_end_the_query(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    _put(tmp_path / "store", 2)
    with ServeProcess(tmp_path / "store", "--read-only") as server:
        commits = GroupCommits(server.url, "billing", remote=RemoteOptions(rpc_timeout_s=0.5))
        if reason == "away":
            server.stop()
        commits.commit(StreamOffset(offsets={("orders", 0): 1}).to_json())
        assert "the query continues, and tries it again after 1 s" in caplog.text


def test_a_group_follows_once_its_consumers_have_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _put(tmp_path / "store", 2)
    now = [0.0]
    with ServeProcess(tmp_path / "store") as server, connect(server.url) as store:
        commits = GroupCommits(server.url, "billing", clock=lambda: now[0])
        with store.consumer("billing", "orders"):
            commits.commit(StreamOffset(offsets={("orders", 0): 1}).to_json())
            assert "Group 'billing' has 1 consumers that are open" in caplog.text
        now[0] = 2.0
        commits.commit(StreamOffset(offsets={("orders", 0): 1}).to_json())
        with store.reader() as reader:
            assert reader.group_offsets("billing")["orders", 0] == 1


def test_a_server_that_is_away_is_skipped_and_its_store_read_on_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("near", "far"):
        _put(tmp_path / name, 40)
    with ServeProcess(tmp_path / "far", "--read-only") as server:
        given = {"path": f"near={tmp_path / 'near'},far={server.url}", "subscribe": "orders", "rpcTimeout": "1s"}
        given |= {"startingOffsets": "earliest", "onMissingStore": "skip"}
        now = [0.0]
        planner = StreamPlanner(parse_stream_options(given), clock=lambda: now[0])
        start = planner.latest_offset(planner.initial_offset(), limited=True)
        assert set(start["stores"]) == {"near", "far"}
        address = server.url.removeprefix("grpc://")
    for name in ("near", "far"):
        _put(tmp_path / name, 10, 40)
    end = planner.latest_offset(start, limited=True)
    assert end["stores"]["far"]["offsets"] == start["stores"]["far"]["offsets"]
    assert end["stores"]["near"] != start["stores"]["near"]
    assert "Store 'far' is unavailable and is skipped" in caplog.text
    with ServeProcess(tmp_path / "far", "--read-only", listen=address):
        now[0] += 60
        last = planner.latest_offset(end, limited=True)
        assert sum(last["stores"]["far"]["offsets"]["orders"].values()) == 50
        assert {one.store for one in planner.partitions(end, last)} == {"far"}
    given["onMissingStore"] = "fail"
    with pytest.raises(RemoteFailed, match=r"Store 'far' of the option path: .*set the option onMissingStore to skip"):
        StreamPlanner(parse_stream_options(given)).initial_offset()
    planner.close()
