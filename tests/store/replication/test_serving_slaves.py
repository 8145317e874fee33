"""A master serves slaves: which bytes they get, in which frames, and how a connection ends."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import BrokerRole, Message, MessageStore, MessageStoreConfig
from commitlog_store.errors import InvalidValue, ListenFailed
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.replication.connection import HAConnection, MasterIdentity
from commitlog_store.replication.handshake import Security
from tests.store.owner.owned_store import SYNC, put_ok
from tests.store.replication.masters import ANY_PORT, fill, log_bytes, open_master, wait_for_slaves
from tests.support.scripted_slave import ScriptedSlave
from tests.support.waiting import wait_for

FILE_SIZE = 16 << 10


@pytest.mark.parametrize("batch_size", [1 << 10, 32 << 10])
def test_a_slave_gets_the_log_byte_for_byte_in_frames_that_cross_no_file(tmp_path: Path, batch_size: int) -> None:
    with open_master(tmp_path, ha_transfer_batch_size=batch_size) as store:
        end = fill(store)
        assert end > 2 * FILE_SIZE
        with ScriptedSlave(store.ha_address, 1) as slave:
            frames = slave.receive_up_to(end)
            assert slave.log == log_bytes(store, 1, end)
            assert max(frame.size for frame in frames) == min(batch_size, FILE_SIZE)
            for frame in frames:
                assert frame.physical_offset // FILE_SIZE == (frame.physical_offset + frame.size - 1) // FILE_SIZE
            more = fill(store)
            slave.receive_up_to(more)
            assert slave.log == log_bytes(store, 1, more)


def test_request_0_begins_with_the_last_file_and_any_other_where_it_says(tmp_path: Path) -> None:
    with open_master(tmp_path) as store:
        end = fill(store)
        for request, start in ((0, end - end % FILE_SIZE), (100, 100), (FILE_SIZE, FILE_SIZE)):
            with ScriptedSlave(store.ha_address, request) as slave:
                slave.receive_up_to(end)
                assert (slave.start, bytes(slave.log)) == (start, log_bytes(store, start, end))


def test_a_slave_of_a_new_store_gets_its_first_message(tmp_path: Path) -> None:
    with open_master(tmp_path) as store, ScriptedSlave(store.ha_address, 0) as slave:
        wait_for_slaves(store)
        put_ok(store)
        slave.receive_up_to(store.physical_bounds()[1])
        assert slave.start == 0


def _transaction(store: MessageStore) -> None:
    with store.transaction("loader", version=1) as batch:
        batch.put_messages(pa.table({"topic": ["orders"] * 50, "body": [b"x" * 1000] * 50}))


WAYS: dict[str, Callable[[MessageStore], object]] = {
    "put_message": put_ok,
    "put_message_batch": lambda store: store.put_message_batch([Message(topic="a", body=b"x", queue_id=0)] * 5),
    "put_messages": lambda store: store.put_messages(pa.table({"body": [b"x" * 1000] * 50}), topic="orders"),
    "transaction": _transaction,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("settings", [{}, {"flush_disk_type": SYNC}, {"transient_store_pool_enable": True}], ids=str)
def test_every_append_reaches_a_slave_that_waits(tmp_path: Path, way: str, settings: dict[str, Any]) -> None:
    with open_master(tmp_path, **settings) as store, ScriptedSlave(store.ha_address, 0) as slave:
        wait_for_slaves(store)
        WAYS[way](store)
        end = store.physical_bounds()[1]
        slave.receive_up_to(end)
        store.flush()
        assert slave.log == log_bytes(store, 0, end)


def test_an_idle_slave_gets_heartbeats_with_the_offset_of_the_next_byte(tmp_path: Path) -> None:
    with open_master(tmp_path, ha_send_heartbeat_interval=20) as store:
        end = fill(store, 1)
        with ScriptedSlave(store.ha_address, end) as slave:
            for _ in range(3):
                assert slave.receive() == (end, 0)
            put_ok(store)
            slave.receive_up_to(store.physical_bounds()[1])


def test_a_silent_peer_is_dropped_and_so_is_one_with_half_a_number(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_master(tmp_path, ha_housekeeping_interval=50) as store:
        end = fill(store)
        for said in (b"", b"\0\0\0", b"\0" * 7 + b"\1", b"\0" * 7 + b"\1\0\0"):
            with ScriptedSlave(store.ha_address) as slave:
                slave.say_bytes(said)
                assert slave.was_closed()
        wait_for(lambda: caplog.text.count("nothing was received from it for 0.") == 4)
        assert "but for 3 bytes of a number" in caplog.text
        wait_for(lambda: not store.slaves())
        assert store.physical_bounds()[1] == end


def test_bytes_of_a_number_that_never_ends_do_not_keep_a_connection_open() -> None:
    now = [0.0]
    ended: list[HAConnection] = []
    here, peer = socket.socketpair()
    files = MappedFileQueueWriter("/nowhere", FILE_SIZE)
    config = MessageStoreConfig(ha_housekeeping_interval=20_000)
    identity = MasterIdentity(Security(), 0, lambda *_: None)
    with peer:
        connection = HAConnection(here, "peer", files, config, identity, lambda: None, ended.append, lambda: now[0])
        for _ in range(7):
            peer.send(b"\0")
            connection.run_once()
            now[0] += 2.9
        assert not ended
        connection.run_once()
        assert ended == [connection]


def test_slaves_says_what_each_has(tmp_path: Path) -> None:
    with open_master(tmp_path) as store:
        assert store.slaves() == ()
        end = fill(store)
        with ScriptedSlave(store.ha_address, 1) as slave:
            slave.receive_up_to(end)
            (found,) = store.slaves()
            assert found.address.startswith("127.0.0.1:")
            assert found[1:] == (1, 1, end, end - 1)
            slave.say(end - 10)
            wait_for(lambda: store.slaves()[0].ack_offset == end - 10)
            assert store.stats().slaves == store.slaves()
            assert store.slaves()[0].behind == 10
        wait_for(lambda: not store.slaves())


@pytest.mark.parametrize("how", ["stopped", "slow"])
def test_a_slave_that_takes_nothing_costs_no_memory_and_gets_all_of_it_later(tmp_path: Path, how: str) -> None:
    with open_master(tmp_path, mapped_file_size_commit_log=8 << 20) as store:
        table = pa.table({"body": [os.urandom(64 << 10) for _ in range(64)]})
        with ScriptedSlave(store.ha_address, 0) as slave:
            wait_for_slaves(store)
            for _ in range(6):
                store.put_messages(table, topic="orders").raise_for_status()
                if how == "slow":
                    slave.receive()
            end = store.physical_bounds()[1]
            (found,) = store.slaves()
            assert found.sent_offset < end, "what the socket does not take is not made into frames"
            slave.receive_up_to(end)
            assert slave.log == log_bytes(store, 0, end)


def test_a_slave_whose_file_retention_removes_is_dropped_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_master(tmp_path, mapped_file_size_commit_log=8 << 20) as store:
        table = pa.table({"body": [b"x" * (64 << 10)] * 64})
        with ScriptedSlave(store.ha_address, 0) as slave:
            wait_for_slaves(store)
            for _ in range(8):
                store.put_messages(table, topic="orders").raise_for_status()
            store.flush()
            assert store.clean(max_bytes=1).freed_bytes
            assert slave.was_closed()
            assert "retention has removed " in caplog.text
            assert str(tmp_path / "commitlog") in caplog.text


def test_a_file_that_another_program_cuts_ends_the_connection_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_master(tmp_path) as store:
        fill(store)
        store.flush()
        store.dispatch()
        first = tmp_path / "commitlog" / f"{0:020d}"
        os.truncate(first, 5_000)
        with ScriptedSlave(store.ha_address, 1) as slave:
            assert slave.was_closed()
            assert slave.end == 5_000
        assert f"{first} holds " in caplog.text


def test_a_slave_that_asks_for_what_retention_has_removed_gets_heartbeats_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As RocketMQ does: a follower recognizes it."""
    with open_master(tmp_path, ha_send_heartbeat_interval=20, broker_role=BrokerRole.SYNC_MASTER) as store:
        store.put_messages(pa.table({"body": [b"x" * 400] * 100}), topic="orders")
        store.flush()
        assert store.clean(max_bytes=1).freed_bytes
        with ScriptedSlave(store.ha_address, 1) as slave:
            assert [slave.receive() for _ in range(3)] == [(1, 0)] * 3
            wait_for(lambda: "and the log begins at" in caplog.text)
            result = store.put_message(Message(topic="orders", body=b"x", queue_id=0))
            assert result.status.name == "SLAVE_NOT_AVAILABLE", "it would be waited for in vain"


