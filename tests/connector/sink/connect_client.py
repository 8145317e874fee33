"""A client of Spark Connect, with a server of its own on this machine.

    python -m tests.connector.sink.connect_client BASE

It writes ``BASE/batch``, ``BASE/stream`` and ``BASE/each``, the last two from the text files in ``BASE/input``, and
looks up the messages of ``BASE/batch`` by key.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark_commitlog  # before the session: it points Spark's workers at this Python
from tests.connector.sink.sink_helpers import SMALL, append, stream_to
from tests.support.local_spark import make_java_available
from tests.support.waiting import WAIT_LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(directory: str) -> None:
    from pyspark.sql import SparkSession

    base = Path(directory)
    make_java_available()
    spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    for _ in range(2):
        rows = spark.range(5).selectExpr("cast(id as string) as body", "concat('k', id) as keys")
        append(rows, base / "batch", txnAppId="a", txnVersion=1)
    asked = spark.range(6).selectExpr("concat('k', id) as key")
    found = pyspark_commitlog.lookup(asked, base / "batch", "orders", "key", columns=["body"]).collect()
    bodies = {row.key: row.message and bytes(row.message.body) for row in found}
    assert bodies == {"k0": b"0", "k1": b"1", "k2": b"2", "k3": b"3", "k4": b"4", "k5": None}, bodies
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(base / "input"))
    stream_to(lines, base / "stream", base / "checkpoint")
    each, options = str(base / "each"), dict(SMALL)

    # It runs in a process of the server, so it holds nothing but texts.
    def write(frame: DataFrame, batch_id: int) -> None:
        writer = frame.write.format("commitlog").mode("append").options(**options)
        for _ in range(2):
            writer.option("txnAppId", "loader").option("txnVersion", str(batch_id)).save(each)

    query = lines.writeStream.foreachBatch(write).option("checkpointLocation", str(base / "checkpoint-each"))
    assert query.trigger(availableNow=True).start().awaitTermination(WAIT_LIMIT_S)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
