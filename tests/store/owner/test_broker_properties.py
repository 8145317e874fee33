"""Settings from a broker's configuration file: Java properties, RocketMQ's names and units."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commitlog_store import BrokerProperties, FlushDiskType, MessageStoreConfig
from commitlog_store.errors import InvalidValue, ReadFailed

# As RocketMQ 5.3.3 ships it, with what operators add.
BROKER_CONF = """
#  Licensed to the Apache Software Foundation (ASF)
! another comment
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
brokerRole = ASYNC_MASTER
flushDiskType = SYNC_FLUSH
storePathRootDir=/data/rocketmq/store
brokerIP1 : 10.0.0.7
listenPort 10921
mappedFileSizeCommitLog=1073741824\t
warmMapedFileEnable=TRUE
osPageCacheBusyTimeOutMills=2000
diskSpaceWarningLevelRatio=80
messageDelayLevel=1s 5s \\
    10s 1m
"""


def test_a_brokers_file_becomes_settings(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(BROKER_CONF)
    expected = MessageStoreConfig(
        flush_disk_type=FlushDiskType.SYNC_FLUSH,
        broker_ip="10.0.0.7",
        listen_port=10921,
        mapped_file_size_commit_log=1 << 30,
        warm_mapped_file_enable=True,
        os_page_cache_busy_time_out=2000,
        disk_space_warning_level_ratio=0.8,
        message_delay_level="1s 5s 10s 1m",
    )
    for source in (str(path), path, BROKER_CONF):
        assert MessageStoreConfig.from_properties(source) == expected
    found = BrokerProperties.read(path)
    assert found.config == expected
    assert found.store_path_root_dir == "/data/rocketmq/store"
    assert {"brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": "0"}.items() <= (
        found.unused.items()
    )
    assert {"flush_disk_type", "broker_ip", "listen_port"} <= found.given
    assert "put_message_timeout" not in found.given
    assert {"flushDiskType", "brokerIP1", "listenPort"} <= set(found.given_keys)
    assert not {"brokerName", "storePathRootDir"} & set(found.given_keys)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("a=b", "a", "b"),
        ("a = b c ", "a", "b c"),
        ("  a:b", "a", "b"),
        ("a b", "a", "b"),
        ("a\tb", "a", "b"),
        ("a==b", "a", "=b"),
        ("a = : b", "a", ": b"),
        ("a=", "a", ""),
        ("a", "a", ""),
        (r"a\=b\:c\ d=e", "a=b:c d", "e"),
        (r"a=\t\\\q", "a", "\t\\q".strip()),
        (r"a=\u0041\u00e9", "a", "Aé"),
        ("a=b\\\n   c", "a", "bc"),
        ("a=b\\\r\n#c", "a", "b#c"),
        ("a=b\\\\\nc=d", "a", "b\\"),
        ("a=b\\\n", "a", "b"),
        ("a=b\\", "a", "b"),
        ("a=1\ra=2\r\na=3", "a", "3"),
        ("#x=1 \\\na=b", "a", "b"),
    ],
)
def test_lines_are_read_as_java_reads_them(text: str, key: str, value: str) -> None:
    assert BrokerProperties.parse(text).unused[key] == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\nflushDiskType=SYNC", "line 2: flushDiskType=SYNC; expected SYNC_FLUSH or ASYNC_FLUSH."),
        ("flushDiskType=sync_flush", "line 1: flushDiskType=sync_flush; expected SYNC_FLUSH or ASYNC_FLUSH."),
        ("# c\n\nlistenPort=80a", "line 3: listenPort=80a; expected a whole number."),
        ("listenPort=70000", "line 1: listenPort=70000; expected 0 to 65535."),
        ("messageIndexEnable=yes", "line 1: messageIndexEnable=yes; expected true or false."),
        ("diskSpaceWarningLevelRatio=0.9", "line 1: diskSpaceWarningLevelRatio=0.9; expected a percentage"),
        ("brokerIP1=localhost", "line 1: brokerIP1=localhost; expected an IPv4 or IPv6 address."),
        ("messageDelayLevel=1s \\\n 5x", "line 1: messageDelayLevel=1s 5x; expected levels of a number"),
        (
            "transientStorePoolEnable=true\nflushDiskType=SYNC_FLUSH",
            "line 1: transientStorePoolEnable=true and line 2: flushDiskType=SYNC_FLUSH; expected ASYNC_FLUSH",
        ),
        ("maxIndexNum=110000000", "line 1: maxIndexNum=110000000; expected an index file of at most 2147483647 bytes."),
        (r"a=\u12x4", "line 1: expected 4 hexadecimal digits after \\u"),
    ],
)
def test_a_bad_value_is_refused_by_line_key_value_and_what_is_expected(text: str, words: str) -> None:
    with pytest.raises(InvalidValue) as refused:
        BrokerProperties.parse(text, "broker.conf")
    assert str(refused.value).startswith(f"broker.conf, {words}")


@pytest.mark.parametrize(("percent", "share"), [("75", 0.75), ("90", 0.9), ("99", 0.9), ("3", 0.35), ("-1", 0.35)])
def test_a_percentage_is_what_a_broker_makes_of_it(percent: str, share: float) -> None:
    config = MessageStoreConfig.from_properties(f"diskSpaceWarningLevelRatio={percent}")
    assert config.disk_space_warning_level_ratio == share


_OTHER_KEYS = {
    "brokerIp": "brokerIP1",
    "osPageCacheBusyTimeOut": "osPageCacheBusyTimeOutMills",
    "slaveTimeoutMs": "slaveTimeout",
    "warmMappedFileEnable": "warmMapedFileEnable",
}


def test_every_setting_has_a_key() -> None:
    """A setting that is added is read from a broker's file too."""
    config = MessageStoreConfig()
    for setting in dataclasses.fields(MessageStoreConfig):
        value = getattr(config, setting.name)
        first, *others = setting.name.split("_")
        key = first + "".join(map(str.capitalize, others))
        key = _OTHER_KEYS.get(key, key)
        if setting.type == "str | None":
            text = value = "/disk/log"
        elif value is None:
            text, value = "true", True
        elif isinstance(value, bool):
            text = str(value).lower()
        elif isinstance(value, enum.Enum):
            text = value.name
        else:
            text = str(round(value * 100)) if isinstance(value, float) else str(value)
        found = BrokerProperties.parse(f"{key}={text}")
        assert found.given == {setting.name}, key
        assert getattr(found.config, setting.name) == value


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("haListenPort=10912", ("127.0.0.1", 10912)),
        ("haListenPort=0\nbrokerRole=SYNC_MASTER", ("127.0.0.1", 0)),
        ("haListenPort=7\nhaListenAddress=10.0.0.5:10912\nhaAllow=10.0.0.7", ("10.0.0.5", 7)),
        ("haListenAddress=10.0.0.5:10912\nhaAllow=10.0.0.7\nhaListenPort=7", ("10.0.0.5", 7)),
        ("haListenAddress=[::1]\nhaListenPort=7", ("::1", 7)),
        ("brokerRole=SYNC_MASTER", ("127.0.0.1", 10912)),
        ("brokerRole=ASYNC_MASTER", None),
        ("haListenAddress=[::]:7\nhaAllow=10.0.0.0/8", ("::", 7)),
    ],
)
def test_a_broker_listens_for_slaves_on_this_machine_only(text: str, address: tuple[str, int] | None) -> None:
    assert MessageStoreConfig.from_properties(text).ha_address == address


