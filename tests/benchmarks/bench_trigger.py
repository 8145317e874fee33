"""What a trigger on an idle stream costs beyond Spark's own, with 4 and with 2,000 queues."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.idle_source import IdleSource
from tests.benchmarks.measure import machine, many_queues, message_store, show
from tests.support.local_spark import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_SECONDS = 15


def _idle_trigger_ms(frame: DataFrame, checkpoint: Path) -> float:
    """The median duration of triggers that found nothing new, in milliseconds."""
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
        time.sleep(2)
        before = len(query.recentProgress)
        time.sleep(_SECONDS)
        idle = [p for p in query.recentProgress[before:] if p["numInputRows"] == 0]
    finally:
        query.stop()
    return float(statistics.median(p["durationMs"]["triggerExecution"] for p in idle))


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    with tempfile.TemporaryDirectory() as scratch:
        # A progress event for every trigger, also for those without data.
        spark = start_spark(
            Path(scratch),
            spark__sql__streaming__noDataProgressEventInterval="0",
            spark__sql__streaming__pollingDelay="200ms",
            spark__sql__streaming__numRecentProgressUpdates="10000",
        )
        spark.dataSource.register(IdleSource)
        own = _idle_trigger_ms(spark.readStream.format("idle").load(), Path(scratch, "idle"))
        show("idle trigger, a source that does nothing", f"{own:.0f} ms")
        for label, path, goal in (
            ("4 queues", message_store("small", body_size=100, size=1 << 20), 15),
            ("2,000 queues", many_queues(), 50),
        ):
            options = {"path": str(path), "subscribePattern": ".*", "startingOffsets": "latest"}
            frame = spark.readStream.format("commitlog").options(**options).load()
            taken = _idle_trigger_ms(frame, Path(scratch, label))
            show(f"idle trigger, {label}", f"{taken:.0f} ms", f"adds {taken - own:.0f} ms (goal at most {goal})")
        spark.stop()