JUNK = {
    "negative": ([-1], "asks for physical offset -1, which is negative"),
    "past the end": ([1 << 40], "asks for physical offset 1099511627776, and the log ends at"),
    "an acknowledgement past the end": ([1, 1 << 40], "acknowledges physical offset 1099511627776, and the log ends"),
    "a negative acknowledgement": ([1, -5], "acknowledges physical offset -5, after 1"),
    "an acknowledgement that goes back": ([1000, 999], "acknowledges physical offset 999, after 1000"),
}


@pytest.mark.parametrize("junk", JUNK)
def test_junk_is_dropped_by_name_and_moves_no_position(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, junk: str
) -> None:
    numbers, words = JUNK[junk]
    with open_master(tmp_path) as store, ScriptedSlave(store.ha_address, 1) as good:
        end = fill(store)
        with ScriptedSlave(store.ha_address) as bad:
            bad.say(numbers[0])
            if len(numbers) > 1:
                wait_for_slaves(store, 2)
                bad.say(numbers[1])
            elif numbers[0] > end:
                assert bad.receive() == (end, 0), "it gets the end of the log"
            assert bad.was_closed()
        assert words in caplog.text
        assert "WARNING" in [record.levelname for record in caplog.records]
        assert store.physical_bounds()[1] == end
        assert len(store.slaves()) == 1
        put_ok(store)
        good.receive_up_to(store.physical_bounds()[1])


