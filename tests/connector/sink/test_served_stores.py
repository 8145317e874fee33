"""Spark writes through a server that owns the store as it writes to a directory, and each row once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.errors import RemoteAccessRefused
from commitlog_store.serve.tokens import Role, new_token
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.write import parse_batch_write_options, parse_stream_write_options
from pyspark_commitlog.sink.columns import SinkColumns
from pyspark_commitlog.sink.commit import plan_write
from tests.connector.sink.sink_helpers import body_texts, messages, rows_of, staged_files
from tests.connector.sink.test_stream import Files, replay_last
from tests.store.follower.certificates import make_certificate
from tests.store.serve.cutting_proxy import CuttingProxy
from tests.store.serve.servers import ServeProcess
from tests.support.clean_store import assert_clean
from tests.support.waiting import WAIT_LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def append(frame: DataFrame, path: str, **options: Any) -> None:
    frame.write.format("commitlog").mode("append").options(**({"topic": "orders"} | options)).save(path)


def stream_to(frame: DataFrame, path: str, checkpoint: Path, **options: Any) -> None:
    writer = frame.writeStream.format("commitlog").options(**({"topic": "orders"} | options))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(path)
    if not query.awaitTermination(WAIT_LIMIT_S):
        query.stop()
        raise TimeoutError("the query did not end")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    MessageStore.open(tmp_path / "store").close()
    return tmp_path / "store"


@pytest.fixture
def url(store: Path) -> Iterator[str]:
    with ServeProcess(store) as server:
        yield server.url


@pytest.fixture
def files(spark: SparkSession, tmp_path: Path) -> Files:
    return Files(spark, tmp_path / "input")


ROWS = """
    named_struct(
        'body', concat('body ', id), 'topic', concat('topic-', id % 3), 'tags', if(id % 2 = 0, 'even', null),
        'keys', array(concat('k', id), 'all'), 'queueId', if(id % 5 = 0, cast(id % 7 as int), null),
        'shardingKey', if(id % 4 = 0, concat('s', id % 9), null), 'properties', map('p', cast(id as string)),
        'flag', cast(id % 3 as int), 'bornTimestamp', timestamp_millis(1700000000000 + id),
        'delayLevel', if(id % 11 = 0, '10s', null)
    )
