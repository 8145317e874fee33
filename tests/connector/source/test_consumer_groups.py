"""``startingGroup``: a query starts where a consumer group stands. ``commitGroup``: a group follows a query."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructField, StructType

from commitlog_store import MessageStore, commit_group_offsets
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from pyspark_commitlog.errors import DataLossError, OptionError
from pyspark_commitlog.options.read import parse_batch_options, parse_stream_options
from pyspark_commitlog.source.batch_source import CommitLogBatchReader
from pyspark_commitlog.source.group_commits import GroupCommits
from pyspark_commitlog.source.limits_by_spark import CommitLogStreamReader
from pyspark_commitlog.source.partitions import RangePartition
from pyspark_commitlog.source.schema import check_schema
from pyspark_commitlog.source.stream_offset import StreamOffset
from tests.connector.source.planned_query import Query, filled
from tests.connector.source.sized_store import NewStore

PLACE = StructType([StructField("topic", StringType()), StructField("queueOffset", LongType())])
POSITIONS = {("orders", 0): 7, ("orders", 1): 10, ("audit", 0): 1}


def test_a_query_starts_at_the_positions_of_the_group(new_store: NewStore) -> None:
    store = filled(new_store)
    commit_group_offsets(store.path, "billing", POSITIONS)
    query = Query(store, subscribe="orders", startingGroup="billing")
    query.run()
    assert query.rows == [("orders", 0, 7), ("orders", 0, 8), ("orders", 0, 9)]
    commit_group_offsets(store.path, "billing", {("orders", 0): 0})
    query.restart()
    query.run()
    assert len(query.rows) == 3, "the checkpoint decides from then on"


@pytest.mark.parametrize(("strategy", "rows"), [({}, 10), ({"startingGroupStrategy": "latest"}, 0)])
def test_a_queue_without_a_position_starts_as_the_strategy_says(
    new_store: NewStore, caplog: pytest.LogCaptureFixture, strategy: dict[str, str], rows: int
) -> None:
    store = filled(new_store)
    commit_group_offsets(store.path, "billing", POSITIONS)
    query = Query(store, subscribe="audit", startingGroup="billing", **strategy)
    query.run()
    assert len([one for one in query.rows if one[:2] == ("audit", 0)]) == 9
    assert len([one for one in query.rows if one[:2] == ("audit", 1)]) == rows
    assert "Group 'billing' has no position in 1 of the 2 queues" in caplog.text


def test_a_batch_of_several_stores_warns_once_each_of_queues_without_a_position(
    new_store: NewStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where planning looks at each store twice, to share out the partitions."""
    store = filled(new_store)
    commit_group_offsets(store.path, "billing", POSITIONS)
    copy = shutil.copytree(store.path, tmp_path / "copy")
    given = {"path": f"a={store.path},b={copy}", "subscribe": "audit", "startingGroup": "billing", "minPartitions": "2"}
    CommitLogBatchReader(parse_batch_options(given), check_schema(PLACE)).partitions()
    assert [message.partition(" has no")[0] for message in caplog.messages] == [
        "Store 'a': Group 'billing'",
        "Store 'b': Group 'billing'",
    ]


def test_a_batch_starts_at_the_positions_too(new_store: NewStore) -> None:
    store = filled(new_store)
    commit_group_offsets(store.path, "billing", POSITIONS)
    options = parse_batch_options({"path": str(store.path), "subscribe": "orders", "startingGroup": "billing"})
    partitions = CommitLogBatchReader(options, check_schema(PLACE)).partitions()
    ranges = [tuple(one) for partition in partitions for one in cast("RangePartition", partition).ranges]
    assert ranges == [("orders", 0, 7, 10)]


def test_a_group_without_positions_is_an_error(new_store: NewStore) -> None:
    query = Query(filled(new_store), subscribe="orders", startingGroup="biling")
    with pytest.raises(OptionError, match=r"startingGroup names group 'biling', which has no positions") as error:
        query.run()
    assert error.value.option == "startingGroup"


