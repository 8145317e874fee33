"""The list of topics in a commit, without a Spark: checked under the store's lock, before the rows."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import MessageStore
from commitlog_store.batch_id import BatchId
from commitlog_store.errors import BatchConflict, PutRefused, StagingLost, StoreIOError
from commitlog_store.files import disk
from commitlog_store.stager import queue_counts
from pyspark_commitlog.options.write import parse_batch_write_options
from pyspark_commitlog.sink.columns import SinkColumns
from pyspark_commitlog.sink.commit import commit_staged, prepare_store
from pyspark_commitlog.sink.task import StagedRows, StageTask
from tests.connector.sink.sink_helpers import SMALL, body_texts, messages, staged_files
from tests.support.clean_store import assert_clean


class Write:
    """One write into a store: planned now, staged and committed when the test says so."""

    def __init__(self, store: Path, app: str, version: int = 0, fingerprint: str = "", **options: str) -> None:
        self.options = parse_batch_write_options(SMALL | {"path": str(store)} | options)
        self.batch = BatchId(app, version, fingerprint)
        prepare_store(self.options)
        self._counts = queue_counts(self.options.path, None, self.options.queues)

    def stage(self, **columns: Any) -> StagedRows:
        task = StageTask(options=self.options, columns=SinkColumns(tuple(columns)), queue_counts=self._counts)
        return StagedRows(
            partition=0, batch=self.batch, staged=task.stage([pa.record_batch(columns)], self.batch, 0, 0)
        )

    def commit(self, *staged: StagedRows) -> None:
        commit_staged(self.options, self.batch, staged)

    def run(self, **columns: Any) -> None:
        self.commit(self.stage(**columns))


def numbers(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32())


def listed(store: Path) -> dict[str, tuple[int, int]]:
    """Each topic's number of queues to write to and to read."""
    table = json.loads((store / "config/topics.json").read_text())["topicConfigTable"]
    return {topic: (entry["writeQueueNums"], entry["readQueueNums"]) for topic, entry in table.items()}


def test_rows_that_were_spread_over_more_queues_than_the_topic_has_are_not_written(tmp_path: Path) -> None:
    """Two writers create one topic. A sharding key must not lie in two queues, nor rows in queues without consumers."""
    many, few = Write(tmp_path, "many", queues="8"), Write(tmp_path, "few", queues="2")
    late = [many.stage(body=["a"] * 8), many.stage(body=["b"] * 8)]
    few.run(body=["c"] * 8)
    with pytest.raises(PutRefused) as caught:
        many.commit(*late)
    said = str(caught.value)
    assert "Topic 'orders' has 2 queues" in said
    assert "were spread over 8" in said
    assert "Nothing was written; run it again" in said
    assert listed(tmp_path) == {"orders": (2, 2)}
    Write(tmp_path, "many", queues="8").run(body=["d"] * 8)
    assert {message.queue_id for message in messages(tmp_path)} == {0, 1}
    assert body_texts(tmp_path) == ["c"] * 8 + ["d"] * 8
    assert not staged_files(tmp_path), "the version's next attempt takes away what the first one left"
    assert_clean(tmp_path)


def test_rows_spread_over_fewer_queues_than_the_topic_has_are_written(tmp_path: Path) -> None:
    many, few = Write(tmp_path, "many", queues="8"), Write(tmp_path, "few", queues="2")
    late = few.stage(body=["a"] * 8)
    many.run(body=["b"] * 8)
    few.commit(late)
    assert listed(tmp_path) == {"orders": (8, 8)}


def test_rows_that_name_their_queues_are_not_spread_over_any_number(tmp_path: Path) -> None:
    many, few = Write(tmp_path, "many", queues="8"), Write(tmp_path, "few", queues="2")
    late = many.stage(body=["a"] * 8, queueId=numbers(*range(8)))
    few.run(body=["b"] * 8)
    many.commit(late)
    assert listed(tmp_path) == {"orders": (2, 8)}, "spread over as many as before, and all of them are read"


