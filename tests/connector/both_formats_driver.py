"""Runs one job on a Kafka broker and on a store: two options are all that differs. Prints ``fine`` or what differs.

python -m tests.connector.both_formats_driver BASE
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from tests.connector.sink_failures.driver import QUICK_DRIVER
from tests.support.kafka_peer import KafkaUnavailable, connector_jars, running_broker
from tests.support.local_spark import make_java_available, start_spark
from tests.support.waiting import WAIT_LIMIT_S

# What is printed, with the reason, where there is no Kafka.
UNAVAILABLE = "no Kafka: "
ROWS = 500


class Job:
    """The job: ``format_name`` and ``connection`` are the only words that say where it reads and writes."""

    def __init__(self, spark: SparkSession, format_name: str, connection: dict[str, str], base: Path) -> None:
        self._spark = spark
        self._format = format_name
        self._connection = connection
        self._base = base

    def run(self) -> tuple[list[str], dict[str, list[str]], list[str], int]:
        """Schema; the values of each key in order; keys and headers of all rows; the number of rows."""
        self._write_orders()
        self._keep_large()
        reader = self._spark.read.format(self._format).options(**self._connection)
        large = reader.options(subscribe="large", includeHeaders="true").load()
        rows = large.orderBy("partition", "offset").collect()
        values = defaultdict(list)
        for row in rows:
            values[bytes(row.key).decode()].append(bytes(row.value).decode())
        headers = sorted(f"{bytes(row.key).decode()} {row.topic} {row.headers}" for row in rows)
        return [f"{one.name} {one.dataType.simpleString()}" for one in large.schema], dict(values), headers, len(rows)

    def _write_orders(self) -> None:
        for turn in range(3):  # a key's rows in three writes, one after the other
            rows = self._spark.range(ROWS).selectExpr(
                "concat('customer-', id % 10) AS key",
                f"cast(id + {turn * ROWS} AS string) AS value",
                "array(named_struct('key', 'shop', 'value', cast('berlin' AS binary))) AS headers",
            )
            writer = rows.coalesce(1).write.format(self._format).options(**self._connection)
            writer.option("topic", "orders").mode("append").save()

    def _orders(self) -> DataFrame:
        reader = self._spark.readStream.format(self._format).options(**self._connection)
        options = {"subscribe": "orders", "startingOffsets": "earliest", "includeHeaders": "true"}
        return reader.options(**options, maxOffsetsPerTrigger="400").load()

    def _keep_large(self) -> None:
        large = self._orders().where("cast(cast(value AS string) AS int) >= 700").select("key", "value", "headers")
        writer = large.writeStream.format(self._format).options(**self._connection).option("topic", "large")
        checkpoint = self._base / f"checkpoint-{self._format}"
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_LIMIT_S)


def main(directory: str) -> None:
    base = Path(directory)
    make_java_available()
    try:
        jars = ",".join(map(str, connector_jars()))
        with running_broker(base) as address:
            spark = start_spark(base / "scratch", **QUICK_DRIVER, spark__jars=jars)
            # A broker that has just started on a busy machine may take minutes for its first topic.
            kafka = {"kafka.bootstrap.servers": address, "kafka.delivery.timeout.ms": "600000"}
            in_kafka = Job(spark, "kafka", kafka, base).run()
            in_store = Job(spark, "commitlog", {"path": str(base / "store"), "rowFormat": "kafka"}, base).run()
            spark.stop()
    except KafkaUnavailable as error:
        print(UNAVAILABLE, error)
        return
    names = ("schema", "values of each key", "keys and headers", "number of rows")
    wrong = [f"{name}: {a}, {b}" for name, a, b in zip(names, in_kafka, in_store, strict=True) if a != b]
    print("\n".join(wrong) or "fine")


if __name__ == "__main__":
    main(*sys.argv[1:])
