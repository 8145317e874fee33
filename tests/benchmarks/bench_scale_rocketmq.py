"""RocketMQ's own store beside this one over many queues: puts, dispatch until all queues have their units, and load.

Both put a message of 100 B, with tags and a key, into each of 10,000 and of 50,000 topics of one queue, three rounds
after each other in one run and in memory; 100,000 messages of another topic warm both before. ``SCALE_QUEUES`` names
other numbers. All queues are new in the first round. This store lists a new topic before its first message, as a broker
does (RocketMQ's store alone does not): all topics of a table in one write, that of a single message in one of its own.
So single puts are measured from the second round on (``scale_queues`` has those into new topics).

RocketMQ keeps a file of each queue open and mapped, so the limits of the system decide how many queues it has.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from commitlog_store import Message, MessageStore
from tests.benchmarks.bench_rocketmq import CACHE, VERSION, has_rocketmq
from tests.benchmarks.measure import machine, scratch, show
from tests.benchmarks.shapes import BODY, Shape, shapes, topic_name
from tests.interop.rocketmq import benchmark_command

_ROUNDS = 3
_WARM_UP = 100_000
_ROWS_A_CALL = 10_000
# Where RocketMQ cannot open a queue's file, it tries again for half a minute.
_LONGEST_S = 300
# Files and mappings that a Java machine has besides.
_RESERVED = 4_000


class _Measured(NamedTuple):
    """Of each round the seconds of the puts, and until all queues have their units; and those of an opening."""

    rounds: Sequence[tuple[float, float]]
    load_s: float


def _rocketmq(path: Path, queues: int) -> _Measured:
    def lines(*arguments: object) -> list[list[float]]:
        command = benchmark_command(VERSION, CACHE, *arguments)
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_LONGEST_S)
        if ran.returncode:
            raise SystemExit(f"RocketMQ's side failed:\n{ran.stderr[-2_000:]}")
        return [list(map(float, line.split())) for line in ran.stdout.splitlines()]

    rounds = [(puts, all_) for puts, all_ in lines("queues", path, queues, len(BODY), _WARM_UP, _ROUNDS)]
    return _Measured(rounds, lines("load", path)[0][0])


def _one_by_one(store: MessageStore, topics: Sequence[str]) -> None:
    for number, topic in enumerate(topics):
        message = Message(topic=topic, body=BODY, tags="paid", keys=(f"order-{number}",), queue_id=0)
        store.put_message(message).raise_for_status()


def _as_tables(store: MessageStore, topics: Sequence[str]) -> None:
    for first in range(0, len(topics), _ROWS_A_CALL):
        part = topics[first : first + _ROWS_A_CALL]
        keys = [f"order-{first + row}" for row in range(len(part))]
        ids = pa.array([0] * len(part), pa.int32())
        columns = {
            "topic": part,
            "queueId": ids,
            "body": [BODY] * len(part),
            "tags": ["paid"] * len(part),
            "keys": keys,
        }
        store.put_messages(pa.table(columns)).raise_for_status()


def _ours(path: Path, queues: int, put: Callable[[MessageStore, Sequence[str]], None]) -> _Measured:
    topics, rounds = [topic_name(number) for number in range(queues)], []
    with MessageStore.open(path) as store:
        put(store, ["orders"] * _WARM_UP)
        store.dispatch()
        for put_round in (_as_tables, *[put] * (_ROUNDS - 1)):
            begun = time.perf_counter()
            put_round(store, topics)
            puts = time.perf_counter() - begun
            store.dispatch()
            rounds.append((puts, time.perf_counter() - begun))
    begun = time.perf_counter()
    with MessageStore.open(path):
        return _Measured(rounds, time.perf_counter() - begun)


def _show(
    label: str, queues: int, found: _Measured, theirs: _Measured | None = None, *, makes_queues: bool = True
) -> None:
    def line(what: str, seconds: float, their_seconds: float | None) -> None:
        rate = f"{queues / seconds / 1e3:.1f} k/s = {seconds:.2f} s"
        beside = "" if their_seconds is None else f"{their_seconds / seconds:.2f} times RocketMQ"
        show(f"{queues:,} queues, {label}: {what}", rate, beside)

    def of(measured: _Measured | None, part: int, rounds: slice) -> float | None:
        return None if measured is None else min(one[part] for one in measured.rounds[rounds])

    for name, rounds in (("new queues", slice(1)), ("known queues", slice(1, None))):
        if name == "new queues" and not makes_queues:
            continue
        for what, part in (("puts", 0), ("puts and dispatch", 1)):
            line(f"{what}, {name}", min(one[part] for one in found.rounds[rounds]), of(theirs, part, rounds))
    line("load", found.load_s, None if theirs is None else theirs.load_s)


def _most_queues() -> int:
    """So many queues RocketMQ may have here, after as many open files as this process may ask for."""
    most_mappings = int(Path("/proc/sys/vm/max_map_count").read_text())
    with contextlib.suppress(ValueError, OSError):  # more than the hard limit needs a privilege
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_mappings, most_mappings))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(hard, most_mappings) - _RESERVED


def _compare(queues: int, most: int) -> None:
    path = scratch() / "scale-rocketmq"

    def on_new_store(measure: Callable[[Path], _Measured]) -> _Measured:
        shutil.rmtree(path, ignore_errors=True)
        try:
            return measure(path)
        finally:
            shutil.rmtree(path, ignore_errors=True)

    theirs = None
    if queues <= most:
        try:
            theirs = on_new_store(lambda path: _rocketmq(path, queues))
            _show("RocketMQ's putMessage", queues, theirs)
        except subprocess.TimeoutExpired:
            show(f"{queues:,} queues: RocketMQ", f"not in {_LONGEST_S} s")
    else:
        show(
            f"{queues:,} queues: RocketMQ", "not possible", f"its open files and mappings are limited to {most:,} here"
        )
    single = on_new_store(lambda path: _ours(path, queues, _one_by_one))
    _show("put_message", queues, single, theirs, makes_queues=False)
    _show("put_messages", queues, on_new_store(lambda path: _ours(path, queues, _as_tables)), theirs)


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    if not has_rocketmq():
        return
    most = _most_queues()
    wanted = [shape.queues for shape in shapes(Shape(10_000), Shape(50_000))]
    for queues in sorted({*wanted, *(most for queues in wanted if queues > most)}):
        _compare(queues, most)
