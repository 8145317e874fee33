"""Readers see a batch in all of its queues or in none, while it is being dispatched and after its owner was killed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import FlushDiskType, StoreReader
from commitlog_store.batch.visibility import NOTHING_HIDDEN, BatchGate, GateReader, GateState, hidden_from
from commitlog_store.columnar.dispatch import GroupedUnits
from commitlog_store.engine import reput
from commitlog_store.errors import StoreBusy, StoreIOError
from commitlog_store.files import disk
from commitlog_store.queue.consume_queue_store import ConsumeQueueStore
from commitlog_store.testing import kill, parts_of
from tests.store.batch.batches import commit
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.waiting import WAIT_LIMIT_S, wait_for

ENDS = dict[int, int]


def ends(path: Path) -> ENDS:
    with StoreReader.open(path) as reader:
        return {queue.queue_id: queue.max_offset for queue in reader.queues("orders")}


@pytest.fixture
def looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ENDS]]:
    """What a reader sees before and after each queue gets units."""
    seen: list[ENDS] = []
    real = ConsumeQueueStore.append

    def append(self: ConsumeQueueStore, groups: GroupedUnits) -> None:
        for group in groups:
            seen.append(ends(tmp_path))
            real(self, GroupedUnits.of([group]))
        seen.append(ends(tmp_path))

    with open_store(tmp_path) as store:
        assert commit(store, 0)
    monkeypatch.setattr(ConsumeQueueStore, "append", append)
    yield seen
    monkeypatch.undo()


def test_a_reader_sees_all_of_a_batch_at_once(tmp_path: Path, looks: list[ENDS]) -> None:
    with open_store(tmp_path) as store:
        assert commit(store, 1, count=600)  # more than a file
        store.dispatch()
        assert ends(tmp_path) == {0: 210, 1: 210, 2: 210}
    assert len(looks) > 4
    assert all(seen == {0: 10, 1: 10, 2: 10} for seen in looks)


def test_single_messages_after_a_batch_come_with_it(tmp_path: Path, looks: list[ENDS]) -> None:
    with open_store(tmp_path) as store:
        store.set_readable(False)
        assert commit(store, 1)
        put_ok(store, queue_id=0)
        store.dispatch()
    for seen in looks:
        assert seen[1] == seen[2]
        assert seen in ({0: 10, 1: 10, 2: 10}, {0: 20, 1: 20, 2: 20}, {0: 21, 1: 20, 2: 20})


def test_a_query_by_key_leaves_out_hidden_messages(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, queue_id=0, keys=["k"], body=b"before")
        behind = put_ok(store, queue_id=1, keys=["k"], body=b"behind").physical_offset
        store.dispatch()
        gate = BatchGate(str(tmp_path))
        gate.close_from(behind)
        with StoreReader.open(tmp_path) as reader:
            assert [message.body for message in reader.query("orders", "k", limit=1)] == [b"before"]
            gate.open(behind)
            assert [message.body for message in reader.query("orders", "k")] == [b"before", b"behind"]
        gate.release()


def test_waiters_are_not_woken_for_hidden_messages(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, queue_id=0)
        store.dispatch()
        parts_of(store).engine.log.gate.close_from(0)
        assert not store.wait_for_messages("orders", 0, 0, timeout_s=0.05)
        parts_of(store).engine.log.gate.open(0)
        assert store.wait_for_messages("orders", 0, 0, timeout_s=WAIT_LIMIT_S)


def test_an_owner_that_dies_while_it_dispatches_leaves_the_batch_hidden_until_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path) as store:
        assert commit(store, 0)
    store = open_store(tmp_path)
    real = ConsumeQueueStore.append

    def half(self: ConsumeQueueStore, groups: GroupedUnits) -> None:
        real(self, GroupedUnits.of(list(groups)[:2]))
        raise MemoryError

    monkeypatch.setattr(ConsumeQueueStore, "append", half)
    assert commit(store, 1)
    with pytest.raises((MemoryError, StoreIOError)):  # or the service's thread has met it first
        store.dispatch()
    assert ends(tmp_path) == {0: 10, 1: 10, 2: 10}
    kill(store)
    monkeypatch.undo()
    assert ends(tmp_path) == {0: 10, 1: 10, 2: 10}
    with open_store(tmp_path) as store:
        assert not commit(store, 1)
        assert ends(tmp_path) == {0: 20, 1: 20, 2: 20}


def test_a_broker_that_took_the_store_over_leaves_nothing_hidden(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert commit(store, 0)
    gate = BatchGate(str(tmp_path))
    gate.close_from(0)
    gate.release()
    assert ends(tmp_path) == {0: 0, 1: 0, 2: 0}
    checkpoint = tmp_path / "checkpoint"
    data = bytearray(checkpoint.read_bytes())
    data[7] ^= 1  # RocketMQ knows nothing of the mark, and moves the times
    checkpoint.write_bytes(data)
    assert ends(tmp_path) == {0: 10, 1: 10, 2: 10}


def test_a_gate_that_is_not_a_gate_hides_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert commit(store, 0)
    whole = (tmp_path / "gate").read_bytes()
    for damaged in (b"", whole[:-1], bytes(len(whole)), b"\xff" * len(whole)):
        (tmp_path / "gate").write_bytes(damaged)
        assert ends(tmp_path) == {0: 10, 1: 10, 2: 10}
        with open_store(tmp_path) as store:
            assert not commit(store, 0)


def test_two_looks_at_the_gate_give_the_hidden_range() -> None:
    open_before, closed = GateState(4, True, 100, 200), GateState(5, False, 300, 200)
    open_again, closed_again = GateState(6, True, 300, 400), GateState(7, False, 500, 400)
    assert hidden_from(open_before, open_before) == NOTHING_HIDDEN
    assert hidden_from(open_before, closed) == 300
    assert hidden_from(open_before, open_again) == 300
    assert hidden_from(open_before, closed_again) is None, "the start of the first of two frames is unknown by now"
    for after in (closed, open_again, closed_again):
        assert hidden_from(closed, after) == 300


def test_batches_dispatched_during_a_look_are_left_out_and_delay_no_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: what had begun before the first look is shown, what came later is not."""
    with open_store(tmp_path) as store:
        assert commit(store, 0)
        store.dispatch()
        with StoreReader.open(tmp_path) as reader:
            bounds, looks = reader._catalog.bounds, 0

            def busy(topic: str, queue_id: int) -> tuple[int, int]:
                nonlocal looks
                found = bounds(topic, queue_id)
                if topic == "orders":
                    for _ in range(3):  # the owner never rests
                        looks += 1
                        assert commit(store, looks)
                        store.dispatch()
                return found

            monkeypatch.setattr(reader._catalog, "bounds", busy)
            for shown in (10, 100, 190):
                assert [queue.max_offset for queue in reader.queues("orders")] == [shown] * 3
            assert looks == 27


