"""RocketMQ's own store as a slave of ours: its log is ours, byte for byte, and its acknowledgements are waited for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import BrokerRole, FlushDiskType, Message, MessageStore, MessageStoreConfig, verify_store
from tests.interop.rocketmq import RocketMq, message_store_settings
from tests.interop.store_process import StoreProcess
from tests.support.waiting import wait_for

FILE_SIZE = 64 << 10
FILES = {"mapped_file_size_commit_log": FILE_SIZE, "mapped_file_size_consume_queue": 2000}


def open_master(path: Path, **settings: Any) -> MessageStore:
    given = {
        **FILES,
        "broker_role": BrokerRole.SYNC_MASTER,
        "ha_listen_address": "127.0.0.1:0",
        "slave_timeout_ms": 60_000,
        **settings,
    }
    return MessageStore.open(path, MessageStoreConfig.from_mapping(message_store_settings(given)))


def open_slave(rocketmq: RocketMq, path: Path, store: MessageStore) -> StoreProcess:
    slave = rocketmq.open(
        path,
        {**FILES, "broker_role": "SLAVE", "ha_master_address": store.ha_address, "ha_send_heartbeat_interval": 100},
    )
    wait_for(lambda: any(one.request_offset >= 0 for one in store.slaves()))
    return slave


def fill(store: MessageStore, name: str) -> None:
    """All ways of putting; more than a file of it. Each is acknowledged by the slave."""
    for number in range(100):
        body = f"{name} {number}".encode() * 40
        assert store.put_message(Message(topic="orders", body=body, keys=[f"{name}-{number}"], tags="paid")).ok
    assert store.put_message_batch([Message(topic="orders", body=b"of a batch", queue_id=1)] * 10).ok
    table = pa.table({"topic": ["orders", "audit"] * 50, "body": [b"x" * 500] * 100})
    assert store.put_messages(table).ok
    with store.transaction(name, version=1) as batch:
        batch.put_messages(table)


def log_bytes(path: Path, end: int) -> bytes:
    files = sorted(file for file in (path / "commitlog").iterdir() if file.name.isdigit())
    assert int(files[0].name) == 0
    return b"".join(file.read_bytes() for file in files)[:end]


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_its_log_is_ours_and_it_acknowledges_every_way_of_putting(
    rocketmq: RocketMq, tmp_path: Path, flush: FlushDiskType
) -> None:
    master, mirror = tmp_path / "master", tmp_path / "slave"
    with open_master(master, flush_disk_type=flush) as store:
        with open_slave(rocketmq, mirror, store) as slave:
            fill(store, "first")
            slave.kill()
        wait_for(lambda: not store.slaves())
        assert store.put_message(Message(topic="orders", body=b"x")).status.name == "SLAVE_NOT_AVAILABLE"
        with open_slave(rocketmq, mirror, store) as slave:  # it goes on where it was
            fill(store, "second")
            end = store.physical_bounds()[1]
            assert end > 3 * FILE_SIZE
            assert store.slaves()[0].ack_offset == end
            assert slave.ask("describe")["maxPhysicalOffset"] == end
            slave.close()
        store.flush()
        assert log_bytes(mirror, end) == log_bytes(master, end)
    assert list(verify_store(mirror)) == []


def test_it_catches_up_after_its_master_was_closed(rocketmq: RocketMq, tmp_path: Path) -> None:
    """It connects again by itself, after five seconds."""
    with open_master(tmp_path / "master") as store:
        slave = open_slave(rocketmq, tmp_path / "slave", store)
        address = store.ha_address
        assert store.put_message(Message(topic="orders", body=b"x")).ok
    with slave, open_master(tmp_path / "master", ha_listen_address=address) as store:
        wait_for(lambda: any(one.request_offset >= 0 for one in store.slaves()))
        fill(store, "after")
        end = store.physical_bounds()[1]
        assert slave.ask("describe")["maxPhysicalOffset"] == end
        assert log_bytes(tmp_path / "slave", end) == log_bytes(tmp_path / "master", end)
