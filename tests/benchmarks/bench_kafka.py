"""Large batches beside Spark's Kafka connector: rows written, and all default columns read, in turns in one run."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.measure import GIB, in_turns, machine, made_rows, scratch, show, to_noop
from tests.support.kafka_peer import KafkaUnavailable, connector_jars, running_broker
from tests.support.local_spark import make_java_available, start_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Bytes of a body, and rows.
_SIZES = ((1024, 1_000_000), (100, 4_000_000))
# More than a side writes in a turn.
_TOUCHED = 4 * GIB


def _measure(spark: SparkSession, work: Path, address: str, body_size: int, count: int) -> None:
    servers = {"kafka.bootstrap.servers": address}
    rows = made_rows(spark, body_size, count)
    values = rows.withColumnRenamed("body", "value")
    store, topic = work / f"store-{body_size}", f"rows-{body_size}"
    written: list[str] = []

    def remove_store() -> None:
        """Each turn writes to a new store."""
        shutil.rmtree(store, ignore_errors=True)

    def to_store() -> None:
        rows.write.format("commitlog").options(path=str(store), topic="rows").mode("append").save()

    def to_kafka() -> None:
        """Into a new topic each time, and only the last is read."""
        written.append(f"{topic}-{len(written)}")
        values.write.format("kafka").options(**servers, topic=written[-1]).save()

    _show(
        f"batch write, {body_size} B",
        count,
        *in_turns(to_store, to_kafka, before=remove_store, touched=_TOUCHED),
        goal=1.3,
    )
    of_store = spark.read.format("commitlog").options(path=str(store), subscribe="rows").load()
    of_kafka = spark.read.format("kafka").options(**servers, subscribe=written[-1]).load()
    assert of_store.count() == of_kafka.count() == count
    taken = in_turns(lambda: to_noop(of_store), lambda: to_noop(of_kafka), touched=_TOUCHED)
    _show(f"default columns to noop, {body_size} B", count, *taken, goal=3)


def _show(what: str, rows: int, mine: float, kafka: float, *, goal: float) -> None:
    show(f"{what}: Kafka", f"{rows / kafka / 1e3:.0f} k rows/s")
    show(f"{what}: store", f"{rows / mine / 1e3:.0f} k rows/s", f"{kafka / mine:.2f} times Kafka (goal {goal})")


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    make_java_available()
    for body_size, count in _SIZES:  # a broker of its own for each, so that its logs are gone before the next
        with tempfile.TemporaryDirectory(dir=scratch()) as name:
            work = Path(name)
            try:
                jars = ",".join(map(str, connector_jars()))
                with running_broker(work) as address:
                    spark = start_spark(work, spark__jars=jars, spark__driver__memory="2g")
                    spark.sparkContext.setLogLevel("ERROR")
                    _measure(spark, work, address, body_size, count)
                    spark.stop()
            except KafkaUnavailable as error:
                print(f"  without Kafka: {error}")
                return
