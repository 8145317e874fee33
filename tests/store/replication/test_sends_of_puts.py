"""A put under SYNC_MASTER that is alone sends to idle slaves by itself, whatever a slave or a signal handler does."""

from __future__ import annotations

import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageStore, PutMessageStatus
from commitlog_store.errors import StoreClosed
from commitlog_store.replication.connection import HAConnection
from commitlog_store.testing import parts_of
from tests.store.follower.mirrors import assert_identical, follow
from tests.store.owner.owned_store import SYNC
from tests.store.replication.masters import SYNC_MASTER, log_bytes, open_master, wait_for_slaves
from tests.support.interrupter import Interrupter
from tests.support.scripted_slave import ScriptedSlave
from tests.support.waiting import WAIT_LIMIT_S, wait_for

MESSAGE = Message(topic="orders", body=b"x" * 100, queue_id=0)
CONNECTION = ("replication/connection.py",)
NOT_CONFIRMED = (PutMessageStatus.SLAVE_NOT_AVAILABLE, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)
DISKS = pytest.mark.parametrize("disk", [{}, {"flush_disk_type": SYNC}], ids=["ASYNC_FLUSH", "SYNC_FLUSH"])


def open_sync_master(path: Path, **settings: Any) -> MessageStore:
    return open_master(path, **{"broker_role": SYNC_MASTER, "slave_timeout_ms": 1000 * WAIT_LIMIT_S} | settings)


def put_ok(store: MessageStore) -> None:
    assert store.put_message(MESSAGE).status is PutMessageStatus.PUT_OK


def wait_until_idle(store: MessageStore) -> None:
    """Return when the threads of all slaves wait for an append, and the slaves have everything."""
    end = store.physical_bounds()[1]
    connections = parts_of(store).replication.connections
    wait_for(lambda: connections and all(one.idle_at == one.ack_offset == end for one in connections))


def note_wakes(patch: pytest.MonkeyPatch) -> list[bool]:
    """Count how often the thread of a connection is woken."""
    wakes: list[bool] = []
    original = HAConnection.wake

    def wake(connection: HAConnection) -> None:
        wakes.append(True)
        original(connection)

    patch.setattr(HAConnection, "wake", wake)
    return wakes


@DISKS
def test_a_put_that_is_alone_wakes_no_other_thread_to_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: dict[str, Any]
) -> None:
    with open_sync_master(tmp_path, **disk) as store, ScriptedSlave(store.ha_address, 0).follow() as slave:
        wait_for_slaves(store)
        put_ok(store)  # the connection opens the log's file
        wakes = note_wakes(monkeypatch)
        for _ in range(10):
            wait_until_idle(store)
            put_ok(store)
        assert not wakes
        assert slave.end == store.physical_bounds()[1]
        assert slave.log == log_bytes(store, 0, slave.end)


def test_puts_of_several_threads_and_of_other_kinds_all_get_there(tmp_path: Path) -> None:
    with (
        open_sync_master(tmp_path, in_sync_replicas=3, flush_disk_type=SYNC) as store,
        ScriptedSlave(store.ha_address, 0).follow() as one,
        ScriptedSlave(store.ha_address, 0).follow() as two,
        ThreadPoolExecutor(8) as threads,
    ):
        wait_for_slaves(store, 2)
        for putting in [threads.submit(put_ok, store) for _ in range(400)]:
            putting.result()
        store.put_messages(pa.table({"body": [b"x" * 200] * 400}), topic="orders").raise_for_status()
        put_ok(store)
        end = store.physical_bounds()[1]
        assert (one.end, two.end) == (end, end)
        assert one.log == two.log == log_bytes(store, 0, end)


def test_a_slave_that_takes_nothing_gets_all_of_it_later(tmp_path: Path) -> None:
    """Puts fill the socket: what it does not take is left to the connection's thread."""
    large = Message(topic="orders", body=b"x" * (30 << 10), queue_id=0)
    with (
        open_sync_master(tmp_path, slave_timeout_ms=1, mapped_file_size_commit_log=16 << 20) as store,
        ScriptedSlave(store.ha_address, 0) as slave,
    ):
        wait_for_slaves(store)
        while not any(one.sent_offset < store.physical_bounds()[1] for one in store.slaves()):
            assert store.put_message(large).status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        end = store.physical_bounds()[1]
        slave.receive_up_to(end)
        assert slave.log == log_bytes(store, 0, end)


def test_a_connection_that_breaks_fails_no_put(tmp_path: Path) -> None:
    with open_sync_master(tmp_path, slave_timeout_ms=100) as store:
        for _ in range(5):
            slave = ScriptedSlave(store.ha_address, 0)
            wait_for_slaves(store)
            store.put_message(MESSAGE)
            slave.reset()
            while store.slaves():
                assert store.put_message(MESSAGE).status in NOT_CONFIRMED
            assert store.put_message(MESSAGE).status is PutMessageStatus.SLAVE_NOT_AVAILABLE
        with follow(store, tmp_path / "mirror") as follower:
            assert_identical(store, follower)


def test_a_put_that_is_interrupted_at_any_line_of_its_send_leaves_a_mirror_that_follows(tmp_path: Path) -> None:
    """The slave has the frame or not, and the master does not know: it drops the slave, which connects again."""
    settings = {"mapped_file_size_commit_log": 1 << 20}
    with (
        open_sync_master(tmp_path / "master", slave_timeout_ms=50, **settings) as store,
        follow(store, tmp_path / "mirror", ack="received", settings=settings) as follower,
    ):
        wait_for(lambda: store.put_message(MESSAGE).ok)
        places = set()
        for turn in range(1, 60, 2):
            wait_until_idle(store)
            interrupter = Interrupter(turn, CONNECTION)
            with contextlib.suppress(KeyboardInterrupt):
                interrupter.run(lambda: store.put_message(MESSAGE))
            wait_for(lambda: store.put_message(MESSAGE).ok)
            places.add(interrupter.where)
        assert len(places) > 12
        assert_identical(store, follower)


def test_a_handler_that_closes_at_any_line_of_the_send_lets_the_put_end(tmp_path: Path) -> None:
    for turn in itertools.count(1, 9):
        with (
            open_sync_master(tmp_path / str(turn)) as store,
            ScriptedSlave(store.ha_address, 0).follow() as slave,
        ):
            wait_for_slaves(store)
            put_ok(store)
            wait_until_idle(store)
            interrupter = Interrupter(turn, CONNECTION, store.close)
            interrupter.run(lambda store=store: put_ok(store))  # type: ignore[misc]
            if interrupter.where:
                with pytest.raises(StoreClosed):
                    store.put_message(MESSAGE)
                slave.wait_until_closed()
        if not interrupter.where:
            return
