"""How cost grows with the number of queues: puts, dispatch, opening, lists and scans, over 2,000 to 50,000 queues.

Each step runs in a process of its own, over one message of 100 B a queue and round. ``SCALE_QUEUES`` names other
numbers, separated by commas. ``COMMITLOG_BENCH_DIR`` should be a directory on a disk: in memory a sync costs nothing.
The figures go to ``scale.json`` there too, each in seconds of time and of processor time.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.schema import check_schema, default_schema
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.benchmarks.measure import machine, scratch, show

_QUEUES = (2_000, 10_000, 50_000)
_ROUNDS = 2
_ROWS_A_CALL = 10_000
_BODY = bytes(100)
_PAUSE_S = 0.001
_CONFIG = MessageStoreConfig(mapped_file_size_commit_log=256 << 20)
# The steps, with the goals for 50,000 queues.
_GOALS = {
    "put": "≤ 3 s",
    "longest other put": "≤ 0.05 s",
    "dispatch, new queues": "≥ 20,000 queues/s with the puts",
    "dispatch, known queues": "≥ 300,000 messages/s",
    "flush": "",
    "close": "",
    "open as owner": "≤ 0.5 s",
    "open as reader": "",
    "topics()": "≤ 0.2 s",
    "queues(t), each": "≤ 1 s",
    "queues(t), each again": "",
    "queue_infos()": "≤ 0.5 s",
    "scan of all": "≤ 1.5 s",
    "first trigger": "≤ 0.5 s",
    "idle trigger": "≤ 0.05 s",
    "batch: partitions": "≤ 4 s with the tasks, on all cores",
    "batch: all tasks, one after the other": "",
}
Figures = dict[str, dict[str, float]]


@contextmanager
def _clocked(figures: Figures, name: str) -> Iterator[None]:
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    figures[name] = {"s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def _tables(queues: int) -> Iterator[pa.Table]:
    for first in range(0, queues, _ROWS_A_CALL):
        topics = [f"topic-{number:06d}" for number in range(first, min(first + _ROWS_A_CALL, queues))]
        yield pa.table(
            {"topic": topics, "queueId": pa.array([0] * len(topics), pa.int32()), "body": [_BODY] * len(topics)}
        )


def _longest_put(store: MessageStore, done: threading.Event, figures: Figures) -> None:
    longest = 0.0
    while not done.wait(_PAUSE_S):
        begun = time.perf_counter()
        store.put_message(Message(topic="beside", body=_BODY, queue_id=0)).raise_for_status()
        longest = max(longest, time.perf_counter() - begun)
    figures["longest other put"] = {"s": longest, "cpu_s": 0.0}


def _write(path: Path, queues: int, figures: Figures) -> None:
    with MessageStore.open(path, _CONFIG) as store:
        done = threading.Event()
        other = threading.Thread(target=_longest_put, args=(store, done, figures))
        other.start()
        with _clocked(figures, "put"):
            for _ in range(_ROUNDS):
                for table in _tables(queues):
                    store.put_messages(table).raise_for_status()
        done.set()
        other.join()
        with _clocked(figures, "dispatch, new queues"):
            store.dispatch()
        with _clocked(figures, "flush"):
            store.flush()
        tables = list(_tables(queues))
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(_ROUNDS):
            for table in tables:
                store.put_messages(table).raise_for_status()
        with _clocked(figures, "dispatch, known queues"):
            store.dispatch()
        figures["put and dispatch, known queues"] = {
            "s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
        }
        with _clocked(figures, "close"):
            store.close()


def _open(path: Path, queues: int, figures: Figures) -> None:
    del queues
    with _clocked(figures, "open as owner"):
        store = MessageStore.open(path, _CONFIG)
    with _clocked(figures, "first message"):
        store.put_message(Message(topic="beside", body=_BODY, queue_id=0)).raise_for_status()
        store.dispatch()
    with _clocked(figures, "close again"):
        store.close()


def _read(path: Path, queues: int, figures: Figures) -> None:
    with _clocked(figures, "open as reader"):
        reader = StoreReader.open(path)
    with reader:
        with _clocked(figures, "topics()"):
            topics = reader.topics()
        with _clocked(figures, "queues(t), each"):
            infos = [info for topic in topics for info in reader.queues(topic)]
        with _clocked(figures, "queues(t), each again"):
            for topic in topics:
                reader.queues(topic)
        assert sum(info.topic != "beside" for info in infos) == queues
    with StoreReader.open(path) as reader, _clocked(figures, "queue_infos()"):
        reader.queue_infos([(topic, 0) for topic in reader.topics()])
    figures["reader's memory, MiB"] = {"s": _peak_mib(), "cpu_s": 0.0}


def _peak_mib() -> float:
    """The most memory that this process has had. Linux counts what its parent had, too, in ``ru_maxrss``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _scan(path: Path, queues: int, figures: Figures) -> None:
    with StoreReader.open(path) as reader, _clocked(figures, "scan of all"):
        rows = sum(batch.num_rows for batch in reader.scan("topic-*"))
    assert rows == 2 * _ROUNDS * queues, rows


