"""A machine stops at any moment of a commit: the batch is stored whole or not at all, and the ledger knows which."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from commitlog_store import MessageStore, MessageStoreConfig
from tests.crash.batch_workloads import (
    BATCH_WORKLOADS,
    Batch,
    BatchRecording,
    BatchRun,
    BatchWorkload,
    commit,
    frame_places,
    gate_is_open,
    last_of_each,
    spoil_ledger,
    whole_batches,
)
from tests.crash.crash_images import check_images, check_prefix, crash_anywhere, kept_by_recovery, recording_of
from tests.crash.cuts import opened_as_forecast
from tests.crash.stored_messages import check_store, log_records
from tests.support.clean_store import assert_clean
from tests.support.long_runs import part_of

IMAGES, RECOVERY_IMAGES = 2, 2
STRESS_CHUNKS, STRESS_IMAGES = 4, 100
STRESS_RECOVERIES, STRESS_RECOVERY_IMAGES = part_of(10), 25


@pytest.fixture(scope="module")
def recordings() -> dict[str, BatchRecording]:
    """One recording of each workload that was asked for so far."""
    return {}


def check_image(store: Path, config: MessageStoreConfig, recording: BatchRecording, point: int) -> None:
    """Open what a crash left, look at all of it, commit what is there and what is not, and find that again."""
    with opened_as_forecast(store, config) as opened:
        there = log_records(store)
        check_prefix(there, recording, point)
        inside = whole_batches(there, recording.batches)
        assert inside == recording.batches[: len(inside)], "a prefix of the batches"
        assert frame_places(there) == [batch.committed.physical_offset for batch in inside]
        assert gate_is_open(store), "nothing is hidden any more"
        assert opened.batches() == last_of_each(inside), "the ledger says what the log has"
        again(opened, inside)
        assert log_records(store) == there, "a stored batch is not written again"
        written = first_absent(opened, recording.batches[len(inside) :])
        opened.dispatch()
    after = log_records(store)
    assert after[: len(there)] == there
    assert len(after) == len(there) + sum(1 + len(batch.bodies) for batch in written)
    check_store(store, after)
    assert_clean(store)
    with MessageStore.open(store, config) as opened:
        assert opened.recovered is None, "a clean close leaves nothing to recover"
        assert opened.batches() == last_of_each([*inside, *written])


def again(store: MessageStore, inside: list[Batch]) -> None:
    """Commit once more every batch that is there: the last of an application, and those before it."""
    for batch in inside:
        result = commit(store, batch.app, batch.version, len(batch.bodies))
        assert result.already_there, batch.committed
        assert (result.physical_offset, result.end) == (batch.committed.physical_offset, batch.committed.end)


def first_absent(store: MessageStore, absent: list[Batch]) -> list[Batch]:
    """Commit the first two of the batches that the crash has taken."""
    written = []
    for batch in absent[:2]:
        result = commit(store, batch.app, batch.version, len(batch.bodies))
        assert not result.already_there
        written.append(Batch(result, batch.bodies))
    return written


def check_workload(workload: BatchWorkload, recording: BatchRecording, seed: str, images: int, memory: Path) -> None:
    def check(store: Path, point: int) -> None:
        check_image(store, workload.config, recording, point)

    def spoil(store: Path, chance: random.Random) -> str:
        return f"ledger {spoil_ledger(store, chance)}"

    check_images(workload.name, recording.recorder, seed, images, memory, check, spoil)


@pytest.mark.parametrize("name", BATCH_WORKLOADS)
def test_a_crash_at_any_point_leaves_whole_batches(
    name: str, recordings: dict[str, BatchRecording], memory: Path
) -> None:
    recording = recording_of(name, BATCH_WORKLOADS[name].record, recordings, memory / "run")
    check_workload(BATCH_WORKLOADS[name], recording, name, IMAGES, memory)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range(STRESS_CHUNKS))
@pytest.mark.parametrize("name", BATCH_WORKLOADS)
def test_a_crash_at_any_point_leaves_whole_batches_many_times(name: str, chunk: int, memory: Path) -> None:
    recording = recording_of(name, BATCH_WORKLOADS[name].record, {}, memory / "run")
    check_workload(BATCH_WORKLOADS[name], recording, f"{name}/{chunk}", STRESS_IMAGES, memory)


def check_crashed_recovery(name: str, seed: str, images: int, recording: BatchRecording, memory: Path) -> None:
    """Crash, recover, commit more, and crash again at points of that: of the recovery too."""
    chance = random.Random(seed)
    root = crash_anywhere(recording.recorder, chance, memory)
    spoil_ledger(root / "store", chance)

    def steps(run: BatchRun) -> None:
        run.commit("loader", 45)
        run.put(2)
        run.commit("app", 6)

    again = BatchWorkload(f"{name}, recovered", BATCH_WORKLOADS[name].config, steps)
    second = again.record(root, first=1000)
    before, floors = kept_by_recovery(recording, second, seed)
    batches = [*whole_batches(before, recording.batches), *second.batches]
    check_workload(again, BatchRecording(second.recorder, second.history, floors, batches), seed, images, memory)


@pytest.mark.parametrize("name", ["sync-large", "async-kills", "pool-large"])
def test_a_crash_while_recovering_from_a_crash_leaves_whole_batches(
    name: str, recordings: dict[str, BatchRecording], memory: Path
) -> None:
    recording = recording_of(name, BATCH_WORKLOADS[name].record, recordings, memory / "run")
    check_crashed_recovery(name, f"{name}/recovery", RECOVERY_IMAGES, recording, memory)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", BATCH_WORKLOADS)
def test_a_crash_while_recovering_from_a_crash_leaves_whole_batches_many_times(name: str, memory: Path) -> None:
    recording = recording_of(name, BATCH_WORKLOADS[name].record, {}, memory / "run")
    for recovery in range(STRESS_RECOVERIES):
        check_crashed_recovery(name, f"{name}/recovery-{recovery}", STRESS_RECOVERY_IMAGES, recording, memory)
