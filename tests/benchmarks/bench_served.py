"""A served store beside its directory, in turns in one run: what the way over the network costs.

Server, Spark and its Python workers share the cores, as on loopback; between hosts each has its own.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from commitlog_store import MessageStore, StoreReader, connect
from tests.benchmarks.bench_filter import filter_store
from tests.benchmarks.measure import (
    GIB,
    TRIGGERS,
    WARM_UP,
    best_of,
    in_turns,
    machine,
    made_rows,
    message_store,
    scratch,
    show,
    to_noop,
    trigger_ms,
)
from tests.store.serve.servers import ServeProcess
from tests.support.local_spark import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# What a write touches of memory that was not in use: the log's files, and staged ones.
_TOUCHED = 4 * GIB
_SINGLE_CALLS = 3_000
_POSITIONS = 10_000


def _beside(local: float, far: float, goal: float) -> str:
    """``local`` and ``far`` in seconds for the same work."""
    return f"{local / far:.0%} of the directory (goal {goal:.0%})"


def _processor_seconds(pid: int) -> float:
    """Of all threads of a process, user and system."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def _places(count: int, queues: int) -> tuple[list[str], list[int]]:
    """The topics and queue ids of so many messages, spread over the queues, of which a topic has up to ten."""
    return [f"topic-{row % queues // 10:04}" for row in range(count)], [row % queues % 10 for row in range(count)]


def _latency(call: Callable[[], object]) -> str:
    times = []
    for _ in range(_SINGLE_CALLS):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return f"{1e3 * statistics.median(times):.2f} ms, {1e3 * float(np.percentile(times, 99)):.2f} ms"


# A server of Arrow Flight whose answer is empty; it prints its port.
_EMPTY_ANSWERS = """
import pyarrow.flight as flight

class Server(flight.FlightServerBase):
    def do_action(self, context, action):
        return iter([flight.Result(b"")])

with Server("grpc://127.0.0.1:0") as server:
    print(server.port, flush=True)
    server.serve()
"""


