"""How cost grows with the number of queues: puts, dispatch, opening, lists and scans, plans, commands and metrics.

Over 2,000 to 50,000 topics of one queue and 2,000 topics of 16, each step in a process of its own, over one message of
100 B a queue and round. ``SCALE_QUEUES`` names other numbers, as ``5000,200x16``. ``COMMITLOG_BENCH_DIR`` may be a
directory on a disk: in memory a sync costs nothing. A figure is seconds of time and of the processor.
"""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import httpx

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.schema import check_schema, default_schema
from pyspark_commitlog.source.stream_offset import StreamOffset
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.benchmarks.measure import machine, scratch
from tests.benchmarks.shapes import BODY, Shape, shapes, topic_name
from tests.benchmarks.steps import Figures, clocked, command, in_process, note_memory, seconds, show_all
from tests.store.serve.http.fronts import client_of, shown

_SHAPES = (Shape(2_000), Shape(10_000), Shape(50_000), Shape(2_000, 16))
_ROUNDS = 2
_PAUSE_S = 0.001
# Topics that are new in a store with the others.
_LATE = 10
_CONFIG = MessageStoreConfig(mapped_file_size_commit_log=256 << 20)
# Groups, and topics of each.
_GROUPS, _TOPICS_A_GROUP = 100, 20
# A server keeps the text of its metrics for a second.
_METRICS_KEPT_S = 1.1
# The steps, with the goals for 50,000 queues.
_GOALS = {
    "put": "≤ 3 s",
    "longest other put": "≤ 0.05 s",
    "dispatch, new queues": "≥ 20,000 queues/s with the puts",
    "dispatch, known queues": "≥ 300,000 messages/s",
    "open as owner": "≤ 0.5 s",
    "topics()": "≤ 0.2 s",
    "queues(t), each": "≤ 1 s",
    "queue_infos()": "≤ 0.5 s",
    "scan of all": "≤ 1.5 s",
    "first trigger": "≤ 0.5 s",
    "idle trigger": "≤ 0.05 s",
    "batch: partitions": "≤ 4 s with the tasks, on all cores",
    "memory of the reader": "≤ 200 MiB",
}


def _longest_put(store: MessageStore, done: threading.Event, figures: Figures) -> None:
    longest = 0.0
    while not done.wait(_PAUSE_S):
        begun = time.perf_counter()
        store.put_message(Message(topic="beside", body=BODY, queue_id=0)).raise_for_status()
        longest = max(longest, time.perf_counter() - begun)
    figures["longest other put"] = f"{longest:.3f} s"


def _write(path: Path, shape: Shape, figures: Figures) -> None:
    with MessageStore.open(path, _CONFIG) as store:
        done = threading.Event()
        other = threading.Thread(target=_longest_put, args=(store, done, figures))
        other.start()
        with clocked(figures, "put"):
            for _ in range(_ROUNDS):
                for table in shape.tables():
                    store.put_messages(table).raise_for_status()
        done.set()
        other.join()
        with clocked(figures, "dispatch, new queues"):
            store.dispatch()
        with clocked(figures, "flush"):
            store.flush()
        tables = list(shape.tables())
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(_ROUNDS):
            for table in tables:
                store.put_messages(table).raise_for_status()
        with clocked(figures, "dispatch, known queues"):
            store.dispatch()
        taken = time.perf_counter() - wall, time.process_time() - cpu
        figures["put and dispatch, known queues"] = seconds(*taken)
        with clocked(figures, f"positions of {_GROUPS} groups, one after the other"):
            for group in range(_GROUPS):
                store.commit_group_offsets(f"group-{group:03d}", dict.fromkeys(_places_of(group, shape), 1))
        with clocked(figures, "close"):
            store.close()
    note_memory(figures, "memory of the owner")


def _places_of(group: int, shape: Shape) -> list[tuple[str, int]]:
    """The queues of the topics that a group consumes."""
    topics = {topic_name((group + _GROUPS * step) % shape.topics) for step in range(_TOPICS_A_GROUP)}
    return [(topic, queue_id) for topic in topics for queue_id in range(shape.queues_each)]


def _open(path: Path, shape: Shape, figures: Figures) -> None:
    del shape
    with clocked(figures, "open as owner"):
        store = MessageStore.open(path, _CONFIG)
    with clocked(figures, "first message"):
        store.put_message(Message(topic="beside", body=BODY, queue_id=0)).raise_for_status()
        store.dispatch()
    with clocked(figures, f"{_LATE} messages to new topics, one after the other"):
        for number in range(_LATE):
            store.put_message(Message(topic=f"late-{number}", body=BODY, queue_id=0)).raise_for_status()
    with clocked(figures, "close again"):
        store.close()


