"""Runs that commit batches on a ``RecordingDisk``, and what of each must be stored after a crash at any point."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from commitlog_store import CommittedBatch, FlushDiskType, MessageStore, MessageStoreConfig
from commitlog_store.batch.visibility import GateReader
from commitlog_store.columnar.batch_frame import decode_frame
from commitlog_store.paths import BATCH_LEDGER, BATCH_TOPIC, CONFIG
from commitlog_store.testing import kill, parts_of
from tests.crash.simulated_disk import RecordingDisk
from tests.crash.stored_messages import Stored, log_records
from tests.crash.workloads import Recording, Run, slow_clock, small_config

TOPICS = ("batch-a", "batch-b")
QUEUE_IDS = (0, 1, 2)
BATCH_QUEUES = [(topic, queue_id) for topic in TOPICS for queue_id in QUEUE_IDS]


@dataclass(frozen=True)
class Batch:
    """A batch that was committed, and the bodies of its rows."""

    committed: CommittedBatch
    bodies: list[bytes]

    @property
    def app(self) -> str:
        return self.committed.batch.app_id

    @property
    def version(self) -> int:
        return self.committed.batch.version

    def ends(self) -> list[int]:
        """How many of its rows go to each of ``BATCH_QUEUES``."""
        return [len(range(place, len(self.bodies), len(BATCH_QUEUES))) for place in range(len(BATCH_QUEUES))]


def batch_bodies(app: str, version: int, rows: int) -> list[bytes]:
    """Bodies of different sizes, no two alike."""
    return [f"{app}:{version}:{row}:".encode() + b"b" * (row * 37 % 400) for row in range(rows)]


def batch_table(app: str, version: int, rows: int) -> pa.Table:
    """The rows go to all of ``BATCH_QUEUES`` in turn."""
    queues = list(itertools.islice(itertools.cycle(BATCH_QUEUES), rows))
    return pa.table(
        {
            "body": pa.array(batch_bodies(app, version, rows), pa.binary()),
            "topic": pa.array([topic for topic, _ in queues], pa.string()),
            "queueId": pa.array([queue_id for _, queue_id in queues], pa.int32()),
            "keys": pa.array([f"{app}-{version}"] * rows, pa.string()),
        }
    )


def commit(store: MessageStore, app: str, version: int, rows: int, fingerprint: str | None = None) -> CommittedBatch:
    """Commit a batch of so many rows; by default the fingerprint gives the number."""
    with store.transaction(app, version, f"{rows} rows" if fingerprint is None else fingerprint) as batch:
        if not batch.already_there:
            batch.put_messages(batch_table(app, version, rows))
    assert batch.result is not None
    return batch.result


class BatchRun(Run):
    """A run that commits batches too."""

    def __init__(self, recorder: RecordingDisk, path: Path, config: MessageStoreConfig, first: int = 0) -> None:
        self.batches: list[Batch] = []
        self._versions: dict[str, int] = {}
        super().__init__(recorder, path, config, first)

    def commit(self, app: str, *sizes: int) -> None:
        """Commit batches of so many rows, one after the other; versions count on from what the store has."""
        if app not in self._versions:
            last = {one.batch.app_id: one.batch.version for one in self.store.batches()}
            self._versions.update({app: last.get(app, 0)})
        for rows in sizes:
            version = self._versions[app] = self._versions[app] + 1
            committed = commit(self.store, app, version, rows)
            assert not committed.already_there
            self.batches.append(Batch(committed, batch_bodies(app, version, rows)))
            if self.sync:
                self._safe(committed.end)


@dataclass(frozen=True)
class BatchRecording(Recording):
    """A run that is over: every record that was ever appended, and the batches among them, in the log's order."""

    batches: list[Batch]


@dataclass(frozen=True)
class BatchWorkload:
    name: str
    config: MessageStoreConfig
    steps: Callable[[BatchRun], None] = field(repr=False)

    def record(self, root: Path, first: int = 0) -> BatchRecording:
        """Run it on ``root/store``, where perhaps something lies already."""
        path = root / "store"
        recorder = RecordingDisk(root)
        with slow_clock(), recorder.recording():
            run = BatchRun(recorder, path, self.config, first)
            self.steps(run)
            if not parts_of(run.store).engine.state.closed:
                kill(run.store)
        history = log_records(path, recovered=not self.config.transient_store_pool_enable)
        batches = run.batches
        if self.config.transient_store_pool_enable:
            end = history[-1].end if history else 0
            batches = [batch for batch in batches if batch.committed.end <= end]
        assert whole_batches(history, batches) == batches
        return BatchRecording(recorder, history, run.floors, batches)