def test_a_queue_beyond_those_of_a_listed_topic_is_added_to_the_list(tmp_path: Path) -> None:
    Write(tmp_path, "app", 1, queues="2").run(body=["a"])
    path = tmp_path / "config/topics.json"
    root = json.loads(path.read_text())
    root["topicConfigTable"]["orders"] |= {"perm": 2, "attributes": {"+message.type": "FIFO"}, "order": True}
    path.write_text(json.dumps(root))
    Write(tmp_path, "app", 2).run(body=["b"] * 2, queueId=numbers(9, None))
    found = json.loads(path.read_text())
    assert found["topicConfigTable"]["orders"] == root["topicConfigTable"]["orders"] | {"readQueueNums": 10}
    assert found["dataVersion"]["counter"] == root["dataVersion"]["counter"] + 1
    before = path.stat().st_mtime_ns
    Write(tmp_path, "app", 3).run(body=["c"] * 2, queueId=numbers(9, 3))
    assert path.stat().st_mtime_ns == before, "it says so already"
    for beyond in (65_536, 2**31 - 1):
        with pytest.raises(PutRefused, match=f"its queueId is {beyond}; it must be 0 to 65535"):
            Write(tmp_path, "app", 4).run(body=["d"], queueId=numbers(beyond))
    Write(tmp_path, "app", 4).run(body=["d"], queueId=numbers(65_535))
    assert listed(tmp_path) == {"orders": (2, 65_536)}


def test_a_topic_whose_first_rows_are_all_delayed_is_listed(tmp_path: Path) -> None:
    Write(tmp_path, "app", 1, queues="8").run(body=["a"] * 8, delayLevel=numbers(*[1] * 8))
    assert listed(tmp_path) == {"orders": (8, 8)}
    Write(tmp_path, "app", 2, queues="2").run(body=["b"] * 8)
    waiting = {message.properties["REAL_QID"] for message in messages(tmp_path, "SCHEDULE_TOPIC_XXXX")}
    assert waiting == {str(message.queue_id) for message in messages(tmp_path)} == set("01234567")


def test_a_commit_that_writes_nothing_lists_nothing(tmp_path: Path) -> None:
    Write(tmp_path, "app", 1, "plan", topic="first").run(body=["a"])
    before = (tmp_path / "config/topics.json").read_bytes()
    with pytest.raises(BatchConflict):
        Write(tmp_path, "app", 1, "another plan", topic="second").run(body=["b"])
    Write(tmp_path, "app", 1, "plan", topic="third").run(body=["c"])
    lost = Write(tmp_path, "app", 2, topic="fourth")
    staged = lost.stage(body=["d"])
    shutil.rmtree(tmp_path / "staging" / "app")
    with pytest.raises(StagingLost):
        lost.commit(staged)
    assert (tmp_path / "config/topics.json").read_bytes() == before


def test_a_commit_that_dies_before_its_rows_leaves_a_listed_topic_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages in a topic that is not listed would be spread again by the next writer; the other way does no harm."""
    write = Write(tmp_path, "app", 1, queues="3")
    staged = write.stage(body=["a"] * 3)
    real = disk.write_at

    def fail_in_the_log(descriptor: int, data: Any, offset: int) -> Any:
        if "/commitlog/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(5, "as the test wants")
        return real(descriptor, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_at", fail_in_the_log)
        with pytest.raises(StoreIOError, match="as the test wants"):
            write.commit(staged)
    assert listed(tmp_path) == {"orders": (3, 3)}
    assert body_texts(tmp_path) == []
    Write(tmp_path, "app", 1, queues="8").run(body=["a"] * 8)
    assert {message.queue_id for message in messages(tmp_path)} == {0, 1, 2}


def test_topics_that_other_writers_list_concurrently_stay(tmp_path: Path) -> None:
    write = Write(tmp_path, "app", 1)
    staged = write.stage(body=["a"])
    with MessageStore.open(tmp_path) as store:
        store.create_topic("beside", 1)
    write.commit(staged)
    assert listed(tmp_path) == {"beside": (1, 1), "orders": (4, 4)}
