"""Several stores in the option ``path``, and the options that go with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.metadata import parse_metadata_options
from pyspark_commitlog.options.read import SourceOptions, parse_batch_options, parse_options, parse_stream_options
from pyspark_commitlog.options.stores import parse_one_store
from pyspark_commitlog.options.values import EARLIEST, LATEST, OffsetRule
from pyspark_commitlog.options.write import parse_batch_write_options

TWO = "broker-a=/data/a, broker-b=file:///data/b%2Cb=c"


def options_of(path: str, **options: str) -> SourceOptions:
    return parse_options({"path": path, "subscribe": "orders"} | options)


def test_stores_are_named_in_path() -> None:
    assert options_of(TWO).stores == {"broker-a": "/data/a", "broker-b": "/data/b,b=c"}
    assert options_of("b=rel,a.1_2=/x").stores == {"a.1_2": "/x", "b": os.path.abspath("rel")}
    one = options_of(TWO).of_store("broker-b")
    assert (one.path, one.store, one.stores) == ("/data/b,b=c", "broker-b", {})


@pytest.mark.parametrize("path", ["/data/day=1", "/a,b=/c", "./day=1", "file:/a=b", "day/a=b", "a,b"])
def test_a_plain_path_may_have_any_signs(path: str) -> None:
    options = options_of(path)
    assert options.stores == {}
    assert options.each_store() == [options]
    assert options.path == os.path.abspath(path.removeprefix("file:"))


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("=/a", "found '=/a'"),
        ("a=/a,=/b", "found '=/b'"),
        ("a=/a,/b", "found '/b'"),
        ("a=/a,", "found ''"),
        ("broker a=/a", "made of letters, digits"),
        ("a=/a,a=/b", "'a' is given twice"),
        ("a=/data/../x,b=/x", "'a' and 'b' are the same one"),
        ("a=", "the path of a RocketMQ store"),
        ("a=webhdfs://x/y", "the path of a RocketMQ store"),
    ],
)
def test_wrong_names_are_refused(path: str, part: str) -> None:
    with pytest.raises(OptionError, match="Option path") as caught:
        options_of(path)
    assert part in str(caught.value)


def test_two_names_of_one_directory_are_refused_through_a_link_too(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(OptionError, match="same one"):
        options_of(f"a={tmp_path},b={tmp_path / 'link'}")


def test_offsets_and_times_are_given_by_store() -> None:
    options = parse_batch_options(
        {
            "path": TWO,
            "subscribe": "orders",
            "startingOffsets": '{"broker-a":{"orders":{"0":5}}}',
            "endingOffsetsByTimestamp": '{"broker-b":{"orders":{"1":1767225600000}}}',
        }
    )
    a, b = options.each_store()
    assert a.start_rule.named == {("orders", 0): 5}
    assert (b.start_rule.named, b.start_rule.default) == ({}, EARLIEST)
    assert b.end_rule.times == {("orders", 1): 1767225600000}
    assert (a.end_rule.times, a.end_rule.default) == ({}, LATEST)
    for_all = options_of(TWO, startingTimestamp="1767225600000")
    assert {one.start_rule.time_of(("orders", 0)) for one in for_all.each_store()} == {1767225600000}
    assert options_of(TWO, startingOffsets="latest").of_store("broker-a").start_rule.default == LATEST


def test_a_store_may_start_at_its_first_message_or_at_its_end() -> None:
    given = {"path": TWO, "subscribe": "orders", "startingOffsets": '{"broker-a":"earliest","broker-b":"Latest"}'}
    a, b = parse_stream_options(given).each_store()
    assert (a.start_rule, b.start_rule) == (OffsetRule(default=EARLIEST), OffsetRule(default=LATEST))
    with pytest.raises(OptionError, match="another start than latest"):
        parse_batch_options(given)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"startingOffsets": '{"orders":{"0":5}}'}, "path names no store 'orders'"),
        ({"startingOffsets": '{"broker-a":{},"broker-a":{"orders":{"0":5}}}'}, "'broker-a' is given twice"),
        ({"startingOffsets": '{"broker-a":"oldest"}'}, "'oldest'; expected earliest, latest, or JSON"),
        ({"startingOffsets": '{"broker_a":{"orders":{"0":5}}}'}, "Did you mean broker-a?"),
        ({"startingOffsets": '{"broker-a":{"0":5}}'}, "expected earliest, latest, or JSON"),
        ({"startingOffsets": '{"broker-a":{"audit":{"0":5}}}'}, "only queues that are read"),
        ({"startingOffsetsByTimestamp": '{"broker-a":{}}'}, "expected JSON such as"),
        ({"startingOffsets": "nonsense"}, "expected earliest, latest, or JSON"),
        ({"rowFormat": "kafka"}, "no place for the store"),
        ({"commitGroup": "spark"}, "is for one store"),
        ({"onMissingStore": "ignore"}, "fail or skip"),
    ],
)
def test_what_several_stores_cannot_have_is_refused(options: dict[str, str], part: str) -> None:
    with pytest.raises(OptionError) as caught:
        options_of(TWO, **options)
    assert part in str(caught.value)


def test_a_batch_does_not_start_at_the_end_of_one_of_the_stores() -> None:
    given = {"path": TWO, "subscribe": "orders", "startingOffsets": '{"broker-a":{"orders":{"0":-1}}}'}
    with pytest.raises(OptionError, match="another start than latest"):
        parse_batch_options(given)
    assert parse_stream_options(given).of_store("broker-a").start_rule.named == {("orders", 0): LATEST}


def test_only_a_named_store_may_be_missing() -> None:
    with pytest.raises(OptionError, match="name=path"):
        options_of("/data/a", onMissingStore="skip")
    assert options_of(TWO, onMissingStore="Skip").skips_missing_stores


def test_sink_and_lookup_take_one_store() -> None:
    with pytest.raises(OptionError, match="one store, by its path alone"):
        parse_batch_write_options({"path": TWO, "topic": "orders"})
    with pytest.raises(OptionError, match="one store, by its path alone"):
        parse_one_store("path", TWO)
    assert parse_one_store("path", "/data/day=1,2") == "/data/day=1,2"


def test_metadata_takes_several_stores() -> None:
    options = parse_metadata_options({"metadata": "queues", "path": TWO, "onMissingStore": "skip"})
    assert options is not None
    assert options.stores == {"broker-a": "/data/a", "broker-b": "/data/b,b=c"}
    assert options.skips_missing_stores
    with pytest.raises(OptionError, match="skip needs name=path"):
        parse_metadata_options({"metadata": "queues", "path": "/data/a", "onmissingstore": "skip"})


@pytest.mark.parametrize("path", ["/data/a", TWO])
def test_a_refused_archive_does_not_show_its_secret(path: str) -> None:
    url = "https://key:s3cr3t@host/x?sig=s3cr3t"
    with pytest.raises(OptionError, match=r"Option archive is '\.\.\.@host/x'") as refused:
        options_of(path, archive=f"broker-a={url}" if path == TWO else url)
    assert "s3cr3t" not in str(refused.value)


def test_only_stores_with_an_archive_are_planned_as_those_whose_log_is_fetched() -> None:
    options = options_of("broker-a=/data/a,broker-b=/data/b,broker-c=s3://past/c", archive="broker-a=s3://past/a")
    fetched = {name: options.remote.reads_archive(path) for name, path in options.stores.items()}
    assert fetched == {"broker-a": True, "broker-b": False, "broker-c": True}