def test_random_bytes_are_dropped(tmp_path: Path) -> None:
    with open_master(tmp_path) as store:
        fill(store)
        for seed in range(20):
            junk = os.urandom(8 + seed * 100)
            with ScriptedSlave(store.ha_address) as bad:
                bad.say_bytes(junk)
                assert bad.was_closed()
        wait_for(lambda: not store.slaves())
        put_ok(store)


def test_only_allowed_addresses_are_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_master(tmp_path, ha_allow="10.1.2.0/24, 192.168.0.1") as store, ScriptedSlave(store.ha_address) as slave:
        assert slave.was_closed()
        assert store.slaves() == ()
        assert "is not allowed to connect as a slave (ha_allow)" in caplog.text
    with open_master(tmp_path, ha_allow="127.0.0.0/8") as store, ScriptedSlave(store.ha_address, 0):
        wait_for_slaves(store)


def test_the_number_of_slaves_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_master(tmp_path) as store:
        slaves = [ScriptedSlave(store.ha_address, 0) for _ in range(16)]
        wait_for_slaves(store, 16)
        with ScriptedSlave(store.ha_address, 0) as more:
            assert more.was_closed()
        assert "is not served: 16 are connected" in caplog.text
        for slave in slaves:
            slave.close()
        wait_for(lambda: not store.slaves())
        with ScriptedSlave(store.ha_address, 0):
            wait_for_slaves(store)


def test_closing_the_store_ends_its_connections_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_master(tmp_path) as store:
        address = store.ha_address
        slave = ScriptedSlave(address, 0)
        wait_for_slaves(store)
    assert slave.was_closed()
    slave.close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    with pytest.raises(ConnectionRefusedError):
        ScriptedSlave(address)


def test_a_slave_that_is_killed_has_left_without_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_master(tmp_path) as store:
        slave = ScriptedSlave(store.ha_address, 0)
        wait_for_slaves(store)
        slave.reset()
        wait_for(lambda: not store.slaves())
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_address_in_use_is_refused_by_name_and_the_store_is_released(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ListenFailed, match=f"Cannot listen for slaves on {address}: Address already in use"):
            open_master(tmp_path, ha_listen_address=address)
    with open_master(tmp_path, ha_listen_address=address) as store:
        assert store.ha_address == address


def test_a_forked_child_does_not_keep_the_port(tmp_path: Path) -> None:
    with open_master(tmp_path) as store:
        address = store.ha_address
        reader, writer = os.pipe()
        runs, is_running = os.pipe()
        child = os.fork()
        if not child:
            os.close(writer)
            os.write(is_running, b"1")  # what a fork does in the child is done
            os.read(reader, 1)  # until the parent is done
            os._exit(0)
        assert os.read(runs, 1) == b"1"
        for one in (reader, runs, is_running):
            os.close(one)
    with open_master(tmp_path, ha_listen_address=address):
        pass
    os.close(writer)
    os.waitpid(child, 0)


def test_an_asynchronous_master_listens_only_if_asked_to(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path) as store:
        assert (store.ha_address, store.slaves()) == (None, ())
    assert MessageStoreConfig(broker_role=BrokerRole.SYNC_MASTER).ha_address == ("127.0.0.1", 10912)


@pytest.mark.parametrize("address", ["0.0.0.0:10912", "10.0.0.1:1", "[::]:10912", "[2001:db8::1]:1"])
def test_an_address_that_others_reach_needs_the_addresses_that_may_connect(address: str) -> None:
    with pytest.raises(InvalidValue, match="is not a loopback address: name the addresses"):
        MessageStoreConfig(ha_listen_address=address)
    assert MessageStoreConfig(ha_listen_address=address, ha_allow="10.0.0.0/8").ha_address is not None


@pytest.mark.parametrize("address", ["localhost", "localhost:", "host:1", "127.0.0.1:65536", "127.0.0.1:-1", ":1"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidValue, match="ha_listen_address is HOST:PORT"):
        MessageStoreConfig(ha_listen_address=address)


def test_networks_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidValue, match="ha_allow is IP addresses and networks"):
        MessageStoreConfig(ha_listen_address=ANY_PORT, ha_allow="10.0.0.0/8, everyone")


def test_ipv6_is_served(tmp_path: Path) -> None:
    with open_master(tmp_path, ha_listen_address="[::1]:0", ha_allow="::1") as store:
        end = fill(store)
        with ScriptedSlave(store.ha_address, 1) as slave:
            slave.receive_up_to(end)
            assert store.slaves()[0].address.startswith("[::1]:")
