"""Light queues of a log that RocketMQ wrote: their offsets may have gaps, and no record is bad because of them."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commitlog_store import Message, MessageStore, MessageStoreConfig
from commitlog_store.columnar.dispatch import GroupedUnits, QueueUnits
from commitlog_store.errors import StoreIOError
from commitlog_store.files import disk
from commitlog_store.format.checkpoint import Checkpoint, encode_checkpoint
from commitlog_store.format.consume_queue_unit import FILLER_SIZE, UNIT_FILE_DTYPE, UNIT_SIZE
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.consume_queue_store import ConsumeQueueStore
from commitlog_store.verify.store import verify_store
from tests.support.store_builder import StoreBuilder
from tests.support.stored_bodies import bodies

CONFIG = MessageStoreConfig(max_hash_slot_num=100, max_index_num=400)
ONE, TWO = "%LMQ%one", "%LMQ%two"
# What a message names: light queues and its offset in each.
Named = Sequence[tuple[str, int]]

LOGS: dict[str, list[Named]] = {
    "without gaps": [[(ONE, 0)], [(ONE, 1), (TWO, 0)], [(TWO, 1)]],
    "that start late": [[(ONE, 7)], [(ONE, 8), (TWO, 100)], [(TWO, 101)]],
    "with a gap": [[(ONE, 0)], [(ONE, 1)], [(ONE, 5)], [(ONE, 6)]],
    "that name an offset twice": [[(ONE, 0)], [(ONE, 1)], [(ONE, 1)], [(ONE, 3)], [(ONE, 4)]],
    "that begin again": [[(ONE, 0)], [(ONE, 1)], [(ONE, 0)], [(ONE, 1)], [(ONE, 2)], [(ONE, 3)]],
    "named twice by a message": [[(ONE, 0), (ONE, 1)], [(ONE, 2)]],
    "with no possible place": [[(ONE, 2**63 - 1)], [(ONE, 3)], [(ONE, 2**63 - 1)]],
}  # fmt: skip


class RocketMQQueue:
    """``ConsumeQueue.putMessagePositionInfo``, one message at a time."""

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        self.begin: int | None = None
        self.max_physical_offset = -1

    def put(self, offset: int, place: int, size: int) -> None:
        if place + size <= self.max_physical_offset or offset * UNIT_SIZE >= 2**63:  # the byte position overflows
            return
        if self.begin is None:
            self.begin = offset
        end = self.begin + len(self.places)
        if offset != 0 and offset < end:
            return
        self.places[end] = place
        self.max_physical_offset = place + size


def add(builder: StoreBuilder, number: int, named: Named) -> int:
    names, offsets = (",".join(str(pair[part]) for pair in named) for part in (0, 1))
    more = f"INNER_MULTI_DISPATCH\x01{names}\x02INNER_MULTI_QUEUE_OFFSET\x01{offsets}\x02" if named else ""
    return int(builder.append("orders", number % 2, [b"body-%d" % number], more=more)[0])


def build(
    path: Path, log: Sequence[Named], log_file_size: int = 1 << 20
) -> tuple[StoreBuilder, dict[str, RocketMQQueue]]:
    """A log whose owner was killed, and the light queues that RocketMQ would have made of it. On disk is none."""
    builder = StoreBuilder(path, log_file_size=log_file_size, queue_file_units=50)
    builder.write_abort()
    queues: dict[str, RocketMQQueue] = {}
    for number, named in enumerate(log):
        place = add(builder, number, named)
        for name, offset in named:
            queues.setdefault(name, RocketMQQueue()).put(offset, place, builder.position - place)
    return builder, queues


def units_of(path: Path, topic: str, queue_id: int = 0) -> dict[int, int]:
    """Offset and physical offset of a queue's units, fillers left out."""
    found: dict[int, int] = {}
    for file in sorted((path / "consumequeue" / topic / str(queue_id)).iterdir()):
        units = np.fromfile(file, UNIT_FILE_DTYPE)
        rows = np.flatnonzero((units["size"] != 0) & (units["size"] != FILLER_SIZE))
        found |= {int(file.name) // UNIT_SIZE + int(row): int(units["physical_offset"][row]) for row in rows}
    return found


def check(path: Path, log: Sequence[Named], queues: dict[str, RocketMQQueue], more: Sequence[bytes] = ()) -> None:
    numbers = range(len(log))
    assert bodies(path, "orders", 0) == [b"body-%d" % number for number in numbers[::2]] + list(more)
    assert bodies(path, "orders", 1) == [b"body-%d" % number for number in numbers[1::2]]
    own = sorted((units_of(path, "orders", 0) | {-1 - at: p for at, p in units_of(path, "orders", 1).items()}).values())
    body_at = {place: b"body-%d" % number for number, place in enumerate(own[: len(log)])}
    for name, queue in queues.items():
        assert units_of(path, name) == queue.places, name
        assert bodies(path, name) == [body_at[place] for _, place in sorted(queue.places.items())], name
    assert verify_store(path) == []


@pytest.mark.parametrize("name", LOGS)
def test_a_log_with_light_queues_is_recovered_as_rocketmq_does(name: str, tmp_path: Path) -> None:
    builder, queues = build(tmp_path, LOGS[name])
    with MessageStore.open(builder.path, CONFIG) as store:
        store.put_message(Message(topic="orders", body=b"more", queue_id=0)).raise_for_status()
    check(tmp_path, LOGS[name], queues, [b"more"])
    (tmp_path / "abort").touch()
    with MessageStore.open(builder.path, CONFIG):
        pass
    check(tmp_path, LOGS[name], queues, [b"more"])


@pytest.mark.parametrize("lost", [0, 1, 30, 100, 200])
def test_an_existing_light_queue_keeps_every_place(lost: int, tmp_path: Path) -> None:
    """Recovery begins in the middle of the log; where the units before stand is not to be had from the messages."""
    config = MessageStoreConfig(message_index_enable=False)
    log: list[Named] = [[(ONE, 10 + number * 2)] for number in range(200)]
    builder, queues = build(tmp_path, log, log_file_size=4 << 10)
    with MessageStore.open(tmp_path, CONFIG):
        pass
    check(tmp_path, log, queues)
    before = {file: file.read_bytes() for file in (tmp_path / "consumequeue" / ONE / "0").iterdir()}
    end = 210 - lost
    for file, data in before.items():
        keep = min(max(end * UNIT_SIZE - int(file.name), 0), len(data))
        file.write_bytes(data[:keep] + bytes(len(data) - keep))
    # The last forty messages, and their file, are scanned again. With more units lost, queues are built from scratch.
    safe = builder.now_ms + (3_000 - 40)
    (tmp_path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(safe, safe, safe)))
    (tmp_path / "abort").touch()
    with MessageStore.open(tmp_path, config) as store:
        assert store.recovered is not None
        assert (store.recovered.started_at > 0) == (lost < 100)
    assert {file: file.read_bytes() for file in before} == before
    check(tmp_path, log, queues)


