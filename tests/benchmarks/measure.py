"""What the benchmarks share: stores to read, clocks, and a table of results."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tests.support.store_builder import StoreBuilder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


GIB = 1 << 30
INDEXED_MESSAGES = 1_000_000
# Triggers of a stream that do not count, and that do.
WARM_UP, TRIGGERS = 10, 40
_CHUNK = 50_000
# What a RocketMQ client adds to the KEYS and TAGS of a message.
_CLIENT_PROPERTIES = "UNIQ_KEY\x010A0B0C0D00002A9F00000000{:08d}\x02WAIT\x01true\x02"


def scratch() -> Path:
    """Where stores are built; kept between runs, since they take longer to build than to read.

    In memory by default (about 16 GiB for all of them): the goals are for a warm page cache, which a machine that
    reclaims it early does not keep. ``COMMITLOG_BENCH_DIR`` names another place.
    """
    path = Path(os.environ.get("COMMITLOG_BENCH_DIR", "/dev/shm/commitlog-bench"))
    path.mkdir(parents=True, exist_ok=True)
    return path


def message_store(name: str, *, body_size: int, size: int, queues: int = 4, below: Path | None = None) -> Path:
    """A store of one topic, ``orders``, with tags and keys, its messages spread evenly over the queues."""
    path = (below or scratch()) / name
    if (path / "complete").exists():
        return path
    shutil.rmtree(path, ignore_errors=True)
    builder = StoreBuilder(path, log_file_size=GIB, queue_file_units=300_000)
    random = np.random.default_rng(1)
    raw = random.integers(32, 127, body_size * _CHUNK, dtype=np.uint8)
    offsets = np.arange(0, (_CHUNK + 1) * body_size, body_size, dtype=np.int32)
    bodies = pa.Array.from_buffers(pa.binary(), _CHUNK, [None, pa.py_buffer(offsets), pa.py_buffer(raw)])
    tags = random.choice(["created", "paid", "shipped", "returned"], _CHUNK).tolist()
    count = 0
    while builder.position < size:
        keys = [f"order-{count + row}" for row in range(_CHUNK)]
        builder.append(
            "orders", list(range(queues)), bodies, tags=tags, keys=keys, more=_CLIENT_PROPERTIES.format(count)
        )
        count += _CHUNK
    (path / "complete").write_text(str(count))
    return path


def indexed_store() -> Path:
    """``INDEXED_MESSAGES`` messages of 100 B in four queues of ``orders``, indexed by ``order-<number>``."""
    path = scratch() / "indexed"
    if (path / "complete").exists():
        return path
    shutil.rmtree(path, ignore_errors=True)
    builder = StoreBuilder(path, log_file_size=GIB, queue_file_units=300_000)
    entries = []
    for first in range(0, INDEXED_MESSAGES, 50_000):
        keys = [f"order-{number}" for number in range(first, first + 50_000)]
        stored = builder.now_ms
        places = builder.append("orders", [0, 1, 2, 3], [b"x" * 100] * 50_000, keys=keys).tolist()
        entries += [
            (f"orders#{key}", place, stored + row) for row, (key, place) in enumerate(zip(keys, places, strict=True))
        ]
    builder.write_index("20260101000000000", entries, slots=5_000_000)
    (path / "complete").touch()
    return path


def many_queues() -> Path:
    """2,000 queues with 50 messages each: 200 topics of 10 queues."""
    path = scratch() / "2000-queues"
    if (path / "complete").exists():
        return path
    shutil.rmtree(path, ignore_errors=True)
    builder = StoreBuilder(path, log_file_size=256 << 20, queue_file_units=300_000)
    for topic in range(200):
        builder.append(f"topic-{topic:03d}", list(range(10)), [b"x" * 100] * 500)
    (path / "complete").touch()
    return path


def made_rows(spark: SparkSession, body_size: int, count: int) -> DataFrame:
    """Rows that Spark makes as they are asked for: cheap, and the same for both sides."""
    filler = "".join(chr(33 + place % 90) for place in range(body_size))
    text = f"concat(cast(id + 100000000 as string), '{filler[9:].replace(chr(39), '-').replace(chr(92), '-')}')"
    return spark.range(0, count, 1, 2).selectExpr(f"cast({text} as binary) as body")


def memory_at_hand(size: int) -> None:
    """Have that much free memory that was used a moment ago.

    A virtual machine may give back to its host what is free for a second or two, and then pays for every page that is
    touched again: up to ten times what the write into it costs. Called before either side of a comparison, it lets
    both begin alike.
    """
    path = scratch() / "memory"
    piece = bytes(16 << 20)
    with path.open("wb", buffering=0) as file:
        for _ in range(-(-size // len(piece))):
            file.write(piece)
    path.unlink()


def best_of(times: int, work: Callable[[], object]) -> float:
    """Seconds of the fastest of several runs: the others were disturbed."""
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def in_turns(
    one: Callable[[], object],
    other: Callable[[], object],
    *,
    turns: int = 4,
    before: Callable[[], object] = lambda: None,
    touched: int = 0,
) -> tuple[float, float]:
    """The least seconds of each, after a first turn that does not count: it starts and warms both.

    ``before`` is called before each turn. ``touched``: bytes of memory to have at hand before either.
    """
    found = []
    for _ in range(1 + turns):
        before()
        found.append((_seconds(one, touched), _seconds(other, touched)))
    return min(taken for taken, _ in found[1:]), min(taken for _, taken in found[1:])


def _seconds(work: Callable[[], object], touched: int) -> float:
    if touched:
        memory_at_hand(touched)
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def trigger_ms(frame: DataFrame, rows: int, sink: str, **options: str) -> float:
    """The median duration of a stream's triggers with that many rows, in milliseconds."""
    query = frame.writeStream.format(sink).options(**options).trigger(processingTime="0 seconds").start()
    try:
        while len(query.recentProgress) < WARM_UP + TRIGGERS:
            time.sleep(0.2)
            if query.exception() is not None:
                raise query.exception()  # type: ignore[misc]
        done = [
            p["durationMs"]["triggerExecution"] for p in query.recentProgress[WARM_UP:] if p["numInputRows"] >= rows
        ]
    finally:
        query.stop()
    return float(statistics.median(done))


def to_noop(frame: DataFrame) -> None:
    """Read all rows of it."""
    frame.write.format("noop").mode("overwrite").save()


def machine() -> str:
    cpu = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "?",
    )
    return f"{os.cpu_count()} x {cpu}, {platform.system()} {platform.release()}, Python {platform.python_version()}"


_listeners: list[Callable[[str, str, str], None]] = []


def on_show(listener: Callable[[str, str, str], None]) -> None:
    """Have each line that is shown from now on given to a listener, too: label, value, and what stands beside it."""
    _listeners.append(listener)


def show(label: str, value: str, goal: str = "") -> None:
    """Print a line of a benchmark's table."""
    print(f"  {label:<62} {value:>18}   {goal}", flush=True)
    note(label, value, goal)


def note(label: str, value: str, goal: str = "") -> None:
    """Give a line that another process has printed to the listeners of this one."""
    for listener in _listeners:
        listener(label, value, goal)
