"""A streaming query from an ``Input`` to a store, through the sink with planned failures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark_commitlog.options.write import parse_stream_write_options
from pyspark_commitlog.sink.commit import prepare_store
from tests.connector.sink.sink_helpers import SMALL
from tests.connector.sink_failures.failing_source import FORMAT, FailingSource, Failure, told
from tests.connector.sink_failures.output import TOPIC, Input
from tests.support.programs import python_path
from tests.support.waiting import WAIT_LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.query import StreamingQuery


# So that a batch may lie in several files of the log, and it is seldom that one is made.
_FILES = {"mappedFileSizeCommitLog": "16k"}


def register(spark: SparkSession, source: type[DataSource] = FailingSource) -> None:
    """Make a sink of the tests known. Spark's Python has to find these modules, from wherever it was started."""
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment["PYTHONPATH"] = python_path()
    try:
        spark.dataSource.register(source)
    finally:
        environment.clear()
        environment.update(before)


class Query:
    """``base`` gets the checkpoint, the plan, and the store unless another is given."""

    def __init__(
        self, spark: SparkSession, base: Path, source: Input, store: Path | None = None, **options: Any
    ) -> None:
        self.spark = spark
        self.source = source
        self.store = store or base / "store"
        self.checkpoint = base / f"checkpoint-{source.name}"
        self.plan = base / f"plan-{source.name}"
        self.options = SMALL | _FILES | {"topic": TOPIC, "plan": str(self.plan)} | options
        self.change: Callable[[DataFrame], DataFrame] = lambda frame: frame

    def fail(self, kind: str, **where: Any) -> None:
        Failure(kind=kind, **where).plan(self.plan)

    def start(self, **trigger: Any) -> StreamingQuery:
        frame = self.change(self.source.frame(self.spark))
        writer = frame.writeStream.format(FORMAT).options(**self.options)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"availableNow": True})).start(str(self.store))

    def run(self) -> str:
        """Run until the input is used up; what the query failed with, nothing when it did not."""
        return ended(self.start())

    def run_well(self) -> None:
        error = self.run()
        assert not error, error

    @property
    def told(self) -> list[dict[str, Any]]:
        return told(self.plan)

    def sizes(self, kind: str) -> list[int]:
        """How many file operations each commit had that returned, of those at which a failure of this kind may come."""
        counted = "writes" if kind == "half" else "operations"
        return [said[counted] for said in self.told if "commit" in said]

    @property
    def exits(self) -> list[int]:
        """At which of its operations each commit was cut off that was."""
        path = self.plan.with_suffix(".exits")
        return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def failed(self) -> list[str]:
        """The files for which an operation failed as planned."""
        path = self.plan.with_suffix(".failed")
        return path.read_text().splitlines() if path.exists() else []

    def make_store(self) -> None:
        """As planning its first batch does, so that the store can be read before that."""
        options = {name: str(value) for name, value in self.options.items() if name != "plan"}
        prepare_store(parse_stream_write_options(options | {"path": str(self.store)}))


def ended(query: StreamingQuery) -> str:
    """Wait for the end of a query; what it failed with, nothing when it did not."""
    from pyspark.errors import StreamingQueryException

    try:
        if not query.awaitTermination(WAIT_LIMIT_S):
            query.stop()
            raise TimeoutError("the query did not end")
    except StreamingQueryException as error:
        return str(error)
    return ""
