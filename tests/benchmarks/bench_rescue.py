"""Commands that read a whole store: salvage, export, verify and repair (looking), beside reading it.

Figures are of processor time, user and system: a salvage or an export is one thread's work, and other programs disturb
the clock more.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from commitlog_store import MessageStoreConfig, StoreReader, export_store, repair_store, salvage_store
from commitlog_store.export.export_store import EXPORT_COLUMNS
from commitlog_store.verify.store import verify_store
from tests.benchmarks.measure import GIB, machine, memory_at_hand, message_store, scratch, show

_GB = 1e9
_INDEX = MessageStoreConfig()


def _processor_seconds(work: Callable[[], object], prepare: Callable[[], object] = lambda: None) -> float:
    """Those of the fastest of three runs."""
    seconds = []
    for _ in range(3):
        prepare()
        begun = time.process_time()
        work()
        seconds.append(time.process_time() - begun)
    return min(seconds)


def _read(path: Path) -> int:
    rows = 0
    with StoreReader.open(path) as reader:
        for topic in reader.topics():
            for info in reader.queues(topic):
                batches = reader.read(topic, info.queue_id, info.min_offset, info.max_offset, columns=EXPORT_COLUMNS)
                rows += sum(batch.num_rows for batch in batches)
    return rows


def _measure(label: str, path: Path) -> None:
    with StoreReader.open(path) as reader:
        start, end = reader.physical_bounds()
    size = end - start
    rows = _read(path)
    reading = _processor_seconds(lambda: _read(path))
    show(f"{label}: read, columns of an export", f"{size / reading / _GB:.2f} GB/s", f"{rows / reading / 1e6:.2f} M/s")
    target = scratch() / "rescued"

    def fresh() -> None:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        memory_at_hand(2 * size)

    new_store = target / "store"
    ways: tuple[tuple[str, Callable[[], object], str], ...] = (
        ("salvage, looking", lambda: salvage_store(path), ""),
        ("salvage into a store", lambda: salvage_store(path, new_store, config=_INDEX), "goal at least 0.5 GB/s"),
        ("export to Parquet", lambda: export_store(path, f"parquet:{target / 'out'}"), "goal at least 60 % of read"),
        ("export to JSON lines", lambda: export_store(path, f"ndjson:{target / 'out'}"), ""),
        ("verify", lambda: verify_store(path), ""),
        ("repair, looking", lambda: repair_store(path), "goal no slower than verify"),
    )
    for name, work, goal in ways:
        taken = _processor_seconds(work, fresh)
        show(f"{label}: {name}", f"{size / taken / _GB:.2f} GB/s", f"{reading / taken:.0%} of read. {goal}")
    shutil.rmtree(target, ignore_errors=True)


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    for label, body_size in (("1k", 1024), ("100b", 100)):
        _measure(label, message_store(f"2g-{label}", body_size=body_size, size=2 * GIB))
