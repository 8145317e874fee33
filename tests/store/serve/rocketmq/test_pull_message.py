"""Pulls of RocketMQ's consumers: stored bytes, codes, filters, and pulls that are held."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import msgspec
import pytest

from commitlog_store import MessageStore, StoreReader, SubscriptionGroupConfig
from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.consumers.pull import PullService
from commitlog_store.engine.arrivals import Arrivals
from commitlog_store.engine.stored_messages import StoredPull
from commitlog_store.queue.get_message import GetMessageStatus
from commitlog_store.serve.rocketmq.clients import ClientRegistry
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.consumer_groups import ConsumerGroups
from commitlog_store.serve.rocketmq.processors.pull_message import PullMessageProcessor
from commitlog_store.serve.rocketmq.pull_hold import PullRequestHoldService
from commitlog_store.store import owned_by
from commitlog_store.testing import parts_of, waiting_calls
from tests.store.serve.rocketmq.asking import ask, eventually, on_a_loop, threads_of
from tests.store.serve.rocketmq.brokers import Served, broker
from tests.store.serve.rocketmq.remoting_client import (
    COMMIT,
    SUBSCRIPTION,
    RemotingClient,
    pull_fields,
    records,
)
from tests.store.serve.rocketmq.test_clients import heartbeat
from tests.support.waiting import wait_for


def _fill(store: MessageStore, count: int, *, topic: str = "orders", size: int = 10) -> None:
    for number in range(count):
        store.put(
            topic, b"%d" % number + b"x" * size, queue_id=0, tags="even" if number % 2 == 0 else "odd",
            properties={"number": str(number)},
        )  # fmt: skip
    store.dispatch()


def _numbers(answer: object) -> list[int]:
    return [int(one.body.rstrip(b"x")) for one in records(answer)]  # type: ignore[arg-type]


def _held(served: Served, count: int = 1) -> None:
    wait_for(lambda: waiting_calls(served.store) >= count)


def test_the_body_is_the_records_as_they_are_stored(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 5)
        answer = client.pull("orders", 0, 0)
        low, high = served.store.physical_bounds()
        assert answer.code == 0
        assert answer.remark == "FOUND"
        assert len(answer.body) == high - low
        assert next(one.physical_offset for one in records(answer)) == low
        assert answer.fields == {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": "5",
            "minOffset": "0",
            "maxOffset": "5",
            "topicSysFlag": "0",
            "groupSysFlag": "0",
        }


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
def test_a_pull_gives_no_more_than_a_broker_would(tmp_path: Path, code: RequestCode) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 100)
        assert _numbers(client.ask(code, pull_fields("orders", 0, 10, maxMsgNums=1000))) == list(range(10, 42))
        assert _numbers(client.ask(code, pull_fields("orders", 0, 10, maxMsgNums=3))) == [10, 11, 12]
        _fill(served.store, 3, topic="large", size=200_000)
        assert _numbers(client.ask(code, pull_fields("large", 0, 0))) == [0]


@pytest.mark.parametrize(
    ("offset", "code", "status", "following"),
    [
        (0, ResponseCode.SUCCESS, "FOUND", 3),
        (3, ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3),
        (9, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3),
    ],
)
def test_offsets_have_rocketmqs_codes(
    tmp_path: Path, offset: int, code: ResponseCode, status: str, following: int
) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 3)
        answer = client.pull("orders", 0, offset)
        assert (answer.code, answer.remark) == (code, status)
        assert answer.fields["nextBeginOffset"] == str(following)


@pytest.mark.parametrize(("offset", "code"), [(0, ResponseCode.PULL_NOT_FOUND), (5, ResponseCode.PULL_OFFSET_MOVED)])
def test_a_queue_without_messages(tmp_path: Path, offset: int, code: ResponseCode) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        served.store.create_topic("orders", 4)
        answer = client.pull("orders", 2, offset)
        assert (answer.code, answer.fields["nextBeginOffset"]) == (code, "0")


def test_tags_are_chosen_by_their_codes_and_sql_by_properties(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 40)
        assert _numbers(client.pull("orders", 0, 0, "odd", maxMsgNums=5)) == [1, 3, 5, 7, 9]
        assert _numbers(client.pull("orders", 0, 0, "odd || even", maxMsgNums=3)) == [0, 1, 2]
        sql = client.pull("orders", 0, 0, "number > 20 AND TAGS = 'even'", expressionType="SQL92", maxMsgNums=4)
        assert _numbers(sql) == [22, 24, 26, 28]
        none = client.pull("orders", 0, 10, "other")
        assert (none.code, none.fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "40")


def test_a_pull_continues_where_the_last_one_ended(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 1000)
        for subscription, kind, wanted in (
            ("*", "TAG", 1),
            ("odd", "TAG", 2),
            ("number BETWEEN 0 AND 999", "SQL92", 1),
        ):
            found: list[int] = []
            offset = 0
            while offset < 1000:
                answer = client.pull("orders", 0, offset, subscription, expressionType=kind)
                found += _numbers(answer)
                offset = int(answer.fields["nextBeginOffset"])
            assert found == list(range(wanted - 1, 1000, wanted))


def test_a_held_pull_is_answered_when_a_message_arrives(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 3)
        pull = client.start_pull("orders", 0, 3, hold_ms=200_000)
        _held(served)
        served.store.put("orders", b"3", queue_id=0)
        assert _numbers(client.answer(pull)) == [3]


def test_a_held_pull_waits_for_a_message_that_matches(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 3)
        by_tag = client.start_pull("orders", 0, 3, "odd", hold_ms=200_000)
        by_sql = client.start_pull("orders", 0, 3, "number = 7", hold_ms=200_000, expressionType="SQL92")
        _held(served, 2)
        served.store.put("orders", b"3", queue_id=1, tags="odd", properties={"number": "7"})
        served.store.put("orders", b"4", queue_id=0, tags="even", properties={"number": "6"})
        served.store.put("orders", b"5", queue_id=0, tags="odd", properties={"number": "5"})
        answer = client.answer(by_tag)
        assert (_numbers(answer), answer.fields["nextBeginOffset"]) == ([5], "5")
        served.store.put("orders", b"7", queue_id=0, tags="even", properties={"number": "7"})
        assert _numbers(client.answer(by_sql)) == [7]


def test_a_hold_ends_after_the_time_that_the_client_says(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 3)
        started = time.monotonic()
        answer = client.pull("orders", 0, 3, hold_ms=300)
        assert time.monotonic() - started >= 0.3
        assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")


def test_after_a_hold_the_client_continues_after_what_did_not_match(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 3)
        pull = client.start_pull("orders", 0, 3, "number = 7", hold_ms=1_500, expressionType="SQL92")
        _held(served)
        served.store.put("orders", b"3", queue_id=0)
        answer = client.answer(pull)
        assert (answer.code, answer.fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "4")


def test_a_pull_is_held_for_a_queue_that_has_no_message_yet(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        served.store.create_topic("orders", 4)
        pull = client.start_pull("orders", 3, 0, hold_ms=200_000)
        _held(served)
        served.store.put("orders", b"0", queue_id=3)
        assert _numbers(client.answer(pull)) == [0]


def test_no_message_is_missed_between_pulls_and_puts(tmp_path: Path) -> None:
    """Without the look after the pull is noted, a message that comes in between would wait for the next one."""
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        served.store.create_topic("orders", 1)

        def put() -> None:
            for number in range(300):
                served.store.put("orders", b"%d" % number, queue_id=0)
                time.sleep(0.0005 * (number % 3))

        putting = threading.Thread(target=put)
        putting.start()
        offset = 0
        while offset < 300:
            answer = client.pull("orders", 0, offset, hold_ms=200_000)
            assert answer.code == 0
            offset = int(answer.fields["nextBeginOffset"])
        putting.join()


def test_a_lost_client_leaves_no_held_pull(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served:
        _fill(served.store, 1)
        with RemotingClient(served.address) as client:
            for _ in range(50):
                client.start_pull("orders", 0, 1, hold_ms=500_000)
            _held(served, 50)
        wait_for(lambda: waiting_calls(served.store) == 0)


def test_held_pulls_take_no_thread(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 1)
        client.pull("orders", 0, 0)  # the first one creates the group, in another thread
        before = threading.active_count()
        pulls = [client.start_pull("orders", 0, 1, hold_ms=500_000) for _ in range(500)]
        _held(served, 500)
        assert threading.active_count() <= before
        served.store.put("orders", b"1", queue_id=0)
        assert all(_numbers(client.answer(pull)) == [1] for pull in pulls)


def test_the_position_of_a_request_is_committed(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 9)
        client.pull("orders", 0, 5, sysFlag=COMMIT | SUBSCRIPTION, commitOffset=4)
        client.pull("orders", 0, 6, sysFlag=SUBSCRIPTION, commitOffset=6)
    with StoreReader.open(tmp_path / "s") as reader:
        assert reader.group_offsets("consumers") == {("orders", 0): 4}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER),
        ({"queueOffset": -1}, ResponseCode.INVALID_PARAMETER),
        ({"sysFlag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"subscription": "a >", "expressionType": "SQL92"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"subscription": "a || *"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"consumerGroup": "stopped"}, ResponseCode.NO_PERMISSION),
        ({"topic": "closed"}, ResponseCode.NO_PERMISSION),
        ({"maxMsgNums": "x"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_what_is_refused_has_rocketmqs_code(tmp_path: Path, change: dict[str, object], code: ResponseCode) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 1)
        served.store.set_group_settings(SubscriptionGroupConfig(group_name="stopped", consume_enable=False))
        parts_of(served.store).engine.topics.create_topic("closed", 4, perm=2)
        answer = client.ask(RequestCode.PULL_MESSAGE, {**pull_fields("orders", 0, 0), **change})
        assert answer.code == code
        assert answer.remark


@pytest.mark.parametrize("allowed", [False, True])
def test_a_group_consumes_in_broadcasting_if_its_settings_allow_it(tmp_path: Path, allowed: bool) -> None:
    data = heartbeat(consumers={"billing": {"orders": "*"}})
    data["consumerDataSet"][0]["messageModel"] = "BROADCASTING"
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 1)
        settings = SubscriptionGroupConfig(group_name="billing", consume_broadcast_enable=allowed)
        served.store.set_group_settings(settings)
        assert client.ask(RequestCode.HEART_BEAT, {}, msgspec.json.encode(data)).code == 0
        answer = client.pull("orders", 0, 0, consumerGroup="billing", sysFlag=0)
        forbidden = (ResponseCode.NO_PERMISSION, "4")
        assert (answer.code, answer.fields.get("forbiddenType")) == ((0, None) if allowed else forbidden)


def test_a_pull_has_the_groups_flag_and_never_another_broker(tmp_path: Path) -> None:
    """RocketMQ sends a group to the broker of its settings only with slaveReadEnable; here is no other broker."""
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 1)
        settings = SubscriptionGroupConfig(group_name="billing", broker_id=1, group_sys_flag=2)
        served.store.set_group_settings(settings)
        fields = client.pull("orders", 0, 0, consumerGroup="billing").fields
        assert (fields["suggestWhichBrokerId"], fields["groupSysFlag"]) == ("0", "2")


def test_the_first_pull_of_a_group_creates_it(tmp_path: Path) -> None:
    """Pull consumers commit a position before their first heartbeat, which takes a second."""
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 1)
        assert client.pull("orders", 0, 0, consumerGroup="new").code == 0
        with served.store.reader() as reader:
            assert [one.group_name for one in reader.group_settings()] == ["new"]
        answer = client.pull("orders", 0, 0, consumerGroup="no/group")
        assert (answer.code, "no/group" in str(answer.remark)) == (ResponseCode.INVALID_PARAMETER, True)


def test_a_store_that_is_not_readable_answers_an_error(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        _fill(served.store, 1)
        pull = client.start_pull("orders", 0, 1, hold_ms=200_000)
        _held(served)
        served.store.set_readable(False)
        assert client.answer(pull).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert client.pull("orders", 0, 0).code == ResponseCode.SERVICE_NOT_AVAILABLE


class _Pulls(PullService):
    """Looks that find ``parts`` parts without a match before a message, and wake the pull as arrivals do."""

    def __init__(self, arrivals: Arrivals, parts: int) -> None:
        self.looks = 0
        self._arrivals = arrivals
        self._parts = parts

    def stored_in_memory(self, *_: object) -> StoredPull:
        self.looks += 1
        if self.looks <= 2:  # the one before the pull is held, and the first one after
            return StoredPull(GetMessageStatus.OFFSET_OVERFLOW_ONE, 0, 0, 0)
        self._arrivals.wake_all()
        if self.looks <= 2 + self._parts:
            return StoredPull(GetMessageStatus.NO_MATCHED_MESSAGE, self.looks, 0, 100)
        return StoredPull(GetMessageStatus.FOUND, self.looks, 0, 100, b"record", 1)

    def stored_messages(self, *place: object) -> StoredPull:
        return self.stored_in_memory(*place)


@on_a_loop
async def test_other_clients_are_served_between_two_looks_of_a_held_pull(tmp_path: Path) -> None:
    """Also where it is woken at each look through messages that do not match: one look a round of the loop."""
    with MessageStore.open(tmp_path / "s") as store:
        store.create_topic("orders", 4)
        owned, arrivals = owned_by(store), Arrivals()
        pulls, hold = _Pulls(arrivals, parts=50), PullRequestHoldService(arrivals, asyncio.get_running_loop())
        groups = ConsumerGroups(owned, LentReaders(owned.engine, store.reader))
        groups.create_group("consumers")
        processor = PullMessageProcessor(pulls, owned.engine.topics, groups, ClientRegistry(), hold, threads_of)
        fields = pull_fields("orders", 0, 0, hold_ms=200_000)
        asked = asyncio.ensure_future(ask(processor, RequestCode.PULL_MESSAGE, fields))
        await eventually(lambda: len(hold))
        arrivals.wake_all()
        rounds = 0
        while not asked.done():
            await asyncio.sleep(0)
            rounds += 1
        assert asked.result().body == b"record"
        assert pulls.looks == 2 + 50 + 1
        assert rounds >= 50
        assert len(hold) == 0
