"""A machine may stop at any deletion of a cleaning: the log has no hole, queues keep their ends, delayed messages wait.

So it may when a topic is deleted with its messages: it is there wholly, or gone. Each image is one such moment.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from commitlog_store import FlushDiskType, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from commitlog_store.recovery.start import StartKind
from commitlog_store.testing import kill, start_of
from tests.crash.simulated_disk import CrashImages, RecordingDisk
from tests.crash.stored_messages import Stored, log_records
from tests.crash.workloads import Run, slow_clock, small_config
from tests.support.clean_store import assert_clean
from tests.support.long_runs import part_of

# Crashes in the short test; images of the crash at each deletion in the long one.
MOST = 8
STRESS_IMAGES = part_of(40)
DROPPED = "dropped"
WAITS = "delayed messages of level 18 that are not delivered yet"


@dataclass
class _CleanedRun:
    """A run with cleanings: all records ever appended, and from which operation on the log may begin where."""

    config: MessageStoreConfig
    recorder: RecordingDisk
    history: list[Stored]
    starts: list[tuple[int, int]]
    floors: list[tuple[int, int]]
    dropped: tuple[int, int]
    """The operations during which a topic was deleted with its messages."""

    def latest_start(self, point: int) -> int:
        """The first byte of the log if every deletion up to a point has happened."""
        return max((start for noted, start in self.starts if noted <= point), default=0)

    def deletions(self) -> list[int]:
        """The operations that remove a file of the log, of a queue or of the index."""
        rooms = ("/commitlog/", "/consumequeue/", "/index/")
        return [
            number
            for number, one in enumerate(self.recorder.operations)
            if one.kind == "unlink" and any(room in one.path for room in rooms)
        ]

    def points(self) -> list[int]:
        """Crashes after each deletion, after the sync of its directory, and after each step of a topic's deletion."""
        return sorted({*(point for one in self.deletions() for point in (one + 1, one + 2)), *range(*self.dropped)})


def _record(root: Path, flush: FlushDiskType) -> _CleanedRun:
    recorder = RecordingDisk(root)
    config = small_config(flush)
    history: dict[int, Stored] = {}
    starts: list[tuple[int, int]] = []

    def remember() -> None:
        history.update((one.physical_offset, one) for one in log_records(run.path))

    def clean(max_bytes: int, holders: tuple[str, ...] = ()) -> None:
        remember()
        starts.append((recorder.now, run.store.clean(max_bytes=max_bytes, dry_run=True).log_start))
        report = run.store.clean(max_bytes=max_bytes)
        assert report.deleted
        assert report.log_start == starts[-1][1]
        assert report.holders == holders

    with slow_clock(), recorder.recording():
        run = Run(recorder, root / "store", config)
        run.put(30, topic="idle", queue_id=0)
        run.put(60)
        run.put_table(200)
        clean(40_000)
        run.put(20)
        run.put(40, topic=DROPPED)
        run.reopen()
        clean(20_000)
        run.put(20)
        begun = recorder.now
        run.store.delete_topic(DROPPED, with_messages=True)
        dropped = begun, recorder.now
        run.put(3, properties={"DELAY": "18"})
        run.put(40)
        run.kill_and_reopen()
        run.put(20)
        clean(0, (WAITS,))
        run.put(5)
        remember()
        kill(run.store)
    in_order = [history[place] for place in sorted(history)]
    return _CleanedRun(config, recorder, in_order, starts, run.floors, dropped)


def _check(store: Path, run: _CleanedRun, point: int) -> None:
    with MessageStore.open(store, run.config) as opened:
        assert start_of(opened).kind is not StartKind.REBUILD, start_of(opened).reason
        there = log_records(store)
        _check_records(there, run, point)
        _check_queues(store, there, run)
        _check_dropped(store, there, run, point)
        opened.clean(max_bytes=0)
        waiting = [one.physical_offset for one in there if one.topic == SCHEDULE_TOPIC]
        assert not waiting or opened.physical_bounds()[0] <= waiting[0], "a delayed message is gone"
    assert_clean(store)
    with MessageStore.open(store, run.config) as opened:
        assert opened.recovered is None, "a clean close leaves nothing to recover"


def _check_records(there: list[Stored], run: _CleanedRun, point: int) -> None:
    assert there, "the last file stays"
    first = there[0].physical_offset
    assert first <= run.latest_start(point), "a file is gone that no cleaning has taken yet"
    kept = [record for record in run.history if record.physical_offset >= first]
    assert there == kept[: len(there)], "a hole"
    safe = max((end for noted, end in run.floors if noted <= point), default=0)
    assert not [record for record in kept[len(there) :] if record.physical_offset < safe]


def _check_queues(store: Path, there: list[Stored], run: _CleanedRun) -> None:
    """Every queue ends where it ended, also one whose messages are all gone."""
    last = there[-1].physical_offset
    ends = Counter((one.topic, one.queue_id) for one in run.history if one.physical_offset <= last)
    lost = Counter((one.topic, one.queue_id) for one in run.history if one.physical_offset < there[0].physical_offset)
    with StoreReader.open(store) as reader:
        for (topic, queue_id), end in ends.items():
            if topic == DROPPED:
                continue
            (info,) = [one for one in reader.queues(topic) if one.queue_id == queue_id]
            assert (info.min_offset, info.max_offset) == (lost[topic, queue_id], end), f"{topic}/{queue_id}"
            rows = sum(len(batch) for batch in reader.read(topic, queue_id, info.min_offset, verify_crc=True))
            assert rows == end - info.min_offset
        for record in there[-3:]:
            assert reader.query(record.topic, record.keys[0])


def _check_dropped(store: Path, there: list[Stored], run: _CleanedRun, point: int) -> None:
    """The topic that was deleted with its messages is gone, or has all of them."""
    left = Counter(one.queue_id for one in there if one.topic == DROPPED)
    with StoreReader.open(store) as reader:
        has_queues = DROPPED in reader.topics()
        assert not has_queues or point < run.dropped[1]
        assert has_queues or not left or point > run.dropped[0]
        for info in reader.queues(DROPPED) if has_queues else []:
            assert info.max_offset - info.min_offset == left[info.queue_id]


def _check_deletions(run: _CleanedRun, images: int, memory: Path, *, most: int | None = None) -> None:
    """Check crashes at the deletions of a run: all of them, or ``most``, evenly spread."""
    points = run.points()
    assert len(points) > 20
    crashes = CrashImages(run.recorder)
    for point in points if most is None else points[:: len(points) // most]:
        crashes.advance(point)
        for image in range(images):
            seed = f"{point}/{image}"
            crashes.write(memory / "image", random.Random(seed))
            try:
                with slow_clock():
                    _check(memory / "image" / "store", run, point)
            except Exception as error:
                raise AssertionError(f"crash after {point} operations, seed {seed}") from error


@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_a_crash_at_any_deletion_leaves_a_log_without_holes(flush: FlushDiskType, memory: Path) -> None:
    (memory / "run").mkdir()
    _check_deletions(_record(memory / "run", flush), 1, memory, most=MOST)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("flush", list(FlushDiskType))
def test_a_crash_at_any_deletion_leaves_a_log_without_holes_many_times(flush: FlushDiskType, memory: Path) -> None:
    (memory / "run").mkdir()
    _check_deletions(_record(memory / "run", flush), STRESS_IMAGES, memory)
