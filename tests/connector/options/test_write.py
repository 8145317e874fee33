"""Options of a write: accepted values, and the errors for all others."""

from __future__ import annotations

import os
import pickle
import re
from typing import Any

import pytest

from commitlog_store import FlushDiskType, MessageStoreConfig
from commitlog_store.batch_id import BatchId
from commitlog_store.columnar.body_compression import BodyCompression
from commitlog_store.format.sys_flag import CompressionType
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.write import (
    WRITE_OPTIONS,
    SinkOptions,
    parse_batch_write_options,
    parse_stream_write_options,
)

GOOD = {"path": "/store"}


def refused(parse: Any, **options: str) -> str:
    with pytest.raises(OptionError) as caught:
        parse(GOOD | options)
    return str(caught.value)


def test_the_required_options_are_enough() -> None:
    options = parse_batch_write_options(GOOD)
    assert options.path == "/store"
    assert options.topic is None
    assert options.queues == 4
    assert options.lock_timeout_s == 30.0
    assert options.batch is None
    assert options.compression is None
    assert options.store_config == MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH)


def test_every_option_has_a_field_a_default_and_a_meaning() -> None:
    """The options table in the docs is made of this list."""
    assert len({option.name.lower() for option in WRITE_OPTIONS}) == len(WRITE_OPTIONS)
    for option in WRITE_OPTIONS:
        assert option.field in SinkOptions.__dataclass_fields__
        assert option.meaning
        if option.default is not None:
            option.parse(option.name, option.default)


def test_options_are_case_insensitive_and_reach_the_store() -> None:
    options = parse_batch_write_options(
        {
            "PATH": "file:///a%20store",
            "Flush": "ASYNC",
            "QUEUES": "8",
            "locktimeout": "0.5",
            "bodycompression": "LZ4",
            "compressover": "1k",
            "txnappid": "loader",
            "txnversion": "7",
            "maxmessagesize": "1m",
            "mappedfilesizecommitlog": "64k",
            "mappedfilesizeconsumequeue": "4000",
            "messageindexenable": "false",
            "maxhashslotnum": "10",
            "maxindexnum": "100",
        }
    )
    assert options.path == "/a store"
    assert options.lock_timeout_s == 0.5
    assert options.batch == BatchId("loader", 7)
    assert options.compression == BodyCompression(CompressionType.LZ4, 1024)
    assert options.store_config == MessageStoreConfig(
        flush_disk_type=FlushDiskType.ASYNC_FLUSH,
        default_topic_queue_nums=8,
        max_message_size=1 << 20,
        mapped_file_size_commit_log=64 << 10,
        mapped_file_size_consume_queue=4000,
        message_index_enable=False,
        max_hash_slot_num=10,
        max_index_num=100,
    )


def test_a_relative_path_is_resolved_by_the_driver() -> None:
    assert parse_batch_write_options({"path": "store"}).path == os.path.abspath("store")


