"""Sends of RocketMQ's producers: what is stored, what is answered, and what is refused by which code."""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import pytest

from commitlog_store import (
    Message,
    MessageExt,
    MessageStore,
    MessageStoreConfig,
    PutMessageResult,
    PutMessageStatus,
    StoreReader,
)
from commitlog_store.config import FlushDiskType
from commitlog_store.format.remoting_command import HeaderKind, RemotingCommand
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processors.send_message import SendMessageProcessor, put_answer
from commitlog_store.serve.rocketmq.store_puts import StorePuts
from commitlog_store.store import owned_by
from commitlog_store.testing import parts_of
from tests.store.serve.rocketmq.brokers import broker
from tests.store.serve.rocketmq.remoting_client import RemotingClient, batch_body, send_fields
from tests.support.waiting import wait_for

_LONG_NAMES = (
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp"),
    *("flag", "properties", "reconsumeTimes", "unitMode"),
)


def _stored(store: MessageStore, topic: str, queue_id: int = 0) -> list[MessageExt]:
    store.dispatch()
    with store.reader() as reader:
        return reader.get_message(topic, queue_id, 0).messages


@pytest.mark.parametrize("kind", list(HeaderKind))
def test_a_message_is_stored_with_all_that_its_client_says(tmp_path: Path, kind: HeaderKind) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address, kind=kind) as client:
        properties = {"TAGS": "paid", "KEYS": "k1 k2", "UNIQ_KEY": "7F00", "WAIT": "true", "straße": "grün"}
        answer = client.send("orders", b"body", 2, properties, g=1_700_000_000_000, h=77, j=3)
        assert answer.code == 0
        assert answer.remark is None
        (message,) = _stored(served.store, "orders", 2)
        assert (message.body, message.flag, message.born_timestamp) == (b"body", 77, 1_700_000_000_000)
        assert (message.properties, message.reconsume_times, message.tags) == (properties, 3, "paid")
        assert message.born_host == "{}:{}".format(*client.socket.getsockname())
        assert answer.fields == {
            "msgId": message.message_id,
            "queueId": "2",
            "queueOffset": "0",
            "transactionId": "7F00",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }


