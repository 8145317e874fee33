"""Units that follow those of a queue's last file are written without the checks of others: the files are the same."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import numpy as np
import pytest

from commitlog_store.columnar.dispatch import GroupedUnits, QueueUnits
from commitlog_store.errors import CorruptConsumeQueue, StoreIOError
from commitlog_store.files import disk
from commitlog_store.format.consume_queue_unit import UNIT_FILE_DTYPE, UNIT_SIZE
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.queue import consume_queue_writer
from commitlog_store.queue.catalog import QueueCatalog
from commitlog_store.queue.consume_queue_store import ConsumeQueueStore
from commitlog_store.queue.consume_queue_writer import ConsumeQueueWriter

FILE_UNITS = 10
QUEUES = 16


@pytest.fixture
def few_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the queue files may be open."""
    monkeypatch.setattr(consume_queue_writer, "_MAX_OPEN", QUEUES // 2)


def queues_below(path: Path) -> ConsumeQueueStore:
    path.mkdir(exist_ok=True)
    catalog = QueueCatalog(str(path), CommitLog(str(path / "commitlog")))
    return ConsumeQueueStore(str(path), FILE_UNITS * UNIT_SIZE, catalog)


def units(queue: int, first: int, count: int) -> QueueUnits:
    """Units whose places say which queue and offset they are of."""
    found = np.zeros(count, UNIT_FILE_DTYPE)
    offsets = np.arange(first, first + count)
    found["physical_offset"], found["size"] = (offsets * QUEUES + queue) * 100, 100
    return QueueUnits(f"topic-{queue}", 0, offsets, found)


def files(path: Path) -> dict[str, bytes]:
    root = path / "consumequeue"
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def noted_openings(queues: ConsumeQueueStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of queue files that are opened from now on."""
    opened: list[str] = []

    def open_one(path: str) -> int:
        opened.append(path)
        return disk.open_for_writing(path)

    monkeypatch.setattr(queues._open_files, "_open_one", open_one)
    return opened


@pytest.mark.usefixtures("few_open")
@pytest.mark.parametrize("seed", range(4))
def test_files_are_those_of_appends_with_all_checks(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some units are given again, as after an error; queues end at borders of files, and files in between."""
    chance = random.Random(seed)
    ends = [0] * QUEUES
    blocks = []
    for _ in range(12):
        block = []
        for queue in chance.sample(range(QUEUES), chance.randrange(1, QUEUES + 1)):
            first, count = max(ends[queue] - chance.choice([0, 0, 0, 2]), 0), chance.choice([1, 1, 3, 8, 25])
            block.append(units(queue, first, count))
            ends[queue] = max(ends[queue], first + count)
        blocks.append(block)

    def write(path: Path) -> dict[str, bytes]:
        queues = queues_below(path)
        for block in blocks:
            queues.append(GroupedUnits.of(block))
        assert [queues.next_offset(f"topic-{queue}", 0) for queue in range(QUEUES)] == ends
        queues.flush_all()
        assert queues.file_count == sum(-(-end // FILE_UNITS) for end in ends)
        queues.close()
        return files(path)

    quick = write(tmp_path / "quick")
    monkeypatch.setattr(ConsumeQueueWriter, "append_next", lambda *_, **__: False)
    assert quick == write(tmp_path / "checked")


@pytest.mark.usefixtures("few_open")
def test_of_queues_that_take_turns_half_of_the_files_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If all were closed for the next one in turn, each would be closed just before it is written."""
    queues = queues_below(tmp_path)
    opened = noted_openings(queues, monkeypatch)
    for turn in range(3):
        queues.append(GroupedUnits.of([units(queue, turn, 1) for queue in range(QUEUES)]))
    assert len(opened) <= 2 * (QUEUES // 2 + 1)
    queues.close()


@pytest.mark.usefixtures("few_open")
def test_files_that_are_used_often_take_the_place_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = queues_below(tmp_path)
    queues.append(GroupedUnits.of([units(queue, 0, 1) for queue in range(QUEUES)]))
    opened = noted_openings(queues, monkeypatch)
    for turn in range(1, 60):
        opened.clear()
        queues.append(GroupedUnits.of([units(queue, turn, 1) for queue in range(QUEUES // 2, QUEUES)]))
    assert not opened
    queues.close()


def test_units_of_several_queues_are_read_as_they_were_given(tmp_path: Path) -> None:
    queues = queues_below(tmp_path)
    for first in (0, 2):  # with all checks, and as those that follow
        queues.append(GroupedUnits.of([units(queue, first, 2) for queue in range(QUEUES)]))
    for queue in range(QUEUES):
        assert (queues.read_units(f"topic-{queue}", 0, 0, 4) == units(queue, 0, 4).units).all()
    queues.close()


def test_a_gap_is_refused(tmp_path: Path) -> None:
    queues = queues_below(tmp_path)
    queues.append(GroupedUnits.of([units(0, 0, 3)]))
    with pytest.raises(CorruptConsumeQueue, match="queue offset 3"):
        queues.append(GroupedUnits.of([units(0, 4, 1)]))
    with pytest.raises(CorruptConsumeQueue, match="queue offset 4"):
        queues.append(GroupedUnits.of([units(0, 3, 3)._replace(queue_offsets=np.array([3, 5, 6]))]))
    queues.close()


def test_messages_of_a_deleted_topic_get_no_units(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    queues = queues_below(tmp_path)
    queues.append(GroupedUnits.of([units(0, 0, 1), units(1, 0, 1)]))
    queues.deleted.add("topic-0", 10 * QUEUES * 100, {})
    queues.append(GroupedUnits.of([units(0, 1, 1), units(1, 1, 1)]))
    assert [queues.next_offset(f"topic-{queue}", 0) for queue in (0, 1)] == [1, 2]
    queues.close()


def test_units_that_a_full_disk_has_cut_are_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queues, real = queues_below(tmp_path), disk.write_at
    queues.append(GroupedUnits.of([units(0, 0, 1)]))

    def write_at(descriptor: int, data: bytes, offset: int) -> None:
        real(descriptor, data[:7], offset)
        raise OSError(errno.ENOSPC, "injected")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_at", write_at)
        with pytest.raises(StoreIOError):
            queues.append(GroupedUnits.of([units(0, 1, 2)]))
    assert queues.next_offset("topic-0", 0) == 1
    queues.append(GroupedUnits.of([units(0, 1, 2)]))
    assert queues.read_units("topic-0", 0, 0, 3)["physical_offset"].tolist() == [0, QUEUES * 100, 2 * QUEUES * 100]
    queues.close()