@contextmanager
def _answering_nothing() -> Iterator[Callable[[], object]]:
    """A call of a server of Arrow Flight, in a process of its own, that does nothing: the round trip alone."""
    with subprocess.Popen([sys.executable, "-c", _EMPTY_ANSWERS], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            with flight.FlightClient(f"grpc://127.0.0.1:{int(server.stdout.readline())}") as client:
                yield lambda: next(client.do_action(flight.Action("nothing", b"x" * 300)))
        finally:
            server.kill()


def _batch(spark: SparkSession, where: Path | str, **options: str) -> DataFrame:
    return spark.read.format("commitlog").options(path=str(where), subscribe="orders", **options).load()


def _reads(spark: SparkSession) -> None:
    for label, body_size, goal in (("1 KiB", 1024, 0.65), ("100 B", 100, 0.75)):
        path = message_store(f"2g-{'1k' if body_size == 1024 else '100b'}", body_size=body_size, size=2 * GIB)
        with ServeProcess(path, "--read-only", new_interpreter=True) as server:
            local, far = _batch(spark, path), _batch(spark, server.url)
            rows = local.count()
            assert far.count() == rows
            before, turns = _processor_seconds(server.process.pid), 4
            taken = in_turns(partial(to_noop, local), partial(to_noop, far), turns=turns)
            spent = (_processor_seconds(server.process.pid) - before) / (1 + turns)
        with StoreReader.open(path) as reader:
            start, end = reader.physical_bounds()
        size = (end - start) / 1e9  # not of the files, the last of which is mostly empty
        show(f"{label}: directory to noop", f"{rows / taken[0] / 1e3:.0f} k rows/s")
        show(f"{label}: address to noop", f"{rows / taken[1] / 1e3:.0f} k rows/s", _beside(*taken, goal))
        show(f"{label}: processor time of the server", f"{spent / size:.2f} s a GB", "goal at most 0.25 s")


def _tags(spark: SparkSession) -> None:
    for label, body_size, chunks in (("1k", 1024, 20), ("100b", 100, 40)):
        path = filter_store(label, body_size, chunks)
        with ServeProcess(path, "--read-only", new_interpreter=True) as server:
            local, far = (_batch(spark, where, tags="refunded") for where in (path, server.url))
            assert local.count() == far.count()
            taken = in_turns(partial(to_noop, local), partial(to_noop, far))
        show(f"{label}: tags of 1 %, directory", f"{taken[0]:.2f} s")
        show(f"{label}: tags of 1 %, address", f"{taken[1]:.2f} s", _beside(*taken, 0.9))


def _writes(spark: SparkSession, work: Path) -> None:
    for label, body_size, count in (("1 KiB", 1024, 500_000), ("100 B", 100, 2_000_000)):
        rows, servers = made_rows(spark, body_size, count), list[ServeProcess]()
        here, there = work / "here", work / "there"

        def begin(here: Path = here, there: Path = there, servers: list[ServeProcess] = servers) -> None:
            """Each turn writes to new stores."""
            end(servers)
            shutil.rmtree(here, ignore_errors=True)
            shutil.rmtree(there, ignore_errors=True)
            servers.append(ServeProcess(there, new_interpreter=True))

        def end(servers: list[ServeProcess]) -> None:
            for server in servers:
                server.stop()
            servers.clear()

        def to_directory(rows: DataFrame = rows, here: Path = here) -> None:
            rows.write.format("commitlog").options(path=str(here), topic="rows").mode("append").save()

        def to_address(rows: DataFrame = rows, servers: list[ServeProcess] = servers) -> None:
            rows.write.format("commitlog").options(path=servers[0].url, topic="rows").mode("append").save()

        taken = in_turns(to_directory, to_address, before=begin, touched=_TOUCHED)
        end(servers)
        show(f"{label}: batch write, directory", f"{count / taken[0] / 1e3:.0f} k rows/s")
        show(f"{label}: batch write, address", f"{count / taken[1] / 1e3:.0f} k rows/s", _beside(*taken, 0.7))


def _triggers(spark: SparkSession, work: Path) -> None:
    for queues, goal in ((4, 15), (2_000, 40)):
        path, rows = work / f"{queues}-queues", 1_000
        count = rows * (WARM_UP + TRIGGERS + 5)
        topics, queue_ids = _places(count, queues)
        with MessageStore.open(path) as store:
            store.put_messages(pa.table({"topic": topics, "queueId": queue_ids, "body": [b"x" * 1024] * count}))
        with ServeProcess(path, "--read-only", new_interpreter=True) as server:
            found: dict[Path | str, list[float]] = {path: [], server.url: []}
            for turn in range(2):
                for number, (where, times) in enumerate(found.items()):
                    options = {"path": str(where), "subscribePattern": "topic-.*", "startingOffsets": "earliest"}
                    frame = spark.readStream.format("commitlog").options(**options, maxOffsetsPerTrigger=rows).load()
                    checkpoint = str(work / f"checkpoint-{queues}-{turn}-{number}")
                    times.append(trigger_ms(frame, rows, "noop", checkpointLocation=checkpoint))
        local, far = (min(times) for times in found.values())
        show(f"trigger of {rows} rows, {queues} queues, directory", f"{local:.0f} ms")
        beside = f"adds {far - local:.0f} ms (goal at most {goal})"
        show(f"trigger of {rows} rows, {queues} queues, address", f"{far:.0f} ms", beside)


def _puts(work: Path) -> None:
    rows, calls = 10_000, 40
    table = pa.table({"body": [b"x" * 1024] * rows, "queueId": pa.array(np.arange(rows) % 4, pa.int32())})

    def fill(put_messages: Callable[..., object]) -> None:
        for _ in range(calls):
            put_messages(table, topic="orders")

    with (
        ServeProcess(work / "puts-there", new_interpreter=True) as server,
        MessageStore.open(work / "puts-here") as near,
        connect(server.url) as far,
    ):
        taken = in_turns(partial(fill, near.put_messages), partial(fill, far.put_messages), touched=GIB)
        show("put_messages, 1 KiB, directory", f"{rows * calls / taken[0] / 1e3:.0f} k/s")
        show("put_messages, 1 KiB, address", f"{rows * calls / taken[1] / 1e3:.0f} k/s", _beside(*taken, 0.5))
        put = partial(far.put, "orders", b"x" * 100, queue_id=0)
        with StoreReader.open(server.url) as reader, _answering_nothing() as bare:
            shown = [_latency(call) for call in (put, reader.log_start, bare)]
        show("one put of 100 B, address, p50 and p99", shown[0], "goal p50 at most 0.5 ms")
        show("one question of a reader, p50 and p99", shown[1])
        show("one call of Arrow Flight that does nothing, p50 and p99", shown[2], "what no call can be below")
        topics, queue_ids = _places(_POSITIONS, _POSITIONS)
        far.put_messages(pa.table({"topic": topics, "queueId": queue_ids, "body": [b"x"] * _POSITIONS}))
        positions = dict.fromkeys(zip(topics, queue_ids, strict=True), 1)
        took = best_of(5, lambda: far.commit_group_offsets("mirror", positions))
        show(f"positions of {_POSITIONS} queues, address", f"{1e3 * took:.0f} ms", "goal at most 100 ms")


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        work = Path(name)
        _puts(work)
        spark = start_spark(work, spark__driver__memory="2g", spark__sql__streaming__numRecentProgressUpdates="10000")
        spark.sparkContext.setLogLevel("ERROR")
        _reads(spark)
        _tags(spark)
        _writes(spark, work)
        _triggers(spark, work)
        spark.stop()
