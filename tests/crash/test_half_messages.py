"""A machine stops at any moment of half messages: each is pending, or has ended once, as was reported to its caller."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from commitlog_store import FlushDiskType, HalfMessageHandle, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.errors import TopicNotFound
from commitlog_store.half_message import Answer
from commitlog_store.testing import kill, parts_of
from tests.crash.crash_images import check_images
from tests.crash.simulated_disk import RecordingDisk
from tests.crash.workloads import Run, slow_clock, small_config
from tests.support.clean_store import assert_clean
from tests.support.long_runs import part_of
from tests.support.stored_bodies import topic_bodies

IMAGES, STRESS_IMAGES = 12, part_of(400)
CONFIG = replace(small_config(FlushDiskType.SYNC_FLUSH), transaction_time_out=0, transaction_check_max=2)


@dataclass
class Fate:
    """What the caller of one half message knows: the operation after which the answer came, and what was asked for."""

    handle: HalfMessageHandle
    prepared: int
    asked: set[str] = field(default_factory=set)
    told: tuple[int, str] | None = None


class HalfRun(Run):
    """A run that prepares half messages and ends them."""

    def __init__(self, recorder: RecordingDisk, path: Path, config: MessageStoreConfig) -> None:
        super().__init__(recorder, path, config)
        self.fates: dict[bytes, Fate] = {}

    def prepare(self, count: int) -> None:
        for _ in range(count):
            message = self.message(topic="orders", queue_id=0)
            handle = self.store.half_messages.prepare(message, "payments")
            self.fates[message.body] = Fate(handle, self.recorder.now)

    def end(self, how: str, *numbers: int) -> None:
        fates = list(self.fates.values())
        for number in numbers:
            fates[number].asked.add(how)
            getattr(self.store.half_messages, how)(fates[number].handle)
            fates[number].told = (self.recorder.now, how)

    def check(self, answers: dict[int, Answer]) -> None:
        bodies = list(self.fates)
        chosen = {bodies[number]: answer for number, answer in answers.items()}
        for body, answer in chosen.items():
            self.fates[body].asked.add(answer)
        for pending in self.store.half_messages.pending():
            if pending.check_times >= CONFIG.transaction_check_max:
                self.fates[pending.message.body].asked.add("given up")
        self.store.half_messages.check(lambda message: chosen.get(message.body, "unknown"))
        for body, answer in chosen.items():
            self.fates[body].told = (self.recorder.now, answer)


def steps(run: HalfRun) -> None:
    run.prepare(8)
    run.end("commit", 1, 4)
    run.put(3)
    run.end("rollback", 0)
    run.check({2: "commit", 3: "rollback"})
    run.kill_and_reopen()
    run.prepare(6)
    run.end("commit", 5, 9)
    run.check({8: "commit"})
    run.reopen()
    run.end("rollback", 6, 10)
    run.check({11: "rollback"})
    run.end("commit", 12)
    run.close()


def state_of(store: Path) -> tuple[Counter[bytes], Counter[bytes]]:
    """The bodies that consumers see, and those of pending half messages."""
    try:
        seen = Counter(topic_bodies(store, "orders"))
    except TopicNotFound:
        seen = Counter()
    with StoreReader.open(store) as reader:
        return seen, Counter(one.message.body for one in reader.pending_half_messages())


def check_state(store: Path, fates: dict[bytes, Fate], point: int) -> None:
    seen, pending = state_of(store)
    assert not [body for body, count in (seen + pending).items() if count > 1], "seen twice, or seen and pending"
    for body, fate in fates.items():
        told = None if fate.told is None or fate.told[0] > point else fate.told[1]
        if told is not None:
            assert seen[body] == (told == "commit"), f"{fate}: seen {seen[body]} times"
            assert not pending[body], fate
        elif fate.prepared <= point and not fate.asked:
            assert pending[body], f"{fate}: lost"
        elif fate.prepared <= point and not pending[body] and not seen[body]:
            assert fate.asked & {"rollback", "given up"}, f"{fate}: lost"


def finish(store: MessageStore, fates: dict[bytes, Fate]) -> Counter[bytes]:
    """Roll back or commit everything that is left, by the handles of its callers where they have one."""
    first = {one.message.body for one in store.half_messages.pending()}
    for body in first:
        fate = fates.get(body)
        handles = [one.handle for one in store.half_messages.pending() if one.message.body == body]
        store.half_messages.commit(fate.handle if fate is not None else handles[0])
    assert store.half_messages.pending() == []
    store.dispatch()
    return Counter(first)


def record(root: Path) -> HalfRun:
    recorder = RecordingDisk(root)
    with slow_clock(), recorder.recording():
        run = HalfRun(recorder, root / "store", CONFIG)
        steps(run)
        if not parts_of(run.store).engine.state.closed:
            kill(run.store)
    return run


def check_all(run: HalfRun, seed: str, images: int, memory: Path) -> None:
    def check(store: Path, point: int) -> None:
        with MessageStore.open(store, CONFIG) as opened:
            opened.dispatch()
            check_state(store, run.fates, point)
            seen, pending = state_of(store)
            assert finish(opened, run.fates) == pending
            assert state_of(store) == (seen + pending, Counter())
        assert_clean(store)
        assert state_of(store) == (seen + pending, Counter())

    check_images("half messages", run.recorder, seed, images, memory, check)


def test_a_crash_at_any_point_leaves_each_half_message_pending_or_ended_once(memory: Path) -> None:
    (memory / "run").mkdir()
    run = record(memory / "run")
    check_all(run, "half", IMAGES, memory)


@pytest.mark.stress
@pytest.mark.parametrize("seed", ["one", "two"])
def test_a_crash_at_any_point_leaves_each_half_message_pending_or_ended_once_many_times(
    seed: str, memory: Path
) -> None:
    (memory / "run").mkdir()
    check_all(record(memory / "run"), seed, STRESS_IMAGES, memory)


def test_a_half_message_that_was_never_answered_for_is_given_up_in_the_run(memory: Path) -> None:
    """The run above reaches every way in which a half message ends."""
    (memory / "run").mkdir()
    run = record(memory / "run")
    seen, pending = state_of(memory / "run" / "store")
    assert {"given up", "commit", "rollback"} <= {asked for fate in run.fates.values() for asked in fate.asked}
    assert len(seen) == len([fate for fate in run.fates.values() if fate.told and fate.told[1] == "commit"])
    assert not pending.keys() & seen.keys()