@pytest.mark.parametrize("busy_looks", [1, 4])
def test_a_reader_looks_again_while_several_batches_pass_during_a_look(tmp_path: Path, busy_looks: int) -> None:
    """Of batches that no list of the store names, the gate alone cannot tell where the first one began."""
    moves = _Moves(tmp_path, busy_looks)
    with StoreReader.open(tmp_path) as reader:
        assert [info.max_offset for info in reader.queue_infos(moves.queues)] == [1]
        assert moves.looks == busy_looks + 1


def test_a_reader_gives_up_with_an_error_when_batches_pass_during_every_look(tmp_path: Path) -> None:
    moves = _Moves(tmp_path, 10**9)
    with StoreReader.open(tmp_path) as reader, pytest.raises(StoreBusy, match="looks at"):
        reader.queue_infos(moves.queues)
    assert moves.looks <= 20


class _Moves:
    """Lists the queues of a store, and lets two frames pass the gate during each of the first looks."""

    def __init__(self, path: Path, busy_looks: int) -> None:
        with open_store(path) as store:
            put_ok(store, "orders")
        self._gate = BatchGate(str(path))
        self._busy_looks = busy_looks
        self.looks = 0

    def queues(self) -> list[tuple[str, int]]:
        self.looks += 1
        if self.looks <= self._busy_looks:
            for _ in range(2):
                self._gate.close_from(100)
                self._gate.open(200)
        else:
            self._gate.release()
        return [("orders", 0)]


class _Looks:
    """A waiter that notes what readers see whenever messages were dispatched."""

    def __init__(self, seen: list[ENDS], path: Path) -> None:
        self._seen = seen
        self._path = path

    def set(self) -> None:
        self._seen.append(ends(self._path))


