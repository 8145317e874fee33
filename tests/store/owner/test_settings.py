"""Impossible settings are refused when they are given, by name, value and range."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig
from commitlog_store.delay_level import parse_delay_levels
from commitlog_store.errors import InvalidValue
from commitlog_store.format.index_file import file_size
from tests.store.owner.owned_store import put_ok, rows, small

_MAX_INT = 2**31 - 1


def _numbers() -> list[str]:
    return [setting.name for setting in dataclasses.fields(MessageStoreConfig) if type(setting.default) is int]


@pytest.mark.parametrize("name", _numbers())
@pytest.mark.parametrize("value", [-1, 2**31, 2**63 - 1, 2**70])
def test_a_number_beyond_its_range_is_refused_by_name_value_and_range(name: str, value: int) -> None:
    if name == "retention_bytes" and value in range(2**63):  # not one of RocketMQ's
        assert MessageStoreConfig(retention_bytes=value).retention_bytes == value
        return
    with pytest.raises(InvalidValue, match=rf"^{name} is [0-9]+ to [0-9]+, not {value}\.$"):
        MessageStoreConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"put_message_timeout": 0}, "put_message_timeout is 1 to 2147483647, not 0."),
        ({"sync_flush_timeout": 0}, "sync_flush_timeout is 1 to 2147483647, not 0."),
        ({"max_hash_slot_num": 0}, "max_hash_slot_num is 1 to 2147483647, not 0."),
        ({"default_topic_queue_nums": 65_537}, "default_topic_queue_nums is 1 to 65536, not 65537."),
        ({"broker_ip": "fe80::1%eth0"}, "broker_ip is an IPv4 or IPv6 address, not 'fe80::1%eth0'."),
        ({"message_delay_level": "1s 99999999999999d"}, "message_delay_level is 0s to 36500d, not '99999999999999d'."),
        ({"message_delay_level": "9" * 5000 + "s"}, "message_delay_level is a number of up to 18 digits"),
        ({"message_delay_level": "١s"}, "message_delay_level is a number of up to 18 digits"),
        ({"max_hash_slot_num": 500_000_000}, "of at most 2147483647 bytes, not 2400000040 as 500000000 and 20000000"),
        ({"max_index_num": 110_000_000}, "of at most 2147483647 bytes, not 2220000040 as 5000000 and 110000000"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_settings_that_would_fail_later_are_refused_at_once(settings: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        MessageStoreConfig(**settings)  # type: ignore[arg-type]
    assert words in str(refused.value)
    with pytest.raises(InvalidValue) as refused:
        MessageStoreConfig.from_mapping(settings)
    assert words in str(refused.value)


def test_the_largest_index_file_is_one_that_its_format_has() -> None:
    slots = (_MAX_INT - file_size(1, 20_000_000)) // 4 + 1
    assert _MAX_INT - 4 < file_size(slots, 20_000_000) <= _MAX_INT
    assert MessageStoreConfig(max_hash_slot_num=slots).max_hash_slot_num == slots
    with pytest.raises(InvalidValue, match="max_hash_slot_num"):
        MessageStoreConfig(max_hash_slot_num=slots + 1)


def test_the_longest_timeouts_are_ones_that_a_lock_takes(tmp_path: Path) -> None:
    assert _MAX_INT / 1000 < threading.TIMEOUT_MAX
    names = ("put_message_timeout", "sync_flush_timeout", "os_page_cache_busy_time_out")
    intervals = ("flush_interval_commit_log", "flush_commit_log_thorough_interval", "flush_interval_consume_queue")
    config = small(flush_disk_type=FlushDiskType.SYNC_FLUSH, **dict.fromkeys((*names, *intervals), _MAX_INT))
    with MessageStore.open(tmp_path, config) as store:
        threads = [threading.Thread(target=lambda: [put_ok(store) for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(rows(store)) > 0
        assert store.physical_bounds()[1] == store.flushed_where()


def test_the_longest_delay_is_dispatched(tmp_path: Path) -> None:
    assert parse_delay_levels("36500d") == (36_500 * 86_400_000,)
    with MessageStore.open(tmp_path, small(message_delay_level="36500d")) as store:
        put_ok(store, properties={"DELAY": "1"})
        assert len(rows(store, "SCHEDULE_TOPIC_XXXX")) == 1
    with MessageStore.open(tmp_path, small(message_delay_level="36500d")) as store:
        assert store.put_message(Message(queue_id=0, topic="orders", body=b"x")).ok


@pytest.mark.parametrize(
    ("text", "size"),
    [("64m", 64 << 20), ("1G", 1 << 30), ("16k", 16 << 10), (" 65536 ", 65_536)],
)
def test_a_size_may_be_a_text_with_a_suffix(text: str, size: int) -> None:
    assert MessageStoreConfig.from_mapping({"mapped_file_size_commit_log": text}).mapped_file_size_commit_log == size
    given = MessageStoreConfig(mapped_file_size_commit_log=text)  # type: ignore[arg-type]
    assert given.mapped_file_size_commit_log == size


def test_each_size_may_be_such_a_text() -> None:
    names = ("mapped_file_size_commit_log", "max_message_size", "ha_slave_fallbehind_max", "ha_transfer_batch_size")
    config = MessageStoreConfig.from_mapping(dict.fromkeys(names, "1m"))
    assert {getattr(config, name) for name in names} == {1 << 20}


@pytest.mark.parametrize("text", ["SYNC_FLUSH", "sync_flush"])
def test_a_flush_type_may_be_its_name(text: str) -> None:
    assert MessageStoreConfig.from_mapping({"flush_disk_type": text}).flush_disk_type is FlushDiskType.SYNC_FLUSH


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mapped_file_size_commit_log": "big"}, "is a number of bytes, or a size such as 64m or 1g, not 'big'."),
        ({"mapped_file_size_commit_log": "-1"}, "such as 64m or 1g, not '-1'."),
        ({"mapped_file_size_commit_log": "4t"}, "is 4096 to 2147483647, not 4398046511104."),
        ({"flush_disk_type": "SYNC"}, "flush_disk_type is SYNC_FLUSH or ASYNC_FLUSH, not 'SYNC'."),
        ({"flush_disk_type": 1}, "flush_disk_type is of type FlushDiskType, not 1."),
        ({"max_index_num": "4k"}, "max_index_num is of type int, not '4k'."),
    ],
    ids=str,
)
def test_a_text_that_is_no_value_of_the_setting_is_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        MessageStoreConfig.from_mapping(settings)
    assert words in str(refused.value)


def test_an_embedded_store_is_small_and_safe(tmp_path: Path) -> None:
    config = MessageStoreConfig.embedded(default_topic_queue_nums=1)
    assert (config.flush_disk_type, config.default_topic_queue_nums) == (FlushDiskType.SYNC_FLUSH, 1)
    with MessageStore.open(tmp_path, config) as store:
        store.put("orders", b"x", keys="k")
        store.flush()
        assert sum(path.stat().st_size for path in tmp_path.rglob("*")) < 150 << 20
    with pytest.raises(InvalidValue, match="Did you mean 'max_message_size'"):
        MessageStoreConfig.embedded(max_mesage_size=5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ([("max_message_size", 5)], "a mapping of names to values"),
        ({1: 2}, r"Unknown setting 1\. help\(MessageStoreConfig\)"),
        ({"sync": True}, r"'sync'\. help\(MessageStoreConfig\) has all names"),
    ],
)
def test_settings_that_do_not_exist_are_refused_with_a_hint(settings: Any, words: str) -> None:
    with pytest.raises(InvalidValue, match=words):
        MessageStoreConfig.from_mapping(settings)


@pytest.mark.parametrize(("given", "size"), [(1, 20), (20, 20), (999, 1000), (1000, 1000), (1001, 1020)])
def test_the_size_of_a_queue_file_is_rounded_up_to_whole_units(tmp_path: Path, given: int, size: int) -> None:
    """As ``getMappedFileSizeConsumeQueue`` does."""
    config = small(mapped_file_size_consume_queue=given)
    assert config.mapped_file_size_consume_queue == size
    with MessageStore.open(tmp_path, config) as store:
        put_ok(store)
        store.dispatch()
    (file,) = (tmp_path / "consumequeue/orders/0").iterdir()
    assert file.stat().st_size == size