def test_places_outlive_the_messages_that_explain_them(tmp_path: Path) -> None:
    log: list[Named] = [[(ONE, number * 2)] for number in range(200)]
    builder, queues = build(tmp_path, log, log_file_size=4 << 10)
    with MessageStore.open(tmp_path, CONFIG):
        pass
    builder.delete_log_files(4)
    (tmp_path / "abort").touch()
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    with MessageStore.open(tmp_path, CONFIG):
        pass
    assert units_of(tmp_path, ONE) == queues[ONE].places
    assert verify_store(tmp_path) == []


def test_a_missing_light_unit_is_found(tmp_path: Path) -> None:
    build(tmp_path, LOGS["with a gap"])
    with MessageStore.open(tmp_path, CONFIG):
        pass
    (file,) = (tmp_path / "consumequeue" / ONE / "0").iterdir()
    file.write_bytes(file.read_bytes()[: 3 * UNIT_SIZE] + bytes(file.stat().st_size - 3 * UNIT_SIZE))
    (finding,) = verify_store(tmp_path)
    assert (finding.check, finding.queue_offset) == ("queue.missing-message", 3)


def group(offsets: Sequence[int], first: int) -> QueueUnits:
    units = np.zeros(len(offsets), UNIT_FILE_DTYPE)
    units["physical_offset"] = np.arange(first, first + len(offsets)) * 100
    units["size"] = 100
    return QueueUnits(ONE, 0, np.array(offsets, np.int64), units, light=True)


