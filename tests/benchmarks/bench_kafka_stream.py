"""Streaming reads beside Kafka's: 300,000 rows of 1 KiB a trigger, default columns to noop, in turns in one run."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.measure import machine, made_rows, scratch, show
from tests.support.kafka_peer import KafkaUnavailable, connector_jars, running_broker
from tests.support.local_spark import make_java_available, start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_BODY_SIZE = 1024
_ROWS = int(os.environ.get("STREAM_ROWS", "300000"))
# Triggers of a turn, of which the first one does not count: it starts the query.
_TRIGGERS = 5
_TURNS = 4
_GOAL = 1.5


def _trigger_s(frame: DataFrame, checkpoints: Iterator[Path]) -> list[float]:
    """The seconds of each trigger of a stream that reads everything there is."""
    checkpoint = next(checkpoints)
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    shutil.rmtree(checkpoint)
    # Kafka's source rounds each partition's share, so that a trigger with a few rows may be left.
    full = [one for one in query.recentProgress if one["numInputRows"] >= 0.9 * _ROWS]
    assert len(full) >= _TRIGGERS - 1, query.recentProgress
    return [one["durationMs"]["triggerExecution"] / 1000 for one in full[1:]]


def _measure(spark: SparkSession, work: Path, address: str) -> None:
    servers = {"kafka.bootstrap.servers": address}
    rows = made_rows(spark, _BODY_SIZE, _ROWS * _TRIGGERS)
    rows.write.format("commitlog").options(path=str(work / "store"), topic="rows").mode("append").save()
    rows.withColumnRenamed("body", "value").write.format("kafka").options(**servers, topic="rows").save()
    given = {"subscribe": "rows", "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(_ROWS)}
    sides: dict[str, Callable[[], DataFrame]] = {
        "Kafka": lambda: spark.readStream.format("kafka").options(**servers, **given).load(),
        "store": lambda: spark.readStream.format("commitlog").options(path=str(work / "store"), **given).load(),
    }
    taken: dict[str, list[float]] = {side: [] for side in sides}
    checkpoints = (work / f"checkpoint-{number}" for number in count())
    for turn in range(1 + _TURNS):
        for side, frame in sides.items():
            found = _trigger_s(frame(), checkpoints)
            if turn:  # the first turn starts and warms both
                taken[side] += found
    kafka, store = (statistics.median(taken[side]) for side in ("Kafka", "store"))
    label = f"trigger of {_ROWS:,} rows, {_BODY_SIZE} B"
    show(f"{label}: Kafka", f"{kafka:.3f} s, {_ROWS / kafka / 1e3:.0f} k rows/s")
    beside = f"{kafka / store:.2f} times Kafka (goal {_GOAL})"
    show(f"{label}: store", f"{store:.3f} s, {_ROWS / store / 1e3:.0f} k rows/s", beside)


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    make_java_available()
    with tempfile.TemporaryDirectory(dir=scratch()) as name:
        work = Path(name)
        try:
            jars = ",".join(map(str, connector_jars()))
            with running_broker(work) as address:
                spark = start_spark(work, spark__jars=jars, spark__driver__memory="2g")
                _measure(spark, work, address)
                spark.stop()
        except KafkaUnavailable as error:
            print(f"  without Kafka: {error}")
