"""A stream over a mirror, while the mirror follows a live master and its follower is started again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from commitlog_store import MessageStore
from tests.connector.source.spark_helpers import Batches, stream
from tests.store.follower.mirrors import assert_identical, follow, master_of
from tests.store.owner.owned_store import put_ok
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Of several log files, in three queues.
MESSAGES = 600


def _fill(store: MessageStore, start: int, stop: int) -> None:
    for number in range(start, stop):
        put_ok(store, body=b"%d " % number * 40, queue_id=number % 3)


def test_a_stream_over_a_mirror_reads_each_message_once(spark: SparkSession, tmp_path: Path) -> None:
    """The stream runs on while the follower is away, and while it appends what it missed."""
    mirror, batches = tmp_path / "mirror", Batches(tmp_path / "checkpoint")
    query = None
    try:
        with master_of(tmp_path / "master") as master:
            _fill(master, 0, 100)
            with follow(master, mirror) as follower:
                assert_identical(master, follower)
                frame = stream(
                    spark, mirror, "queueId int, queueOffset bigint", subscribe="orders", startingOffsets="earliest"
                )
                query = batches.start(frame, processingTime="1 second")
                wait_for(lambda: len(batches.rows) >= 100 or not query.isActive)
                _fill(master, 100, 300)
            _fill(master, 300, 400)
            with follow(master, mirror) as follower:
                _fill(master, 400, MESSAGES)
                assert_identical(master, follower)
                wait_for(lambda: len(batches.rows) >= MESSAGES or not query.isActive)
        assert query.exception() is None
    finally:
        if query is not None:
            query.stop()
    read = sorted((row.queueId, row.queueOffset) for row in batches.rows)
    assert read == [(queue_id, offset) for queue_id in range(3) for offset in range(MESSAGES // 3)]
