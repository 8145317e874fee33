"""Visibility of a batch for readers while it is being committed."""

from __future__ import annotations

import errno
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.errors import CorruptConsumeQueue
from commitlog_store.reader import QueueInfo
from pyspark_commitlog.options.read import parse_batch_options
from tests.connector.sink_failures.output import TOPIC, Input
from tests.connector.sink_failures.query import Query, register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=4000,
    max_hash_slot_num=100,
    max_index_num=1000,
)


def commit(store: Path, version: int, queues: list[int]) -> None:
    """A batch with one message for each of these queues."""
    rows = pa.table({"body": [b"x"] * len(queues), "queueId": pa.array(queues, pa.int32())})
    with MessageStore.open(store, CONFIG) as owner, owner.transaction("app", version) as batch:
        batch.put_messages(rows, topic=TOPIC)


def commit_behind_the_listing(reader: StoreReader, store: Path) -> None:
    """Let a batch that has queues of its own be committed right after the next listing of queues."""
    listing = reader._catalog.queue_ids

    def list_and_commit(topic: str) -> list[int]:
        found = listing(topic)
        reader._catalog.queue_ids = listing  # type: ignore[method-assign]
        commit(store, 2, [0, 1, 2, 3])
        return found

    reader._catalog.queue_ids = list_and_commit  # type: ignore[method-assign]


def check(infos: list[QueueInfo]) -> None:
    ends = {info.queue_id: info.max_offset for info in infos}
    assert ends in ({0: 1, 1: 1}, {0: 2, 1: 2, 2: 1, 3: 1}), f"part of a batch: {ends}"


def test_a_batch_with_new_queues_is_seen_by_readers_at_once(tmp_path: Path) -> None:
    commit(tmp_path, 1, [0, 1])
    with StoreReader.open(tmp_path) as reader:
        commit_behind_the_listing(reader, tmp_path)
        check(reader.queues(TOPIC))


def test_a_batch_with_new_queues_is_seen_by_the_source_at_once(tmp_path: Path) -> None:
    commit(tmp_path, 1, [0, 1])
    options = parse_batch_options({"path": str(tmp_path), "subscribe": TOPIC})
    with StoreReader.open(tmp_path) as reader:
        commit_behind_the_listing(reader, tmp_path)
        check(list(options.subscription.bounds(reader).values()))


def test_a_query_fails_when_readers_do_not_get_its_batch(spark: SparkSession, tmp_path: Path) -> None:
    """Its batch is on the device; but the gate hides it until the store is opened again."""
    register(spark)
    query = Query(spark, tmp_path, Input(tmp_path / "input"))
    query.source.add()
    query.run_well()
    query.source.add()
    query.fail("error", batch=1, operation="write_at", path=f"/consumequeue/{TOPIC}/", code=errno.EIO)
    error = query.run()
    with StoreReader.open(query.store) as reader:
        ends = tuple(info.max_offset for info in reader.queues(TOPIC))
    assert error or ends == query.source.ends(range(2))


def test_a_unit_that_a_killed_owner_left_torn_hides_its_batch(tmp_path: Path) -> None:
    """A kill stops a write between two pages, and the first 8 bytes of unit 614 are the last of a page."""
    config = replace(CONFIG, mapped_file_size_consume_queue=20_000)
    with MessageStore.open(tmp_path, config) as owner:
        for version, count in enumerate((614, 1)):
            with owner.transaction("app", version) as batch:
                rows = pa.table({"body": [b"x"] * count, "queueId": pa.array([0] * count, pa.int32())})
                batch.put_messages(rows, topic=TOPIC)
        owner.dispatch()
        shutil.copytree(tmp_path, tmp_path.with_name("killed"))
    (file,) = (tmp_path.with_name("killed") / "consumequeue" / TOPIC / "0").iterdir()
    with file.open("r+b") as stream:
        stream.seek(614 * 20 + 8)
        stream.write(bytes(12))
    with StoreReader.open(tmp_path.with_name("killed")) as reader:
        assert reader.queue_info(TOPIC, 0).max_offset == 614
    with file.open("r+b") as stream:
        stream.seek(614 * 20)
        stream.write(b"\x01")
    with StoreReader.open(tmp_path.with_name("killed")) as reader, pytest.raises(CorruptConsumeQueue):
        reader.queue_info(TOPIC, 0)  # no kill does that: its row is not to be left out in silence
