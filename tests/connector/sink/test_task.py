"""Staging in a task, without a Spark: records, queues and unique keys that are the same in every attempt."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import MessageStore
from commitlog_store.batch.staging import read_blocks
from commitlog_store.batch_id import BatchId, StagedFile, TopicUse
from commitlog_store.errors import PutRefused, StoreNotFound
from commitlog_store.format.message_rules import NO_PRODUCERS_TOPICS
from commitlog_store.format.properties import decode_properties
from commitlog_store.format.record import Record, decode_record
from pyspark_commitlog.options.write import parse_batch_write_options
from pyspark_commitlog.sink.columns import SinkColumns
from pyspark_commitlog.sink.task import StageTask
from tests.connector.sink.sink_helpers import SMALL, staged_files

BATCH = BatchId("query", 3)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    MessageStore.open(tmp_path / "store").close()
    return tmp_path / "store"


def task(store: Path, names: Sequence[str], counts: dict[str, int] | None = None, **options: str) -> StageTask:
    parsed = parse_batch_write_options(SMALL | {"path": str(store)} | options)
    return StageTask(options=parsed, columns=SinkColumns(tuple(names)), queue_counts=counts or {})


def batch_of(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(columns)


def records(store: Path, staged: StagedFile | None) -> list[Record]:
    found = []
    for block in read_blocks(str(store), staged) if staged is not None else ():
        data, at = block.records.data.tobytes(), 0
        for size in block.records.sizes.tolist():
            record = decode_record(data[at : at + size])
            assert isinstance(record, Record)
            found.append(record)
            at += size
    return found


def properties(record: Record) -> dict[str, str]:
    return decode_properties(record.properties)


def stage(one: StageTask, batches: Sequence[pa.RecordBatch], partition: int = 0, attempt: int = 0) -> list[Record]:
    staged = pickle.loads(pickle.dumps(one)).stage(iter(batches), BATCH, partition, attempt)
    return records(Path(one.options.path), staged)


def test_rows_become_records(store: Path) -> None:
    rows = batch_of(value=[b"a", b"b"], key=["k1", None], queueId=pa.array([2, 0], pa.int32()))
    first, second = stage(task(store, ("body", "keys", "queueId")), [rows])
    assert (bytes(first.body), first.topic, first.queue_id) == (b"a", b"orders", 2)
    assert properties(first)["KEYS"] == "k1"
    assert (bytes(second.body), second.queue_id) == (b"b", 0)


def test_the_same_rows_get_the_same_queues_and_unique_keys_in_every_attempt(store: Path) -> None:
    """However the rows come in batches: round-robin and unique keys go by the row's number in the partition."""
    rows = batch_of(body=[b"%d" % i for i in range(10)])
    whole = stage(task(store, ("body",)), [rows], partition=3)
    pieces = stage(task(store, ("body",)), [rows.slice(0, 4), rows.slice(4, 1), rows.slice(5)], partition=3, attempt=1)
    first = whole[0].queue_id
    assert [record.queue_id for record in whole] == [(first + i) % 4 for i in range(10)]
    assert [record.queue_id for record in pieces] == [record.queue_id for record in whole]
    keys = [properties(record)["UNIQ_KEY"] for record in whole]
    assert len(set(keys)) == 10
    assert [properties(record)["UNIQ_KEY"] for record in pieces] == keys


def test_unique_keys_differ_between_batches_and_partitions(store: Path) -> None:
    rows, one = batch_of(body=[b"x"]), task(store, ("body",))
    found = []
    for batch, partition in ((BatchId("a", 1), 0), (BatchId("a", 2), 0), (BatchId("a", 1), 1), (BatchId("a1", 1), 0)):
        staged = one.stage([rows], batch, partition, 0)
        found += [properties(record)["UNIQ_KEY"] for record in records(store, staged)]
    assert len(set(found)) == 4


def test_a_given_unique_key_stays(store: Path) -> None:
    kind = pa.map_(pa.string(), pa.string())
    rows = batch_of(body=[b"x", b"y"], properties=pa.array([[("UNIQ_KEY", "mine")], None], kind))
    first, second = stage(task(store, ("body", "properties")), [rows])
    assert properties(first)["UNIQ_KEY"] == "mine"
    assert len(properties(second)["UNIQ_KEY"]) == 32


def test_a_sharding_key_goes_to_one_queue(store: Path) -> None:
    rows = batch_of(body=[b"x"] * 6, shardingKey=["a", "b", "a", None, "b", "a"])
    one = task(store, ("body", "shardingKey"), {"orders": 16})
    found = stage(one, [rows], partition=5)
    queues = [record.queue_id for record in found]
    assert queues[0] == queues[2] == queues[5] == 97 % 16  # Java's "a".hashCode()
    assert queues[1] == queues[4] == 98 % 16
    (first,) = stage(one, [rows.slice(3, 1)], partition=5)
    assert queues[3] == first.queue_id, "it is the first row that goes in turn"