def writers(path: Path) -> ConsumeQueueStore:
    return ConsumeQueueStore(str(path), 4 * UNIT_SIZE, QueueCatalog(str(path), CommitLog(str(path / "commitlog"))))


@pytest.mark.parametrize("recovered", [False, True], ids=["dispatch", "recovery"])
@pytest.mark.parametrize("zeroed", [1, 3, 5])
def test_light_units_are_added_after_the_last_one_whatever_was_zeroed_before_it(
    zeroed: int, recovered: bool, tmp_path: Path
) -> None:
    for first in range(23 - zeroed):
        path = tmp_path / str(first)
        path.mkdir()
        made = writers(path)
        made.append(GroupedUnits.of([group(range(23), 0)]))
        made.close()
        for offset in range(first, first + zeroed):
            file = path / "consumequeue" / ONE / "0" / f"{offset // 4 * 4 * UNIT_SIZE:020d}"
            with file.open("r+b") as stream:
                stream.seek(offset % 4 * UNIT_SIZE)
                stream.write(bytes(UNIT_SIZE))
        again = writers(path)
        left = {offset: offset * 100 for offset in range(24) if not first <= offset < first + zeroed}
        if not recovered:
            again.append(GroupedUnits.of([group([23], 23)]))
        elif not again.rewrite(group([23], 23), from_start=False, write_back=False):
            # Nothing near the last unit says whether it has lost a part with the zeros: the whole log is read.
            assert first + zeroed == 22
            again.forget()
            assert again.rewrite(group(range(24), 0), from_start=True, write_back=False)
            left = {offset: offset * 100 for offset in range(24)}
        again.close()
        assert units_of(path, ONE) == left, first


@pytest.mark.parametrize("turn", [0, 1], ids=["fillers", "units"])
def test_a_light_queue_that_starts_late_continues_once_space_is_available(
    turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = disk.write_at, itertools.count()

    def write_at(descriptor: int, data: Any, offset: int) -> None:
        if next(calls) == turn:
            real(descriptor, memoryview(data)[:UNIT_SIZE], offset)
            raise OSError(errno.ENOSPC, "injected")
        real(descriptor, data, offset)

    queues = writers(tmp_path)
    monkeypatch.setattr(disk, "write_at", write_at)
    with pytest.raises(StoreIOError):
        queues.append(GroupedUnits.of([group([3, 4], 0)]))
    queues.append(GroupedUnits.of([group([3, 4], 0)]))
    queues.append(GroupedUnits.of([group([9], 2)]))
    assert units_of(tmp_path, ONE) == {3: 0, 4: 100, 5: 200}
    queues.close()


@settings(max_examples=150, deadline=None)
@given(offsets=st.lists(st.integers(0, 12), min_size=1, max_size=14), data=st.data())
def test_dispatch_and_recovery_put_units_where_rocketmq_does(
    offsets: list[int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("store")
    expected = RocketMQQueue()
    for row, offset in enumerate(offsets):
        expected.put(offset, row * 100, 100)
    cut = data.draw(st.integers(0, len(offsets)))
    again = data.draw(st.integers(0, cut))
    queues = writers(path)
    for start, stop in ((0, cut), (again, cut)):
        if start < stop:
            queues.append(GroupedUnits.of([group(offsets[start:stop], start)]))
    queues.close()
    queues = writers(path)
    if cut < len(offsets):
        queues.append(GroupedUnits.of([group(offsets[cut:], cut)]))
    assert units_of(path, ONE) == expected.places
    queues.close()
    for start in (0, again, cut):
        queues = writers(path)
        kept = True
        for first, stop in ((start, cut), (max(start, cut), len(offsets))):
            if first < stop:
                kept = kept and queues.rewrite(group(offsets[first:stop], first), from_start=not start, write_back=True)
        assert kept
        assert units_of(path, ONE) == expected.places
        queues.close()
