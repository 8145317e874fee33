"""The table's rows for Spark: a read gives what was put or fails with the cause; when asked to, it skips.

``make check`` reads a few kinds and compares the cause; ``make stress`` reads all kinds of all stores.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.damage_table.case import Case, CaseMaker
from tests.damage_table.kinds import KINDS, OURS, Seen
from tests.damage_table.test_table import STORES
from tests.damage_table.truth import Fate, Key
from tests.support.local_spark import make_java_available

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
    "queue: directory of a queue gone": "Of 14 consume-queue files, 12 exist. Run: commitlog doctor",
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
SKIP = {"corruptRecordMode": "skip", "failOnDataLoss": "false", "failOnMissingTopic": "false"}
CASES = [*(("closed", kind, error) for kind, error in CLOSED.items()), *(("killed", *one) for one in KILLED.items())]


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> CaseMaker:
    return CaseMaker(tmp_path_factory.mktemp("damage-table-spark"))


def read(spark: SparkSession, case: Case, **options: str) -> dict[Key, bytes]:
    topics = ",".join(sorted({key.topic for key in case.user}))
    frame = spark.read.format("commitlog").options(path=str(case.path), subscribe=topics, **options).load()
    rows = frame.select("topic", "queueId", "queueOffset", "body").collect()
    return {Key(row.topic, row.queueId, row.queueOffset): bytes(row.body) for row in rows}


def stream(spark: SparkSession, case: Case, checkpoints: Path, **options: str) -> dict[Key, bytes]:
    topics = ",".join(sorted({key.topic for key in case.user}))
    frame = spark.readStream.format("commitlog").options(
        path=str(case.path), subscribe=topics, startingOffsets="earliest", **options
    )
    name = f"rows_of_{uuid4().hex}"
    query = frame.load().writeStream.format("memory").queryName(name)
    query.trigger(availableNow=True).option("checkpointLocation", str(checkpoints / name)).start().awaitTermination()
    rows = spark.table(name).select("topic", "queueId", "queueOffset", "body").collect()
    spark.catalog.dropTempView(name)
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
        assert read(spark, case, **SKIP) == there


@pytest.mark.parametrize(("store", "kind"), [(store, kind) for store, kind, error in CASES if "at its end" in error])
def test_a_stream_over_a_store_that_has_lost_its_end_fails_or_warns(
    spark: SparkSession, maker: CaseMaker, tmp_path: Path, store: str, kind: str
) -> None:
    from pyspark.errors import PySparkException

    _, _, case = maker.damaged(store, kind)
    with pytest.raises(PySparkException, match="lacks messages at its end"):
        stream(spark, case, tmp_path)
    assert stream(spark, case, tmp_path, failOnDataLoss="false").keys() == case.readable


# A directory in the place of a file is refused by name, whatever is to be skipped, and so is a log without files.
REFUSED = ("log: a directory in the place of a file", "log: directory empty (not mounted)", "log: directory gone")


def all_cases() -> Iterator[tuple[str, str]]:
    """Those whose files may be read: modes of files do not hold for a Spark of root's."""
    for store in STORES:
        for kind in KINDS.values():
            fits = store in kind.only if kind.only else store != "torn"
            if fits and not kind.name.endswith("not readable"):
                yield store, kind.name


def attempt(
    how: Callable[..., dict[Key, bytes]], spark: SparkSession, case: Case, *rest: Path, **options: str
) -> tuple[dict[Key, bytes], str]:
    """The rows, or none and why the read failed."""
    from pyspark.errors import PySparkException

    try:
        return how(spark, case, *rest, **options), ""
    except PySparkException as error:
        return {}, str(error)


def broken(case: Case, rows: dict[Key, bytes], failed: str, skipped: dict[Key, bytes], skip_failed: str) -> list[str]:
    """What is wrong with the rows of a read and of one that skips; ``failed`` is why a read has none."""
    wrong = []
    for name, delivered in (("a read", rows), ("a read that skips", skipped)):
        if changed := [key for key, body in delivered.items() if case.bodies.get(key) != body]:
            wrong.append(f"{name} delivers {len(changed)} changed messages")
    if not failed and (missing := case.user.keys() - case.truth.of(Fate.EXPIRED) - rows.keys() - case.hidden):
        wrong.append(f"a read leaves out {len(missing)} messages")
    if failed and "commitlog" not in failed.lower():
        wrong.append(f"a read does not say what failed: {failed[:500]}")
    if case.kind.name not in REFUSED:
        if skip_failed:
            wrong.append(f"a read that skips fails: {skip_failed[:500]}")
        elif missing := case.readable - skipped.keys():
            wrong.append(f"a read that skips leaves out {len(missing)} whole messages")
    harmless = case.kind.seen is Seen.NOTHING_WRONG or case.kind.name.startswith(("index:", "config:"))
    if failed and harmless and not case.truth.lost:
        wrong.append(f"a read of whole messages fails: {failed[:500]}")
    return wrong


@pytest.mark.stress
@pytest.mark.parametrize(("store", "kind"), list(all_cases()))
def test_each_kind_is_read_or_refused(spark: SparkSession, maker: CaseMaker, store: str, kind: str) -> None:
    _, _, case = maker.damaged(store, kind)
    rows, skipped = attempt(read, spark, case), attempt(read, spark, case, **SKIP)
    assert broken(case, *rows, *skipped) == []


@pytest.mark.stress
@pytest.mark.parametrize(("store", "kind"), [one for one in all_cases() if one[0] in OURS])
def test_a_stream_reads_or_refuses_each_kind(
    spark: SparkSession, maker: CaseMaker, tmp_path: Path, store: str, kind: str
) -> None:
    _, _, case = maker.damaged(store, kind)
    rows, skipped = attempt(stream, spark, case, tmp_path), attempt(stream, spark, case, tmp_path, **SKIP)
    assert broken(case, *rows, *skipped) == []


# Reads of the stores at argv[1:], each in two ways, as a user who may not read all of their files.
AS_A_USER = """
import json, sys
import pyspark_commitlog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for path in sys.argv[1:]:
    for options in ({}, {"corruptRecordMode": "skip", "failOnDataLoss": "false", "failOnMissingTopic": "false"}):
        source = spark.read.format("commitlog").options(path=path, subscribePattern="orders|audit|clicks", **options)
        try:
            print(json.dumps([path, source.load().count(), ""]), flush=True)
        except PySparkException as error:
            print(json.dumps([path, None, str(error)]), flush=True)
"""


@pytest.mark.stress
@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="modes do not hold for root")
def test_a_file_that_may_not_be_read_is_named(maker: CaseMaker, tmp_path: Path) -> None:
    """Whatever is to be skipped: its messages are there, for those who may read them."""
    cases = {}
    for number, kind in enumerate(kind for kind in KINDS if kind.endswith("not readable")):
        _, _, case = maker.damaged("closed", kind)
        closed = {file for file in case.path.rglob("*") if not file.stat().st_mode & 0o400}
        there = case.path.rename(tmp_path / f"store-{number}")
        cases[str(there)] = case, {file.name for file in closed}
    make_java_available()
    as_user = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*as_user, sys.executable, "-c", AS_A_USER, *cases], check=True, capture_output=True, text=True
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(answers) == 2 * len(cases)
    for path, rows, failed in answers:
        case, closed_files = cases[path]
        if case.kind.name.startswith(("index:", "checkpoint:")):
            assert rows == len(case.user), (case.kind.name, failed)
        else:
            assert any(name in failed for name in closed_files), (case.kind.name, rows, failed)