def test_a_whole_batch_is_not_hidden_because_the_next_one_has_begun(tmp_path: Path) -> None:
    """Dispatch that catches up reads blocks of the log that end within batches."""
    with open_store(tmp_path, mapped_file_size_commit_log=32 << 20) as store:
        seen: list[ENDS] = []
        rows = pa.table({"body": [b"b" * 10_000] * 300, "queueId": pa.array([0, 1, 2] * 100, pa.int32())})
        with parts_of(store).engine.reput._lock:  # nothing is dispatched concurrently
            for version in range(4):
                with store.transaction("loader", version) as batch:
                    batch.put_messages(rows, topic="orders")
        with parts_of(store).engine.waiters.waiting(_Looks(seen, tmp_path)):
            store.dispatch()
        assert ends(tmp_path) == {0: 400, 1: 400, 2: 400}
    assert seen[0] == {0: 100, 1: 100, 2: 100}, "the first block of 4 MiB ends in the second batch"
    assert seen == sorted(seen, key=lambda shown: shown[0])
    assert all(len(set(shown.values())) == 1 for shown in seen)


def test_the_gate_moves_on_only_when_it_is_closed(tmp_path: Path) -> None:
    gate = BatchGate(str(tmp_path))
    gate.move_to(50)
    assert gate.state.is_open
    gate.close_from(100)
    gate.move_to(90)
    assert gate.state == GateState(1, False, 100, 0)
    gate.move_to(200)
    assert gate.state == GateState(3, False, 200, 0)
    assert hidden_from(GateState(0, True, 0, 0), gate.state) is None, "the frame at 100 was hidden concurrently"
    gate.release()


def test_the_gate_comes_back_as_it_was_left(tmp_path: Path) -> None:
    gate = BatchGate(str(tmp_path))
    reader = GateReader(str(tmp_path))
    assert reader.look().is_open
    gate.close_from(700)
    gate.close_from(900)
    assert reader.look() == GateState(1, False, 700, 0)
    gate.release()
    gate = BatchGate(str(tmp_path))
    assert gate.state == GateState(1, False, 700, 0)
    gate.open(1000)
    gate.open(2000)
    assert reader.look() == GateState(2, True, 700, 1000)
    reader.close()
    gate.release()


@pytest.mark.parametrize("operation", ["write_at", "create_file"])
def test_a_gate_that_cannot_be_written_stops_the_dispatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    """Better no messages than half a batch: the log has them."""
    store = open_store(tmp_path)
    real = getattr(disk, operation)

    def fail(target: object, *arguments: object) -> object:
        path = target if isinstance(target, str) else os.readlink(f"/proc/self/fd/{target}")
        if os.path.basename(str(path)) == "gate":
            raise OSError(5, "injected", path)
        return real(target, *arguments)

    monkeypatch.setattr(disk, operation, fail)
    assert commit(store, 0)
    with pytest.raises(StoreIOError, match="gate"):
        store.dispatch()
    monkeypatch.undo()
    with pytest.raises(StoreIOError, match="gate"):
        store.flush()
    store.close()
    with open_store(tmp_path) as store:
        assert not commit(store, 0)
        assert ends(tmp_path) == {0: 10, 1: 10, 2: 10}


def test_queues_that_a_batch_creates_appear_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic's first batch: its queues are made one after the other, and the gate opens after the last."""
    with open_store(tmp_path) as store:
        half_way, go_on = threading.Event(), threading.Event()
        real = ConsumeQueueStore.append

        def append(self: ConsumeQueueStore, groups: GroupedUnits) -> None:
            for number, group in enumerate(groups):
                if number == 2:
                    half_way.set()
                    assert go_on.wait(WAIT_LIMIT_S)
                real(self, GroupedUnits.of([group]))

        monkeypatch.setattr(ConsumeQueueStore, "append", append)
        assert commit(store, 0)
        assert half_way.wait(WAIT_LIMIT_S)
        with StoreReader.open(tmp_path) as reader:
            look = reader._reads.gate.look

            def late_look() -> GateState:
                go_on.set()
                store.dispatch()
                return look()

            monkeypatch.setattr(reader._reads.gate, "look", late_look)
            assert [queue.max_offset for queue in reader.queues("orders")] == [10, 10, 10]


@pytest.mark.parametrize("flush", [FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH])
def test_a_committed_batch_is_dispatched_at_once(
    tmp_path: Path, flush: FlushDiskType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dispatch, which may have looked before the sync, is woken after it, and does not wait for its interval."""
    monkeypatch.setattr(reput, "_IDLE_SECONDS", 2 * WAIT_LIMIT_S)
    with open_store(tmp_path, flush_disk_type=flush) as store:
        for version in range(5):
            assert commit(store, version)
            wait_for(lambda: store.stats().dispatch_behind_bytes == 0)