"""


def test_rows_are_those_that_a_directory_gets(spark: SparkSession, store: Path, url: str, tmp_path: Path) -> None:
    """All columns, in three partitions: but for their places in time, the messages are the same."""
    frame = spark.range(0, 400, 1, 3).selectExpr(f"{ROWS} as row").select("row.*")
    options = {"topic": "unused", "txnAppId": "loader", "txnVersion": 1, "bodyCompression": "zlib", "compressOver": 4}
    append(frame, url, **options)
    MessageStore.open(tmp_path / "other").close()
    append(frame, str(tmp_path / "other"), **options)

    def found(path: Path) -> list[Any]:
        with StoreReader.open(path) as reader:
            topics = [topic for topic in reader.topics() if not topic.startswith("rmq_sys")]
            assert len(topics) == 4, "the delayed ones are in the schedule's"
        return [
            (
                *(one.topic, one.queue_id, one.queue_offset, one.physical_offset, one.body, one.tags, one.keys),
                *(one.flag, dict(one.properties), one.born_timestamp, one.sys_flag),
            )
            for topic in topics
            for one in messages(path, topic)
        ]

    assert found(store) == found(tmp_path / "other")
    listed = [json.loads((path / "config/topics.json").read_text()) for path in (store, tmp_path / "other")]
    assert listed[0]["topicConfigTable"] == listed[1]["topicConfigTable"]
    assert not staged_files(store)


def test_a_named_write_is_stored_once_and_an_unnamed_one_each_time(spark: SparkSession, store: Path, url: str) -> None:
    frame = rows_of(spark, [("a",), ("b",)], "body string", 2)
    for _ in range(2):
        append(frame, url, txnAppId="loader", txnVersion=7)
    assert body_texts(store) == ["a", "b"]
    for _ in range(2):
        append(frame, url)
    assert body_texts(store) == ["a", "a", "a", "b", "b", "b"]
    with StoreReader.open(url) as reader:
        assert [one.batch.app_id for one in reader.batches()] == ["loader"], "unnamed writes are forgotten"
    assert not staged_files(store)


def test_a_stream_goes_on_with_the_directory_and_with_the_address(files: Files, store: Path, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    for number, served in enumerate((True, False, True)):
        files.add(f"{number}-a", f"{number}-b")
        files.add(f"{number}-c")
        if served:
            with ServeProcess(store) as server:
                stream_to(files.frame, server.url, checkpoint)
                replay_last(checkpoint)  # as of a driver that was killed after the commit
                stream_to(files.frame, server.url, checkpoint)
                assert server.stop()[0] == 0
        else:
            stream_to(files.frame, str(store), checkpoint)
    assert body_texts(store) == sorted(f"{number}-{letter}" for number in range(3) for letter in "abc")
    ledger = json.loads((store / "config/batchLedger.json").read_text())["batches"]
    assert [entry["version"] for entry in ledger.values()] == [5]
    assert all(entry["fingerprint"] for entry in ledger.values())


def test_several_queries_write_at_once(spark: SparkSession, store: Path, url: str, tmp_path: Path) -> None:
    """The store is open all the time: no query waits for its lock."""
    queries = []
    for number in range(3):
        source = Files(spark, tmp_path / f"input-{number}")
        for batch in range(4):
            source.add(f"{number}-{batch}")
        writer = source.frame.writeStream.format("commitlog").option("topic", "orders")
        writer = writer.option("checkpointLocation", str(tmp_path / f"checkpoint-{number}"))
        queries.append(writer.trigger(availableNow=True).start(url))
    assert all(query.awaitTermination(WAIT_LIMIT_S) for query in queries)
    assert body_texts(store) == sorted(f"{number}-{batch}" for number in range(3) for batch in range(4))


def test_a_bad_row_fails_the_write_and_leaves_nothing(spark: SparkSession, store: Path, url: str) -> None:
    frame = rows_of(spark, [("a",), (None,)], "body string", 2)
    with pytest.raises(Exception, match=r"row 0 of partition 1 .*its body is null"):
        append(frame, url)
    with StoreReader.open(url) as reader:
        assert reader.topics() == []
        assert reader.batches() == []
    assert not staged_files(store)


def test_the_servers_settings_count(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("messageDelayLevel=7s 1h\nmaxMessageSize=2000\nflushDiskType=ASYNC_FLUSH\nbrokerIP1=192.0.2.7\n")
    with ServeProcess(store, "--config", conf) as server:
        append(spark.sql("select 'late' as body, '1h' as delayLevel"), server.url, queues=9)
        append(spark.sql("select 'now' as body"), server.url, queues=9)
        for row, said in (
            ("'x' as body, '10s' as delayLevel", r"1 \(7s\), 2 \(1h\)"),
            ("repeat('x', 2001) as body", "2000"),
        ):
            with pytest.raises(Exception, match=said):
                append(spark.sql(f"select {row}"), server.url)
        (now,) = messages(store)
        assert now.born_host == "192.0.2.7:10911"
        assert [message.body for message in messages(store, "SCHEDULE_TOPIC_XXXX")] == [b"late"]
        with StoreReader.open(server.url) as reader:
            assert len(reader.queues("SCHEDULE_TOPIC_XXXX")) == 1
        listed = json.loads((store / "config/topics.json").read_text())["topicConfigTable"]
        assert listed["orders"]["writeQueueNums"] == 9
        os.kill(server.process.pid, 9)
    assert sorted(body_texts(store)) == ["now"]


def test_an_answer_that_is_lost_after_the_commit_stores_nothing_twice(
    spark: SparkSession, files: Files, store: Path, tmp_path: Path
) -> None:
    """Of the calls of tasks and of the driver, whose answers name the application, the first ones are lost."""
    with ServeProcess(store) as server, CuttingProxy(int(server.url.rpartition(":")[2])) as proxy:
        frame = rows_of(spark, [("a",), ("b",)], "body string", 2)
        for name, options in (("loader", {"txnAppId": "loader", "txnVersion": 1}), ("write-", {})):
            proxy.lose_answers(name.encode(), 4)
            append(frame, proxy.url, **options)
            assert not proxy.answers_to_lose
        files.add("c")
        stream_to(files.frame, proxy.url, tmp_path / "checkpoint")
        query_id = json.loads((tmp_path / "checkpoint/metadata").read_text())["id"]
        proxy.lose_answers(query_id.encode(), 3)
        files.add("d")
        stream_to(files.frame, proxy.url, tmp_path / "checkpoint")
        assert not proxy.answers_to_lose
        assert server.stop()[0] == 0
    assert body_texts(store) == ["a", "a", "b", "b", "c", "d"]
    assert not staged_files(store)
    assert_clean(store)


@pytest.fixture
def token(tmp_path: Path) -> str:
    return new_token(str(tmp_path / "tokens.jsonl"), "writer", Role.WRITE)


def test_a_token_stands_nowhere(
    spark: SparkSession, files: Files, store: Path, tmp_path: Path, token: str, capfd: pytest.CaptureFixture[str]
) -> None:
    reading = new_token(str(tmp_path / "tokens.jsonl"), "reader", Role.READ)
    checkpoint = tmp_path / "checkpoint"
    certificate, key = make_certificate(tmp_path)
    secured = ("--tls-cert", certificate, "--tls-key", key, "--tokens", tmp_path / "tokens.jsonl")
    with ServeProcess(store, *secured, "--access-log") as server:
        assert server.url.startswith("grpc+tls://")
        trusted = {"tlsRootCertificates": str(certificate)}
        append(rows_of(spark, [("a",)], "body string"), server.url, token=token, **trusted)
        files.add("b")
        writer = files.frame.writeStream.format("commitlog").options(topic="orders", token=token, **trusted)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query = writer.start(server.url)
        assert query.awaitTermination(WAIT_LIMIT_S)
        query.explain(extended=True)
        (tmp_path / "token").write_text(token)
        append(rows_of(spark, [("c",)], "body string"), server.url, tokenFile=tmp_path / "token", **trusted)
        assert body_texts(store) == ["a", "b", "c"]
        for wrong, said in ((reading, "'reader' may read only"), (token[:-1], "does not know this token")):
            with pytest.raises(Exception, match=said) as caught:
                append(rows_of(spark, [("d",)], "body string"), server.url, token=wrong, **trusted)
            assert wrong not in str(caught.value)
            with pytest.raises(RemoteAccessRefused, match=said):
                plan_write(
                    parse_batch_write_options({"path": server.url, "topic": "orders", "token": wrong, **trusted}),
                    SinkColumns(("body",)),
                )
        _, said = server.stop()
    seen = "".join(capfd.readouterr()) + said
    seen += "".join(path.read_text("latin-1") for path in checkpoint.rglob("*") if path.is_file())
    assert "writer DO_ACTION ok" in said
    assert token not in seen
    assert reading not in seen
    assert token not in repr(parse_batch_write_options({"path": server.url, "topic": "orders", "token": token}))


def test_a_server_that_only_shows_its_store_is_refused_before_the_first_row(spark: SparkSession, store: Path) -> None:
    with ServeProcess(store, "--read-only") as server:
        with pytest.raises(Exception, match="shows its stores read only"):
            append(rows_of(spark, [("a",)], "body string"), server.url)
        server.stop()
        with pytest.raises(Exception, match="No server of commitlog serve answers"):
            append(rows_of(spark, [("a",)], "body string"), server.url, rpcTimeout="200ms")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lockTimeout": "1"}, "Option lockTimeout is for the owner of a store"),
        ({"retentionhours": "1"}, "Option retentionHours is for the owner of a store"),
        ({"storePathCommitLog": "/log"}, "Option storePathCommitLog is for the owner"),
        ({"flush": "Replicated"}, "Option flush=replicated is for the owner"),
        ({"haAllow": "x", "messageIndexEnable": "false"}, "Option haAllow is for the owner"),
        ({"mappedFileSizeCommitLog": "64k"}, "in its --config. Leave the option out here."),
        ({"token": "x", "tokenFile": "/nowhere"}, "exclude each other"),
        ({"filterAt": "server"}, "Unknown option 'filterAt'. It is an option of a read"),
        ({"path": "/data/store", "token": "x"}, "is for a store that commitlog serve shows"),
        ({"path": "a=grpc://h:1,b=/data"}, "one store, by its path alone"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_stream_write_options({"path": "grpc://host:1", "topic": "orders", **options})


def test_options_that_hold() -> None:
    options = {
        "topic": "orders", "rowFormat": "kafka", "queues": "7", "flush": "async", "txnAppId": "a", "txnVersion": "1",
        "maxMessageSize": "1m", "bodyCompression": "zstd", "compressOver": "1k", "rpcTimeout": "5s",
    }  # fmt: skip
    parsed = parse_batch_write_options({"path": "grpc+tls://host:1/a", **options})
    assert parsed.is_served
    assert parsed.path == "grpc+tls://host:1/a"
    assert parsed.remote.rpc_timeout_s == 5.0
