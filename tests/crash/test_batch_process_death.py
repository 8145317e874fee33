"""A process may die between any two operations of a commit, and within a long write: the kernel keeps what was written.

Readers read such a store before it is opened again. They, and the next owner, find all of a batch or
nothing. Each point of a recording is one such death: everything up to there has happened, whatever was synced.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import FlushDiskType, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.batch.visibility import BatchGate
from commitlog_store.errors import CommitLogError, TopicNotFound
from commitlog_store.files import disk
from commitlog_store.paths import BATCH_TOPIC, CHECKPOINT
from tests.crash.batch_workloads import (
    BATCH_QUEUES,
    Batch,
    BatchRecording,
    BatchRun,
    BatchWorkload,
    commit,
    gate_is_open,
    last_of_each,
    whole_batches,
)
from tests.crash.simulated_disk import CrashImages, Operation
from tests.crash.stored_messages import check_store, log_records
from tests.crash.workloads import small_config
from tests.support.clean_store import assert_clean

PAGE = 4096
# The default run opens one image of so many; readers look at all of them.
OPENED = 4

CONFIGS = {
    "sync": small_config(FlushDiskType.SYNC_FLUSH),
    "async": small_config(FlushDiskType.ASYNC_FLUSH),
    "pool": small_config(FlushDiskType.ASYNC_FLUSH, pool=True),
}


class Everything(random.Random):
    """Chooses that all that was done is there: what the kernel shows after a process has died."""

    def random(self) -> float:
        return 0.0

    def choice(self, seq: Any) -> Any:
        return seq[-1]


@dataclass(frozen=True)
class Death:
    """A recording, cut into pieces of a page, and from which point on the batches were committed."""

    recording: BatchRecording
    begin: int


def by_pages(operations: Sequence[Operation]) -> tuple[list[Operation], list[int]]:
    """The operations, long writes cut between pages as a kill cuts them; and how many make up the first n."""
    cut: list[Operation] = []
    counts = [0]
    for operation in operations:
        at = operation.position
        end = at + len(operation.data)
        while operation.kind == "write" and at // PAGE < (end - 1) // PAGE:
            stop = (at // PAGE + 1) * PAGE
            cut.append(operation._replace(position=at, data=operation.data[at - end : stop - end]))
            at = stop
        cut.append(operation._replace(position=at, data=operation.data[at - end :]) if operation.data else operation)
        counts.append(len(cut))
    return cut, counts


def record(config: MessageStoreConfig, root: Path) -> Death:
    """A few batches before; then batches of one page and of several files, messages beside them, and the close."""
    begun = 0

    def steps(run: BatchRun) -> None:
        nonlocal begun
        run.commit("app", 20)
        run.put(2)
        run.reopen()
        begun = run.recorder.now
        run.commit("app", 130)
        run.put(2)
        run.commit("loader", 3, 50)
        run.close()

    root.mkdir()
    found = BatchWorkload("deaths", config, steps).record(root)
    operations, counts = by_pages(found.recorder.operations)
    found.recorder.operations = operations
    floors = [(counts[point], end) for point, end in found.floors]
    return Death(replace(found, floors=floors), counts[begun])


def ends_of(store: Path) -> list[int]:
    """The ends of all queues that batches go to, as a reader has them."""
    with StoreReader.open(store) as reader:
        queues = []
        for topic in reader.topics():
            with contextlib.suppress(TopicNotFound):  # its directory was made, and none of a queue yet
                queues += [(topic, queue_id) for queue_id in reader.queue_ids(topic)]
        infos = reader.queue_infos(queues)
        assert infos == [reader.queue_info(*queue) for queue in queues]
    ends = {(info.topic, info.queue_id): info.max_offset for info in infos}
    return [ends.get(queue, 0) for queue in BATCH_QUEUES] + [ends.get((BATCH_TOPIC, 0), 0)]


def all_ends(batches: Sequence[Batch]) -> list[list[int]]:
    """The ends that readers may see: none of the batches, the first, the first two, and so on."""
    nothing = [0] * (len(BATCH_QUEUES) + 1)
    sizes = [[*batch.ends(), 1] for batch in batches]
    return list(accumulate(sizes, lambda done, more: [a + b for a, b in zip(done, more, strict=True)], initial=nothing))


def hits_of(store: Path, batch: Batch) -> int:
    """How many rows of a batch its key finds."""
    with StoreReader.open(store) as reader:
        return sum(
            len(reader.query(topic, f"{batch.app}-{batch.version}", limit=1000))
            for topic in dict(BATCH_QUEUES)
            if topic in reader.topics()
        )


def check_reopened(store: Path, config: MessageStoreConfig, recording: BatchRecording, point: int) -> None:
    with MessageStore.open(store, config) as opened:
        there = log_records(store)
        assert there == recording.history[: len(there)]
        inside = whole_batches(there, recording.batches)
        if not config.transient_store_pool_enable:
            safe = recording.safe_at(point)
            assert not [one for one in recording.history[len(there) :] if one.physical_offset < safe]
        assert gate_is_open(store)
        assert opened.batches() == last_of_each(inside)
        for batch in recording.batches:
            result = commit(opened, batch.app, batch.version, len(batch.bodies))
            assert result.already_there == (batch in inside)
        opened.dispatch()
    check_store(store, log_records(store))
    assert_clean(store)
    assert ends_of(store) == all_ends(recording.batches)[-1]


def check_deaths(death: Death, config: MessageStoreConfig, points: Sequence[int], every: int, memory: Path) -> None:
    recording = death.recording
    crashes = CrashImages(recording.recorder)
    may_be = all_ends(recording.batches)
    image, seen = memory / "image", may_be[1]
    for number, point in enumerate(points):
        crashes.advance(point)
        crashes.write(image, Everything())
        try:
            ends = ends_of(image / "store")
            assert ends in may_be, f"a reader sees {ends}"
            assert ends >= seen, "what a reader has seen stays"
            seen = ends
            for batch in recording.batches if number % every == 1 else []:
                assert hits_of(image / "store", batch) in (0, len(batch.bodies)), batch.committed
            if number % every == 0:
                check_reopened(image / "store", config, recording, point)
        except (AssertionError, CommitLogError) as error:
            last = recording.recorder.operations[point - 1]
            where = f"after {point} operations, the last {last._replace(data=last.data[:20])}"
            raise AssertionError(where) from error


@pytest.mark.parametrize("name", CONFIGS)
def test_a_process_that_dies_within_a_commit_leaves_whole_batches(name: str, memory: Path) -> None:
    death = record(CONFIGS[name], memory / "run")
    # Every twelfth operation, each configuration beginning with another.
    first = death.begin + 4 * list(CONFIGS).index(name)
    points = range(first, death.recording.recorder.now + 1, 4 * len(CONFIGS))
    assert len(points) >= 15
    check_deaths(death, CONFIGS[name], points, OPENED, memory)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_process_that_dies_at_any_operation_of_a_commit_leaves_whole_batches(name: str, memory: Path) -> None:
    death = record(CONFIGS[name], memory / "run")
    check_deaths(death, CONFIGS[name], range(death.begin, death.recording.recorder.now + 1), 1, memory)


def test_a_checkpoint_that_is_just_being_written_is_not_taken_for_a_brokers(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader may see half of what the owner writes there; only a broker leaves no mark, and knows no gate."""
    store = memory / "store"
    with MessageStore.open(store, CONFIGS["sync"]) as opened:
        commit(opened, "app", 1, 20)
        second = commit(opened, "app", 2, 20)
        opened.dispatch()
        gate = BatchGate(str(store))
        gate.close_from(second.physical_offset)
        real, torn = disk.read_file, [1]

        def read_file(path: str, limit: int) -> bytes:
            data = real(path, limit)
            if path.endswith(CHECKPOINT) and torn:
                torn.pop()
                return data[:512] + bytes(len(data) - 512)
            return data

        with monkeypatch.context() as patch, StoreReader.open(store) as reader:
            patch.setattr(disk, "read_file", read_file)
            ends = [info.max_offset for info in reader.queue_infos(BATCH_QUEUES)]
        assert not torn
        assert sum(ends) == 20
        gate.open(second.end)
        gate.release()
