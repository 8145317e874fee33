"""The clients that are connected: heartbeats, notices of changes, expiry, and the bounds of what is kept for them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.groups.group_settings import SubscriptionGroupConfig
from commitlog_store.serve.connection_counts import GroupClient
from commitlog_store.serve.rocketmq import clients as clients_module
from commitlog_store.serve.rocketmq import consumer_groups
from commitlog_store.serve.rocketmq.answering import RequestFault
from commitlog_store.serve.rocketmq.clients import ClientRegistry, HeartbeatData, version_text
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.consumer_groups import ConsumerGroups
from commitlog_store.serve.rocketmq.fastjson import decode_body
from commitlog_store.serve.rocketmq.processors.client_manage import ClientManageProcessor
from commitlog_store.store import owned_by
from tests.store.serve.rocketmq.asking import AClient, ask, eventually, on_a_loop, readers_of, threads_of

HEART_BEAT = RequestCode.HEART_BEAT


def heartbeat(
    *,
    client: str = "10.0.0.1@7",
    consumers: dict[str, dict[str, str]] | None = None,
    producers: list[str] | None = None,
) -> dict[str, Any]:
    """The body of a heartbeat, with the topics of each group and what it wants of them."""
    return {
        "clientID": client,
        "producerDataSet": [{"groupName": group} for group in producers or []],
        "consumerDataSet": [
            {
                "groupName": group,
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [
                    {"topic": topic, "subString": wanted, "subVersion": 1, "expressionType": "TAG", "tagsSet": []}
                    for topic, wanted in topics.items()
                ],
                "unitMode": False,
            }
            for group, topics in (consumers or {}).items()
        ],
    }


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def processor_of(store: MessageStore, registry: ClientRegistry) -> ClientManageProcessor:
    groups = ConsumerGroups(owned_by(store), readers_of(store))
    return ClientManageProcessor(registry, groups, threads_of)


def notices(client: AClient) -> list[str]:
    assert all(one.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and one.is_one_way for one in client.received)
    return [one.fields["consumerGroup"] for one in client.received]


@pytest.fixture(autouse=True)
def quick_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_module, "_NOTICE_DELAY_S", 0.0)


@on_a_loop
async def test_a_heartbeat_creates_the_group_and_its_retry_topic_before_it_is_answered(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        registry = ClientRegistry()
        processor = processor_of(store, registry)
        answer = await ask(processor, HEART_BEAT, body=heartbeat(consumers={"billing": {"orders": "paid || sent"}}))
        assert answer.code == ResponseCode.SUCCESS
        with StoreReader.open(tmp_path) as reader:
            assert reader.topic_settings()["%RETRY%billing"].read_queue_nums == 1
            assert [one.group_name for one in reader.group_settings()] == ["billing"]
        found = registry.subscription("billing", "orders")
        assert found is not None
        assert found.filter.tags is not None
        assert found.filter.tags.tags == ("paid", "sent")
        assert registry.subscription("billing", "payments") is None
        assert registry.subscription("shipping", "orders") is None


@on_a_loop
async def test_consumers_of_a_group_are_told_when_one_comes_leaves_or_is_lost(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        registry = ClientRegistry()
        processor = processor_of(store, registry)
        first, second, other = AClient(1), AClient(2), AClient(3)
        topics = {"orders": "*"}
        await ask(processor, HEART_BEAT, body=heartbeat(client="1", consumers={"billing": topics}), client=first)
        await ask(processor, HEART_BEAT, body=heartbeat(client="3", consumers={"other": topics}), client=other)
        await eventually(lambda: first.received and other.received)
        first.received.clear()
        other.received.clear()

        await ask(processor, HEART_BEAT, body=heartbeat(client="2", consumers={"billing": topics}), client=second)
        await eventually(lambda: first.received and second.received)
        assert notices(first) == notices(second) == ["billing"]
        for _ in range(3):  # a heartbeat that says nothing new is no change
            await ask(processor, HEART_BEAT, body=heartbeat(client="2", consumers={"billing": topics}), client=second)

        await ask(
            processor, RequestCode.UNREGISTER_CLIENT, {"clientID": "2", "consumerGroup": "billing"}, client=second
        )
        await eventually(lambda: len(first.received) == 2)
        assert len(second.received) == 1
        await ask(processor, HEART_BEAT, body=heartbeat(client="2", consumers={"billing": topics}), client=second)
        await eventually(lambda: len(first.received) == 3)
        processor.connection_lost(second)
        await eventually(lambda: len(first.received) == 4)
        assert notices(other) == []
        found = registry.consumers("billing")
        assert found is not None
        assert [client.client_id for client in found.clients.values()] == ["1"]


@on_a_loop
async def test_many_consumers_that_start_together_get_few_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_module, "_NOTICE_DELAY_S", 0.3)
    with MessageStore.open(tmp_path) as store:
        processor = processor_of(store, ClientRegistry())
        clients = [AClient(number) for number in range(200)]
        for client in clients:
            processor._clients.heartbeat(
                client, msgspec.convert(heartbeat(consumers={"billing": {"orders": "*"}}), HeartbeatData), "JAVA", 1
            )
        await eventually(lambda: all(client.received for client in clients))
        assert sum(len(client.received) for client in clients) < 5 * len(clients)


@on_a_loop
async def test_a_broadcasting_group_and_one_that_wants_no_notices_get_none(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        store.set_group_settings(SubscriptionGroupConfig(group_name="quiet", notify_consumer_ids_changed_enable=False))
        processor = processor_of(store, ClientRegistry())
        clients = {"quiet": AClient(1), "all": AClient(2), "heard": AClient(3)}
        for _ in range(2):
            for group, client in clients.items():
                body = heartbeat(consumers={group: {"orders": "*"}})
                body["consumerDataSet"][0]["messageModel"] = "BROADCASTING" if group == "all" else "CLUSTERING"
                await ask(processor, HEART_BEAT, body=body, client=client)
        for client in clients.values():
            client.received.clear()
        for group, port in (("quiet", 4), ("all", 5), ("heard", 6)):
            body = heartbeat(consumers={group: {"orders": "*"}})
            body["consumerDataSet"][0]["messageModel"] = "BROADCASTING" if group == "all" else "CLUSTERING"
            await ask(processor, HEART_BEAT, body=body, client=AClient(port))
        await eventually(lambda: clients["heard"].received)
        assert not clients["quiet"].received
        assert not clients["all"].received


@on_a_loop
async def test_a_client_without_heartbeats_for_two_minutes_is_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    with MessageStore.open(tmp_path) as store:
        registry = ClientRegistry(clock)
        processor = processor_of(store, registry)
        silent, alive = AClient(1), AClient(2)
        body = heartbeat(consumers={"billing": {"orders": "*"}}, producers=["payments"])
        await ask(processor, HEART_BEAT, body=body, client=silent)
        clock.now = 100.0
        await ask(processor, HEART_BEAT, body=body, client=alive)
        clock.now = 121.0
        registry.expire()
        found = registry.consumers("billing")
        assert found is not None
        assert list(found.clients) == [alive]
        assert {registry.producer_of("payments") for _ in range(4)} == {alive}
        clock.now = 300.0
        registry.expire()
        assert registry.consumers("billing") is None
        assert registry.producer_of("payments") is None
        assert registry.subscription("billing", "orders") is None


@on_a_loop
async def test_a_member_of_a_group_has_the_times_of_its_first_and_its_last_heartbeat(tmp_path: Path) -> None:
    times = iter((1_000, 2_000, 3_000, 31_000, 40_000))
    with MessageStore.open(tmp_path) as store:
        registry = ClientRegistry(now_ms=lambda: next(times))
        processor = processor_of(store, registry)
        assert registry.members("billing", 10) == (0, [])
        members = [AClient(port) for port in (1, 2, 3)]
        body = heartbeat(consumers={"billing": {"orders": "*"}})
        for member in (*members, members[0]):
            await ask(processor, HEART_BEAT, body=body, client=member, language="JAVA", version=477)
        shown = [
            GroupClient("10.0.0.1@7", "10.0.0.1:1", "JAVA", "v5_3_2", 1_000, 31_000),
            GroupClient("10.0.0.1@7", "10.0.0.1:2", "JAVA", "v5_3_2", 2_000, 2_000),
        ]
        assert registry.members("billing", 2) == (3, shown)
        registry.unregister_consumer(members[0], "billing")
        await ask(processor, HEART_BEAT, body=body, client=members[0])
        assert [one.since_ms for one in registry.members("billing", 9)[1]] == [2_000, 3_000, 40_000]


@on_a_loop
async def test_silent_clients_are_looked_for_by_themselves_also_those_of_a_heartbeat_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients_module, "_LOOK_S", 0.01)
    clock = Clock()
    with MessageStore.open(tmp_path) as store:
        registry = ClientRegistry(clock)
        body = heartbeat(producers=["payments", ""])
        assert (await ask(processor_of(store, registry), HEART_BEAT, body=body)).code == ResponseCode.SYSTEM_ERROR
        assert registry.producers("payments")
        clock.now = 121.0
        await eventually(lambda: not registry.producers("payments"))
        await eventually(lambda: not registry._is_looking)


@on_a_loop
async def test_a_newer_subscription_replaces_an_older_one_and_topics_left_out_are_gone(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        registry = ClientRegistry()
        processor = processor_of(store, registry)

        async def subscribe(version: int, wanted: dict[str, str]) -> None:
            body = heartbeat(consumers={"billing": wanted})
            for one in body["consumerDataSet"][0]["subscriptionDataSet"]:
                one["subVersion"] = version
            await ask(processor, HEART_BEAT, body=body)

        await subscribe(5, {"orders": "paid", "refunds": "*"})
        await subscribe(4, {"orders": "older"})
        one = registry.subscription("billing", "orders")
        assert one is not None
        assert one.sub_string == "paid"
        assert registry.subscription("billing", "refunds") is None
        await subscribe(6, {"orders": "newer"})
        one = registry.subscription("billing", "orders")
        assert one is not None
        assert one.sub_string == "newer"


@on_a_loop
async def test_what_is_kept_for_clients_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_module, "MOST_GROUPS", 3)
    monkeypatch.setattr(clients_module, "MOST_CLIENTS", 4)
    monkeypatch.setattr(clients_module, "MOST_SUBSCRIPTION_SIZE", 100)
    with MessageStore.open(tmp_path) as store:
        registry = ClientRegistry()
        processor = processor_of(store, registry)
        client = AClient()
        for group in ("a", "b", "c"):
            assert not (await ask(processor, HEART_BEAT, body=heartbeat(producers=[group]), client=client)).code
        full = await ask(processor, HEART_BEAT, body=heartbeat(producers=["d"]), client=client)
        assert full.code == ResponseCode.SYSTEM_BUSY
        assert "3 groups" in str(full.remark)
        assert not (await ask(processor, HEART_BEAT, body=heartbeat(producers=["a"]), client=AClient(2))).code
        full = await ask(processor, HEART_BEAT, body=heartbeat(producers=["b"]), client=AClient(3))
        assert full.code == ResponseCode.SYSTEM_BUSY
        assert "4 clients" in str(full.remark)
        processor.connection_lost(client)
        assert not (await ask(processor, HEART_BEAT, body=heartbeat(producers=["d"]), client=client)).code
        wide = heartbeat(consumers={"e": {"orders": "x" * 101}})
        full = await ask(processor, HEART_BEAT, body=wide, client=client)
        assert full.code == ResponseCode.SYSTEM_BUSY
        assert "memory" in str(full.remark)


@on_a_loop
async def test_everything_kept_for_a_client_is_gone_when_its_connection_is(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        registry = ClientRegistry()
        processor = processor_of(store, registry)
        client = AClient()
        for number in range(20):
            body = heartbeat(consumers={f"c{number}": {"orders": "*"}}, producers=[f"p{number}"])
            await ask(processor, HEART_BEAT, body=body, client=client)
        processor.connection_lost(client)
        processor.connection_lost(client)
        kept = {
            name: value
            for name, value in vars(registry).items()
            if name not in ("_clock", "_now_ms", "_turn", "_is_looking", "_changed") and value
        }
        assert kept == {}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "cannot be read"),
        (b"[]", "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b"{" * 100_000, "cannot be read"),
        (b'{"producerDataSet":[]}', "clientID"),
        (b'{"clientID":""}', "clientID"),
        (b'{"clientID":"x","consumerDataSet":[{"groupName":""}]}', "groupName"),
        (b'{"clientID":"' + b"x" * 300 + b'"}', "255"),
        (b'{"clientID":"' + b"x" * (257 << 10) + b'"}', "at most"),
        (b'{"clientID":"x","consumerDataSet":[{"groupName":"no/group"}]}', "no/group"),
    ],
)
def test_a_heartbeat_that_cannot_be_is_answered_with_what_is_wrong(tmp_path: Path, body: bytes, said: str) -> None:
    async def check() -> None:
        with MessageStore.open(tmp_path) as store:
            answer = await ask(processor_of(store, ClientRegistry()), HEART_BEAT, body=body)
            assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER)
            assert said in str(answer.remark)

    asyncio.run(check())


@on_a_loop
async def test_names_without_quotes_and_numbers_in_quotes_are_read(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        registry = ClientRegistry()
        body = b'{clientID:"c",consumerDataSet:[{groupName:"g",subscriptionDataSet:[{topic:"t,{a:1",subVersion:"7"}]}]}'
        assert not (await ask(processor_of(store, registry), HEART_BEAT, body=body)).code
        one = registry.subscription("g", "t,{a:1")
        assert one is not None
        assert one.sub_version == 7


@pytest.mark.parametrize(
    "piece",
    [b'\\"', b'"', b"{", b"{ ", b"a", b",a", b"{a", b"[", b'{"', b"{a:", b"\\"],
    ids=lambda piece: piece.decode(),
)
def test_a_long_body_that_is_no_json_is_refused_in_no_time(piece: bytes) -> None:
    """The event loop reads it: a search that takes the square of its length would hold up all clients for hours."""
    body = b'"' + piece * ((1 << 20) // len(piece) - 1)
    begun = time.process_time()
    for text in (body, body[1:], b"{" + body[1:-1]):
        with pytest.raises(RequestFault):
            decode_body(text, HeartbeatData, most=1 << 20)
    assert time.process_time() - begun < 20


@on_a_loop
async def test_heartbeats_of_other_languages_are_read(tmp_path: Path) -> None:
    """Clients in C++ send the numbers of enums and versions as texts, those in Go null for an empty list."""
    with MessageStore.open(tmp_path) as store:
        registry = ClientRegistry()
        processor = processor_of(store, registry)
        one = {"groupName": "cpp", "consumeType": 1, "messageModel": 0, "consumeFromWhere": 4}
        one["subscriptionDataSet"] = [{"topic": "t", "subString": "*", "subVersion": "7", "codeSet": ["97"]}]
        body = {"clientID": "c", "consumerDataSet": [one], "producerDataSet": None}
        assert not (await ask(processor, HEART_BEAT, body=body)).code
        found = registry.consumers("cpp")
        assert found is not None
        assert (found.consume_type, found.message_model) == ("CONSUME_PASSIVELY", "BROADCASTING")
        assert found.consume_from_where == "CONSUME_FROM_FIRST_OFFSET"
        assert found.subscriptions["t"].sub_version == 7
        body = {"clientID": "g", "consumerDataSet": [{"groupName": "go", "subscriptionDataSet": None}]}
        assert not (await ask(processor, HEART_BEAT, body=body)).code
        assert registry.consumers("go") is not None
        body = {"clientID": "g", "consumerDataSet": [{"groupName": "none", "messageModel": 2}]}
        answer = await ask(processor, HEART_BEAT, body=body)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "CLUSTERING" in str(answer.remark)
        assert registry.consumers("none") is None


@pytest.mark.parametrize("name", ["subscriptionGroup.json", "topics.json", "consumerOffset.json"])
def test_a_damaged_file_is_named_and_the_client_comes_again(tmp_path: Path, name: str) -> None:
    @on_a_loop
    async def check() -> None:
        with MessageStore.open(tmp_path) as store:
            store.create_topic("orders", 1)
        (tmp_path / "config" / name).write_bytes(b"{damaged")
        (tmp_path / "config" / f"{name}.bak").unlink(missing_ok=True)
        body = heartbeat(consumers={"billing": {"orders": "*"}})
        with MessageStore.open(tmp_path) as store:
            processor = processor_of(store, ClientRegistry())
            answer = await ask(processor, HEART_BEAT, body=body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert name in str(answer.remark)
            (tmp_path / "config" / name).unlink()
            assert not (await ask(processor, HEART_BEAT, body=body)).code

    check()


@on_a_loop
async def test_an_expression_is_checked_before_a_client_starts(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        processor = processor_of(store, ClientRegistry())

        async def check(text: str, kind: str) -> int:
            one = {"topic": "orders", "subString": text, "expressionType": kind}
            body = {"clientId": "c", "group": "g", "subscriptionData": one}
            return (await ask(processor, RequestCode.CHECK_CLIENT_CONFIG, body=body)).code

        assert await check("a > 5 AND b IS NOT NULL", "SQL92") == ResponseCode.SUCCESS
        assert await check("a > ", "SQL92") == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert await check("(" * 30_000, "SQL92") == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert await check("a > ", "TAG") == ResponseCode.SUCCESS
        assert not (await ask(processor, RequestCode.CHECK_CLIENT_CONFIG)).code


@on_a_loop
async def test_a_group_that_many_clients_bring_at_once_is_created_once(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        processor = processor_of(store, ClientRegistry())
        body = heartbeat(consumers={"billing": {"orders": "*"}})
        answers = await asyncio.gather(
            *(ask(processor, HEART_BEAT, body=body, client=AClient(number)) for number in range(8))
        )
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        with StoreReader.open(tmp_path) as reader:
            assert [one.group_name for one in reader.group_settings()] == ["billing"]


@on_a_loop
async def test_clients_create_groups_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_groups, "MOST_CREATED_GROUPS", 2)
    with MessageStore.open(tmp_path) as store:
        processor = processor_of(store, ClientRegistry())
        answers = [
            await ask(processor, HEART_BEAT, body=heartbeat(consumers={group: {"orders": "*"}}))
            for group in ("a", "b", "c", "a")
        ]
        assert [answer.code for answer in answers] == [0, 0, ResponseCode.SYSTEM_BUSY, 0]
        assert "2 consumer groups" in str(answers[2].remark)
        with StoreReader.open(tmp_path) as reader:
            assert [one.group_name for one in reader.group_settings()] == ["a", "b"]


@on_a_loop
async def test_a_retry_topic_that_was_deleted_is_there_again_after_the_next_heartbeat(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        groups = ConsumerGroups(owned_by(store), readers_of(store))
        processor = ClientManageProcessor(ClientRegistry(), groups, threads_of)
        body = heartbeat(consumers={"billing": {"orders": "*"}})
        await ask(processor, HEART_BEAT, body=body)
        store.delete_topic("%RETRY%billing")
        groups.forget("billing")
        await ask(processor, HEART_BEAT, body=body)
        with StoreReader.open(tmp_path) as reader:
            assert "%RETRY%billing" in reader.topic_settings()


@pytest.mark.parametrize(
    ("ordinal", "text"),
    [(211, "v3"), (212, "v4_0_0_snapshot"), (409, "v4_9_8"), (479, "v5_3_3"), (611, "v5_9_9"), (612, "higher_version")],
)
def test_versions_of_clients_have_rocketmqs_names(ordinal: int, text: str) -> None:
    assert version_text(ordinal) == text
