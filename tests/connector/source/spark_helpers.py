"""Reading, streaming and expected rows for the tests with a real Spark."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commitlog_store import ALL_COLUMNS
from pyspark_commitlog.source.schema import SPARK_TYPES
from tests.support.waiting import WAIT_LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType


ORDER = ("topic", "queueId", "queueOffset")


def struct(columns: Sequence[str]) -> StructType:
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(name, SPARK_TYPES[name], nullable=True) for name in columns])


def read(spark: SparkSession, path: Path | str, schema: StructType | str | None = None, **options: str) -> DataFrame:
    reader = spark.read.format("commitlog").options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load(str(path))


def stream(spark: SparkSession, path: Path | str, schema: StructType | str | None = None, **options: str) -> DataFrame:
    reader = spark.readStream.format("commitlog").options(**options)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load(str(path))


def expected_rows(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """RocketMQ's answers as rows of all columns, in the order of ``ORDER``."""
    rows = [_row(message) for message in messages]
    return sorted(rows, key=lambda row: tuple(row[name] for name in ORDER))


def expected_frame(spark: SparkSession, messages: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> DataFrame:
    rows = [tuple(row[name] for name in columns) for row in expected_rows(messages)]
    return spark.createDataFrame(rows, struct(columns))


def _row(message: Mapping[str, Any]) -> dict[str, Any]:
    properties = dict(message["properties"])
    row: dict[str, Any] = {name: message.get(name) for name in ALL_COLUMNS} | {
        "body": _body(message),
        "bornTimestamp": _time(message["bornTimestamp"]),
        "storeTimestamp": _time(message["storeTimestamp"]),
        "properties": properties,
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"),
        "uniqKey": properties.get("UNIQ_KEY"),
    }
    if row["bodyCrc"] >= 2**31:
        row["bodyCrc"] -= 2**32
    return row


def _body(message: Mapping[str, Any]) -> bytes:
    """The body as the source gives it. The compressed ones of the fixture all hold the same kind of text."""
    if message["sysFlag"] & 1:
        number = message["properties"]["KEYS"].removeprefix("z")
        return f"compressed body {number} ".encode() * 400
    return base64.b64decode(message["body"])


def _time(milliseconds: int) -> datetime:
    # PySpark takes and gives naive times in the local zone, which conftest sets to UTC.
    return datetime.fromtimestamp(milliseconds / 1000, tz=timezone.utc).replace(tzinfo=None)


class Batches:
    """Runs a stream into a list of rows per batch id; a batch that runs twice replaces itself."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.by_id: dict[int, list[Row]] = {}
        self.fail_on: int | None = None
        # What happens before and after the rows of a batch are read.
        self.before: Callable[[int], object] | None = None
        self.after: Callable[[int], object] | None = None

    def start(self, frame: DataFrame, **trigger: Any) -> Any:
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start()

    def run(self, frame: DataFrame, **trigger: Any) -> list[Row]:
        """Run to the end; the rows of the batches of this run."""
        before = set(self.by_id)
        query = self.start(frame, **trigger)
        if not query.awaitTermination(WAIT_LIMIT_S):
            query.stop()
            raise TimeoutError("the query did not end")
        return [row for batch_id in sorted(set(self.by_id) - before) for row in self.by_id[batch_id]]

    @property
    def rows(self) -> list[Row]:
        return [row for batch_id in sorted(self.by_id) for row in self.by_id[batch_id]]

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        if self.before is not None:
            self.before(batch_id)
        rows = frame.collect()
        if self.after is not None:
            self.after(batch_id)
        if batch_id == self.fail_on:
            raise RuntimeError("the sink fails, as the test wants")
        self.by_id[batch_id] = rows
