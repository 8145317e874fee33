"""The rule by which a reader asks again while the store changes, step by step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.batch.visibility import BatchGate
from commitlog_store.errors import OffsetOutOfRange, StoreBusy
from tests.support.growing_store import GrowingStore


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[GrowingStore]:
    with GrowingStore.open(tmp_path / "store") as growing:
        growing.grow()
        yield growing


class _Asked:
    """A question whose first times raise what they are given, or clean the store."""

    def __init__(self, growing: GrowingStore, *changes: int | None) -> None:
        self.times = 0
        self._growing = growing
        self._changes = changes

    def __call__(self) -> int:
        change = self._changes[min(self.times, len(self._changes) - 1)]
        self.times += 1
        if change is None:
            self._growing.grow()
            self._growing.prepare("clean")()
        elif change:
            raise OffsetOutOfRange(topic="t", queue_id=0, start=0, stop=1, min_offset=change, max_offset=9)
        return self.times


def test_the_same_failure_twice_is_how_the_store_is(growing: GrowingStore) -> None:
    with StoreReader.open(growing.path) as reader:
        asked = _Asked(growing, 5)
        with pytest.raises(OffsetOutOfRange, match=r"available are \[5, 9\)"):
            reader.consistently(asked)
        assert asked.times == 2
        assert reader.consistently(_Asked(growing, 5, 6, 0)) == 3


def test_a_failure_is_the_same_though_the_queue_has_grown(growing: GrowingStore) -> None:
    """Else an offset that is gone would be a busy store beside an owner that puts."""
    ends: list[int] = []

    def ask() -> None:
        ends.append(9 + len(ends))
        raise OffsetOutOfRange(topic="t", queue_id=0, start=0, stop=1, min_offset=5, max_offset=ends[-1])

    with StoreReader.open(growing.path) as reader, pytest.raises(OffsetOutOfRange):
        reader.consistently(ask)
    assert len(ends) == 2


def test_a_question_within_others_is_not_asked_twice_for_each_of_them(growing: GrowingStore) -> None:
    """Each level would double the reads of a failure that stays."""
    with StoreReader.open(growing.path) as reader:
        asked = _Asked(growing, 5)
        with pytest.raises(OffsetOutOfRange):
            reader.consistently(lambda: reader.consistently(lambda: reader.consistently(asked)))
        assert asked.times == 4
        with pytest.raises(OffsetOutOfRange):
            reader.consistently(asked)
        assert asked.times == 6, "what failed before is over"
        part = _Asked(growing, 5, 5, 6, 0)
        assert reader.consistently(lambda: reader.consistently(part)) == 4


def test_an_answer_during_which_the_log_began_later_is_asked_for_again(growing: GrowingStore) -> None:
    with StoreReader.open(growing.path) as reader:
        assert reader.consistently(_Asked(growing, None, None, 0)) == 3
        assert reader.consistently(_Asked(growing, None, 0), one_moment=False) == 1


def test_a_failure_before_and_after_a_change_is_not_the_same_twice(growing: GrowingStore) -> None:
    with StoreReader.open(growing.path) as reader:
        assert reader.consistently(_Asked(growing, 5, None, 5, 0)) == 4


def test_a_store_that_changes_during_every_look_is_busy(growing: GrowingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("commitlog_store.batch.consistent_reads._PAUSES", (0.0,) * 3)
    with StoreReader.open(growing.path) as reader:
        with pytest.raises(StoreBusy, match="changed during each of 3 looks at it: retention deleted files"):
            reader.consistently(_Asked(growing, None))
        with pytest.raises(StoreBusy) as caught:
            reader.consistently(_Asked(growing, 1, 2, 3))
        assert isinstance(caught.value.__cause__, OffsetOutOfRange)


def test_a_gate_of_an_older_copy_hides_nothing(growing: GrowingStore) -> None:
    """Retention never deletes a batch that is being dispatched, so a gate before the log's beginning is an old one."""
    growing.prepare("clean")()
    with StoreReader.open(growing.path) as reader:
        before = reader.queues("orders")
        gate = BatchGate(str(growing.path))
        gate.close_from(reader.physical_bounds()[0] - 1)
        assert reader.queues("orders") == before
        gate.close_from(0)
        gate.open(0)
        gate.release()


def test_what_retention_removed_was_before_any_place(growing: GrowingStore) -> None:
    """A search lists the queue's files again when one has gone, and takes its messages for expired ones."""
    with StoreReader.open(growing.path) as reader:
        old = reader.queue_info("orders", 0)
        queue = reader._catalog.queue("orders", 0)
        growing.prepare("clean")()
        found = queue.first_offset_from(0, old.min_offset, old.max_offset)
        left = min(int(one.name) for one in (growing.path / "consumequeue" / "orders" / "0").iterdir()) // 20
        assert found == left > old.min_offset
        assert reader.first_offset_from("orders", 0, 0, old.min_offset, old.max_offset) == left
