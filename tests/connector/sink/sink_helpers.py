"""Small stores, rows and messages for the tests of the sink."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commitlog_store import MessageExt, StoreReader
from tests.support.stored_bodies import topic_bodies
from tests.support.waiting import WAIT_LIMIT_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# Options under which files are small, so that a store is made in no time and a batch runs over many of them.
SMALL = {
    "topic": "orders",
    "mappedFileSizeCommitLog": "256k",
    "mappedFileSizeConsumeQueue": "4000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "1000",
}


def append(frame: DataFrame, path: Path | str, **options: Any) -> None:
    """One batch write; ``options`` go before those of ``SMALL``, and None takes one of them away."""
    given = {name: value for name, value in (SMALL | options).items() if value is not None}
    frame.write.format("commitlog").mode("append").options(**given).save(str(path))


def stream_to(frame: DataFrame, path: Path, checkpoint: Path | str, **options: Any) -> None:
    """Run a streaming query until its input is used up."""
    given = {name: value for name, value in (SMALL | options).items() if value is not None}
    writer = frame.writeStream.format("commitlog").options(**given).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(path))
    if not query.awaitTermination(WAIT_LIMIT_S):
        query.stop()
        raise TimeoutError("the query did not end")


def rows_of(spark: SparkSession, rows: Sequence[Any], schema: str, partitions: int = 1) -> DataFrame:
    """A frame of these rows in this order."""
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, partitions), schema)


def messages(path: Path, topic: str = "orders") -> list[MessageExt]:
    """All messages of a topic, queue by queue."""
    with StoreReader.open(path) as reader:
        return [
            reader.message_at(offset)
            for queue in reader.queues(topic)
            for batch in reader.read(
                topic, queue.queue_id, queue.min_offset, queue.max_offset, columns=["physicalOffset"]
            )
            for offset in batch.column("physicalOffset").to_pylist()
        ]


def body_texts(path: Path, topic: str = "orders") -> list[str]:
    """The bodies of a topic as sorted text; none when the topic does not exist."""
    return sorted(body.decode() for body in topic_bodies(path, topic))


def staged_files(path: Path) -> list[str]:
    """What lies in the staging area."""
    return sorted(str(one.relative_to(path)) for one in (path / "staging").rglob("*") if one.is_file())
