"""Selective reads of one message in a hundred, beside reading all messages and filtering them.

Figures are of processor time, user and system: it is one thread's work, and other programs disturb the clock more.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlog_store import DEFAULT_COLUMNS, MessageFilter, StoreReader
from tests.benchmarks.measure import machine, scratch, show
from tests.support.store_builder import StoreBuilder

_ALL = MessageFilter()
_CHUNK = 50_000
_RUNS = 5
# What a RocketMQ client adds to a message.
_CLIENT_PROPERTIES = "UNIQ_KEY\x010A0B0C0D00002A9F00000000{:08d}\x02WAIT\x01true\x02amount\x01{}\x02"


def filter_store(label: str, body_size: int, chunks: int) -> Path:
    """One message in a hundred has the tag ``refunded``, another one in a hundred an amount of 9,900 and more."""
    path = scratch() / f"filter-{label}"
    if (path / "complete").exists():
        return path
    shutil.rmtree(path, ignore_errors=True)
    builder = StoreBuilder(path, log_file_size=1 << 30, queue_file_units=300_000)
    random = np.random.default_rng(2)
    for chunk in range(chunks):
        amounts = random.integers(0, 10_000, _CHUNK).tolist()
        common = random.choice(["created", "paid", "shipped"], _CHUNK)
        tags = np.where(random.random(_CHUNK) < 0.01, "refunded", common).tolist()
        first = chunk * _CHUNK
        builder.append(
            "orders",
            list(range(4)),
            [b"x" * body_size] * _CHUNK,
            tags=tags,
            keys=[f"order-{first + row}" for row in range(_CHUNK)],
            more=[_CLIENT_PROPERTIES.format(first + row, amount) for row, amount in enumerate(amounts)],
        )
    (path / "complete").touch()
    return path


def _by_tags(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.equal(batch.column("tags"), "refunded"))


def _by_amount(batch: pa.RecordBatch) -> pa.RecordBatch:
    amounts = pc.map_lookup(batch.column("properties"), "amount", "first").cast(pa.int64())
    return batch.filter(pc.greater_equal(amounts, 9_900))


def _by_key(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.equal(batch.column("keys"), "order-4711"))


def _rows(
    path: Path,
    columns: Sequence[str],
    keep: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    chosen: MessageFilter = _ALL,
) -> int:
    rows = 0
    with StoreReader.open(path) as reader:
        for queue_id in reader.queue_ids("orders"):
            for batch in reader.read("orders", queue_id, 0, columns=columns, filter=chosen):
                rows += (batch if keep is None else keep(batch)).num_rows
    return rows


def _rows_side_by_side(path: Path, columns: Sequence[str], chosen: MessageFilter) -> int:
    """All queues in one pass over the log, as the Spark source reads them."""
    with StoreReader.open(path) as reader:
        ranges = [("orders", queue.queue_id, queue.min_offset, queue.max_offset) for queue in reader.queues("orders")]
        return sum(batch.num_rows for batch in reader.read_side_by_side(ranges, columns=columns, filter=chosen))


def _seconds(work: Callable[[], int], rows: int) -> float:
    """Processor time of the fastest of several runs, each of which gives ``rows``."""
    seconds = []
    for _ in range(_RUNS):
        begun = time.process_time()
        assert work() == rows
        seconds.append(time.process_time() - begun)
    return min(seconds)


def _measure(label: str, path: Path) -> None:
    ways: tuple[tuple[str, Sequence[str], Callable[[pa.RecordBatch], pa.RecordBatch], MessageFilter, str], ...] = (
        ("tags", DEFAULT_COLUMNS, _by_tags, MessageFilter.parse(tags="refunded"), "goal at least 20"),
        (
            "SQL92",
            [*DEFAULT_COLUMNS, "properties"],
            _by_amount,
            MessageFilter.parse(filter="amount >= 9900"),
            "goal at least 5",
        ),
        (
            "SQL92 of tags",
            DEFAULT_COLUMNS,
            _by_tags,
            MessageFilter.parse(filter="TAGS = 'refunded'"),
            "goal at least 20",
        ),
        ("one key", DEFAULT_COLUMNS, _by_key, MessageFilter.parse(keys="order-4711"), ""),
    )
    total = _rows(path, ["queueOffset"])
    for name, columns, keep, chosen, goal in ways:
        rows = _rows(path, columns, chosen=chosen)
        reading_all = _seconds(lambda c=columns, k=keep: _rows(path, c, k), rows)  # type: ignore[misc]
        selective = _seconds(lambda c=columns, w=chosen: _rows(path, c, chosen=w), rows)  # type: ignore[misc]
        show(f"{label}: {name}, reading all and filtering", f"{total / reading_all / 1e6:.2f} M/s")
        show(
            f"{label}: {name}, selective",
            f"{total / selective / 1e6:.2f} M/s",
            f"{reading_all / selective:.1f} times as fast, {rows} of {total} rows. {goal}",
        )
        in_one_pass = _seconds(lambda c=columns, w=chosen: _rows_side_by_side(path, c, w), rows)  # type: ignore[misc]
        show(
            f"{label}: {name}, selective, queues side by side",
            f"{total / in_one_pass / 1e6:.2f} M/s",
            f"{reading_all / in_one_pass:.1f} times as fast as reading all, queue by queue",
        )


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    for label, body_size, chunks in (("1k", 1024, 20), ("100b", 100, 40)):
        _measure(label, filter_store(label, body_size, chunks))
