"""Mirrors of whole brokers: from their start, with their sizes and accounts, to a broker of the promoted mirror."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from commitlog_store import LogFollower, promote, verify_store
from commitlog_store.errors import AccessRefused, LogDiverged
from commitlog_store.follower.access_keys import AccessKeys
from tests.interop.rocketmq import RocketMqBroker
from tests.interop.whole_broker import WholeBroker, free_ports
from tests.store.follower.mirrors import log_bytes
from tests.support.waiting import WAIT_LIMIT_S, wait_for

# None of them is RocketMQ's default.
SETTINGS: dict[str, object] = {
    "mappedFileSizeCommitLog": 1 << 20,
    "mappedFileSizeConsumeQueue": 100 * 20 - 3,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
    "messageDelayLevel": "1h 2h",
    "haSendHeartbeatInterval": 500,
}
MESSAGES = 250


def fill(broker: WholeBroker, first: int, count: int = MESSAGES) -> None:
    """Messages with keys, every tenth delayed."""
    for number in range(first, first + count):
        broker.send("orders", b"message %d " % number * 20, f"key-{number}", delay_level=2 if number % 10 == 9 else 0)


def whole_mirror(broker: WholeBroker, follower: LogFollower) -> int:
    """Return when the mirror has the log and the configuration; where they end."""
    end = broker.bounds()[1]
    assert follower.wait_for(end, timeout_s=WAIT_LIMIT_S)
    rounds = follower.config_rounds
    wait_for(lambda: follower.config_rounds > rounds)
    assert follower.config_error is None
    return end


def test_a_broker_starts_on_the_promoted_mirror_of_one_with_other_sizes(
    rocketmq_broker: RocketMqBroker, tmp_path: Path
) -> None:
    """The follower is there before the broker, whose log is empty at first."""
    path, mirror, port = tmp_path / "master" / "store", tmp_path / "other" / "mirror", free_ports(4)
    with WholeBroker(rocketmq_broker, path, port, SETTINGS) as broker:
        with LogFollower(broker.ha_address, mirror, config_from=broker.address) as follower:
            broker.wait_until_it_answers()
            fill(broker, 0)
            end = whole_mirror(broker, follower)
        broker.end()
    assert log_bytes(mirror, 0, end) == log_bytes(path, 0, end)
    for file in (*path.glob("consumequeue/*/*/*"), *path.glob("index/*")):
        there = mirror / file.relative_to(path) if "index" not in file.parts else next(mirror.glob("index/*"))
        assert there.stat().st_size == file.stat().st_size, file
    (units,) = path.glob("consumequeue/SCHEDULE_TOPIC_XXXX/1/" + "0" * 20)
    assert (mirror / units.relative_to(path)).read_bytes() == units.read_bytes()
    assert {one.severity for one in verify_store(mirror)} <= {"note"}
    promote(mirror)
    with WholeBroker(rocketmq_broker, mirror, port, SETTINGS) as broker:
        broker.wait_until_it_answers()
        fill(broker, MESSAGES, 5)
        assert b"message 0 " in broker.pull("orders", 0)
        assert b"message 254 " not in broker.pull("orders", 0)
        last = MESSAGES * 9 // 10
        wait_for(lambda: f"message {MESSAGES + 4} ".encode() in broker.pull("orders", last))
        wait_for(lambda: f"message {MESSAGES + 4} ".encode() in broker.query("orders", f"key-{MESSAGES + 4}"))
        for number in (0, 101):
            assert f"message {number} ".encode() in broker.query("orders", f"key-{number}")
        broker.end()
    assert not [one for one in verify_store(mirror) if one.severity == "error"]


@pytest.mark.parametrize("with_config", [True, False])
def test_a_broker_restored_from_an_older_copy_is_named(
    rocketmq_broker: RocketMqBroker, tmp_path: Path, with_config: bool
) -> None:
    path, mirror, port = tmp_path / "master" / "store", tmp_path / "mirror", free_ports(4)
    with WholeBroker(rocketmq_broker, path, port, SETTINGS) as broker:
        broker.wait_until_it_answers()
        fill(broker, 0, 50)
        older = broker.bounds()[1]
        broker.end()
    shutil.copytree(path, tmp_path / "older")
    with WholeBroker(rocketmq_broker, path, port, SETTINGS) as broker:
        broker.wait_until_it_answers()
        fill(broker, 50, 50)
        with LogFollower(broker.ha_address, mirror, config_from=broker.address) as follower:
            end = whole_mirror(broker, follower)
        broker.end()
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "older", path)
    with WholeBroker(rocketmq_broker, path, port, SETTINGS) as broker:
        broker.wait_until_it_answers()
        assert broker.bounds()[1] == older
        with (
            LogFollower(broker.ha_address, mirror, config_from=broker.address if with_config else None) as follower,
            pytest.raises(LogDiverged, match=f"ends at physical offset {end}: at ") as told,
        ):
            follower.wait_for(end + 1, timeout_s=WAIT_LIMIT_S)
        words = f"at {older}, the master's log ends" if with_config else "the master sends nothing from there on"
        assert words in str(told.value)


def accounts(version: str, home: Path) -> dict[str, object]:
    """The settings of a broker with access control, and the files of its home: one account."""
    (home / "conf").mkdir(parents=True)
    if version.startswith("4."):
        account = {"accessKey": "rocketmq2", "secretKey": "12345678", "admin": True}
        (home / "conf" / "plain_acl.yml").write_text(json.dumps({"accounts": [account]}))
        return {"aclEnable": "true"}
    package = "org.apache.rocketmq.auth.authentication.provider"
    return {
        "authenticationEnabled": "true",
        "authenticationProvider": f"{package}.DefaultAuthenticationProvider",
        "authenticationMetadataProvider": f"{package}.LocalAuthenticationMetadataProvider",
        "initAuthenticationUser": json.dumps({"username": "rocketmq2", "password": "12345678"}),
        "authConfigPath": home / "auth",
    }


def test_a_broker_with_access_control_is_asked_with_keys(rocketmq_broker: RocketMqBroker, tmp_path: Path) -> None:
    path, mirror = tmp_path / "master" / "store", tmp_path / "mirror"
    keys = tmp_path / "tools.yml"
    keys.write_text("accessKey: rocketmq2\nsecretKey: 12345678\n")
    settings = SETTINGS | accounts(rocketmq_broker.version, tmp_path / "master" / "home")
    account = AccessKeys("rocketmq2", "12345678")
    with WholeBroker(rocketmq_broker, path, free_ports(4), settings, account) as broker:
        broker.wait_until_it_answers()
        fill(broker, 0, 20)
        with pytest.raises(AccessRefused, match="was asked with no access keys"):
            LogFollower(broker.ha_address, mirror, config_from=broker.address)
        (tmp_path / "wrong").write_text("accessKey: rocketmq2\nsecretKey: 87654321\n")
        with pytest.raises(AccessRefused, match="the access key 'rocketmq2'") as told:
            LogFollower(broker.ha_address, mirror, config_from=broker.address, access_keys=tmp_path / "wrong")
        assert "87654321" not in str(told.value)
        with LogFollower(broker.ha_address, mirror, config_from=broker.address, access_keys=keys) as follower:
            whole_mirror(broker, follower)
