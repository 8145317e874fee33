"""A machine stops at any moment while timer messages wait and are delivered: each reaches its topic exactly once."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from commitlog_store import FlushDiskType, MessageStore, MessageStoreConfig
from commitlog_store.format.timer_messages import TIMER_TOPIC
from commitlog_store.testing import parts_of
from tests.crash.crash_images import check_images, check_prefix, recording_of
from tests.crash.stored_messages import check_store, log_records
from tests.crash.workloads import Recording, Run, Workload, small_config
from tests.support.clean_store import assert_clean
from tests.support.delayed import Deliverer, timer_of
from tests.support.long_runs import part_of
from tests.support.waiting import wait_for

IMAGES, STRESS_IMAGES = 5, part_of(200)


def _put(run: Run, count: int, delay_s: int) -> None:
    properties = {"TIMER_DELAY_SEC": str(delay_s), "padding": "p" * 200}
    run.put(count, properties=properties, topic=f"orders-{delay_s}")


def _deliver(run: Run, ahead_s: float) -> Deliverer:
    files = parts_of(run.store).engine.log.files
    wait_for(lambda: files.committed_where == files.max_wrote)  # what the transient pool gathers is not dispatched
    deliverer = timer_of(run.store, read_units=7, frame_bytes=2_000)
    deliverer.everything(ahead_s)
    parts_of(run.store).engine.run(deliverer.service._save_flushed)
    return deliverer


def _steps(run: Run) -> None:
    _put(run, 12, 1_000)
    _put(run, 12, 30_000)
    _deliver(run, 3_600)
    run.put(2)
    _put(run, 20, 20_000)
    _deliver(run, 86_400)
    run.kill_and_reopen()
    _put(run, 5, 500)
    deliverer = _deliver(run, 3_600)
    _put(run, 12, 40_000)
    deliverer.everything(10.0)
    parts_of(run.store).engine.run(deliverer.service.save)
    run.reopen()
    _put(run, 2, 100)
    _deliver(run, 86_400)
    run.close()


def _config(flush: FlushDiskType, *, pool: bool = False) -> MessageStoreConfig:
    """Files of 19 units, so that the timer log rolls."""
    return replace(small_config(flush, pool=pool), mapped_file_size_timer_log=1_024)


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("sync-timer", _config(FlushDiskType.SYNC_FLUSH), _steps),
        Workload("async-timer", _config(FlushDiskType.ASYNC_FLUSH), _steps),
        Workload("pool-timer", _config(FlushDiskType.ASYNC_FLUSH, pool=True), _steps),
    )
}


def check_image(store: Path, config: MessageStoreConfig, recording: Recording, point: int) -> None:
    """Open what a crash left, deliver the rest, and count the copies of every message that waited."""
    with MessageStore.open(store, config) as opened:
        check_prefix(log_records(store), recording, point)
        timer_of(opened).everything()
        opened.dispatch()
    after = log_records(store)
    waited = Counter(one.body for one in after if one.topic == TIMER_TOPIC)
    copies = Counter(one.body for one in after if one.topic.startswith("orders-"))
    assert copies == waited
    assert not waited or set(waited.values()) == {1}
    check_store(store, after)
    assert_clean(store)


def _check(name: str, images: int, label: str, memory: Path) -> None:
    workload = WORKLOADS[name]
    recording = recording_of(name, workload.record, {}, memory / "run")

    def check(store: Path, point: int) -> None:
        check_image(store, workload.config, recording, point)

    check_images(name, recording.recorder, label, images, memory, check)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_crash_at_any_point_of_a_timers_work_repeats_and_loses_nothing(name: str, memory: Path) -> None:
    _check(name, IMAGES, name, memory)


@pytest.mark.stress
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_crash_at_any_point_of_a_timers_work_repeats_and_loses_nothing_many_times(name: str, memory: Path) -> None:
    _check(name, STRESS_IMAGES, f"{name}/stress", memory)
