"""A machine may stop at any moment and keep any sectors of what was not synced: the store keeps its promise.

Each image is one such moment.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig
from tests.crash.crash_images import check_images, check_prefix, crash_anywhere, kept_by_recovery, recording_of
from tests.crash.cuts import opened_as_forecast
from tests.crash.simulated_disk import CrashImages
from tests.crash.stored_messages import Stored, check_store, log_records
from tests.crash.workloads import WORKLOADS, Recording, Run, Workload
from tests.support.clean_store import assert_clean
from tests.support.long_runs import part_of

IMAGES = 3
RECOVERIES, RECOVERY_IMAGES = 1, 2
STRESS_CHUNKS, STRESS_IMAGES = 16, 130
STRESS_RECOVERIES, STRESS_RECOVERY_IMAGES = part_of(32), 30


@pytest.fixture(scope="module")
def recordings() -> dict[str, Recording]:
    """One recording of each workload that was asked for so far."""
    return {}


def check_image(store: Path, config: MessageStoreConfig, recording: Recording, point: int) -> None:
    """Open what a crash left, look at all of it, go on from there, and find the same again."""
    with opened_as_forecast(store, config) as opened:
        there = log_records(store)
        check_prefix(there, recording, point)
        assert opened.physical_bounds()[1] >= (there[-1].end if there else 0)
        check_store(store, there)
    with MessageStore.open(store, config) as opened:
        assert opened.recovered is None, "a clean close leaves nothing to recover"
        assert log_records(store) == there
        go_on(opened, there)
    after = log_records(store)
    assert after[: len(there)] == there
    assert len(after) == len(there) + 4
    check_store(store, after)
    assert_clean(store)


def go_on(store: MessageStore, there: list[Stored]) -> None:
    """Put some more: offsets go on where they ended."""
    for topic in ("topic-0", "topic-1"):
        for queue_id in (0, 1):
            result = store.put_message(Message(topic=topic, body=b"after", keys=["after"], queue_id=queue_id))
            assert result.ok, result
            count = sum((one.topic, one.queue_id) == (topic, queue_id) and one.queue_offset >= 0 for one in there)
            assert result.queue_offset == count


def check_workload(workload: Workload, recording: Recording, seed: str, images: int, memory: Path) -> None:
    def check(store: Path, point: int) -> None:
        check_image(store, workload.config, recording, point)

    check_images(workload.name, recording.recorder, seed, images, memory, check)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_crash_at_any_point_keeps_the_promise(name: str, recordings: dict[str, Recording], memory: Path) -> None:
    recording = recording_of(name, WORKLOADS[name].record, recordings, memory / "run")
    check_workload(WORKLOADS[name], recording, name, IMAGES, memory)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range(100, 100 + STRESS_CHUNKS))
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_crash_at_any_point_keeps_the_promise_many_times(name: str, chunk: int, memory: Path) -> None:
    recording = recording_of(name, WORKLOADS[name].record, {}, memory / "run")
    check_workload(WORKLOADS[name], recording, f"{name}/{chunk}", STRESS_IMAGES, memory)


def check_crashed_recovery(name: str, seed: str, images: int, recording: Recording, memory: Path) -> None:
    """Crash, recover, go on, and crash again at points of that: of the recovery too."""
    workload = WORKLOADS[name]
    root = crash_anywhere(recording.recorder, random.Random(seed), memory)

    def steps(run: Run) -> None:
        run.put(4)
        run.put_batch(3)
        run.put(3)

    again = Workload(f"{name}, recovered", workload.config, steps)
    second = again.record(root, first=1000)
    _, floors = kept_by_recovery(recording, second, seed)
    check_workload(again, Recording(second.recorder, second.history, floors), seed, images, memory)


@pytest.mark.parametrize("recovery", range(RECOVERIES))
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_crash_while_recovering_from_a_crash_keeps_the_promise(
    name: str, recovery: int, recordings: dict[str, Recording], memory: Path
) -> None:
    recording = recording_of(name, WORKLOADS[name].record, recordings, memory / "run")
    check_crashed_recovery(name, f"{name}/recovery-{recovery}", RECOVERY_IMAGES, recording, memory)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_crash_while_recovering_from_a_crash_keeps_the_promise_many_times(name: str, memory: Path) -> None:
    recording = recording_of(name, WORKLOADS[name].record, {}, memory / "run")
    for recovery in range(100, 100 + STRESS_RECOVERIES):
        check_crashed_recovery(name, f"{name}/recovery-{recovery}", STRESS_RECOVERY_IMAGES, recording, memory)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.stress) for seed in (1, 2))])
@pytest.mark.parametrize("name", ["sync-singles", "async-singles"])
def test_nothing_old_comes_back_after_a_record_of_the_size_of_the_one_that_was_cut(
    name: str, seed: int, memory: Path
) -> None:
    """With the old record's bytes still there, the one after it would follow the new one without a gap."""
    config = WORKLOADS[name].config
    store = memory / "crashed" / "store"
    with MessageStore.open(store, config) as opened:
        for number in range(8):
            message = Message(queue_id=0, topic="topic", body=b"%05d" % number * 40, keys=[f"key-{number}"])
            opened.put_message(message).raise_for_status()
    old = log_records(store)
    log = store / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    torn = old[4].physical_offset
    data[torn : torn + 200] = bytes(200)
    log.write_bytes(data)
    # A machine that stopped before it had flushed anything.
    (store / "abort").touch()
    (store / "checkpoint").unlink()

    def steps(run: Run) -> None:
        message = Message(queue_id=0, topic="topic", body=b"again" * 40, keys=["key-x"])
        assert run.store.put_message(message).physical_offset == torn

    again = Workload(f"{name}, one put", config, steps)
    recording = again.record(memory / "crashed")
    assert recording.history[:4] == old[:4]
    assert len(recording.history) == 5
    assert recording.history[4].size == old[4].size
    crashes = CrashImages(recording.recorder)
    for point in range(recording.recorder.now + 1):
        crashes.advance(point)
        crashes.write(memory / "image", random.Random(f"{name}/{seed}/{point}"))
        with MessageStore.open(memory / "image" / "store", config):
            there = log_records(memory / "image" / "store")
        assert there in (recording.history[:4], recording.history), f"{seed}, after {point} operations"
