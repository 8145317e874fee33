"""Reads and writes with a token, and with wrong ones, and keeps what users see of it, and Spark's event log.

    python -m tests.connector.token_program BASE URL TOKEN WRONG

``BASE/seen`` gets plans, errors and pages of the UI, ``BASE/events`` the event log, ``BASE/checkpoint`` a checkpoint.
"""

from __future__ import annotations

import sys
import traceback
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.support.local_spark import QUICK_SPARK, start_spark
from tests.support.waiting import WAIT_LIMIT_S

PAGES = ("jobs/", "stages/", "environment/", "executors/", "SQL/", "StreamingQuery/")
# Of the REST interface.
ANSWERS = ("jobs", "stages", "environment", "allexecutors", "sql?details=true&planDescription=true&length=1000")


class Seen:
    """What was seen, each in a file of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir()

    def keep(self, name: str, text: str) -> None:
        (self._path / f"{len(list(self._path.iterdir())):03}-{name}").write_text(text)

    def keep_plans(self, spark: SparkSession, name: str, frame: DataFrame) -> None:
        jvm: Any = spark._jvm
        execution = frame._jdf.queryExecution()
        self.keep(name, execution.toString())
        for mode in ("extended", "codegen", "cost", "formatted"):
            self.keep(f"{name}-{mode}", jvm.PythonSQLUtils.explainString(execution, mode))

    def keep_error(self, name: str, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001  # whatever it is, the user sees it
            self.keep(name, f"{error}\n{error!r}\n{traceback.format_exc()}")
        else:
            raise AssertionError(f"{name} was to fail")


def main(directory: str, url: str, token: str, wrong: str) -> None:
    base = Path(directory)
    seen = Seen(base / "seen")
    (base / "events").mkdir()
    settings = {
        "spark__eventLog__enabled": "true",
        "spark__eventLog__compress": "false",
        "spark__eventLog__dir": (base / "events").as_uri(),
        "spark__ui__enabled": "true",
        "spark__ui__port": "0",
    }
    spark = start_spark(base / "scratch", **(QUICK_SPARK | settings))
    spark.sparkContext.setLogLevel("INFO")
    use(spark, seen, url, token, base / "checkpoint")
    for given in (wrong, f"two words {wrong}"):
        seen.keep_error("read", lambda: read(spark, url, given).collect())  # noqa: B023
        seen.keep_error("write", lambda: write(spark.sql("select 'a' as body"), url, given))  # noqa: B023
        seen.keep_error("stream", lambda: copy(spark, seen, url, given, base / "failed"))  # noqa: B023
    seen.keep_error("row", lambda: write(spark.sql("select cast(null as string) as body"), url, token))
    keep_pages(spark, seen)
    spark.sparkContext.setLogLevel("WARN")  # this process runs other programs, too
    spark.stop()
    print("fine")


def use(spark: SparkSession, seen: Seen, url: str, token: str, checkpoint: Path) -> None:
    """All ways in which a token is given."""
    frame = read(spark, url, token)
    assert frame.count() > 0
    seen.keep_plans(spark, "read", frame)
    write(spark.sql("select 'a' as body"), url, token)
    copy(spark, seen, url, token, checkpoint)
    options = f"path '{url}', subscribe 'orders', token '{token}'"
    spark.sql(f"create temporary view orders using commitlog options ({options})")
    selected = spark.sql("select queueId, count(*) from orders group by queueId")
    assert selected.collect()
    seen.keep_plans(spark, "view", selected)
    options = f"path '{url}', topic 'copies', token '{token}'"
    spark.sql(f"create temporary view copies (body string) using commitlog options ({options})")
    inserted = spark.sql("insert into copies values ('b')")
    seen.keep_plans(spark, "insert", inserted)


def read(spark: SparkSession, url: str, token: str) -> DataFrame:
    return spark.read.format("commitlog").options(subscribe="orders", token=token).load(url)


def write(frame: DataFrame, url: str, token: str) -> None:
    frame.write.format("commitlog").mode("append").options(topic="copies", token=token).save(url)


def copy(spark: SparkSession, seen: Seen, url: str, token: str, checkpoint: Path) -> None:
    reader = spark.readStream.format("commitlog").options(subscribe="orders", startingOffsets="earliest", token=token)
    frame = reader.load(url).select("body", "tags")
    writer = frame.writeStream.format("commitlog").options(topic="copies", token=token)
    query: Any = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(url)
    try:
        assert query.awaitTermination(WAIT_LIMIT_S)
    finally:
        seen.keep("query", f"{query.exception()}\n{query.status}\n{query.recentProgress}")
        seen.keep("query-plan", query._jsq.explainInternal(True))


def keep_pages(spark: SparkSession, seen: Seen) -> None:
    context = spark.sparkContext
    answers: dict[str, str] = {}
    for name in ANSWERS:
        answers[name] = fetched(f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{name}")
        seen.keep("answer", answers[name])
    pages = [
        *PAGES,
        *(f"SQL/execution/?id={number}" for number in range(answers[ANSWERS[-1]].count('"planDescription"'))),
    ]
    for page in pages:
        seen.keep("page", fetched(f"{context.uiWebUrl}/{page}"))


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=WAIT_LIMIT_S) as answer:
        text: str = answer.read().decode()
    return text


if __name__ == "__main__":
    main(*sys.argv[1:])
