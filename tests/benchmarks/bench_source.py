"""Source to noop on local[2], beside the ceiling of Spark's own Python path in the same run."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.ceiling import CeilingSource
from tests.benchmarks.measure import GIB, best_of, machine, message_store, show
from tests.support.local_spark import start_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_RUNS = 3
_worker_peaks_mib: dict[str, int] = {}
_BATCH_SIZES = (2_000, 4_000, 8_000, 16_000, 32_000)


def _rows_per_second(frame: DataFrame, rows: int) -> float:
    rate = rows / best_of(_RUNS, lambda: frame.write.format("noop").mode("overwrite").save())
    _look_at_workers()
    return rate


def _source(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    reader = spark.read.format("commitlog").option("path", str(path)).option("subscribe", "orders")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def _ceiling(spark: SparkSession, path: Path, like: DataFrame, rows: int, batch_rows: int) -> float:
    frame = (
        spark.read.format("ceiling")
        .schema(like.schema)
        .options(path=str(path), rows=rows, partitions=like.rdd.getNumPartitions(), batchRows=batch_rows)
        .load()
    )
    return _rows_per_second(frame, rows)


def _figure(rate: float) -> str:
    return f"{rate / 1e6:.3f} M rows/s"


def _against_ceiling(spark: SparkSession, label: str, body_size: int, goal: float, crc_goal: float) -> None:
    path = message_store(f"2g-{label}", body_size=body_size, size=2 * GIB)
    frame = _source(spark, path, verifyCrc=False)
    rows = frame.count()
    ceilings = {size: _ceiling(spark, path, frame, rows, size) for size in _BATCH_SIZES}
    for size, rate in ceilings.items():
        show(f"{label}: ceiling, batches of {size} rows", _figure(rate))
    ceiling = max(ceilings.values())
    rate = _rows_per_second(frame, rows)
    show(f"{label}: source, no CRC", _figure(rate), f"{rate / ceiling:.0%} of the ceiling (goal {goal:.0%})")
    checked = _rows_per_second(_source(spark, path), rows)
    show(
        f"{label}: source, verifyCrc", _figure(checked), f"{checked / ceiling:.0%} of the ceiling (goal {crc_goal:.0%})"
    )
    bodies = spark.read.format("commitlog").schema("body binary").options(path=str(path), subscribe="orders").load()
    show(f"{label}: source, body alone", _figure(_rows_per_second(bodies, rows)))


def _flatness(spark: SparkSession) -> None:
    rates = {}
    for gib in (1, 8):
        path = message_store(f"{gib}g-1k", body_size=1024, size=gib * GIB)
        frame = _source(spark, path)
        rates[gib] = _rows_per_second(frame, frame.count())
        show(f"1k: source, {gib} GiB, four queues", _figure(rates[gib]))
    show("1k: 8 GiB against 1 GiB", f"{rates[8] / rates[1]:.0%}", "goal at least 90%")
    hot = message_store("2g-1k-hot", body_size=1024, size=2 * GIB, queues=1)
    even = message_store("2g-1k", body_size=1024, size=2 * GIB)
    one, four = (_source(spark, path) for path in (hot, even))
    hot_rate = _rows_per_second(one, one.count())
    even_rate = _rows_per_second(four, four.count())
    show("1k: one hot queue against four even ones", f"{hot_rate / even_rate:.0%}", "goal at least 90%")


def _look_at_workers() -> None:
    """Remember the most memory each Python worker ever took. Idle ones are ended after a while, so look often."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if b"pyspark.daemon" in (directory / "cmdline").read_bytes():
                peak = re.search(r"VmHWM:\s+(\d+) kB", (directory / "status").read_text())
                _worker_peaks_mib[directory.name] = int(peak[1]) >> 10 if peak else 0
        except (FileNotFoundError, ProcessLookupError):
            continue


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    with tempfile.TemporaryDirectory() as scratch:
        spark = start_spark(Path(scratch), spark__driver__memory="2g", spark__ui__showConsoleProgress="false")
        spark.dataSource.register(CeilingSource)
        _against_ceiling(spark, "1k", 1024, 0.80, 0.45)
        _against_ceiling(spark, "100b", 100, 0.75, 0.45)
        _flatness(spark)
        show(
            "largest Python worker, all of the above", f"{max(_worker_peaks_mib.values())} MiB", "goal at most 400 MiB"
        )
        spark.stop()
