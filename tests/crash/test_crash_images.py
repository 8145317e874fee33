"""A machine may stop at any moment and keep any sectors of what was not synced: the store keeps its promise.

Each image is one such moment. A failure names the workload, the point of its recording, and the seed of the image.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from commitlog import Message, MessageStore, MessageStoreConfig
from tests.crash.simulated_disk import CrashImages
from tests.crash.stored_messages import Stored, check_store, log_records
from tests.crash.workloads import WORKLOADS, Recording, Run, Workload, slow_clock
from tests.support.clean_store import assert_clean

__all__: list[str] = []

CHUNKS, IMAGES = 3, 32
RECOVERIES, RECOVERY_IMAGES = 4, 10
STRESS_CHUNKS, STRESS_IMAGES = 16, 130
STRESS_RECOVERIES, STRESS_RECOVERY_IMAGES = 32, 30


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recording]:
    """One recording of each workload that was asked for so far."""
    return {}


def recording_of(workload: Workload, recordings: dict[str, Recording], root: Path) -> Recording:
    if workload.name not in recordings:
        root.mkdir()
        recordings[workload.name] = workload.record(root)
    return recordings[workload.name]


def check_image(store: Path, config: MessageStoreConfig, recording: Recording, point: int) -> None:
    """Open what a crash left, look at all of it, go on from there, and find the same again."""
    safe = recording.safe_at(point)
    with MessageStore.open(store, config) as opened:
        there = log_records(store)
        assert there == recording.history[: len(there)], "not a prefix of what was appended (invariant 4)"
        assert opened.physical_bounds()[1] >= (there[-1].end if there else 0)
        missing = [record for record in recording.history[len(there) :] if record.physical_offset < safe]
        assert not missing, f"{len(missing)} safe messages are lost, from {missing[0].physical_offset} on (invariant 2)"
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


def check_images(workload: Workload, recording: Recording, seed: str, images: int, memory: Path) -> None:
    chance = random.Random(seed)
    points = sorted(chance.randrange(recording.recorder.now + 1) for _ in range(images))
    crashes = CrashImages(recording.recorder)
    image = memory / "image"
    for number, point in enumerate(points):
        crashes.advance(point)
        name = f"{seed}/{number}"
        crashes.write(image, random.Random(name))
        try:
            with slow_clock():
                check_image(image / "store", workload.config, recording, point)
        except Exception as error:
            raise AssertionError(f"workload {workload.name}, crash after {point} operations, seed {name}") from error


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_crash_at_any_point_keeps_the_promise(
    name: str, chunk: int, recordings: dict[str, Recording], memory: Path
) -> None:
    recording = recording_of(WORKLOADS[name], recordings, memory / "run")
    check_images(WORKLOADS[name], recording, f"{name}/{chunk}", IMAGES, memory)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range(100, 100 + STRESS_CHUNKS))
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_crash_at_any_point_keeps_the_promise_many_times(name: str, chunk: int, memory: Path) -> None:
    recording = recording_of(WORKLOADS[name], {}, memory / "run")
    check_images(WORKLOADS[name], recording, f"{name}/{chunk}", STRESS_IMAGES, memory)


def check_crashed_recovery(name: str, seed: str, images: int, recording: Recording, memory: Path) -> None:
    """Crash, recover, go on, and crash again at points of that: of the recovery too."""
    workload = WORKLOADS[name]
    chance = random.Random(seed)
    point = chance.randrange(recording.recorder.now + 1)
    crashes = CrashImages(recording.recorder)
    crashes.advance(point)
    crashes.write(memory / "crashed", chance)

    def steps(run: Run) -> None:
        run.put(4)
        run.put_batch(3)
        run.put(3)

    again = Workload(f"{name}, recovered", workload.config, steps)
    second = again.record(memory / "crashed", first=1000)
    # What the first crash has kept, the second one keeps: recovery finds the same end whenever it is interrupted.
    _, end = second.floors[0]
    before = [record for record in second.history if record.physical_offset < end]
    assert before == recording.history[: len(before)], f"{seed}: recovery kept what was not a prefix"
    floors = [(0, end), *second.floors]
    check_images(again, Recording(second.recorder, second.history, floors), seed, images, memory)


@pytest.mark.parametrize("recovery", range(RECOVERIES))
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_crash_while_recovering_from_a_crash(
    name: str, recovery: int, recordings: dict[str, Recording], memory: Path
) -> None:
    recording = recording_of(WORKLOADS[name], recordings, memory / "run")
    check_crashed_recovery(name, f"{name}/recovery-{recovery}", RECOVERY_IMAGES, recording, memory)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_crash_while_recovering_from_a_crash_many_times(name: str, memory: Path) -> None:
    recording = recording_of(WORKLOADS[name], {}, memory / "run")
    for recovery in range(100, 100 + STRESS_RECOVERIES):
        check_crashed_recovery(name, f"{name}/recovery-{recovery}", STRESS_RECOVERY_IMAGES, recording, memory)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["sync-singles", "async-singles"])
def test_nothing_old_comes_back_behind_a_record_of_the_size_of_the_one_that_was_cut(
    name: str, seed: int, memory: Path
) -> None:
    """With the old record's bytes still there, the one behind it would follow the new one without a gap."""
    config = WORKLOADS[name].config
    store = memory / "crashed" / "store"
    with MessageStore.open(store, config) as opened:
        for number in range(8):
            message = Message(topic="topic", body=b"%05d" % number * 40, keys=[f"key-{number}"])
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
        message = Message(topic="topic", body=b"again" * 40, keys=["key-x"])
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
