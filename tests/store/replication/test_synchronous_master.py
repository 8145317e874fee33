"""Under SYNC_MASTER a put or a commit is acknowledged when slaves have it, or its status says that they have not."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import (
    BatchId,
    BatchStager,
    HalfMessageHandle,
    Message,
    MessageExtBrokerInner,
    MessageStore,
    PutMessageStatus,
)
from commitlog_store.errors import HalfMessageEnded, PutNotConfirmed
from tests.store.owner.owned_store import SYNC, Gate, open_store, put_ok
from tests.store.replication.masters import ANY_PORT, SYNC_MASTER, wait_for_slaves
from tests.support.scripted_slave import ScriptedSlave
from tests.support.stored_bodies import bodies
from tests.support.waiting import WAIT_LIMIT_S, wait_for

NOT_AVAILABLE, TIMEOUT = PutMessageStatus.SLAVE_NOT_AVAILABLE, PutMessageStatus.FLUSH_SLAVE_TIMEOUT
MESSAGE = Message(topic="orders", body=b"x", queue_id=0)


@pytest.fixture
def sync_gate(monkeypatch: pytest.MonkeyPatch) -> Any:
    with Gate.within(monkeypatch, "sync") as gate:
        yield gate


def open_master(path: Path, **settings: Any) -> MessageStore:
    """One that waits as long as a busy machine may need, unless a test says otherwise."""
    given = {"broker_role": SYNC_MASTER, "ha_listen_address": ANY_PORT, "slave_timeout_ms": 1000 * WAIT_LIMIT_S}
    return open_store(path, **given | settings)


def _status_of(work: Callable[[], object]) -> PutMessageStatus:
    with pytest.raises(PutNotConfirmed) as raised:
        work()
    return raised.value.status


def _put(store: MessageStore) -> PutMessageStatus:
    return store.put_message(MESSAGE).status


def _put_inner(store: MessageStore) -> PutMessageStatus:
    return store.put_message(MessageExtBrokerInner(topic="orders", body=b"x", queue_id=0)).status


def _put_batch(store: MessageStore) -> PutMessageStatus:
    return store.put_message_batch([MESSAGE, MESSAGE]).status


def _put_table(store: MessageStore) -> PutMessageStatus:
    result = store.put_messages(pa.table({"topic": ["orders", "no topic!", "orders"], "body": [b"a", b"b", b"c"]}))
    first, refused, last = result.rows["status"].to_pylist()
    assert (first, refused, result.message_num) == (last, "MESSAGE_ILLEGAL", 2)
    return PutMessageStatus(first)


def _aput(store: MessageStore) -> PutMessageStatus:
    async def put() -> PutMessageStatus:
        try:
            return (await store.aput("orders", b"x")).status
        except PutNotConfirmed as error:
            return error.status

    return asyncio.run(put())


def _commit(work: Callable[[], object]) -> PutMessageStatus:
    try:
        work()
    except PutNotConfirmed as error:
        return error.status
    return PutMessageStatus.PUT_OK


def _transact(store: MessageStore, version: int = 1) -> None:
    with store.transaction("loader", version=version) as batch:
        if not batch.already_there:
            batch.put_messages(pa.table({"topic": ["orders"], "body": [b"of the batch"]}))


def _commit_staged(store: MessageStore) -> None:
    batch = BatchId("staged", 1)
    with BatchStager(store.path, batch, queue_counts={"orders": 4}, topic="orders") as stager:
        stager.put(pa.table({"body": [b"x"]}))
        staged = stager.finish()
    assert staged is not None
    store.commit_batch(batch, [staged])


def _half(store: MessageStore) -> None:
    unwaited = dataclasses.replace(MESSAGE, properties={"WAIT": "false"})
    store.half_messages.commit(store.half_messages.prepare(unwaited, "producers"))


WAYS: dict[str, Callable[[MessageStore], PutMessageStatus]] = {
    "put_message": _put,
    "a broker's message": _put_inner,
    "put_message_batch": _put_batch,
    "put_messages": _put_table,
    "aput": _aput,
    "transaction": lambda store: _commit(lambda: _transact(store)),
    "commit_batch": lambda store: _commit(lambda: _commit_staged(store)),
    "half message": lambda store: _commit(lambda: _half(store)),
}
DISKS = pytest.mark.parametrize("disk", [{}, {"flush_disk_type": SYNC}], ids=["ASYNC_FLUSH", "SYNC_FLUSH"])


@DISKS
@pytest.mark.parametrize("way", WAYS)
def test_without_a_slave_it_is_stored_and_the_status_says_so_at_once(
    tmp_path: Path, way: str, disk: dict[str, Any]
) -> None:
    with open_master(tmp_path, **disk) as store:
        assert WAYS[way](store) is NOT_AVAILABLE
        assert bodies(store)


@DISKS
@pytest.mark.parametrize("way", WAYS)
def test_a_slave_that_acknowledges_makes_it_ok(tmp_path: Path, way: str, disk: dict[str, Any]) -> None:
    with open_master(tmp_path, **disk) as store, ScriptedSlave(store.ha_address, 0).follow() as slave:
        wait_for_slaves(store)
        assert WAYS[way](store) is PutMessageStatus.PUT_OK
        assert slave.end == store.physical_bounds()[1]


@pytest.mark.parametrize("way", WAYS)
def test_a_slave_that_is_silent_makes_it_time_out(tmp_path: Path, way: str) -> None:
    with open_master(tmp_path, slave_timeout_ms=20) as store, ScriptedSlave(store.ha_address, 0) as slave:
        wait_for_slaves(store)
        assert WAYS[way](store) is TIMEOUT
        end = store.physical_bounds()[1]
        slave.receive_up_to(end)
        slave.say(end)
        wait_for(lambda: store.slaves()[0].ack_offset == end)
        assert bodies(store)


def test_a_message_that_does_not_wait_does_not_wait_for_slaves_either(tmp_path: Path) -> None:
    with open_master(tmp_path) as store:
        put_ok(store, properties={"WAIT": "false"})
        table = pa.table(
            {
                "topic": ["orders"],
                "body": [b"x"],
                "properties": pa.array([[("WAIT", "false")]], pa.map_(pa.string(), pa.string())),
            }
        )
        assert store.put_messages(table).ok


def test_the_reason_says_how_many_slaves_are_missing(tmp_path: Path) -> None:
    with open_master(tmp_path, in_sync_replicas=3) as store, ScriptedSlave(store.ha_address, 0):
        wait_for_slaves(store)
        assert "of 2 slave(s) to wait for, 1 are connected" in store.put_message(MESSAGE).reason


def test_two_slaves_are_waited_for_and_one_more_may_lag(tmp_path: Path) -> None:
    with (
        open_master(tmp_path, in_sync_replicas=3) as store,
        ScriptedSlave(store.ha_address, 0) as first,
        ScriptedSlave(store.ha_address, 0) as second,
        ScriptedSlave(store.ha_address, 0),
        ThreadPoolExecutor() as threads,
    ):
        wait_for_slaves(store, 3)
        putting = threads.submit(store.put_message, MESSAGE)
        wait_for(lambda: store.physical_bounds()[1])
        end = store.physical_bounds()[1]
        for slave in (first, second):
            assert not putting.done()
            slave.receive_up_to(end)
            slave.say(end - 1)
            assert not putting.done()
            slave.say(end)
        assert putting.result().ok


def test_one_replica_is_the_master_itself_and_waits_for_none(tmp_path: Path) -> None:
    with open_master(tmp_path, in_sync_replicas=1) as store:
        put_ok(store)


def test_a_slave_too_far_behind_does_not_count(tmp_path: Path) -> None:
    with open_master(tmp_path, ha_slave_fallbehind_max=100) as store, ScriptedSlave(store.ha_address, 0) as slave:
        wait_for_slaves(store)
        result = store.put_message(dataclasses.replace(MESSAGE, body=b"x" * 100))
        assert result.status is NOT_AVAILABLE
        end = store.physical_bounds()[1]
        slave.receive_up_to(end)
        slave.say(end)
        wait_for(lambda: store.slaves()[0].behind == 0)
        slave.follow()
        put_ok(store, body=b"")


def test_an_acknowledgement_of_what_was_not_sent_counts_for_nothing(tmp_path: Path) -> None:
    """The slave asks from far before the end, takes nothing, and claims all of it."""
    with open_master(tmp_path, slave_timeout_ms=20, mapped_file_size_commit_log=32 << 20) as store:
        for _ in range(6):
            store.put_messages(pa.table({"topic": ["orders"] * 64, "body": [b"x" * (64 << 10)] * 64}))
        with ScriptedSlave(store.ha_address, 1) as slave:
            wait_for_slaves(store)
            end = store.physical_bounds()[1]
            slave.say(end)
            assert store.put_message(MESSAGE).status is TIMEOUT
            assert store.slaves()[0].ack_offset < end


def test_slaves_get_the_bytes_while_the_device_still_works(tmp_path: Path, sync_gate: Gate) -> None:
    with (
        open_master(tmp_path, flush_disk_type=SYNC) as store,
        ScriptedSlave(store.ha_address, 0) as slave,
        ThreadPoolExecutor() as threads,
    ):
        wait_for_slaves(store)
        sync_gate.shut()
        putting = threads.submit(store.put_message, MESSAGE)
        assert sync_gate.reached.wait(WAIT_LIMIT_S)
        end = store.physical_bounds()[1]
        slave.receive_up_to(end)
        slave.say(end)
        wait_for(lambda: store.slaves()[0].ack_offset == end)
        assert not putting.done(), "a slave does not replace the device"
        sync_gate.open()
        assert putting.result().ok


def test_the_status_of_slaves_comes_before_that_of_a_slow_device(tmp_path: Path, sync_gate: Gate) -> None:
    with open_master(tmp_path, flush_disk_type=SYNC, sync_flush_timeout=20, slave_timeout_ms=20) as store:
        sync_gate.shut()
        blocked = threading.Thread(target=store.put_message, args=(MESSAGE,))
        blocked.start()
        assert sync_gate.reached.wait(WAIT_LIMIT_S)
        assert store.put_message(MESSAGE).status is NOT_AVAILABLE
        with ScriptedSlave(store.ha_address, 0) as silent:
            wait_for_slaves(store)
            assert store.put_message(MESSAGE).status is TIMEOUT
            silent.follow()
            assert store.put_message(MESSAGE).status in (PutMessageStatus.FLUSH_DISK_TIMEOUT, TIMEOUT)
        sync_gate.open()
        blocked.join()


def test_a_failed_sync_stays_unknown_whatever_slaves_say(tmp_path: Path, sync_gate: Gate) -> None:
    with open_master(tmp_path, flush_disk_type=SYNC) as store, ScriptedSlave(store.ha_address, 0).follow():
        wait_for_slaves(store)
        sync_gate.fail()
        assert store.put_message(MESSAGE).status is PutMessageStatus.UNKNOWN_ERROR
        assert not store.writable


def test_a_batch_that_slaves_lack_is_committed_and_a_repeated_commit_waits_for_them(tmp_path: Path) -> None:
    with open_master(tmp_path) as store:
        assert _status_of(lambda: _transact(store)) is NOT_AVAILABLE
        assert [batch.batch.version for batch in store.batches()] == [1]
        assert bodies(store) == [b"of the batch"]
        assert _status_of(lambda: _transact(store)) is NOT_AVAILABLE, "it is not acknowledged by its repetition"
        with ScriptedSlave(store.ha_address, 0).follow():
            wait_for_slaves(store)
            _transact(store)
        assert bodies(store) == [b"of the batch"]
        _transact(store)  # what a slave had when it left, it has


def test_a_commit_that_waits_for_slaves_keeps_no_other_from_the_log(tmp_path: Path) -> None:
    with (
        open_master(tmp_path) as store,
        ScriptedSlave(store.ha_address, 0) as slave,
        ThreadPoolExecutor() as threads,
    ):
        wait_for_slaves(store)
        putting = threads.submit(store.put_message, MESSAGE)
        committing = []
        for version in (1, 2):
            committing.append(threads.submit(_transact, store, version))
            wait_for(lambda: store.batches() and store.batches()[0].batch.version == len(committing))
        assert not any(one.done() for one in committing)
        slave.follow()
        for one in committing:
            one.result()
        assert putting.result().ok


def test_a_half_message_that_slaves_lack_has_ended_all_the_same(tmp_path: Path) -> None:
    with open_master(tmp_path) as store:
        half = store.half_messages
        assert _status_of(lambda: half.prepare(MESSAGE, "producers")) is NOT_AVAILABLE
        (pending,) = half.pending()
        handle: HalfMessageHandle = pending.handle
        assert _status_of(lambda: half.commit(handle)) is NOT_AVAILABLE
        assert half.pending() == []
        with pytest.raises(HalfMessageEnded) as ended:
            half.commit(handle)
        assert ended.value.committed is not False


def test_checks_of_half_messages_and_deliveries_wait_for_no_slave(tmp_path: Path) -> None:
    with open_master(tmp_path, transaction_time_out=0, message_delay_level="0s") as store:
        unwaited = dataclasses.replace(MESSAGE, properties={"WAIT": "false"})
        store.half_messages.prepare(unwaited, "producers")
        assert store.half_messages.check(lambda _: "commit").committed == 1
        assert bodies(store) == [b"x"]
        store.put_message(dataclasses.replace(MESSAGE, topic="later", delay_level=1))
        assert store.wait_for_messages("later", 0, 0, timeout_s=WAIT_LIMIT_S)


def test_closing_waits_for_puts_that_wait_for_slaves(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as threads:
        store = open_master(tmp_path, slave_timeout_ms=300)
        with ScriptedSlave(store.ha_address, 0) as slave:
            wait_for_slaves(store)
            putting = threads.submit(store.put_message, MESSAGE)
            slave.receive_up_to(1)
            store.close()
            assert putting.done()
            assert putting.result().status is TIMEOUT