def test_sparks_own_options_of_the_query_are_kept() -> None:
    options = parse_stream_write_options(GOOD | {"checkpointlocation": "/c", "queryname": "q"})
    assert (options.checkpoint_location, options.query_name) == ("/c", "q")
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("topic", "no topic", "letters"),
        ("topic", "SELF_TEST_TOPIC", "takes it from no producer"),
        ("topic", "SCHEDULE_TOPIC_XXXX", "delayLevel"),
        ("queues", "0", "at least 1"),
        ("queues", "70000", "65536"),
        ("flush", "often", "sync, async"),
        ("lockTimeout", "soon", "seconds"),
        ("lockTimeout", "", "seconds"),
        ("lockTimeout", "None", "seconds"),
        ("lockTimeout", "nan", "seconds"),
        ("lockTimeout", "inf", "seconds"),
        ("lockTimeout", "-1", "seconds"),
        ("diskSpaceWarningLevelRatio", "90", "above 0 and at most 1"),
        ("diskSpaceWarningLevelRatio", "0", "above 0 and at most 1"),
        ("diskSpaceWarningLevelRatio", "nan", "above 0 and at most 1"),
        ("diskMaxUsedSpaceRatio", "101", "is '101'; expected 1 to 100 percent."),
        ("diskMaxUsedSpaceRatio", "0.75", "a whole number"),
        ("diskSpaceCleanForciblyRatio", "85", "above 0 and at most 1"),
        ("retentionHours", "72h", "a whole number"),
        ("retentionHours", "3000000000", "is '3000000000'; expected 0 to 2147483647 hours."),
        ("retentionBytes", "0", "a size of at least 1 byte"),
        ("rowFormat", "avro", "rocketmq or kafka"),
        ("bodyCompression", "gzip", "none, zlib, lz4, zstd"),
        ("compressOver", "-1", "64m"),
        ("txnAppId", " ", "not empty"),
        ("txnAppId", "x" * 1025, "1025 bytes, at most 1024"),
        ("txnVersion", "-1", "whole number"),
        ("txnVersion", str(2**63), "whole number"),
        ("maxMessageSize", "3g", "Option maxMessageSize is '3g'; expected 1 to 2147352575 bytes."),
        ("mappedFileSizeConsumeQueue", "2147483641", "is '2147483641'; expected 1 to 2147483640 bytes."),
        ("mappedFileSizeCommitLog", "1", "is '1'; expected 4096 to 2147483647 bytes."),
        ("maxIndexNum", "1", "is '1'; expected 2 to 2147483647 entries."),
        (
            "maxHashSlotNum",
            "500000000",
            "Options maxHashSlotNum and maxIndexNum are '500000000' and '20000000'; expected an index file of at most",
        ),
        ("messageIndexEnable", "yes", "true or false"),
    ],
)
def test_bad_values_say_what_was_expected(name: str, value: str, expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_batch_write_options(GOOD | {"txnAppId": "a", "txnVersion": "1"} | {name: value})
    said = str(caught.value)
    assert name in said
    assert expected in said
    assert not re.search("[a-z]_[a-z]", said), "the store's names for its settings are not the user's"
    assert (caught.value.option, caught.value.value) == (name, value)


@pytest.mark.parametrize("name", ["path", "topic", "lockTimeout", "txnAppId"])
def test_none_is_refused_and_not_taken_for_a_text(name: str) -> None:
    with pytest.raises(OptionError, match=f"Option {name} is None; expected a value") as caught:
        parse_batch_write_options({**GOOD, name: None})  # type: ignore[dict-item]
    assert (caught.value.option, caught.value.value) == (name, None)


def test_a_missing_path_is_refused() -> None:
    for sparks in ({}, {"checkpointLocation": "/c"}):
        with pytest.raises(OptionError, match=r"path is missing.*CREATE TEMPORARY VIEW"):
            parse_stream_write_options(sparks)
    with pytest.raises(OptionError, match="path is missing") as caught:
        parse_batch_write_options({"topic": "orders"})
    assert "VIEW" not in str(caught.value), "a caller that gives options has no table of a catalog"


@pytest.mark.parametrize(
    ("typed", "meant"), [("topics", "topic"), ("txnVersoin", "txnVersion"), ("lock_timeout", "lockTimeout")]
)
def test_unknown_options_are_refused_with_the_nearest(typed: str, meant: str) -> None:
    assert f"Did you mean {meant}?" in refused(parse_batch_write_options, **{typed: "1"})


def test_options_of_the_source_are_not_options_of_the_sink() -> None:
    assert "Unknown option 'subscribe'" in refused(parse_stream_write_options, subscribe="orders")


@pytest.mark.parametrize(("given", "missing"), [("txnAppId", "txnVersion"), ("txnVersion", "txnAppId")])
def test_half_a_transaction_is_refused(given: str, missing: str) -> None:
    said = refused(parse_batch_write_options, **{given: "1"})
    assert f"{given} is given without {missing}" in said


@pytest.mark.parametrize("name", ["txnAppId", "txnVersion"])
def test_a_stream_has_its_own_transactions(name: str) -> None:
    assert f"{name} is for batch writes" in refused(parse_stream_write_options, **{name: "1"})
