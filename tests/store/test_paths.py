"""Names of files and topics: what a store's directory may hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store import paths
from commitlog_store.errors import InvalidValue
from commitlog_store.paths import (
    file_name_for_offset,
    is_system_topic,
    parse_file_name,
    validate_new_topic,
    validate_topic,
)
from tests.support import golden


def test_file_is_named_by_the_20_digits_of_its_first_offset() -> None:
    assert file_name_for_offset(0) == "00000000000000000000"
    assert file_name_for_offset(262144) == "00000000000000262144"
    assert file_name_for_offset(2**63 - 1) == "09223372036854775807"


@pytest.mark.parametrize("offset", [-1, 2**63, 10**20])
def test_offset_that_no_file_starts_at_is_refused(offset: int) -> None:
    with pytest.raises(InvalidValue, match=f"not {offset}"):
        file_name_for_offset(offset)


@given(st.integers(0, 2**63 - 1))
def test_file_names_are_read_back(offset: int) -> None:
    assert parse_file_name(file_name_for_offset(offset)) == offset


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("0" * 19, id="19-digits"),
        pytest.param("0" * 21, id="21-digits"),
        pytest.param("0000000000000026214x", id="letter"),
        pytest.param("-0000000000000262144", id="sign"),
        pytest.param("0000000000000000000\n", id="newline"),
        pytest.param("0000000000000026_144", id="underscore"),
        pytest.param("٠" * 20, id="digits-of-another-script"),
        pytest.param("²" * 20, id="superscripts"),
        pytest.param("09223372036854775808", id="beyond-64-bits"),
        pytest.param("9" * 20, id="largest-20-digits"),
    ],
)
def test_other_names_are_not_offsets(name: str) -> None:
    assert parse_file_name(name) is None


@pytest.mark.parametrize("store", [golden.ROCKETMQ_533, golden.ROCKETMQ_498])
def test_files_and_directories_of_rocketmq_have_these_names(store: str) -> None:
    root = golden.GOLDEN / store / "store"
    known = {paths.COMMIT_LOG, paths.CONSUME_QUEUE, paths.INDEX, paths.CHECKPOINT, paths.ABORT, paths.LOCK}
    assert {path.name.removesuffix(paths.BACKUP_SUFFIX) for path in root.iterdir()} == known
    names = [path.name for pattern in ("commitlog/*", "consumequeue/*/*/*") for path in root.glob(pattern)]
    assert len(names) > 4
    for name in names:
        offset = parse_file_name(name)
        assert offset is not None
        assert file_name_for_offset(offset) == name


def test_config_files_of_rocketmq_have_these_names() -> None:
    found = {path.name for path in (golden.GOLDEN / golden.ROCKETMQ_533_BROKER_CONFIG).iterdir()}
    assert found >= {
        paths.TOPICS_CONFIG,
        paths.SUBSCRIPTION_GROUP_CONFIG,
        paths.CONSUMER_OFFSET_CONFIG,
        paths.DELAY_OFFSET_CONFIG,
        paths.CONSUMER_FILTER_CONFIG,
    }


@pytest.mark.parametrize("store", [golden.ROCKETMQ_533, golden.ROCKETMQ_498])
def test_topics_of_rocketmq_are_valid(store: str) -> None:
    topics = {queue["topic"] for queue in golden.expected(store)["queue"]}
    assert topics
    for topic in topics:
        validate_topic(topic)


@pytest.mark.parametrize(
    "topic", ["a", "orders", "Orders-2_eu", "%RETRY%group", "%DLQ%g", "ns%orders", "a|b", "x" * 255]
)
def test_topic_that_a_store_may_hold_is_valid(topic: str) -> None:
    validate_topic(topic)


@pytest.mark.parametrize("topic", ["", " ", "a b", "a.b", "a/b", "../a", "a\n", "a\0", "a$", "été", "主题"])
def test_topic_with_other_characters_is_refused(topic: str) -> None:
    with pytest.raises(InvalidValue, match="A topic is made of"):
        validate_topic(topic)
    with pytest.raises(InvalidValue, match="A topic is made of"):
        validate_new_topic(topic)


def test_topic_longer_than_asked_for_is_refused() -> None:
    with pytest.raises(InvalidValue, match="at most 255 characters"):
        validate_topic("x" * 256)
    validate_topic("x" * 10, max_length=10)
    with pytest.raises(InvalidValue, match="at most 10 characters"):
        validate_topic("x" * 11, max_length=10)


def test_new_topic_has_at_most_127_characters() -> None:
    validate_new_topic("x" * 127)
    with pytest.raises(InvalidValue, match="at most 127 characters"):
        validate_new_topic("x" * 128)


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
def test_new_retry_or_dead_letter_topic_has_at_most_255_characters(prefix: str) -> None:
    validate_new_topic(prefix.ljust(255, "x"))
    with pytest.raises(InvalidValue, match="at most 255 characters"):
        validate_new_topic(prefix.ljust(256, "x"))


def test_prefix_in_the_middle_makes_no_retry_topic() -> None:
    with pytest.raises(InvalidValue, match="at most 127 characters"):
        validate_new_topic("a%RETRY%".ljust(128, "x"))


@pytest.mark.parametrize(
    "topic",
    [
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
        "rmq_sys_wheel_timer",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
        "DefaultCluster_REPLY_TOPIC",
        "DefaultHeartBeatSyncerTopic",
    ],
)
def test_topics_of_the_broker_are_system_topics(topic: str) -> None:
    assert is_system_topic(topic)


@pytest.mark.parametrize("topic", ["orders", "%RETRY%group", "%DLQ%group", "my_rmq_sys_x", "tbw102", "Rmq_Sys_x", ""])
def test_topics_of_applications_are_not(topic: str) -> None:
    assert not is_system_topic(topic)
