"""A Spark driver with two streams, until it is ended: ``python -m tests.soak.stream BASE``.

One reads by the address and writes to a second server, the other reads the directory with its archive and writes a
directory. Both write each row into the topic and the queue that it was read from, so the copies are in its order.
A query that fails is in the log, which the campaign reads.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.connector.sink_failures.driver import QUICK_DRIVER
from tests.soak.base import STREAMED, TOPICS, Base
from tests.support.local_spark import few_processes, start_spark
from tests.support.quick_spark import make_spark_quick

SMALL_FILES = {
    "mappedFileSizeCommitLog": "1m",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "20000",
}


def main(directory: str) -> None:
    make_spark_quick()
    base = Base.read(directory)
    scratch = base.path("spark")
    scratch.mkdir(exist_ok=True)
    spark = start_spark(Path(scratch), **(QUICK_DRIVER | few_processes()))
    source = spark.readStream.format("commitlog").option("startingOffsets", "earliest")
    by_address = source.option("subscribe", ",".join(STREAMED)).option("archive", base.archive_to_read).load(base.url)
    by_directory = (
        source.option("subscribe", ",".join(TOPICS)).option("archive", base.archive_to_read).load(str(base.store))
    )
    queries = []
    for name, frame, target, options in (
        ("by-address", by_address, base.sink_url, {"rpcTimeout": "60s"}),
        ("by-directory", by_directory, str(base.path("copy")), SMALL_FILES),
    ):
        writer = frame.select("topic", "queueId", "body").writeStream.format("commitlog").options(**options)
        checkpoint = str(base.path(f"checkpoint-{name}"))
        queries.append(
            writer.option("checkpointLocation", checkpoint)
            .queryName(name)
            .trigger(processingTime="500 milliseconds")
            .start(target)
        )
    try:
        spark.streams.awaitAnyTermination()
    finally:
        for query in queries:
            print(query.name, query.isActive, query.exception(), file=sys.stderr, flush=True)
    sys.exit(3)


if __name__ == "__main__":
    main(*sys.argv[1:])
