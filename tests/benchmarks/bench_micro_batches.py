"""Small micro-batches: the duration of a trigger by source, queues, rows and sink, beside Kafka's in the same run.

Once with TCP between Spark and its Python workers, and once with Unix domain sockets, as an import of the connector has
it.
"""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
from contextlib import ExitStack
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from commitlog_store import MessageStore
from tests.benchmarks.measure import TRIGGERS, WARM_UP, machine, note, on_show, scratch, show, trigger_ms
from tests.benchmarks.ready_source import ReadySource
from tests.support.kafka_peer import KafkaUnavailable, connector_jars, running_broker
from tests.support.local_spark import make_java_available, start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_BODY_SIZE = 1024
_QUEUES = (1, 4, 16, 64)
_ROWS = (1_000, 10_000)


def _bodies(count: int) -> pa.Array:
    raw = np.random.default_rng(1).integers(32, 127, _BODY_SIZE * count, dtype=np.uint8)
    offsets = np.arange(0, (count + 1) * _BODY_SIZE, _BODY_SIZE, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(raw)])


def _store(work: Path, queues: int, rows: int) -> Path:
    path = work / f"{queues}-queues-{rows}"
    if not path.exists():
        table = pa.table({"body": _bodies(rows), "queueId": pa.array(np.arange(rows) % queues, pa.int32())})
        with MessageStore.open(path) as store:
            for _ in range(WARM_UP + TRIGGERS + 5):
                store.put_messages(table, topic="in")
    return path


def _from_store(spark: SparkSession, path: Path, rows: int) -> DataFrame:
    options = {"path": str(path), "subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(rows)}
    return spark.readStream.format("commitlog").options(**options).load().select("body")


def _made_by_spark(spark: SparkSession, rows: int) -> DataFrame:
    """Rows of Spark's own source, which costs next to nothing."""
    made = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", str(rows)).option("numPartitions", "1")
    text = f"concat(cast(value + 100000000 as string), '{'x' * (_BODY_SIZE - 9)}')"
    return made.load().selectExpr(f"cast({text} as binary) as body")


def _measure(spark: SparkSession, work: Path) -> None:
    checkpoints = (str(work / f"checkpoint-{number}") for number in range(1000))

    def of_rate(rows: int) -> float:
        """In turns with what it is beside: the JVM gets faster for minutes."""
        return trigger_ms(_made_by_spark(spark, rows), rows, "noop", checkpointLocation=next(checkpoints))

    # The first queries of a JVM are slow.
    of_rate(_ROWS[0])
    of_rate(_ROWS[0])
    spark.dataSource.register(ReadySource)
    rate = of_rate(1000)
    ready = spark.readStream.format("ready").load()
    taken = trigger_ms(ready, 1000, "noop", checkpointLocation=next(checkpoints))
    beside = f"{taken / rate:.2f} times Spark's rate source: {rate:.0f} ms"
    show("trigger of 1000 rows, a Python source without work to noop", f"{taken:.0f} ms", beside)
    for rows in _ROWS:
        for queues in _QUEUES:
            path = _store(work, queues, rows)
            rate = of_rate(rows)
            taken = trigger_ms(_from_store(spark, path, rows), rows, "noop", checkpointLocation=next(checkpoints))
            shutil.rmtree(path)
            beside = f"{taken / rate:.2f} times Spark's rate source: {rate:.0f} ms"
            show(f"trigger of {rows} rows, store of {queues} queues to noop", f"{taken:.0f} ms", beside)
    for queues in (1, 4):
        rate = of_rate(1000)
        sink = {"path": str(work / f"out-{queues}"), "topic": "out", "checkpointLocation": next(checkpoints)}
        taken = trigger_ms(_from_store(spark, _store(work, queues, 1000), 1000), 1000, "commitlog", **sink)
        beside = f"{taken / rate:.2f} times rate: {rate:.0f} ms"
        show(f"trigger of 1000 rows, store of {queues} queues to store", f"{taken:.0f} ms", beside)


def _measure_kafka(spark: SparkSession, work: Path, address: str) -> None:
    servers = {"kafka.bootstrap.servers": address}
    rows = spark.range(1000 * (WARM_UP + TRIGGERS + 5))
    text = f"concat(cast(id + 100000000 as string), '{'x' * (_BODY_SIZE - 9)}')"
    rows.selectExpr(f"cast({text} as binary) as value").write.format("kafka").options(**servers, topic="in").save()
    options = {**servers, "subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000"}
    frame = spark.readStream.format("kafka").options(**options).load().select("value")
    sinks: dict[str, dict[str, Any]] = {"noop": {}, "kafka": {**servers, "topic": "out"}}
    for sink, settings in sinks.items():
        settings["checkpointLocation"] = str(work / f"kafka-to-{sink}")
        show(f"trigger of 1000 rows, Kafka to {sink}", f"{trigger_ms(frame, 990, sink, **settings):.0f} ms")


def _run(unix_sockets: bool, shown: SimpleQueue[tuple[str, str, str]]) -> None:
    on_show(lambda *line: shown.put(line))
    print(f"  Unix domain sockets to the Python workers: {unix_sockets}", flush=True)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=scratch())))
        settings = {
            "spark__sql__streaming__numRecentProgressUpdates": "10000",
            "spark__python__unix__domain__socket__enabled": str(unix_sockets).lower(),
        }
        address = None
        try:
            settings["spark__jars"] = ",".join(map(str, connector_jars()))
            address = stack.enter_context(running_broker(work))
        except KafkaUnavailable as error:
            print(f"  without Kafka: {error}")
        spark = start_spark(work, **settings)
        spark.sparkContext.setLogLevel("OFF")
        _measure(spark, work)
        if address is not None:
            _measure_kafka(spark, work, address)
        spark.stop()


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    make_java_available()
    for unix_sockets in (False, True):  # a setting of the Java machine
        context = multiprocessing.get_context("spawn")
        shown: SimpleQueue[tuple[str, str, str]] = context.SimpleQueue()
        process = context.Process(target=_run, args=(unix_sockets, shown))
        process.start()
        process.join()
        while not shown.empty():
            label, value, beside = shown.get()
            note(f"{'Unix sockets' if unix_sockets else 'TCP'}: {label}", value, beside)
