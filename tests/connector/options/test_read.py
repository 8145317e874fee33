"""Options of a read: accepted values, and a helpful error for each other value."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store.errors import CommitLogError
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.read import OPTION_NAMES, parse_batch_options, parse_options, parse_stream_options
from pyspark_commitlog.options.subscription import Subscription
from pyspark_commitlog.options.values import EARLIEST, LATEST, parse_bytes, parse_path

GOOD = {"path": "/store", "subscribe": "orders"}


def refused(parse: Any, options: dict[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        parse(options)
    assert isinstance(caught.value, CommitLogError)
    return str(caught.value)


def error_of(parse: Any, options: dict[str, str]) -> OptionError | None:
    try:
        parse(options)
    except OptionError as error:
        return error
    return None


def test_the_required_options_are_enough() -> None:
    options = parse_options(GOOD)
    assert options.path == "/store"
    assert options.subscription == Subscription(topics=("orders",))
    assert options.fail_on_data_loss
    assert options.max_bytes_per_partition == 256 << 20
    assert parse_batch_options(GOOD).start_rule.default == EARLIEST
    assert parse_batch_options(GOOD).end_rule.default == LATEST
    assert parse_stream_options(GOOD).start_rule.default == LATEST


def test_option_names_are_case_insensitive() -> None:
    options = parse_options({"PATH": "/s", "SubScribe": "a", "maxbytespertrigger": "1k", "FAILONDATALOSS": "FALSE"})
    assert options.max_bytes_per_trigger == 1024
    assert not options.fail_on_data_loss


def test_sparks_own_keys_are_not_unknown_options() -> None:
    parse_options(GOOD | {"checkpointlocation": "/tmp/x"})


def test_a_table_of_a_catalog_is_refused_with_what_to_use_instead() -> None:
    """Spark asks for its columns with these, and later hands over nothing at all."""
    asked = {"location": "file:/store", "path": "file:/store", "option.subscribe": "orders", "provider": "commitlog"}
    assert "CREATE TEMPORARY VIEW" in refused(parse_options, asked | {"subscribe": "orders", "owner": "root"})
    assert "CREATE TEMPORARY VIEW" in refused(parse_batch_options, {})


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("startingoffset", "startingOffsets"),
        ("failOnDataLost", "failOnDataLoss"),
        ("include_properties", "includeProperties"),
        ("subscribe_pattern", "subscribePattern"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(typed: str, meant: str) -> None:
    message = refused(parse_options, GOOD | {typed: "1"})
    assert f"Did you mean {meant}?" in message
    assert typed in message


def test_an_option_like_no_other_is_refused_with_all_names() -> None:
    message = refused(parse_options, GOOD | {"zzz": "1"})
    assert "Did you mean" not in message
    assert all(name in message for name in OPTION_NAMES)


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("maxOffsetsPerTrigger", "0", "at least 1"),
        ("maxOffsetsPerTrigger", "many", "whole number"),
        ("maxOffsetsPerTrigger", "1e3", "whole number"),
        ("maxBytesPerTrigger", "0", "at least 1 byte"),
        ("maxBytesPerTrigger", "64q", "64m"),
        ("maxBytesPerPartition", "-1", "64m"),
        ("minPartitions", "-3", "at least 1"),
        ("failOnDataLoss", "maybe", "true or false"),
        ("verifyCrc", "", "true or false"),
        ("corruptRecordMode", "ignore", "fail or skip"),
        ("fromLog", "yes", "true or false"),
        ("startingOffsets", "oldest", "earliest, latest, or JSON"),
        ("startingOffsets", "[1]", "earliest, latest, or JSON"),
        ("startingOffsets", '{"orders":5}', "'orders' has no object"),
        ("startingOffsets", '{"orders":{"0":-3}}', "-3"),
        ("startingOffsets", '{"orders":{"0":true}}', "True"),
        ("startingOffsets", '{"orders":{"0":1.5}}', "1.5"),
        ("startingOffsets", '{"orders":{"first":1}}', "'first'"),
        ("startingOffsets", '{"orders":{"0":5,"00":2}}', "found the queue id '00'"),
        pytest.param("startingOffsets", '{"orders":' * 100_000, "earliest, latest, or JSON", id="nested too deep"),
        ("startingOffsets", '{"audit":{"0":1}}', "queue 0 of 'audit' is not"),
        ("startingOffsets", '{"orders":{"0":1,"0":2}}', "each name once; '0' is given twice"),
        ("endingOffsetsByTimestamp", '{"orders":{"0":1},"orders":{"1":1}}', "each name once; 'orders' is given twice"),
        ("startingTimestamp", "yesterday", "milliseconds"),
        ("startingTimestamp", "1795250230", "1795250230000 if this one is in seconds"),
        ("endingTimestamp", "1795250230", "1795250230000 if this one is in seconds"),
        ("path", "webhdfs://host/store", "local or mounted"),
        ("path", "oss://bucket/store", "local or mounted"),
        ("path", "file://host/store", "local or mounted"),
        ("path", "  ", "store directory"),
    ],
)
def test_a_bad_value_is_refused_with_option_value_and_what_is_expected(option: str, value: str, part: str) -> None:
    message = refused(parse_options, GOOD | {option: value})
    assert option in message
    assert repr(value) in message
    assert part in message


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("subscribe", " , ", "one or more topics"),
        ("subscribe", "../etc", "cannot be a topic"),
        ("subscribePattern", "(", "regular expression"),
        ("subscribePattern", " ", "regular expression"),
        ("assign", "orders", '{"orders":[0,1]'),
        ("assign", "{}", '{"orders":[0,1]'),
        ("assign", '{"orders":[]}', "'orders' has no list"),
        ("assign", '{"orders":[-1]}', "'orders' has no list"),
        ("assign", '{"orders":["0"]}', "'orders' has no list"),
        ("assign", '{"a/b":[0]}', "cannot be a topic"),
        ("assign", '{"orders":[0],"orders":[1]}', "each name once; 'orders' is given twice"),
    ],
)
def test_a_bad_subscription_is_refused(option: str, value: str, part: str) -> None:
    message = refused(parse_options, {"path": "/store", option: value})
    assert option in message
    assert part in message


def test_exactly_one_subscription_is_required() -> None:
    assert "found none" in refused(parse_options, {"path": "/store"})
    assert "found subscribe and assign" in refused(parse_options, GOOD | {"assign": '{"orders":[0]}'})


def test_exactly_one_path_is_required() -> None:
    assert "path is missing" in refused(parse_options, {"subscribe": "orders"})
    assert "one store directory" in refused(parse_options, {"subscribe": "orders", "paths": '["/a","/b"]'})


@pytest.mark.parametrize("text", ["file:/a/b", "file:///a/b", "FILE:///a/b", "/a/b"])
def test_a_file_uri_is_a_path(text: str) -> None:
    assert parse_path("path", text) == "/a/b"


def test_a_colon_in_a_relative_path_is_not_a_scheme() -> None:
    assert parse_path("path", "./a:b") == "./a:b"


def test_a_subscription_covers_the_topics_and_queues_it_names() -> None:
    assert parse_options({"path": "/s", "subscribe": "a, b,,a"}).subscription.topics == ("a", "b")
    assigned = parse_options({"path": "/s", "assign": '{"a":[1,0,1]}'}).subscription
    assert assigned.covers("a", 1)
    assert not assigned.covers("a", 2)
    assert not assigned.covers("b", 0)


def test_a_pattern_matches_whole_names_and_no_system_topic() -> None:
    pattern = parse_options({"path": "/s", "subscribePattern": "ord.*|.*_XXXX|rmq_.*"}).subscription
    assert pattern.covers("orders", 0)
    assert not pattern.covers("reorders", 0)
    assert not pattern.covers("SCHEDULE_TOPIC_XXXX", 0)
    assert not pattern.covers("rmq_sys_wheel_timer", 0)
    named = parse_options({"path": "/s", "subscribe": "SCHEDULE_TOPIC_XXXX"}).subscription
    assert named.covers("SCHEDULE_TOPIC_XXXX", 0)


def test_offsets_are_parsed_in_kafkas_syntax() -> None:
    rule = parse_options(GOOD | {"startingOffsets": '{"orders":{"0":23,"1":-2,"2":-1}}'}).starting
    assert rule is not None
    assert dict(rule.named) == {("orders", 0): 23, ("orders", 1): EARLIEST, ("orders", 2): LATEST}


def test_queues_that_json_leaves_out_start_at_their_first_message_also_in_a_stream() -> None:
    for parse in (parse_stream_options, parse_batch_options):
        assert parse(GOOD | {"startingOffsets": '{"orders":{"0":23}}'}).start_rule.default == EARLIEST


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingOffsets", "latest"),
        ("startingOffsets", '{"orders":{"0":-1}}'),
        ("endingOffsets", "earliest"),
        ("endingOffsets", '{"orders":{"0":-2}}'),
    ],
)
def test_a_batch_that_could_only_be_empty_is_refused(option: str, value: str) -> None:
    assert "read nothing" in refused(parse_batch_options, GOOD | {option: value})


def test_a_batch_does_not_start_after_its_end() -> None:
    options = GOOD | {"startingOffsets": '{"orders":{"0":9}}', "endingOffsets": '{"orders":{"0":8}}'}
    assert "from 9 to 8" in refused(parse_batch_options, options)


@pytest.mark.parametrize(("option", "value"), [("endingOffsets", "latest"), ("endingTimestamp", "5")])
def test_a_stream_has_no_end(option: str, value: str) -> None:
    message = refused(parse_stream_options, GOOD | {option: value})
    assert option in message
    assert "availableNow" in message


def test_damage_fails_a_query_unless_it_is_to_be_skipped() -> None:
    given = {"path": "/store", "subscribe": "orders"}
    assert parse_options(given).on_damage == "raise"
    assert parse_options(given | {"corruptRecordMode": "FAIL"}).on_damage == "raise"
    assert parse_options(given | {"corruptRecordMode": "skip"}).on_damage == "skip-records"


def test_a_stream_is_not_read_from_the_log_alone() -> None:
    given = {"path": "/store", "subscribe": "orders", "fromLog": "true"}
    assert parse_batch_options(given).from_log
    with pytest.raises(OptionError, match="fromLog is for batch reads"):
        parse_stream_options(given)


def test_doubts_about_tags_and_filter_are_warned_of_by_the_option(caplog: pytest.LogCaptureFixture) -> None:
    parse_options(GOOD | {"tags": "paid,sent", "filter": "queueId = 1"}).warn_of_doubts()
    assert caplog.messages == [
        "Option tags: paid,sent is read as one tag. Several tags are written as paid || sent.",
        (
            "Option filter: queueId is read as the property of that name. If the column is meant, compare it in the "
            "rows that are read, in Spark with .where."
        ),
    ]


def test_offsets_and_times_exclude_each_other() -> None:
    options = GOOD | {"startingOffsets": "earliest", "startingTimestamp": "5"}
    assert "exclude each other" in refused(parse_options, options)


def test_limits_of_a_trigger_are_ignored_in_a_batch_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    parse_batch_options(GOOD | {"maxOffsetsPerTrigger": "5"})
    assert "maxOffsetsPerTrigger has no effect" in caplog.text


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("10b", 10), ("64k", 64 << 10), ("64KB", 64 << 10), ("2m", 2 << 20), ("1 gb", 1 << 30), ("1t", 1 << 40)],
)
def test_sizes_take_sparks_suffixes(text: str, size: int) -> None:
    assert parse_bytes("maxBytesPerTrigger", text) == size


@given(st.dictionaries(st.sampled_from(OPTION_NAMES), st.text(max_size=30), min_size=1))
def test_any_text_is_taken_or_refused_by_name(options: dict[str, str]) -> None:
    for parse in (parse_options, parse_batch_options, parse_stream_options):
        error = error_of(parse, options)
        assert error is None or pickle.loads(pickle.dumps(error)).option in OPTION_NAMES


def test_options_can_be_pickled() -> None:
    options = parse_stream_options({"path": "/s", "assign": '{"a":[0]}', "startingOffsets": '{"a":{"0":5}}'})
    assert pickle.loads(pickle.dumps(options)) == options