def test_the_old_request_has_long_names(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        fields = dict(zip(_LONG_NAMES, send_fields("orders", 1).values(), strict=True))
        assert client.ask(RequestCode.SEND_MESSAGE, fields, b"old").code == 0
        assert [one.body for one in _stored(served.store, "orders", 1)] == [b"old"]


def test_a_compressed_body_is_stored_as_it_is(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("orders", zlib.compress(b"text " * 100), f=1)
        (message,) = _stored(served.store, "orders")
        assert message.body == b"text " * 100
        assert message.sys_flag & 1


def test_a_message_without_unique_key_gets_one(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        key = client.send("orders", b"x").fields["transactionId"]
        (message,) = _stored(served.store, "orders")
        assert message.unique_key == key
        assert len(key) == 32


def test_a_new_topic_gets_the_queues_that_its_producer_asks_for(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("three", b"x", d=3)
        client.send("many", b"x", d=100)
        with StoreReader.open(served.store.path):
            (three,), (many,) = client.route("three")["queueDatas"], client.route("many")["queueDatas"]
        assert (three["writeQueueNums"], three["readQueueNums"], three["perm"]) == (3, 3, 6)
        assert many["writeQueueNums"] == 8


def test_queue_minus_one_is_any_queue_of_the_topic(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        queues = {client.send("orders", b"x", -1).fields["queueId"] for _ in range(100)}
        assert queues == {"0", "1", "2", "3"}


def test_a_batch_is_stored_in_one_piece(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        batch = batch_body([(b"a", {"TAGS": "x", "UNIQ_KEY": "k1"}), (b"b" * 2000, {}), (b"", {"KEYS": "q"})])
        answer = client.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("orders", 1, {"WAIT": "true"}, m="true"), batch)
        assert answer.code == 0
        messages = _stored(served.store, "orders", 1)
        assert [one.body for one in messages] == [b"a", b"b" * 2000, b""]
        assert [one.properties.get("WAIT") for one in messages] == ["true"] * 3
        assert (messages[0].tags, messages[0].unique_key) == ("x", "k1")
        assert answer.fields["msgId"] == ",".join(one.message_id for one in messages)
        assert answer.fields["queueOffset"] == "0"
        assert "transactionId" not in answer.fields


@pytest.mark.parametrize("body", [b"", b"short", batch_body([(b"whole", {})])[:-1], b"\xff" * 40])
def test_a_batch_that_contradicts_itself_is_illegal(tmp_path: Path, body: bytes) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        answer = client.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("orders", 1), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert client.send("orders", b"x", 1).fields["queueOffset"] == "0"


def test_a_delayed_message_is_delivered_after_its_level(tmp_path: Path) -> None:
    config = MessageStoreConfig(message_delay_level="1s 1h")
    with broker(tmp_path / "s", config) as served, RemotingClient(served.address) as client:
        assert client.send("orders", b"soon", 2, {"DELAY": "1"}).fields["queueId"] == "2"
        client.send("orders", b"late", 2, {"DELAY": "9"})
        client.send("orders", b"now", 2, {"DELAY": "-1"})
        assert [one.body for one in _stored(served.store, "orders", 2)] == [b"now"]
        wait_for(lambda: [one.body for one in _stored(served.store, "orders", 2)] == [b"now", b"soon"])
        assert [one.properties["REAL_TOPIC"] for one in _stored(served.store, "SCHEDULE_TOPIC_XXXX", 1)] == ["orders"]


def test_a_timer_message_is_delivered_at_its_time(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("orders", b"soon", 2, {"TIMER_DELAY_MS": "1500"})
        client.send("orders", b"late", 2, {"TIMER_DELAY_SEC": "3600"})
        client.send("orders", b"now", 2, {"TIMER_DELIVER_MS": "1"})
        assert [one.body for one in _stored(served.store, "orders", 2)] == [b"now"]
        wait_for(lambda: [one.body for one in _stored(served.store, "orders", 2)] == [b"now", b"soon"])
        assert [one.body for one in _stored(served.store, "rmq_sys_wheel_timer")] == [b"soon", b"late"]


def test_a_half_message_is_pending_and_not_seen(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        properties = {"TRAN_MSG": "true", "PGROUP": "payments", "UNIQ_KEY": "7F01", "TAGS": "t"}
        answer = client.send("orders", b"half", 1, properties, f=4, h=5)
        assert answer.code == 0
        (pending,) = served.store.half_messages.pending()
        assert pending.message.born_host == "{}:{}".format(*client.socket.getsockname())
        assert (pending.handle.producer_group, pending.handle.unique_key) == ("payments", "7F01")
        assert answer.fields["msgId"] == pending.message.message_id
        assert answer.fields["queueOffset"] == str(pending.handle.queue_offset)
        assert not _stored(served.store, "orders", 1)
        served.store.half_messages.commit(pending.handle)
        (message,) = _stored(served.store, "orders", 1)
        assert (message.body, message.tags, message.flag) == (b"half", "t", 5)


@pytest.mark.parametrize(
    ("change", "code", "remark"),
    [
        ({"b": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION, "is forbidden"),
        ({"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, ResponseCode.NO_PERMISSION, "is forbidden"),
        ({"b": "x" * 128}, ResponseCode.MESSAGE_ILLEGAL, "topic length too long 128"),
        ({"b": "no/topic"}, ResponseCode.INVALID_PARAMETER, "no/topic"),
        ({"b": ""}, ResponseCode.INVALID_PARAMETER, ""),
        ({"b": "unknown", "c": "no-model"}, ResponseCode.TOPIC_NOT_EXIST, "topic[unknown] not exist"),
        ({"b": "unknown", "c": "orders"}, ResponseCode.TOPIC_NOT_EXIST, "topic[unknown] not exist"),
        ({"e": 4}, ResponseCode.INVALID_PARAMETER, "request queueId[4] is illegal"),
        ({"i": "n\x01" + "v" * 32_760}, ResponseCode.MESSAGE_ILLEGAL, "32"),
        ({"i": "v" * 40_000}, ResponseCode.MESSAGE_ILLEGAL, "properties length too long"),
        ({"i": "INNER_NUM\x012"}, ResponseCode.MESSAGE_ILLEGAL, "does not keep"),
        ({"f": 128}, ResponseCode.MESSAGE_ILLEGAL, "does not keep"),
        ({"f": 8}, ResponseCode.MESSAGE_ILLEGAL, "transaction"),
        ({"g": 1 << 62}, ResponseCode.MESSAGE_ILLEGAL, "born time"),
        ({"g": "soon"}, ResponseCode.SYSTEM_ERROR, "<g>"),
        ({"i": "DELAY\x01soon"}, ResponseCode.MESSAGE_ILLEGAL, "DELAY"),
        ({"i": "TIMER_DELAY_SEC\x01soon"}, ResponseCode.MESSAGE_ILLEGAL, "TIMER_DELAY_SEC"),
        ({"i": "TIMER_DELAY_SEC\x01999999999"}, ResponseCode.MESSAGE_ILLEGAL, "timerMaxDelaySec"),
    ],
)
def test_what_is_refused_has_rocketmqs_code(
    tmp_path: Path, change: dict[str, object], code: ResponseCode, remark: str
) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("orders", b"first")
        answer = client.ask(RequestCode.SEND_MESSAGE_V2, {**send_fields("orders"), **change}, b"x")
        assert answer.code == code
        assert remark in str(answer.remark)
        assert client.send("orders", b"second").fields["queueOffset"] == "1"
        with served.store.reader() as reader:
            assert "unknown" not in reader.topics()


def test_a_body_above_the_limit_is_illegal(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        answer = client.send("orders", b"x" * (4 * 1024 * 1024 + 1))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "maxMessageSize" in str(answer.remark)


def test_a_topic_that_is_closed_for_producers_is_forbidden(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("orders", b"x")
        parts_of(served.store).engine.topics.create_topic("orders", 4, perm=4)
        assert client.send("orders", b"y").code == ResponseCode.NO_PERMISSION


def test_a_store_that_rejects_puts_answers_service_not_available(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("orders", b"x")
        served.store.set_writable(False)
        assert client.send("orders", b"y").code == ResponseCode.SERVICE_NOT_AVAILABLE
        served.store.set_writable(True)
        assert client.send("orders", b"z").fields["queueOffset"] == "1"


@pytest.mark.parametrize("field", [{"l": 2}, {}])
def test_a_message_sent_back_too_often_is_a_dead_letter(tmp_path: Path, field: dict[str, object]) -> None:
    times = 2 if field else 16
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        retry = "%RETRY%billing"
        client.send(retry, b"again", 0, {"RETRY_TOPIC": "orders"}, j=times, **field)
        client.send(retry, b"dead", 0, {"RETRY_TOPIC": "orders", "DELAY": "5"}, j=times + 1, **field)
        assert [one.body for one in _stored(served.store, retry)] == [b"again"]
        assert [one.body for one in _stored(served.store, "%DLQ%billing")] == [b"dead"]
        (route,) = client.route(retry)["queueDatas"]
        assert route["writeQueueNums"] == 1


def test_a_topic_is_created_after_the_model_that_its_producer_names(tmp_path: Path) -> None:
    """The broker's own topics are models, too, as RocketMQ's are."""
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        assert client.send("orders", b"x", c="DefaultCluster", d=32).code == 0
        assert client.route("orders")["queueDatas"][0]["writeQueueNums"] == 16
        assert client.send("bills", b"x", c="SELF_TEST_TOPIC").code == ResponseCode.TOPIC_NOT_EXIST
        assert client.send("bills", b"x", c="orders").code == ResponseCode.TOPIC_NOT_EXIST


def test_a_batch_for_a_retry_topic_is_illegal(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        fields = send_fields("%RETRY%billing")
        answer = client.ask(RequestCode.SEND_BATCH_MESSAGE, fields, batch_body([(b"a", {})]))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_what_was_acknowledged_under_sync_flush_survives_a_kill(tmp_path: Path) -> None:
    config = MessageStoreConfig(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    with broker(tmp_path / "s", config) as served, RemotingClient(served.address) as client:
        started = [client.start(RequestCode.SEND_MESSAGE_V2, send_fields("orders"), b"%d" % n) for n in range(100)]
        assert {client.answer(one).code for one in started} == {0}
        first, end = served.store.physical_bounds()
        assert served.store.flushed_where() == end > first


def test_a_clients_put_and_the_programs_share_queues(tmp_path: Path) -> None:
    with broker(tmp_path / "s") as served, RemotingClient(served.address) as client:
        client.send("orders", b"client")
        served.store.put_message(Message(topic="orders", body=b"program", queue_id=0))
        assert [one.body for one in _stored(served.store, "orders")] == [b"client", b"program"]


def test_what_consumers_in_order_give_up_is_a_dead_letter(tmp_path: Path) -> None:
    """They have tried it as often as they may; the retry topic would give it to them once more."""

    class Address:
        address = ("127.0.0.1", 4000)

    async def send(store: MessageStore) -> None:
        loop = asyncio.get_running_loop()
        owned = owned_by(store)
        processor = SendMessageProcessor(
            StorePuts(owned, loop),
            owned.engine.topics,
            lambda _: 16,
            lambda work: loop.run_in_executor(None, work),
            models={},
            has_locks=lambda group: group == "ordered",
        )
        handle = processor.handlers()[RequestCode.SEND_MESSAGE_V2]
        for group in ("ordered", "others"):
            fields = {name: str(value) for name, value in send_fields(f"%RETRY%{group}", j=1, l=1).items()}
            request = RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, fields=fields, body=b"given up")
            outcome = handle(request, Address())  # type: ignore[arg-type]
            answer = outcome if isinstance(outcome, RemotingCommand) else await outcome
            assert answer.code == 0

    with MessageStore.open(tmp_path / "s") as store:
        asyncio.run(send(store))
        assert [one.body for one in _stored(store, "%DLQ%ordered")] == [b"given up"]
        assert [one.body for one in _stored(store, "%RETRY%others")] == [b"given up"]


@pytest.mark.parametrize("status", list(PutMessageStatus))
def test_every_status_of_a_put_has_a_code(status: PutMessageStatus) -> None:
    """A stored message that is not yet where it should be has its place in the answer, beside the code."""
    codes = {
        "PUT_OK": 0,
        "FLUSH_DISK_TIMEOUT": ResponseCode.FLUSH_DISK_TIMEOUT,
        "FLUSH_SLAVE_TIMEOUT": ResponseCode.FLUSH_SLAVE_TIMEOUT,
        "SLAVE_NOT_AVAILABLE": ResponseCode.SLAVE_NOT_AVAILABLE,
        "SERVICE_NOT_AVAILABLE": ResponseCode.SERVICE_NOT_AVAILABLE,
        "MESSAGE_ILLEGAL": ResponseCode.MESSAGE_ILLEGAL,
        "PROPERTIES_SIZE_EXCEEDED": ResponseCode.MESSAGE_ILLEGAL,
        "WHEEL_TIMER_MSG_ILLEGAL": ResponseCode.MESSAGE_ILLEGAL,
        "OS_PAGECACHE_BUSY": ResponseCode.SYSTEM_BUSY,
    }
    request = RemotingCommand(code=RequestCode.SEND_MESSAGE_V2, opaque=5)
    refused = put_answer(request, 1, PutMessageResult(status, reason="why"), "key")
    assert (refused.code, refused.opaque) == (codes.get(status.value, ResponseCode.SYSTEM_ERROR), 5)
    assert "why" in str(refused.remark)
    place = PutMessageResult(status, 7, 3, record_offsets=(7,), store_hosts=((bytes(4), 1),))
    stored = put_answer(request, 1, place, "key")
    assert (stored.code, stored.fields["queueOffset"], stored.fields["queueId"]) == (refused.code, "3", "1")
