"""The table's rows for Spark: a batch read gives what was put or fails with the cause; when asked to, it skips."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.damage_table.case import Case, CaseMaker
from tests.damage_table.truth import Key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__: list[str] = []

# A few kinds: each takes a second. The value is in the error; without one there is none.
KINDS = {
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
}


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> CaseMaker:
    return CaseMaker(tmp_path_factory.mktemp("damage-table-spark"))


def read(spark: SparkSession, case: Case, **options: str) -> dict[Key, bytes]:
    topics = ",".join(sorted({key.topic for key in case.user}))
    frame = spark.read.format("commitlog").options(path=str(case.path), subscribe=topics, **options).load()
    rows = frame.select("topic", "queueId", "queueOffset", "body").collect()
    return {Key(row.topic, row.queueId, row.queueOffset): bytes(row.body) for row in rows}


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_read_gives_what_was_put_or_fails_with_the_cause(
    spark: SparkSession, maker: CaseMaker, kind: str
) -> None:
    from pyspark.errors import PySparkException

    _, _, case = maker.damaged("closed", kind)
    there = {key: case.user[key] for key in case.readable}
    if not KINDS[kind]:
        assert not case.truth.lost
        assert read(spark, case) == there
        return
    with pytest.raises(PySparkException, match=KINDS[kind]):
        read(spark, case)
    if not kind.startswith("log: directory"):
        assert read(spark, case, corruptRecordMode="skip", failOnDataLoss="false") == there