def whole_batches(there: Sequence[Stored], batches: Iterable[Batch]) -> list[Batch]:
    """The batches that are among the records of a log, each with all of its rows, in their order and queues."""
    by_place = {record.physical_offset: record for record in there}
    found = []
    for batch in batches:
        first, end = batch.committed.physical_offset, batch.committed.end
        inside = [record for record in there if first <= record.physical_offset < end]
        if not inside:
            continue
        assert by_place[first].topic == BATCH_TOPIC, f"{batch.committed.batch}: rows without their frame record"
        rows = [(record.topic, record.queue_id, record.body) for record in inside[1:]]
        queues = itertools.cycle(BATCH_QUEUES)
        wanted = [(*queue, body) for queue, body in zip(queues, batch.bodies, strict=False)]
        assert rows == wanted, f"{batch.committed.batch}: {len(rows)} of {len(wanted)} rows"
        found.append(batch)
    return found


def frame_places(there: Iterable[Stored]) -> list[int]:
    """Where the batches of a log begin."""
    return [record.physical_offset for record in there if record.topic == BATCH_TOPIC]


def stored_batches(there: Sequence[Stored]) -> list[tuple[str, int]]:
    """Application and version of the batches in a log, in its order: each is whole, and none is there twice.

    They are recognized by their frame records alone, for batches that may or may not have been committed.
    """
    found: list[tuple[str, int]] = []
    for place, record in enumerate(there):
        if record.topic == BATCH_TOPIC:
            frame = decode_frame(record.body)
            app, version = frame.batch.app_id, frame.batch.version
            rows = [one.body for one in there[place + 1 : place + 1 + frame.rows]]
            assert rows == batch_bodies(app, version, frame.rows), f"{frame.batch} is not whole"
            assert frame.batch.fingerprint == f"{frame.rows} rows"
            found.append((app, version))
    loose = [one for one in there if one.topic in TOPICS]
    frames = [decode_frame(one.body) for one in there if one.topic == BATCH_TOPIC]
    assert len(loose) == sum(frame.rows for frame in frames), "rows without a frame record"
    assert len(set(found)) == len(found), f"a batch is there twice: {found}"
    return found


def last_of_each(batches: Iterable[Batch]) -> list[CommittedBatch]:
    """What ``MessageStore.batches`` has to answer."""
    last = {batch.app: batch.committed for batch in batches}
    return [last[app] for app in sorted(last)]


def gate_is_open(store: Path) -> bool:
    """Whether readers leave nothing out."""
    gate = GateReader(str(store))
    try:
        return gate.look().is_open
    finally:
        gate.close()


def spoil_ledger(store: Path, chance: random.Random) -> str:
    """Take the ledger's file away, or the newer part of it; the log has all that it knew. What was done."""
    path = store / CONFIG / BATCH_LEDGER
    before = path.with_name(path.name + ".bak")
    how = chance.choice(["as it is", "as it is", "none", "the one before", "half written"])
    if how in ("none", "the one before"):
        path.unlink(missing_ok=True)
    if how == "none":
        before.unlink(missing_ok=True)
    if how == "half written" and path.exists() and before.exists():
        data = path.read_bytes()
        path.write_bytes(data[: chance.randrange(len(data))])
    return how


def _small(run: BatchRun) -> None:
    run.commit("app", 1)
    run.put(4)
    run.commit("app", 7, 20)
    run.commit("loader", 3)
    run.put_table(5)
    run.flush()
    run.commit("app", 12)
    run.commit("loader", 9, 2)
    run.put(3)
    run.close()


def _large(run: BatchRun) -> None:
    run.put(6)
    run.commit("app", 110)
    run.put(2)
    run.commit("loader", 20)
    run.reopen()
    run.commit("app", 3, 70)
    run.put_table(5)
    run.commit("loader", 30)
    run.put(1)
    run.commit("app", 5)


def _only(run: BatchRun) -> None:
    run.commit("app", 80, 20, 50, 1)
    run.flush()
    run.commit("loader", 70, 10)


def _kills(run: BatchRun) -> None:
    run.commit("app", 30, 5)
    run.kill_and_reopen()
    run.put(5)
    run.commit("loader", 70)
    run.kill_and_reopen()
    run.commit("app", 10)
    run.flush()
    run.commit("loader", 4, 50)
    run.reopen()
    run.commit("app", 25)
    run.put(2)


_SYNC, _ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH

BATCH_WORKLOADS = {
    workload.name: workload
    for workload in (
        BatchWorkload("sync-small", small_config(_SYNC), _small),
        BatchWorkload("sync-large", small_config(_SYNC), _large),
        BatchWorkload("sync-only", small_config(_SYNC), _only),
        BatchWorkload("sync-kills", small_config(_SYNC), _kills),
        BatchWorkload("async-small", small_config(_ASYNC), _small),
        BatchWorkload("async-large", small_config(_ASYNC), _large),
        BatchWorkload("async-only", small_config(_ASYNC), _only),
        BatchWorkload("async-kills", small_config(_ASYNC), _kills),
        BatchWorkload("pool-small", small_config(_ASYNC, pool=True), _small),
        BatchWorkload("pool-large", small_config(_ASYNC, pool=True), _large),
    )
}
