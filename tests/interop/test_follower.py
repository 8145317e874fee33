"""``LogFollower`` with RocketMQ's own store as its master."""

from __future__ import annotations

import base64
import dataclasses
import socket
import time
from pathlib import Path

from commitlog_store import LogFollower, MessageStore, MessageStoreConfig, StoreReader, promote, verify_store
from tests.interop.command_process import Json
from tests.interop.rocketmq import RocketMq, message_store_settings
from tests.store.follower.mirrors import log_bytes
from tests.support.waiting import WAIT_LIMIT_S, wait_for

SETTINGS: dict[str, object] = {
    "mapped_file_size_commit_log": 256 << 10,
    "mapped_file_size_consume_queue": 100 * 20,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
}
CONFIG = MessageStoreConfig.from_mapping(message_store_settings(SETTINGS))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
        return port


def put_of(number: int) -> Json:
    """The operation that puts one message of about 1 KB."""
    one = {
        "topic": "orders",
        "queueId": number % 3,
        "body": base64.b64encode(b"%d " % number * 200).decode(),
        "bornHost": "10.1.2.3:40000",
        "storeHost": "10.1.2.4:10911",
        "bornTimestamp": 1_700_000_000_000 + number,
        "tags": "paid",
        "keys": [f"k{number}"],
        "properties": {},
    }
    return {"kind": "message", "messages": [one]}


def test_a_mirror_of_rocketmq_is_byte_identical_and_is_promoted(rocketmq: RocketMq, tmp_path: Path) -> None:
    port = free_port()
    path, mirror = tmp_path / "master", tmp_path / "mirror"
    with rocketmq.open(path, {**SETTINGS, "ha_listen_port": port}) as process:
        for number in range(400):
            process.ask("put", **put_of(number))
        with LogFollower(f"127.0.0.1:{port}", mirror, ack="synced", config=CONFIG) as follower:
            for number in range(400, 800):
                process.ask("put", **put_of(number))
            described = process.ask("describe")
            end = int(described["maxPhysicalOffset"])
            assert follower.wait_for(end, timeout_s=WAIT_LIMIT_S)
            with StoreReader.open(mirror) as reader:
                assert sum(one.max_offset for one in reader.queues("orders")) == 800
        process.close()
    assert log_bytes(mirror, 0, end) == log_bytes(path, 0, end)
    assert list(verify_store(mirror)) == []
    assert promote(mirror).end == end
    with MessageStore.open(mirror, CONFIG) as store:
        store.put("orders", b"own")
    assert list(verify_store(mirror)) == []


def test_a_sync_master_of_rocketmq_waits_for_the_follower(rocketmq: RocketMq, tmp_path: Path) -> None:
    port = free_port()
    settings = {**SETTINGS, "ha_listen_port": port, "broker_role": "SYNC_MASTER"}
    with rocketmq.open(tmp_path / "master", settings) as process:
        alone = process.ask("put", **put_of(0))
        config = dataclasses.replace(CONFIG, ha_send_heartbeat_interval=1_000)
        with LogFollower(f"127.0.0.1:{port}", tmp_path / "mirror", ack="synced", config=config) as follower:
            wait_for(lambda: follower.status.connected and follower.status.end > 0)
            time.sleep(0.1)  # the first acknowledgement is on its way
            statuses = {process.ask("put", **put_of(number))["status"] for number in range(1, 50)}
        assert statuses == {"PUT_OK"}
        if not rocketmq.is_five:  # with inSyncReplicas 1, 5.x does not wait
            assert alone["status"] == "SLAVE_NOT_AVAILABLE"
