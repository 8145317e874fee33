"""Single puts beside retention: their latency while 100 files of the log go, one each 100 ms, and without that."""

from __future__ import annotations

import shutil
import threading
import time
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store import Message, MessageStore, MessageStoreConfig
from commitlog_store.files.limits import DiskUse
from commitlog_store.retention.clean import CleanCommitLogService, CleanConsumeQueueService, RetentionSettings
from commitlog_store.testing import parts_of
from tests.benchmarks.measure import machine, scratch, show

_FILES = 100
_FILE_SIZE = 4 << 20
_PAUSE_S = 0.1
_BODY = bytes(1024)
_CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=_FILE_SIZE,
    mapped_file_size_consume_queue=20 * 3_000,
    retention_bytes=_FILE_SIZE,
    schedule_enable=False,
)


def _puts(store: MessageStore, seconds: float) -> npt.NDArray[np.float64]:
    """The seconds that each put took, for so long."""
    taken = []
    end = time.perf_counter() + seconds
    for number in count():
        begun = time.perf_counter()
        store.put_message(Message(topic="orders", body=_BODY, queue_id=number % 4, keys=[f"{number}"]))
        done = time.perf_counter()
        taken.append(done - begun)
        if done >= end:
            return np.array(taken)
    raise AssertionError


def _fill(store: MessageStore) -> None:
    rows = _FILE_SIZE // 1_200
    table = pa.table({"body": [_BODY] * rows, "queueId": pa.array(np.arange(rows) % 4, pa.int32())})
    while store.physical_bounds()[1] < (_FILES + 2) * _FILE_SIZE:
        store.put_messages(table, topic="orders").raise_for_status()
    # A delayed message is looked for at each deletion.
    store.put_message(Message(topic="orders", body=_BODY, queue_id=0, delay_level=18)).raise_for_status()
    store.flush()


def _clean(store: MessageStore) -> None:
    """Steps of the two services: 100 files of the log, then those of the queues."""
    owned = parts_of(store)
    log = CleanCommitLogService(owned.retention.cleaner, _CONFIG, RetentionSettings(_CONFIG, lambda: DiskUse("", 0.5)))
    queues = CleanConsumeQueueService(owned.retention.cleaner, _CONFIG)
    owned.engine.run(log.run_once)
    while store.physical_bounds()[0] < _FILES * _FILE_SIZE:
        owned.engine.run(log.run_once)
        owned.engine.run(queues.run_once)
        time.sleep(_PAUSE_S)


def _show(name: str, taken: npt.NDArray[np.float64]) -> float:
    p50, p99, p999 = (1e6 * float(np.quantile(taken, share)) for share in (0.5, 0.99, 0.999))
    show(name, f"p50 {p50:.0f} µs, p99 {p99:.0f} µs, p99.9 {p999:.0f} µs", f"{len(taken)} puts")
    return p99


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    path = scratch() / "retention"
    shutil.rmtree(path, ignore_errors=True)
    try:
        with MessageStore.open(path, _CONFIG) as store:
            _fill(store)
            _puts(store, 1.0)
            before = _show("put of 1 KiB, nothing is deleted", _puts(store, 5.0))
            cleaning = threading.Thread(target=_clean, args=(store,))
            cleaning.start()
            taken = _puts(store, _FILES * _PAUSE_S)
            cleaning.join()
            beside = _show("the same while 100 files of 4 MiB go", taken)
            show("p99 beside deletions, of that without", f"{beside / before:.2f} times", "goal at most 1.5")
    finally:
        shutil.rmtree(path, ignore_errors=True)
