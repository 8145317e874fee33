"""A machine stops at any moment of a delivery: each delayed message reaches its topic exactly once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from commitlog_store import FlushDiskType, MessageStore, MessageStoreConfig
from commitlog_store.delayed.levels import DelayOffsetFile
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from tests.crash.crash_images import check_images, check_prefix, recording_of
from tests.crash.stored_messages import check_store, log_records
from tests.crash.workloads import Recording, Run, Workload, small_config
from tests.support.clean_store import assert_clean
from tests.support.delayed import Deliverer
from tests.support.long_runs import part_of

IMAGES, STRESS_IMAGES = 5, part_of(200)


def _put(run: Run, count: int, level: int) -> None:
    run.put(count, properties={"DELAY": str(level), "padding": "p" * 300}, topic=f"orders-{level}")


def _deliver(run: Run, *, save: bool) -> None:
    deliverer = Deliverer(run.store)
    deliverer.everything()
    if save:
        deliverer.service._save_flushed()


def _steps(run: Run) -> None:
    _put(run, 6, 1)
    _deliver(run, save=True)
    _put(run, 5, 2)
    run.put(2)
    _put(run, 20, 1)
    _deliver(run, save=True)
    run.kill_and_reopen()
    _put(run, 3, 2)
    _deliver(run, save=False)
    run.reopen()
    _put(run, 2, 1)
    _deliver(run, save=True)
    run.close()


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("sync-delivery", small_config(FlushDiskType.SYNC_FLUSH), _steps),
        Workload("async-delivery", small_config(FlushDiskType.ASYNC_FLUSH), _steps),
        Workload("pool-delivery", small_config(FlushDiskType.ASYNC_FLUSH, pool=True), _steps),
    )
}


def check_image(store: Path, config: MessageStoreConfig, recording: Recording, point: int) -> None:
    """Open what a crash left, deliver the rest, and count the copies of every delayed message."""
    with MessageStore.open(store, config) as opened:
        there = log_records(store)
        check_prefix(there, recording, point)
        copied = Counter(one.topic for one in there if one.topic.startswith("orders-"))
        for level, offset in DelayOffsetFile(str(store)).read().items():
            assert offset <= copied[f"orders-{level}"], "a broker would take a message for delivered that is not there"
        Deliverer(opened).everything()
        opened.dispatch()
    after = log_records(store)
    waited = Counter(one.body for one in after if one.topic == SCHEDULE_TOPIC)
    copies = Counter(one.body for one in after if one.topic.startswith("orders-"))
    assert copies == waited
    assert not waited or set(waited.values()) == {1}
    check_store(store, after)
    assert_clean(store)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_crash_at_any_point_of_a_delivery_repeats_and_loses_nothing(name: str, memory: Path) -> None:
    workload = WORKLOADS[name]
    recording = recording_of(name, workload.record, {}, memory / "run")

    def check(store: Path, point: int) -> None:
        check_image(store, workload.config, recording, point)

    check_images(name, recording.recorder, name, IMAGES, memory, check)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_crash_at_any_point_of_a_delivery_repeats_and_loses_nothing_many_times(name: str, memory: Path) -> None:
    workload = WORKLOADS[name]
    recording = recording_of(name, workload.record, {}, memory / "run")

    def check(store: Path, point: int) -> None:
        check_image(store, workload.config, recording, point)

    check_images(name, recording.recorder, f"{name}/stress", STRESS_IMAGES, memory, check)