def test_a_bad_port_beside_an_address_is_refused_by_its_own_line() -> None:
    with pytest.raises(InvalidValue, match="line 2: haListenPort=70000; expected 0 to 65535"):
        MessageStoreConfig.from_properties("haListenAddress=127.0.0.1:1\nhaListenPort=70000")


def test_the_spelling_of_early_versions_is_ignored_with_a_warning_as_brokers_ignore_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of the names with "maped", 4.9.8 and 5.3.3 have a setter for this one only."""
    text = "mapedFileSizeCommitLog=8192\nmapedFileSizeConsumeQueue=400\nwarmMapedFileEnable=true"
    found = BrokerProperties.parse(text)
    assert found.given == {"warm_mapped_file_enable"}
    assert found.config == MessageStoreConfig(warm_mapped_file_enable=True)
    for name in ("FileSizeCommitLog", "FileSizeConsumeQueue"):
        assert f"'maped{name}' is not a setting of a store. Did you mean 'mapped{name}'?" in caplog.text


def test_a_broker_that_drops_what_this_package_writes_is_refused() -> None:
    """RocketMQ 5 with this setting ends the log at the first record without the property ``__CRC32#``."""
    with pytest.raises(InvalidValue, match=r"line 2: forceVerifyPropCRC=true; expected false: .* drops the messages"):
        BrokerProperties.parse("enabledAppendPropCRC=true\nforceVerifyPropCRC=true")
    assert BrokerProperties.parse("forceVerifyPropCRC=false").unused == {"forceVerifyPropCRC": "false"}


@pytest.mark.parametrize("text", ["haListenPort=x", "haListenPort=70000", "haListenAddress=0.0.0.0:10912"])
def test_a_bad_address_for_slaves_is_refused_by_its_line(text: str) -> None:
    with pytest.raises(InvalidValue, match=f"line 1: {text}; expected "):
        MessageStoreConfig.from_properties(text)


def test_keys_of_the_broker_are_logged_and_likely_slips_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        MessageStoreConfig.from_properties("brokerName=a\nflushDiskTyp=SYNC_FLUSH\nstorePathRootDir=/x")
    assert "the properties: not used by a store: brokerName, flushDiskTyp." in caplog.text
    assert "'flushDiskTyp' is not a setting of a store. Did you mean 'flushDiskType'?" in caplog.text
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ReadFailed, match=r"broker\.conf"):
        MessageStoreConfig.from_properties(tmp_path / "broker.conf")


@given(text=st.text(alphabet='ab=:\\ \t\n\r#!u041fF"listenPort19', max_size=60))
def test_any_text_is_read_or_refused_by_name(text: str) -> None:
    with contextlib.suppress(InvalidValue):
        assert isinstance(BrokerProperties.parse(text).config, MessageStoreConfig)