def _trigger(path: Path, queues: int, figures: Figures) -> None:
    """The planner's part of a stream's triggers; Spark passes the offsets to it and back."""
    options = {"path": str(path), "subscribePattern": "topic-.*", "startingOffsets": "latest"}
    with _clocked(figures, "first offset of a stream"):
        planner = StreamPlanner.open(parse_stream_options(options))
        start = planner.initial_offset()
    assert sum(map(len, start["offsets"].values())) == queues
    with _clocked(figures, "first trigger"):
        end = planner.latest_offset(start, limited=True)
    planner.latest_offset(end, limited=True)
    with _clocked(figures, "idle trigger"):
        assert planner.latest_offset(end, limited=True) == end
    planner.close()


def _batch(path: Path, queues: int, figures: Figures) -> None:
    """A batch read's partitions, and what its tasks read, without Spark."""
    options = parse_batch_options({"path": str(path), "subscribePattern": "topic-.*"})
    reader = CommitLogBatchReader(options, check_schema(default_schema(options)))
    with _clocked(figures, "batch: partitions"):
        partitions = reader.partitions()
    with _clocked(figures, "batch: all tasks, one after the other"):
        rows = sum(batch.num_rows for partition in partitions for batch in reader.read(partition))
    assert rows == 2 * _ROUNDS * queues, rows


_STEPS: dict[str, Callable[[Path, int, Figures], None]] = {
    "write": _write,
    "open": _open,
    "read": _read,
    "scan": _scan,
    "trigger": _trigger,
    "batch": _batch,
}


def _step(name: str, path: str, queues: str) -> None:
    figures: Figures = {}
    _STEPS[name](Path(path), int(queues), figures)
    print(json.dumps(figures))


def _measured(path: Path, queues: int) -> Figures:
    figures: Figures = {}
    for name in _STEPS:
        command = [sys.executable, __file__, name, str(path), str(queues)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        ended = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        figures |= json.loads(ended.stdout)
    return figures


def main() -> None:
    """Run the benchmark, print its figures, and write them as JSON beside the stores."""
    print(machine())
    numbers = [int(number) for number in os.environ.get("SCALE_QUEUES", "").split(",") if number] or list(_QUEUES)
    found: dict[str, Any] = {"machine": machine(), "queues": {}}
    for queues in numbers:
        path = scratch() / f"scale-{queues}"
        shutil.rmtree(path, ignore_errors=True)
        try:
            figures = _measured(path, queues)
        finally:
            shutil.rmtree(path, ignore_errors=True)
        found["queues"][queues] = figures
        print(f" {queues:,} queues")
        for name, figure in figures.items():
            show(name, f"{figure['s']:.3f} s, cpu {figure['cpu_s']:.3f}", _GOALS.get(name, ""))
        (scratch() / "scale.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    if len(sys.argv) == 4:
        _step(*sys.argv[1:])
    else:
        main()
