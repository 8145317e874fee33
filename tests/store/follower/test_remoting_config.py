"""A mirror's configuration, copied through the broker's remoting port, and what a broker may answer instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.delayed.levels import DelayOffsetFile
from commitlog_store.errors import LogDiverged, RemotingFailed
from commitlog_store.follower.remoting import RemotingClient
from commitlog_store.follower.remoting_config import SlaveSynchronize
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.groups.group_settings import SubscriptionGroups
from commitlog_store.queue.topic_config import read_topic_config
from commitlog_store.replication.peer import parse_address
from tests.store.follower.mirrors import follow, log_bytes
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.scripted_broker import ScriptedBroker, remoting_frame
from tests.support.scripted_master import ScriptedMaster, Slave
from tests.support.waiting import WAIT_LIMIT_S, wait_for

VERSION = b'"dataVersion":{"counter":%d,"stateVersion":0,"timestamp":1700000000000}'
# As fastjson writes them: integers as names stand without quotes.
ANSWERS: dict[int, bytes | tuple[int, str]] = {
    21: b'{"topicConfigTable":{"orders":{"topicName":"orders","writeQueueNums":7,"readQueueNums":7,"perm":6}},'
    + VERSION % 5 + b',"mappingDataVersion":{"counter":1}}',
    26: b"brokerName=broker-a\nmappedFileSizeCommitLog=16384\nmappedFileSizeConsumeQueue=6000000\n",
    28: b'{"table":{"commitLogMinOffset":"16384","commitLogMaxOffset":"99999","runtime":"[ 0 days ]"}}',
    43: b'{"offsetTable":{"orders@billing":{0:12,1:9},"%RETRY%billing@billing":{0:3}}}',
    45: b'{"offsetTable":{1:12,3:7}}',
    201: b'{"subscriptionGroupTable":{"billing":{"groupName":"billing","retryMaxTimes":5}},' + VERSION % 2 + b"}",
}  # fmt: skip


FILE_SIZE = 16 << 10


def slave(path: Path, broker: ScriptedBroker) -> SlaveSynchronize:
    (path / "config").mkdir(parents=True, exist_ok=True)
    return SlaveSynchronize(str(path), parse_address(broker.address), None, lambda _: None)


def _log(path: Path, count: int) -> bytes:
    with open_store(path) as store:
        for number in range(count):
            put_ok(store, body=b"%d" % number * 30)
        return log_bytes(path, 0, store.physical_bounds()[1])


def _sends(log: bytes) -> Callable[[Slave], None]:
    def serve(slave: Slave) -> None:
        slave.send_log(log, slave.says())
        slave.wait_until_left()

    return serve


def test_a_mirror_has_the_configuration_of_its_master(tmp_path: Path) -> None:
    log, mirror = _log(tmp_path / "master", 50), tmp_path / "mirror"
    with (
        ScriptedBroker({**ANSWERS, 28: b'{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"99999"}}'}) as broker,
        ScriptedMaster(_sends(log)) as master,
        follow(master.address, mirror, config_from=broker.address) as follower,
    ):
        wait_for(lambda: follower.config_rounds)
        assert follower.config_error is None
        follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
        assert follower.status.lag_bytes == 99_999 - len(log), "the remoting port knows the master's end"
    with StoreReader.open(mirror) as reader:
        lags = {(one.topic, one.queue_id): one.lag for one in reader.groups("billing")}
    assert lags["orders", 0] == 50 - 12
    assert read_topic_config(str(mirror)) == {"orders": 7}
    assert DelayOffsetFile(str(mirror)).read() == {1: 12, 3: 7}
    group = SubscriptionGroups(str(mirror)).get("billing")
    assert group is not None
    assert group.retry_max_times == 5


def test_earliest_begins_where_the_remoting_port_says(tmp_path: Path) -> None:
    log = _log(tmp_path / "master", 400)
    with (
        ScriptedBroker(dict(ANSWERS)) as broker,
        ScriptedMaster(_sends(log)) as master,
        follow(master.address, tmp_path / "mirror", config_from=broker.address) as follower,
    ):
        assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
    assert log_bytes(tmp_path / "mirror", 0, len(log)) == log[FILE_SIZE:]


def test_a_broker_that_lost_its_end_is_named_with_both_ends(tmp_path: Path) -> None:
    """Its heartbeats do not say where its log ends; its remoting port does."""
    log = _log(tmp_path / "master", 50)

    def serve(slave: Slave) -> None:
        start = slave.says()
        if start > 1:
            wait_for(lambda: any(one["code"] == 21 for one in broker.asked))  # after the end was heard
            slave.heartbeat(start)
        else:
            slave.send_log(log, start)
        slave.wait_until_left()

    with (
        ScriptedBroker({**ANSWERS, 28: b'{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"700"}}'}) as broker,
        ScriptedMaster(serve) as master,
    ):
        with follow(master.address, tmp_path / "mirror") as follower:
            assert follower.wait_for(len(log), timeout_s=WAIT_LIMIT_S)
        words = f"ends at physical offset {len(log)}: at 700, the master's log ends"
        with (
            follow(
                master.address,
                tmp_path / "mirror",
                config_from=broker.address,
            ) as follower,
            pytest.raises(LogDiverged, match=words) as told,
        ):
            follower.wait_for(len(log) + 1, timeout_s=WAIT_LIMIT_S)
    assert told.value.offset == 700


def test_lists_are_replaced_when_their_version_differs_and_positions_are_merged(tmp_path: Path) -> None:
    topics = tmp_path / "config" / "topics.json"
    with ScriptedBroker(dict(ANSWERS)) as broker:
        copier = slave(tmp_path, broker)
        assert copier.run_once() == 10.0
        written = topics.stat().st_mtime_ns
        copier.run_once()
        assert topics.stat().st_mtime_ns == written, "nothing has changed"
        broker.answers[21] = b'{"topicConfigTable":{"paid":{"writeQueueNums":2}},' + VERSION % 6 + b"}"
        broker.answers[43] = b'{"offsetTable":{"orders@billing":{0:40},"orders@audit":{1:2}}}'
        copier.run_once()
        assert copier.error is None
    assert read_topic_config(str(tmp_path)) == {"paid": 2}
    offsets = ConsumerOffsets(str(tmp_path))
    assert offsets.get("billing", "orders") == {0: 40}
    assert offsets.get("billing", "%RETRY%billing") == {0: 3}
    assert offsets.get("audit", "orders") == {1: 2}


@pytest.mark.parametrize("code", [21, 43, 45, 201])
@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"not JSON", b'{"offsetTable":7,"topicConfigTable":7,"subscriptionGroupTable":7}', (1, "no")],
)
def test_an_answer_that_no_broker_gives_changes_nothing_of_its_file(
    tmp_path: Path, code: int, answer: bytes | tuple[int, str]
) -> None:
    with ScriptedBroker(dict(ANSWERS)) as broker:
        copier = slave(tmp_path, broker)
        copier.run_once()
        before = {path.name: path.read_bytes() for path in (tmp_path / "config").iterdir()}
        broker.answers[code] = answer
        copier.run_once()
        assert isinstance(copier.error, RemotingFailed)
        assert broker.address in str(copier.error)
    assert {path.name: path.read_bytes() for path in (tmp_path / "config").iterdir()} == before


HEAD = {"code": 0, "flag": 1, "opaque": 1}
BAD_FRAMES = {
    "garbage": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an oversize frame": (1 << 30).to_bytes(4, "big") + b"\0\0\0\2{}",
    "a negative frame": b"\xff\xff\xff\xff\0\0\0\2{}",
    "a header longer than its frame": b"\0\0\0\x06\0\0\xff\xff{}",
    "a header of another kind": b"\0\0\0\x06\x01\0\0\2{}",
    "a header that is not JSON": b"\0\0\0\x06\0\0\0\2{{",
    "an empty header": b"\0\0\0\x06\0\0\0\2{}",
    "the answer to another request": remoting_frame({**HEAD, "opaque": 7}),
    "a request": remoting_frame({**HEAD, "flag": 0}),
    "an error": remoting_frame({**HEAD, "code": 1, "remark": "system error"}),
    "half an answer": remoting_frame(HEAD, b"x" * 100)[:40],
    "nothing": b"",
}


@pytest.mark.parametrize("raw", BAD_FRAMES.values(), ids=BAD_FRAMES)
def test_a_broker_that_does_not_answer_as_one_is_named(raw: bytes) -> None:
    with ScriptedBroker({}) as broker:
        broker.raw = raw
        address = parse_address(broker.address)
        with RemotingClient(address, timeout_s=0.1) as client, pytest.raises(RemotingFailed, match=broker.address):
            client.request(21)
    with pytest.raises(RemotingFailed, match="cannot be reached"):
        RemotingClient(address)


def test_a_broker_without_a_message_begins_and_ends_at_0() -> None:
    """Its log has no file, whose offset would be the smallest one."""
    with (
        ScriptedBroker({28: b'{"table":{"commitLogMinOffset":"-1","commitLogMaxOffset":"0"}}'}) as broker,
        RemotingClient(parse_address(broker.address)) as client,
    ):
        assert client.log_bounds() == (0, 0)


def test_runtime_info_without_offsets_is_named() -> None:
    with (
        ScriptedBroker({28: b'{"table":{"commitLogMinOffset":"-2"}}'}) as broker,
        RemotingClient(parse_address(broker.address)) as client,
        pytest.raises(RemotingFailed),
    ):
        client.log_bounds()
