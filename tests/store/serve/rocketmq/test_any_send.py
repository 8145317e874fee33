"""Whatever a producer sends is answered, and what is acknowledged is in the store: no send damages the log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from commitlog_store import MessageStore, StoreReader
from commitlog_store.format.remoting_command import RemotingCommand
from commitlog_store.serve.rocketmq.answering import RequestFault
from commitlog_store.serve.rocketmq.codes import RequestCode, ResponseCode
from commitlog_store.serve.rocketmq.processors.send_message import SendMessageProcessor
from commitlog_store.serve.rocketmq.store_puts import StorePuts
from commitlog_store.store import owned_by
from tests.store.serve.rocketmq.asking import AClient, ask
from tests.store.serve.rocketmq.remoting_client import batch_body, send_fields

SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
SMALL = st.integers(-(2**31), 2**31 - 1)
# Bits of the system flag, among them those of hosts and of what this store does not keep. COMPRESSED_FLAG is not one:
# a body that is not compressed is stored as a broker stores it, and readers report it.
SYS_FLAGS = st.sampled_from([0, *(1 << bit for bit in range(1, 17)), 3 << 4, -2])
NAMES = st.sampled_from(
    [
        *("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "DELAY", "TRAN_MSG", "PGROUP", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"),
        *("INNER_NUM", "INNER_BASE", "INNER_MULTI_DISPATCH", "REAL_TOPIC", "REAL_QID", "__SHARDINGKEY", "name", ""),
    ]
)
VALUES = st.sampled_from(["", "a", "true", "false", "0", "3", "-1", "99999999999999999999", "k1 k2", "wässrig 水"])
PROPERTIES = st.dictionaries(NAMES, VALUES, max_size=4)
TEXTS = st.text(alphabet="\x00\x01\x02ab=水", max_size=12)
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2", "fe80::1%eth0"])
BATCHES = st.lists(st.tuples(st.binary(max_size=20), PROPERTIES | st.just({})), min_size=1, max_size=4)


class _Client(AClient):
    def __init__(self, host: str) -> None:
        super().__init__()
        self.address = host, 50_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "s") as opened:
        opened.create_topic("orders", 4)
        yield opened


def _processor(store: MessageStore) -> SendMessageProcessor:
    owned = owned_by(store)
    puts = StorePuts(owned, asyncio.get_running_loop())
    return SendMessageProcessor(puts, owned.engine.topics, lambda _: 16, asyncio.to_thread, models={})


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    code=st.sampled_from(SENDS),
    host=HOSTS,
    properties=PROPERTIES.map(lambda found: "".join(f"{name}\x01{value}\x02" for name, value in found.items())) | TEXTS,
    fields=st.fixed_dictionaries(
        {"f": SYS_FLAGS},
        optional={"e": st.integers(-1, 4), "g": SMALL, "h": SMALL, "j": SMALL, "m": st.booleans()},
    ),
    body=BATCHES.map(lambda batch: batch_body([*batch])) | st.binary(max_size=40),
)
def test_what_is_acknowledged_is_in_the_log_and_the_queues_go_on(
    store: MessageStore, code: RequestCode, host: str, properties: str, fields: dict[str, object], body: bytes
) -> None:
    given_fields = {**send_fields("orders"), "i": properties, **fields}

    async def send(given_fields: dict[str, object], code: RequestCode, body: bytes) -> RemotingCommand:
        try:
            return await ask(_processor(store), code, given_fields, body, client=_Client(host))
        except RequestFault as fault:
            return RemotingCommand(code=fault.code)

    answer = asyncio.run(send({**given_fields, "m": str(given_fields.get("m", False)).lower()}, code, body))
    after = asyncio.run(send(send_fields("orders", 0, {"UNIQ_KEY": "after"}), RequestCode.SEND_MESSAGE_V2, b"after"))
    assert after.code == ResponseCode.SUCCESS
    store.dispatch()
    with StoreReader.open(store.path) as reader:
        found = {one: reader.message_by_id(one) for one in answer.fields.get("msgId", "").split(",") if one}
        assert bool(found) == (answer.code == ResponseCode.SUCCESS)
        assert reader.message_by_id(after.fields["msgId"]).body == b"after"
        assert reader.get_message("orders", 0, int(after.fields["queueOffset"])).messages[0].body == b"after"
