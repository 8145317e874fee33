"""Flushing: when bytes reach the device, and that readers see nothing before (invariants 2, 3 and 7)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageExtBrokerInner, PutMessageStatus
from tests.store.owner.owned_store import SYNC, Gate, open_store, put_ok, rows
from tests.support.stored_bodies import bodies
from tests.support.waiting import WAIT_LIMIT_S, wait_for

UNWAITED = {"WAIT": "false"}


def test_a_synchronous_put_is_on_the_device_when_it_answers(tmp_path: Path) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store:
        for number in range(300):
            put_ok(store, body=b"%d" % number * 20)
            assert store.flushed_where() == store.physical_bounds()[1]


def test_nothing_is_dispatched_before_it_is_on_the_device(tmp_path: Path, sync_gate: Gate) -> None:
    """Invariant 3: a reader must not have seen what a machine that stops now loses."""
    with open_store(tmp_path, flush_disk_type=SYNC) as store, ThreadPoolExecutor() as threads:
        put_ok(store, body=b"safe")
        sync_gate.shut()
        putting = threads.submit(put_ok, store, body=b"not yet")
        assert sync_gate.reached.wait(WAIT_LIMIT_S)
        assert bodies(store) == [b"safe"]
        assert not store.wait_for_messages("orders", 0, 1, timeout_s=0.05)
        assert not putting.done()
        sync_gate.open()
        putting.result()
        assert store.wait_for_messages("orders", 0, 1, timeout_s=WAIT_LIMIT_S)
        assert bodies(store) == [b"safe", b"not yet"]


def test_a_put_that_does_not_wait_is_acknowledged_before_the_sync_but_seen_only_after_it(
    tmp_path: Path, sync_gate: Gate
) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store:
        put_ok(store, body=b"safe")
        sync_gate.shut()
        result = store.put_message(Message(queue_id=0, topic="orders", body=b"unwaited", properties=UNWAITED))
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, 1)
        assert store.flushed_where() == result.physical_offset
        assert bodies(store) == [b"safe"]
        sync_gate.open()
        assert store.wait_for_messages("orders", 0, 1, timeout_s=WAIT_LIMIT_S), (
            "it is synced though no put waits for it"
        )
        assert rows(store)[1]["properties"] == UNWAITED


@pytest.mark.parametrize(("wait", "waits"), [("FALSE", False), ("no", False), ("TRUE", True), (None, True)])
def test_whether_a_put_waits_is_read_as_java_reads_a_boolean(
    tmp_path: Path, sync_gate: Gate, wait: str | None, waits: bool
) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC, flush_interval_commit_log=60_000) as store:
        put_ok(store)
        if not waits:
            sync_gate.shut()
        properties = {} if wait is None else {"WAIT": wait}
        result = store.put_message(MessageExtBrokerInner(topic="orders", body=b"x", properties=properties))
        assert result.ok
        assert (store.flushed_where() > result.physical_offset) is waits
        sync_gate.open()


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("waits", "properties"),
    [
        (False, [{"WAIT": "false"}, {"a": "b", "WAIT": "FALSE"}]),
        (True, [{"WAIT": "false"}, {"WAIT": "true"}]),
        (True, [{"WAIT": "false"}, {}]),
        (True, [{"WAIT": "false"}, None]),
        (True, [{}, {"WAIT": "false"}]),
        (True, [None, None]),
    ],
    ids=str,
)
def test_a_table_waits_unless_none_of_its_rows_does(
    tmp_path: Path, sync_gate: Gate, waits: bool, properties: list[dict[str, str] | None], chunked: bool
) -> None:
    entries = pa.array(
        [None if row is None else list(row.items()) for row in properties], pa.map_(pa.string(), pa.string())
    )
    table = pa.table({"body": [b"a", b"b"], "queueId": [0, 0], "properties": entries})
    if chunked:
        table = pa.concat_tables([table.slice(0, 1), table.slice(1, 0), table.slice(1)])
    with open_store(tmp_path, flush_disk_type=SYNC, flush_interval_commit_log=60_000) as store:
        put_ok(store)
        if not waits:
            sync_gate.shut()
        result = store.put_messages(table, topic="orders")
        assert result.rows["status"].to_pylist() == ["PUT_OK", "PUT_OK"], result.reason
        assert (store.flushed_where() == store.physical_bounds()[1]) is waits
        sync_gate.open()


def test_asynchronous_puts_are_seen_before_they_are_on_the_device(tmp_path: Path, sync_gate: Gate) -> None:
    with open_store(tmp_path) as store:
        sync_gate.shut()
        put_ok(store)
        assert bodies(store) == [b"body"]
        assert store.flushed_where() == 0
        sync_gate.open()
        store.flush()
        assert store.flushed_where() == store.physical_bounds()[1]


def test_asynchronous_puts_reach_the_device_without_a_flush_call(tmp_path: Path) -> None:
    intervals = {"flush_interval_commit_log": 1, "flush_commit_log_least_pages": 0}
    with open_store(tmp_path, **intervals) as store:
        for _ in range(100):
            put_ok(store)
        wait_for(lambda: store.flushed_where() == store.physical_bounds()[1])


def test_one_sync_serves_all_puts_that_waited(tmp_path: Path, sync_gate: Gate) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store, ThreadPoolExecutor(17) as threads:
        put_ok(store)
        size = store.physical_bounds()[1]
        sync_gate.shut()
        first = threads.submit(put_ok, store)
        assert sync_gate.reached.wait(WAIT_LIMIT_S)
        others = [threads.submit(put_ok, store) for _ in range(16)]
        wait_for(lambda: store.physical_bounds()[1] == 18 * size)
        before = sync_gate.calls
        sync_gate.open()
        assert sorted(put.result(WAIT_LIMIT_S).queue_offset for put in (first, *others)) == list(range(1, 18))
        assert sync_gate.calls - before <= 3, "not one for each put"


def test_the_checkpoint_never_claims_more_than_was_flushed(tmp_path: Path, sync_gate: Gate) -> None:
    """Invariant 7, looked at while the log's sync hangs."""
    with open_store(tmp_path, flush_interval_consume_queue=1) as store, store.reader() as reader:
        safe = put_ok(store, body=b"safe").store_timestamp
        store.flush()
        sync_gate.shut()
        put_ok(store, body=b"x" * 9_000)
        put_ok(store, body=b"x" * 9_000)
        store.dispatch()
        checkpoint = reader.checkpoint()
        assert checkpoint is not None
        assert checkpoint.physic_msg_timestamp <= safe
        assert checkpoint.logics_msg_timestamp <= safe
        sync_gate.open()
