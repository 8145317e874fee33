"""The table's rows for Spark: a batch read gives what was put or fails with the cause; when asked to, it skips."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.damage_table.case import Case, CaseMaker
from tests.damage_table.truth import Key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# A few kinds: each takes a second. The value is in the error; without one there is none.
CLOSED = {
    "nothing": "",
    "log: first file gone": "",
    "log: newest file gone": "is missing",
    "log: middle file gone": "is missing",
    "log: two files swapped": "MAGICCODE",
    "log: MAGICCODE flipped": "MAGICCODE",
    "log: body flipped": "BODYCRC",
    "log: directory empty (not mounted)": "commitlog",
    "queue: a unit zeroed": "Unit of queue offset",
    "queue: two queues swapped": "QUEUEID",
    "queue: the last unit zeroed": "lacks messages at its end",
}
# Those that a crash would explain, if the checkpoint did not say what had been flushed.
KILLED = {
    "nothing": "",
    "log: newest file gone": "is missing",
    "log: newest file short": "is missing",
    "log: newest file zeroed": "MAGICCODE",
    "log: body of the newest message flipped": "BODYCRC",
    "queue: newest file gone": "lacks messages at its end",
}
CASES = [*(("closed", kind, error) for kind, error in CLOSED.items()), *(("killed", *one) for one in KILLED.items())]


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> CaseMaker:
    return CaseMaker(tmp_path_factory.mktemp("damage-table-spark"))


def read(spark: SparkSession, case: Case, **options: str) -> dict[Key, bytes]:
    topics = ",".join(sorted({key.topic for key in case.user}))
    frame = spark.read.format("commitlog").options(path=str(case.path), subscribe=topics, **options).load()
    rows = frame.select("topic", "queueId", "queueOffset", "body").collect()
    return {Key(row.topic, row.queueId, row.queueOffset): bytes(row.body) for row in rows}


@pytest.mark.parametrize(("store", "kind", "error"), CASES)
def test_a_batch_read_gives_what_was_put_or_fails_with_the_cause(
    spark: SparkSession, maker: CaseMaker, store: str, kind: str, error: str
) -> None:
    from pyspark.errors import PySparkException

    _, _, case = maker.damaged(store, kind)
    there = {key: case.user[key] for key in case.readable}
    if not error:
        assert not case.truth.lost
        assert read(spark, case) == there
        return
    with pytest.raises(PySparkException, match=error):
        read(spark, case)
    if not kind.startswith("log: directory"):
        assert read(spark, case, corruptRecordMode="skip", failOnDataLoss="false") == there


@pytest.mark.parametrize(("store", "kind"), [(store, kind) for store, kind, error in CASES if "at its end" in error])
def test_a_stream_over_a_store_that_has_lost_its_end_fails_or_warns(
    spark: SparkSession, maker: CaseMaker, tmp_path: Path, store: str, kind: str
) -> None:
    from pyspark.errors import PySparkException

    _, _, case = maker.damaged(store, kind)

    def run(**options: str) -> set[Key]:
        topics = ",".join(sorted({key.topic for key in case.user}))
        frame = spark.readStream.format("commitlog").options(
            path=str(case.path), subscribe=topics, startingOffsets="earliest", **options
        )
        name = f"rows_of_{uuid4().hex}"
        query = frame.load().writeStream.format("memory").queryName(name)
        query.trigger(availableNow=True).option("checkpointLocation", str(tmp_path / name)).start().awaitTermination()
        return {Key(*row) for row in spark.table(name).select("topic", "queueId", "queueOffset").collect()}

    with pytest.raises(PySparkException, match="lacks messages at its end"):
        run()
    assert run(failOnDataLoss="false") == set(case.readable)