def first_queues(store: Path, batches: Iterable[BatchId], partition: int = 0) -> list[int]:
    """The queue of a single row, of four, in each of these batches."""
    one, rows = task(store, ("body",), {"orders": 4}), batch_of(body=[b"x"])
    return [records(store, one.stage([rows], batch, partition, 0))[0].queue_id for batch in batches]


def test_batches_of_one_row_take_the_queues_in_turn(store: Path) -> None:
    """Each batch began at queue 0, so that a query of small batches put all of its rows there."""
    queues = first_queues(store, [BatchId("query", 2**63 - 8 + version) for version in range(8)])
    assert queues == [(queues[0] + version) % 4 for version in range(8)]


def test_writes_without_an_id_begin_at_different_queues(store: Path) -> None:
    """Each has a name of its own, from a random number, and version 0."""
    queues = first_queues(store, [BatchId(f"write-{number:032x}") for number in range(32)])
    assert set(queues) == {0, 1, 2, 3}


def test_partitions_of_one_row_take_the_queues_in_turn(store: Path) -> None:
    queues = [first_queues(store, [BATCH], partition)[0] for partition in range(4)]
    assert queues == [(queues[0] + partition) % 4 for partition in range(4)]


def test_known_topics_keep_their_queues_and_the_use_of_each_is_reported(store: Path) -> None:
    rows = batch_of(
        body=[b"x"] * 5,
        topic=["old", "new", "old", "far", None],
        queueId=pa.array([None, None, None, 9, None], pa.int32()),
    )
    one = task(store, ("body", "topic", "queueId"), {"old": 2}, queues="3")
    staged = one.stage([rows.slice(0, 2), rows.slice(2)], BATCH, 0, 0)
    assert staged is not None
    found = [(record.topic, record.queue_id) for record in records(store, staged)]
    assert {queue for topic, queue in found if topic == b"old"} <= {0, 1}
    assert staged.topics == (
        TopicUse("far", spread_over=0, named_queues=10, is_new=True),
        TopicUse("new", spread_over=3, named_queues=0, is_new=True),
        TopicUse("old", spread_over=2, named_queues=0, is_new=False),
        TopicUse("orders", spread_over=3, named_queues=0, is_new=True),
    )


def test_a_topic_of_named_and_spread_rows_is_taken_for_both(store: Path) -> None:
    one = task(store, ("body", "queueId"), {"orders": 2})
    rows = [batch_of(body=[b"x"], queueId=pa.array([number], pa.int32())) for number in (None, 7, 5)]
    staged = one.stage(rows, BATCH, 0, 0)
    assert staged is not None
    assert staged.topics == (TopicUse("orders", spread_over=2, named_queues=8, is_new=False),)


def test_a_delayed_row_counts_for_the_topic_that_it_is_for(store: Path) -> None:
    """Its record is one of the schedule, which no commit may list as a topic of its own."""
    rows = batch_of(body=[b"x"] * 2, delayLevel=pa.array([18, 1], pa.int32()), queueId=pa.array([6, None], pa.int32()))
    staged = task(store, ("body", "delayLevel", "queueId")).stage([rows], BATCH, 0, 0)
    assert staged is not None
    assert {record.topic for record in records(store, staged)} == {b"SCHEDULE_TOPIC_XXXX"}
    assert staged.topics == (TopicUse("orders", spread_over=4, named_queues=7, is_new=True),)


def test_without_rows_no_file_is_staged(store: Path) -> None:
    one = task(store, ("body",))
    assert one.stage([], BATCH, 0, 0) is None
    assert one.stage([batch_of(body=pa.array([], pa.binary()))], BATCH, 0, 0) is None
    assert not staged_files(store)


def test_large_batches_are_cut(store: Path) -> None:
    """Memory is bounded by a chunk of 16,384 rows and 16 MiB, whatever size of batch Spark hands over."""
    sizes = [*[200_000] * 100, *[1] * 16_400]
    staged = task(store, ("body",)).stage([batch_of(body=[b"x" * size for size in sizes])], BATCH, 0, 0)
    assert staged is not None
    assert [len(block) for block in read_blocks(str(store), staged)] == [83, 16_384, 33]
    assert [len(record.body) for record in records(store, staged)] == sizes


@pytest.mark.parametrize("compression", ["zlib", "lz4", "zstd"])
def test_large_bodies_are_compressed(store: Path, compression: str) -> None:
    rows = batch_of(body=[b"x" * 5000, b"x" * 10])
    large, small = stage(task(store, ("body",), bodyCompression=compression), [rows])
    assert large.sys_flag & 1
    assert len(large.body) < 500
    assert (small.sys_flag, bytes(small.body)) == (0, b"x" * 10)


KIND = pa.map_(pa.string(), pa.string())
NOT_UTF8 = pa.array([b"\xff"]).view(pa.string())