def test_positions_outside_of_a_queue_are_reported(new_store: NewStore) -> None:
    store = filled(new_store)
    commit_group_offsets(store.path, "ahead", {("orders", 0): 99})
    with pytest.raises(OptionError, match=r"startingGroup asks for offset 99"):
        Query(store, subscribe="orders", startingGroup="ahead").run()
    commit_group_offsets(store.path, "behind", {("orders", 0): 1})
    min(store.path.glob("commitlog/*")).unlink()
    with pytest.raises(DataLossError, match=r"orders"):
        Query(store, subscribe="orders", startingGroup="behind").run()


@pytest.mark.parametrize(
    "other", [{"startingOffsets": "earliest"}, {"startingTimestamp": "0"}, {"startingOffsetsByTimestamp": "{}"}]
)
def test_it_excludes_the_other_starts(other: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="exclude each other"):
        parse_stream_options({"path": "/store", "subscribe": "orders", "startingGroup": "billing", **other})


@pytest.mark.parametrize("option", ["startingGroup", "commitGroup"])
def test_a_name_that_no_group_has_is_refused(option: str) -> None:
    with pytest.raises(OptionError, match=rf"{option} is 'a@b'; expected the name of a consumer group"):
        parse_stream_options({"path": "/store", "subscribe": "orders", option: "a@b"})


def test_a_batch_has_no_group_that_follows() -> None:
    with pytest.raises(OptionError, match="commitGroup is for streams"):
        parse_batch_options({"path": "/store", "subscribe": "orders", "commitGroup": "billing"})


def test_the_group_follows_the_query(new_store: NewStore) -> None:
    store = filled(new_store)
    options = parse_stream_options({"path": str(store.path), "subscribe": "orders", "commitGroup": "billing"})
    reader = CommitLogStreamReader(options, check_schema(PLACE))
    reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert ConsumerOffsets(str(store.path)).groups() == [], "no batch has ended"
    ended = StreamOffset(offsets={("orders", 0): 5, ("orders", 1): 10}).to_json()
    for position, end in ((3, StreamOffset(offsets={("orders", 0): 3, ("orders", 1): 10}).to_json()), (5, ended)):
        reader.latestOffset(end, ReadAllAvailable())
        assert ConsumerOffsets(str(store.path)).get("billing", "orders") == {0: position, 1: 10}
    written = (store.path / "config" / "consumerOffset.json").stat().st_mtime_ns
    reader.latestOffset(ended, ReadAllAvailable())
    assert (store.path / "config" / "consumerOffset.json").stat().st_mtime_ns == written, "nothing had changed"
    reader.stop()


def test_another_owner_is_waited_for_with_growing_pauses(new_store: NewStore, caplog: pytest.LogCaptureFixture) -> None:
    store, now = filled(new_store), [0.0]
    commits = GroupCommits(str(store.path), "billing", clock=lambda: now[0])
    warned = []
    with caplog.at_level(logging.WARNING), MessageStore.open(store.path):
        for second in range(200):
            now[0] = float(second)
            caplog.clear()
            commits.commit(StreamOffset(offsets={("orders", 0): second}).to_json())
            if "were not committed as those of group 'billing'" in caplog.text:
                warned.append(second)
    assert warned == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    now[0] = 200.0
    commits.commit(StreamOffset(offsets={("orders", 0): 9}).to_json())
    assert ConsumerOffsets(str(store.path)).groups() == [], "the pause lasts"
    now[0] = 243.0
    commits.commit(StreamOffset(offsets={("orders", 0): 9}).to_json())
    assert ConsumerOffsets(str(store.path)).get("billing", "orders") == {0: 9}


@pytest.mark.parametrize("content", ["{", '{"offsetTable":7}'])
def test_a_damaged_file_does_not_fail_the_query(
    new_store: NewStore, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    store = filled(new_store)
    path = store.path / "config" / "consumerOffset.json"
    path.write_text(content)
    GroupCommits(str(store.path), "billing").commit(StreamOffset(offsets={("orders", 0): 1}).to_json())
    assert "consumerOffset.json" in caplog.text
    assert path.read_text() == content
