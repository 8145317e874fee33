"""Half messages of producers: committed, rolled back, and asked for when a producer has forgotten them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from commitlog_store import HalfMessagesChecked, Message, MessageStore, MessageStoreConfig
from commitlog_store.errors import InvalidValue
from commitlog_store.format.properties import decode_properties
from commitlog_store.format.record import Record, decode_record
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.half_message import HalfMessageHandle
from commitlog_store.serve.rocketmq.clients import ClientRegistry, HeartbeatData
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processors.end_transaction import EndTransactionProcessor
from tests.store.half.brokers import put_half
from tests.store.serve.rocketmq.asking import AClient, ask, eventually, on_a_loop, readers_of
from tests.store.serve.rocketmq.test_clients import heartbeat

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
# Every half message is old enough for a check.
CONFIG = MessageStoreConfig(transaction_time_out=0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, CONFIG) as opened:
        yield opened


def processor_of(store: MessageStore, registry: ClientRegistry | None = None) -> EndTransactionProcessor:
    return EndTransactionProcessor(store, registry or ClientRegistry(), readers_of(store), asyncio.to_thread)


def prepare(store: MessageStore, body: bytes = b"paid", **properties: str) -> HalfMessageHandle:
    message = Message(topic="orders", body=body, queue_id=1, tags="t", properties=properties)
    return store.half_messages.prepare(message, producer_group="payments")


async def end(store: MessageStore, handle: HalfMessageHandle, how: object, **fields: object) -> RemotingCommand:
    header = {
        "producerGroup": handle.producer_group,
        "tranStateTableOffset": handle.queue_offset,
        "commitLogOffset": handle.physical_offset,
        "commitOrRollback": how,
        "msgId": handle.unique_key,
        "transactionId": handle.unique_key,
        **fields,
    }
    return await ask(processor_of(store), RequestCode.END_TRANSACTION, header)


def bodies(store: MessageStore) -> list[bytes]:
    store.dispatch()
    with store.reader() as reader:
        return [one.body for one in reader.get_message("orders", 1, 0).messages]


@on_a_loop
async def test_a_commit_puts_the_message_into_its_topic_once(store: MessageStore) -> None:
    handle = prepare(store)
    assert not (await end(store, handle, COMMIT)).code
    assert not (await end(store, handle, COMMIT)).code  # sent again
    assert bodies(store) == [b"paid"]
    assert (await end(store, handle, ROLLBACK)).code == ResponseCode.SYSTEM_ERROR
    assert not store.half_messages.pending()


@pytest.mark.parametrize("settings", [{"flush_disk_type": "SYNC_FLUSH"}, {"transient_store_pool_enable": True}])
def test_a_message_that_is_not_in_the_files_yet_is_committed(tmp_path: Path, settings: dict[str, object]) -> None:
    @on_a_loop
    async def check() -> None:
        config = MessageStoreConfig.from_mapping({**settings, "mapped_file_size_commit_log": 1 << 20})
        with MessageStore.open(tmp_path, config) as store:
            answer = await end(store, prepare(store), COMMIT)
            assert not answer.code, answer.remark
            store.flush()
            assert bodies(store) == [b"paid"]

    check()


@on_a_loop
async def test_a_rollback_drops_it_and_an_unknown_outcome_changes_nothing(store: MessageStore) -> None:
    handle = prepare(store)
    assert not (await end(store, handle, UNKNOWN)).code
    assert len(store.half_messages.pending()) == 1
    assert not (await end(store, handle, ROLLBACK)).code
    assert not (await end(store, handle, ROLLBACK)).code
    assert (await end(store, handle, COMMIT)).code == ResponseCode.SYSTEM_ERROR
    assert not store.half_messages.pending()
    assert bodies(store) == []


@on_a_loop
async def test_a_header_that_names_no_half_message_is_refused(store: MessageStore) -> None:
    handle = prepare(store)
    plain = store.put_message(Message(topic="orders", body=b"plain", queue_id=0))
    wrong = [
        {"producerGroup": "other"},
        {"tranStateTableOffset": handle.queue_offset + 1},
        {"commitLogOffset": plain.physical_offset},
        {"commitLogOffset": handle.physical_offset + 1},
        {"commitLogOffset": 10**12},
        {"commitLogOffset": "far"},
        {"commitOrRollback": 4},
    ]
    for fields in wrong:
        answer = await end(store, handle, COMMIT, **fields)  # type: ignore[arg-type]
        assert answer.code == ResponseCode.SYSTEM_ERROR, fields
        assert answer.remark
    answer = await ask(processor_of(store), RequestCode.END_TRANSACTION, {"commitOrRollback": COMMIT})
    assert "<commitLogOffset>" in str(answer.remark)
    assert len(store.half_messages.pending()) == 1


@on_a_loop
async def test_after_its_own_immunity_only_the_answer_to_a_check_ends_it(store: MessageStore) -> None:
    born = 1_700_000_000_000
    put = put_half(store, b"late", born=born, UNIQ_KEY="U", REAL_QID="1", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    handle = HalfMessageHandle(put.physical_offset, put.queue_offset, "payments", "U")
    assert (await end(store, handle, COMMIT)).code == ResponseCode.ILLEGAL_OPERATION
    assert (await end(store, handle, COMMIT, fromTransactionCheck="false")).code == ResponseCode.ILLEGAL_OPERATION
    assert not (await end(store, handle, COMMIT, fromTransactionCheck="true")).code
    assert bodies(store) == [b"late"]
    young = prepare(store, b"young", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
    assert not (await end(store, young, COMMIT)).code


@on_a_loop
async def test_a_check_asks_a_producer_of_the_group_whose_answer_comes_later(store: MessageStore) -> None:
    registry, client, other = ClientRegistry(), AClient(1), AClient(2)
    for one, group in ((client, "payments"), (other, "others")):
        registry.heartbeat(one, msgspec.convert(heartbeat(producers=[group]), HeartbeatData), "JAVA", 1)
    processor = processor_of(store, registry)
    loop = asyncio.get_running_loop()
    prepare(store, b"paid", a="1")
    for times in (1, 2):  # the second question names the place of the copy
        checked = await asyncio.to_thread(
            store.half_messages.check, lambda message: processor.ask_producer(message, loop)
        )
        assert checked == HalfMessagesChecked(put_back=1)
        await eventually(lambda: len(client.received) == times)  # noqa: B023
    assert not other.received
    question = client.received[0]
    assert question.code == RequestCode.CHECK_TRANSACTION_STATE
    assert question.is_one_way
    record = decode_record(question.body)
    assert isinstance(record, Record)
    assert (record.topic, record.queue_id, record.body) == (b"orders", 1, b"paid")
    assert str(record.physical_offset) == question.fields["commitLogOffset"]
    assert str(record.queue_offset) == question.fields["tranStateTableOffset"]
    properties = decode_properties(record.properties)
    assert properties["a"] == "1"
    assert properties["PGROUP"] == "payments"
    assert question.fields["transactionId"] == question.fields["msgId"] == properties["UNIQ_KEY"]
    # Both questions may be answered, in whatever order.
    for asked in client.received:
        answer = await ask(
            processor,
            RequestCode.END_TRANSACTION,
            {
                **{name: asked.fields[name] for name in ("tranStateTableOffset", "commitLogOffset", "msgId")},
                "producerGroup": "payments",
                "commitOrRollback": COMMIT,
                "fromTransactionCheck": "true",
            },
        )
        assert not answer.code, answer.remark
    assert bodies(store) == [b"paid"]
    assert not store.half_messages.pending()


@on_a_loop
async def test_without_a_connected_producer_the_check_is_not_counted(store: MessageStore) -> None:
    prepare(store)
    processor, loop = processor_of(store), asyncio.get_running_loop()
    for _ in range(20):
        checked = await asyncio.to_thread(
            store.half_messages.check, lambda message: processor.ask_producer(message, loop)
        )
        assert checked == HalfMessagesChecked(left=1)
    (pending,) = store.half_messages.pending()
    assert pending.check_times == 0


@on_a_loop
async def test_one_without_a_unique_key_stays_in_its_place_which_the_answer_names(store: MessageStore) -> None:
    registry, client = ClientRegistry(), AClient()
    registry.heartbeat(client, msgspec.convert(heartbeat(producers=["payments"]), HeartbeatData), "JAVA", 1)
    processor, loop = processor_of(store, registry), asyncio.get_running_loop()
    put = put_half(store, b"no key", REAL_QID="1")
    await asyncio.to_thread(store.half_messages.check, lambda message: processor.ask_producer(message, loop))
    await eventually(lambda: client.received)
    handle = HalfMessageHandle(put.physical_offset, put.queue_offset, "payments", "")
    assert not (await end(store, handle, COMMIT, fromTransactionCheck="true")).code
    assert bodies(store) == [b"no key"]


@on_a_loop
async def test_checks_run_by_themselves_once_they_are_started(tmp_path: Path) -> None:
    config = MessageStoreConfig(transaction_time_out=0, transaction_check_interval=20)
    with MessageStore.open(tmp_path, config) as store:
        registry, client = ClientRegistry(), AClient()
        registry.heartbeat(client, msgspec.convert(heartbeat(producers=["payments"]), HeartbeatData), "JAVA", 1)
        processor = processor_of(store, registry)
        processor.start_checks(asyncio.get_running_loop())
        prepare(store)
        await eventually(lambda: client.received)
        with pytest.raises(InvalidValue):
            processor.start_checks(asyncio.get_running_loop())


@on_a_loop
async def test_a_half_message_that_the_owner_before_prepared_is_committed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        handle = prepare(store)
    with MessageStore.open(tmp_path, CONFIG) as store:
        assert not (await end(store, handle, COMMIT)).code
        assert bodies(store) == [b"paid"]