@pytest.mark.parametrize(
    ("column", "bad", "said"),
    [
        ("body", pa.array([None], pa.binary()), "its body is null"),
        ("body", pa.array([b"x" * 1025]), "1025 bytes, the limit (maxMessageSize) is 1024"),
        ("topic", pa.array(["no topic"]), "'no topic'"),
        ("queueId", pa.array([-1], pa.int32()), "queueId is -1"),
        (
            "queueId",
            pa.array([65_536], pa.int32()),
            "(topic 'orders', queue 65536): its queueId is 65536; it must be 0 to 65535",
        ),
        ("tags", NOT_UTF8, "its column tags is not UTF-8"),
        ("properties", pa.array([[("REAL_TOPIC", "x")]], KIND), "REAL_TOPIC"),
        ("properties", pa.array([[("a", "x" * 40_000)]], KIND), "the limit is 32767"),
        ("properties", pa.array([[("TIMER_DELAY_SEC", "300000")]], KIND), "the most is 259,200 s"),
        ("properties", pa.array([[("a", "b"), ("TIMER_DEL_UNIQKEY", "x")]], KIND), "cannot be cancelled"),
        ("delayLevel", pa.array([-5], pa.int32()), "delayLevel is -5"),
        ("delayLevel", pa.array([90], pa.int32()), "delayLevel is 90; it must be one of the levels 1 (1s), 2 (5s)"),
        ("delayLevel", pa.array(["90s"]), "delayLevel is 90s; it must be one of the levels 1 (1s), 2 (5s)"),
        ("bornTimestamp", pa.array([2**63 - 1], pa.timestamp("us", "UTC")), "its bornTimestamp is 9223372036854775807"),
    ],
)
def test_a_row_that_no_store_accepts_fails_the_task_and_leaves_no_file(
    store: Path, column: str, bad: pa.Array, said: str
) -> None:
    good = {"body": pa.array([b"good"]), column: pa.array([b"good"] if column == "body" else [None], bad.type)}
    names = list(good)
    one = task(store, names, maxMessageSize="1024")
    first = pa.record_batch([pa.concat_arrays([array] * 3) for array in good.values()], names)
    wrong = pa.record_batch(list((good | {column: bad}).values()), names)
    with pytest.raises(PutRefused) as caught:
        one.stage([first, wrong, first], BATCH, 7, 0)
    assert "row 3 of partition 7" in str(caught.value)
    assert said in str(caught.value)
    assert "Nothing of this batch is in the store" in str(caught.value)
    assert not staged_files(store)


@pytest.mark.parametrize("topic", sorted(NO_PRODUCERS_TOPICS))
@pytest.mark.parametrize("level", [0, 3])
def test_a_row_for_a_topic_that_brokers_take_from_no_producer_fails_the_task(
    store: Path, topic: str, level: int
) -> None:
    rows = batch_of(
        body=[b"a", b"b", None], topic=["TBW102", topic, "good"], delayLevel=pa.array([0, level, 0], pa.int32())
    )
    with pytest.raises(PutRefused) as caught:
        task(store, ("body", "topic", "delayLevel")).stage([rows], BATCH, 2, 0)
    assert f"row 1 of partition 2 (topic {topic!r}, no queue given)" in str(caught.value), (
        "the first of two bad rows is reported"
    )
    assert f"RocketMQ writes {topic} itself and takes it from no producer" in str(caught.value)
    assert ("a delayLevel" in str(caught.value)) == (topic == "SCHEDULE_TOPIC_XXXX")
    assert not staged_files(store)


@pytest.mark.parametrize(
    "properties",
    [
        [("TIMER_DELIVER_MS", "1"), ("TIMER_OUT_MS", "1")],
        [("TIMER_DELAY_SEC", "1"), ("DELAY", "1")],
        [("note", "TIMER_DELAY_SEC")],
        [("TIMER_DELETED", "yes")],
    ],
    ids=["delivered", "delayed", "value", "other"],
)
def test_delivered_and_undeliverable_timer_messages_are_accepted(store: Path, properties: Any) -> None:
    rows = batch_of(body=[b"a"], properties=pa.array([properties], KIND))
    (record,) = stage(task(store, ("body", "properties")), [rows])
    assert dict(properties).items() <= decode_properties(record.properties).items()


def test_a_map_of_nothing_but_nulls_gives_no_properties(store: Path) -> None:
    """What SQL's ``map('a', null)`` comes as."""
    nothing = pa.array([[("a", None)], [], None], pa.map_(pa.string(), pa.null()))
    found = stage(task(store, ("body", "properties")), [batch_of(body=[b"a", b"b", b"c"], properties=nothing)])
    assert [set(properties(record)) for record in found] == [{"UNIQ_KEY"}] * 3


def test_an_executor_that_does_not_see_the_store_says_so(store: Path, tmp_path: Path) -> None:
    one = task(tmp_path / "elsewhere", ("body",))
    with pytest.raises(StoreNotFound, match="must see the same directory"):
        one.stage([batch_of(body=[b"x"])], BATCH, 0, 0)
    assert not (tmp_path / "elsewhere").exists()


def test_rows_that_raise_leave_no_file(store: Path) -> None:
    def rows() -> Any:
        yield batch_of(body=[b"x"])
        raise RuntimeError("the input fails")

    with pytest.raises(RuntimeError):
        task(store, ("body",)).stage(rows(), BATCH, 0, 0)
    assert not staged_files(store)