def _read(path: Path, shape: Shape, figures: Figures) -> None:
    with clocked(figures, "open as reader"):
        reader = StoreReader.open(path)
    with reader:
        with clocked(figures, "topics()"):
            topics = reader.topics()
        with clocked(figures, "queues(t), each"):
            infos = [info for topic in topics for info in reader.queues(topic)]
        with clocked(figures, "queues(t), each again"):
            for topic in topics:
                reader.queues(topic)
        assert sum(info.topic.startswith("topic-") for info in infos) == shape.queues
    with StoreReader.open(path) as reader, clocked(figures, "queue_infos()"):
        reader.queue_infos(shape.places())
    note_memory(figures, "memory of the reader")


def _scan(path: Path, shape: Shape, figures: Figures) -> None:
    with StoreReader.open(path) as reader, clocked(figures, "scan of all"):
        rows = sum(batch.num_rows for batch in reader.scan("topic-*"))
    assert rows == 2 * _ROUNDS * shape.queues, rows


def _trigger(path: Path, shape: Shape, figures: Figures) -> None:
    """The planner's part of a stream's triggers; Spark passes the offsets to it and back."""
    options = {"path": str(path), "subscribePattern": "topic-.*", "startingOffsets": "latest"}
    with clocked(figures, "first offset of a stream"):
        planner = StreamPlanner.open(parse_stream_options(options))
        start = planner.initial_offset()
    assert len(StreamOffset.from_json(start).offsets) == shape.queues
    with clocked(figures, "first trigger"):
        end = planner.latest_offset(start, limited=True)
    planner.latest_offset(end, limited=True)
    with clocked(figures, "idle trigger"):
        assert planner.latest_offset(end, limited=True) == end
    planner.close()


def _batch(path: Path, shape: Shape, figures: Figures) -> None:
    """A batch read's partitions, and what its tasks read, without Spark."""
    options = parse_batch_options({"path": str(path), "subscribePattern": "topic-.*"})
    reader = CommitLogBatchReader(options, check_schema(default_schema(options)))
    with clocked(figures, "batch: partitions"):
        partitions = reader.partitions()
    with clocked(figures, "batch: all tasks, one after the other"):
        rows = sum(batch.num_rows for partition in partitions for batch in reader.read(partition))
    assert rows == 2 * _ROUNDS * shape.queues, rows


def _commands(path: Path, shape: Shape, figures: Figures) -> None:
    """Whole processes of commands, with their start."""
    del shape
    command(figures, "commitlog --version", "--version")
    command(figures, "commitlog info", "info", str(path))
    command(figures, "commitlog doctor", "doctor", str(path))
    command(figures, f"commitlog groups lag, {_GROUPS} groups", "groups", "lag", str(path))


def _metrics(path: Path, shape: Shape, figures: Figures) -> None:
    """The page that Prometheus asks for, of a store that is only read and of one that the server owns."""
    del shape
    with shown(path) as front, client_of(front) as client:
        _scrapes(client, figures, "reader")
    with MessageStore.open(path, _CONFIG) as store, shown(owned=store) as front, client_of(front) as client:
        _scrapes(client, figures, "owner")


def _scrapes(client: httpx.Client, figures: Figures, whose: str) -> None:
    for name in (f"/metrics of a {whose}, first", f"/metrics of a {whose}, second"):
        with clocked(figures, name):
            client.get("/metrics").raise_for_status()
        time.sleep(_METRICS_KEPT_S)


_STEPS = {
    "write": _write,
    "open": _open,
    "read": _read,
    "scan": _scan,
    "trigger": _trigger,
    "batch": _batch,
    "commands": _commands,
    "metrics": _metrics,
}


def _step(name: str, path: Path, shape: Shape) -> Figures:
    figures: Figures = {}
    _STEPS[name](path, shape, figures)
    return figures


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    path = scratch() / "scale-queues"
    for shape in shapes(*_SHAPES):
        print(f" {shape}")
        shutil.rmtree(path, ignore_errors=True)
        try:
            for name in _STEPS:
                show_all(in_process(_step, name, path, shape), _GOALS, f"{shape}: ")
        finally:
            shutil.rmtree(path, ignore_errors=True)
