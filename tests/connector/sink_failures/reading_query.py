"""A second streaming query, which reads the output all the time and keeps the rows of each of its micro-batches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tests.connector.sink_failures.output import TOPIC, Input, has_whole_batches
from tests.connector.source.spark_helpers import Batches, stream
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# So many batches are not written within one of its micro-batches.
_MANY = 5


class ReadingQuery:
    """Begins at the store's first message, so the store has to be there, if only an empty one; ends when it has read
    all that is there then. Entering the block waits for its first micro-batch, so whatever comes then is read as it
    comes.

    Leaving it checks that no micro-batch saw a part of a batch, and that all of them together saw each row once.
    """

    def __init__(self, spark: SparkSession, base: Path, store: Path, *inputs: Input) -> None:
        self._spark = spark
        self._store = store
        self._inputs = list(inputs)
        self._read = Batches(base / "checkpoint-of-the-reader")
        self._query: Any = None

    def __enter__(self) -> ReadingQuery:
        output = stream(self._spark, self._store, subscribe=TOPIC, startingOffsets="earliest")
        self._query = self._read.start(output.select("body", "queueId"), processingTime="50 milliseconds")
        wait_for(lambda: self._read.by_id or not self._query.isActive)
        return self

    def also_expect(self, one: Input) -> None:
        """Another input comes to be in the store."""
        self._inputs.append(one)

    def catch_up(self) -> None:
        """Read what is there now: it may be gone then."""
        self._query.processAllAvailable()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._query.processAllAvailable()
        finally:
            self._query.stop()
        if kind is None:
            self._check()

    def _check(self) -> None:
        taken = [[(bytes(row.body).decode(), row.queueId) for row in rows] for rows in self._read.by_id.values()]
        for rows in taken:
            for one in self._inputs:
                assert has_whole_batches(rows, one), f"the query read part of a batch of {one.name}: {rows}"
        found = Counter(row for rows in taken for row in rows)
        assert found == Counter(row for one in self._inputs for batch in one.order for row in one.written(batch))
        written = [batch for one in self._inputs for batch in one.order if one.written(batch)]
        if len(written) >= _MANY:
            assert len([rows for rows in taken if rows]) > 1, "it read while others wrote"
