"""Stores of every shape that retention, crashes, copies and long lives leave behind."""

from __future__ import annotations

import itertools
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commitlog import StoreReader
from commitlog.errors import (
    CorruptConsumeQueue,
    FileChanged,
    FileMissing,
    InvalidValue,
    MessageNotFound,
    OffsetOutOfRange,
    QueueNotFound,
    TopicNotFound,
)
from commitlog.format.consume_queue_unit import UNIT_FILE_DTYPE, UNIT_SIZE
from commitlog.log import block_reader
from commitlog.paths import file_name_for_offset
from tests.support.store_builder import FIRST_STORE_TIME, StoreBuilder

__all__: list[str] = []

SMALL_LOG = 4096  # bytes a CommitLog file
UNITS = 10  # units a queue file


@pytest.fixture
def builder(tmp_path: Path) -> StoreBuilder:
    return StoreBuilder(tmp_path / "store", log_file_size=SMALL_LOG, queue_file_units=UNITS)


def body(number: int) -> bytes:
    return f"message {number} ".encode() + b"." * (number * 37 % 300)


def bodies(count: int, start: int = 0) -> list[bytes]:
    return [body(number) for number in range(start, start + count)]


def read(reader: StoreReader, start: int = 0, stop: int | None = None, **options: Any) -> list[tuple[int, bytes]]:
    """Queue offsets and bodies, of queue 0 of topic ``t`` unless told."""
    wanted: dict[str, Any] = {
        "topic": "t",
        "queue_id": 0,
        "verify_crc": True,
        "columns": ["queueOffset", "body"],
        **options,
    }
    batches = reader.read(start=start, stop=stop, **wanted)
    return [(row["queueOffset"], row["body"]) for batch in batches for row in batch.to_pylist()]


def numbered(start: int, stop: int) -> list[tuple[int, bytes]]:
    return [(number, body(number)) for number in range(start, stop)]


def bounds(reader: StoreReader, topic: str = "t", queue_id: int = 0) -> tuple[int, int]:
    info = reader.queue_info(topic, queue_id)
    return info.min_offset, info.max_offset


def log_files(builder: StoreBuilder) -> list[Path]:
    return sorted((builder.path / "commitlog").iterdir())


def queue_files(builder: StoreBuilder, topic: str = "t", queue_id: int = 0) -> list[Path]:
    return sorted((builder.path / "consumequeue" / topic / str(queue_id)).iterdir())


# -- long ranges, limits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (3, 10_000), (1000, 700), (1000, 1 << 20)])
def test_a_range_over_many_files_is_read_whole_and_in_order(builder: StoreBuilder, rows: int, size: int) -> None:
    builder.append("t", 0, bodies(123))
    assert len(log_files(builder)) > 5
    assert len(queue_files(builder)) == 13
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 123)
        assert read(reader, max_batch_rows=rows, max_batch_bytes=size) == numbered(0, 123)
        assert read(reader, 9, 31, max_batch_rows=rows, max_batch_bytes=size) == numbered(9, 31)
        for start in (0, 9, 10, 11, 122, 123):
            assert read(reader, start) == numbered(start, 123)


def test_batches_keep_to_rows_and_bytes(builder: StoreBuilder) -> None:
    builder.append("t", 0, [b"x" * 20] * 30 + [b"y" * 2000] + [b"x" * 20] * 9)
    with StoreReader.open(builder.path) as reader:
        batches = list(reader.read("t", 0, 0, max_batch_rows=7, max_batch_bytes=600, columns=["body", "storeSize"]))
    for batch in batches:
        assert batch.num_rows <= 7
        # A message that alone is larger still comes, by itself.
        assert sum(batch["storeSize"].to_pylist()) <= 600 or batch.num_rows == 1
    assert sum(batch.num_rows for batch in batches) == 40


def test_batches_keep_to_the_bytes_that_bodies_unpack_to(tmp_path: Path) -> None:
    """Else a few megabytes of well compressed bodies would be gigabytes in a worker's memory."""
    builder = StoreBuilder(tmp_path / "store")
    plain = [bytes([number]) * 100_000 for number in range(40)]
    builder.append("t", 0, [zlib.compress(one) for one in plain], sys_flag=1)
    builder.append("t", 0, [b"not compressed" * 1000] * 3)
    with StoreReader.open(builder.path) as reader:
        batches = list(
            reader.read("t", 0, 0, max_batch_bytes=250_000, columns=["body", "queueOffset"], verify_crc=True)
        )
        found = [row for batch in batches for row in batch.to_pylist()]
        assert [row["body"] for row in found] == plain + [b"not compressed" * 1000] * 3
        assert [row["queueOffset"] for row in found] == list(range(43))
        assert max(sum(map(len, batch["body"].to_pylist())) for batch in batches) <= 250_000
        alone = list(reader.read("t", 0, 0, max_batch_bytes=50_000, columns=["body"]))
        assert [len(batch["body"][0].as_py()) for batch in alone[:40]] == [100_000] * 40


@pytest.mark.parametrize("name", ["max_batch_rows", "max_batch_bytes"])
@pytest.mark.parametrize("value", [0, -1])
def test_limits_are_at_least_one(builder: StoreBuilder, name: str, value: int) -> None:
    builder.append("t", 0, bodies(1))
    with StoreReader.open(builder.path) as reader, pytest.raises(InvalidValue, match=name):
        reader.read("t", 0, 0, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("chunk", [0, -1])
def test_units_come_at_least_one_at_a_time(builder: StoreBuilder, chunk: int) -> None:
    builder.append("t", 0, bodies(1))
    with StoreReader.open(builder.path) as reader, pytest.raises(InvalidValue, match="chunk"):
        list(reader.units("t", 0, 0, 1, chunk=chunk))


@pytest.mark.parametrize(("start", "stop"), [(-1, 3), (0, 6), (6, 7), (4, 3), (6, None), (-1, -1)])
def test_offsets_outside_the_queue_are_refused_with_what_is_there(
    builder: StoreBuilder, start: int, stop: int | None
) -> None:
    builder.append("t", 0, bodies(5))
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(OffsetOutOfRange) as raised:
            reader.read("t", 0, start, stop)
        error = raised.value
        assert (error.topic, error.queue_id, error.start) == ("t", 0, start)
        assert (error.min_offset, error.max_offset) == (0, 5)
        assert error.stop == (5 if stop is None else stop)
        with pytest.raises(OffsetOutOfRange):
            reader.units("t", 0, start, stop if stop is not None else 9)
        with pytest.raises(OffsetOutOfRange):
            reader.store_timestamp("t", 0, 5)


@pytest.mark.parametrize("at", [0, 2, 5])
def test_an_empty_range_within_the_queue_gives_no_batch(builder: StoreBuilder, at: int) -> None:
    builder.append("t", 0, bodies(5))
    with StoreReader.open(builder.path) as reader:
        assert list(reader.read("t", 0, at, at)) == []
        assert list(reader.units("t", 0, at, at)) == []


# -- many queues in one log --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [1, 64 << 10], ids=["each message by itself", "through the mapping"])
def test_queues_that_share_the_log_keep_apart(builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch, gap: int) -> None:
    """Where a queue's messages lie far apart they are read one by one; the rows are the same."""
    monkeypatch.setattr(block_reader, "_SPARSE_GAP", gap)
    builder.append("t", range(20), bodies(200))
    builder.append("u", range(20), bodies(200))
    with StoreReader.open(builder.path) as reader:
        for queue_id in range(20):
            for topic in ("t", "u"):
                expected = [(at, body(queue_id + 20 * at)) for at in range(10)]
                assert read(reader, topic=topic, queue_id=queue_id) == expected
                assert read(reader, topic=topic, queue_id=queue_id, max_batch_rows=3) == expected


def test_a_record_cut_off_is_reported_when_read_by_itself_too(
    builder: StoreBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_reader, "_SPARSE_GAP", 1)
    places = builder.append("t", 0, bodies(10))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 10)
        batches = reader.read("t", 0, 0)
        os.truncate(log_files(builder)[0], int(places[9]) + 50)
        with pytest.raises(FileChanged, match="00000000000000000000"):
            list(batches)


# -- the head is gone --------------------------------------------------------------------------------------------------


def test_messages_whose_log_file_is_gone_are_below_the_min_offset(builder: StoreBuilder) -> None:
    """Their units are still there: RocketMQ deletes queue files later, and only whole ones."""
    places = builder.append("t", 0, bodies(60))
    assert len(log_files(builder)) >= 4
    for _ in range(3):
        builder.delete_log_files(1)
        log_start = int(log_files(builder)[0].name)
        first = int(np.searchsorted(places, log_start))
        with StoreReader.open(builder.path) as reader:
            assert bounds(reader) == (first, 60)
            assert read(reader, first) == numbered(first, 60)
            assert reader.physical_bounds() == (log_start, builder.position)
            with pytest.raises(OffsetOutOfRange) as raised:
                reader.read("t", 0, first - 1)
            assert raised.value.min_offset == first
            with pytest.raises(MessageNotFound, match=f"the log holds .{log_start}, "):
                reader.message_at(int(places[first - 1]))


def test_queue_files_gone_at_the_head(builder: StoreBuilder) -> None:
    builder.append("t", 0, bodies(45))
    queue_files(builder)[0].unlink()
    queue_files(builder)[0].unlink()
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (20, 45)
        assert read(reader, 20) == numbered(20, 45)
        with pytest.raises(OffsetOutOfRange):
            reader.read("t", 0, 19)


def test_every_message_of_a_queue_expired(builder: StoreBuilder) -> None:
    builder.append("t", 0, bodies(5))
    builder.append("busy", 0, bodies(100))
    builder.delete_log_files(2)
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (5, 5)
        assert read(reader, 5) == []
        builder.append("t", 0, bodies(1, 5))
        assert bounds(reader) == (5, 6)
        assert read(reader, 5) == numbered(5, 6)


def test_a_store_that_starts_late(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "s", log_file_size=SMALL_LOG, queue_file_units=UNITS, log_start=40 * SMALL_LOG)
    builder.start_queue_at("t", 0, 70)
    builder.append("t", 0, bodies(30, 70))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (70, 100)
        assert read(reader, 70) == numbered(70, 100)
        assert reader.physical_bounds() == (40 * SMALL_LOG, builder.position)


def test_fillers_at_the_head_are_no_messages(builder: StoreBuilder) -> None:
    builder.pad_queue("t", 0, 13)
    builder.append("t", 0, bodies(12, 13))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (13, 25)
        assert read(reader, 13) == numbered(13, 25)
        assert reader.offset_by_time("t", 0, 0) == 13


def test_a_queue_of_fillers_only_is_empty(builder: StoreBuilder) -> None:
    builder.pad_queue("t", 0, 13)
    builder.append("other", 0, bodies(1))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (13, 13)
        assert read(reader, 13) == []


# -- something is missing in the middle --------------------------------------------------------------------------------


def test_a_missing_log_file_is_named_with_the_offsets_it_held(builder: StoreBuilder) -> None:
    places = builder.append("t", 0, bodies(90))
    files = log_files(builder)
    gone, later = files[2], files[3]
    gone.unlink()
    first, beyond = (int(np.searchsorted(places, int(path.name))) for path in (gone, later))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 90)
        with pytest.raises(FileMissing) as raised:
            read(reader)
        assert (raised.value.path, raised.value.start, raised.value.stop) == (str(gone), first, beyond)
        assert (raised.value.topic, raised.value.queue_id) == ("t", 0)
        assert str(gone) in str(raised.value)
        assert read(reader, 0, first) == numbered(0, first)
        assert read(reader, beyond) == numbered(beyond, 90)
        with pytest.raises(MessageNotFound):
            reader.message_at(int(places[first]))


def test_the_first_rows_come_before_the_gap_is_reported(builder: StoreBuilder) -> None:
    builder.append("t", 0, bodies(90))
    log_files(builder)[2].unlink()
    found: list[int] = []
    with StoreReader.open(builder.path) as reader:
        batches = reader.read("t", 0, 0, columns=["queueOffset"])
        with pytest.raises(FileMissing) as raised:
            found.extend(offset for batch in batches for offset in batch["queueOffset"].to_pylist())
    assert found == list(range(raised.value.start))


def test_a_missing_queue_file_is_named_with_the_offsets_it_held(builder: StoreBuilder) -> None:
    builder.append("t", 0, bodies(45))
    gone = queue_files(builder)[2]
    gone.unlink()
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 45)
        for start in (0, 19, 20, 25):
            with pytest.raises(FileMissing) as raised:
                read(reader, start)
            assert (raised.value.path, raised.value.start, raised.value.stop) == (str(gone), max(start, 20), 30)
        assert read(reader, 0, 20) == numbered(0, 20)
        assert read(reader, 30) == numbered(30, 45)


def test_a_queue_file_cut_short_in_the_middle_hides_nothing(builder: StoreBuilder) -> None:
    builder.append("t", 0, bodies(45))
    os.truncate(queue_files(builder)[1], 7 * UNIT_SIZE + 3)
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 45)
        with pytest.raises(FileMissing) as raised:
            read(reader)
        assert (raised.value.start, raised.value.stop) == (17, 20)
        assert read(reader, 20) == numbered(20, 45)


def test_a_hole_in_a_queue_is_no_end(builder: StoreBuilder) -> None:
    """The end is found by bisection, which may hit a unit that damage has zeroed; what stands behind it must not
    vanish without a word."""
    builder.append("t", 0, bodies(45))
    for unit in range(44):
        path = queue_files(builder)[unit // UNITS]
        whole = path.read_bytes()
        at = unit % UNITS * UNIT_SIZE
        path.write_bytes(whole[: at + 8] + bytes(4) + whole[at + 12 :])
        with StoreReader.open(builder.path) as reader, pytest.raises(CorruptConsumeQueue) as raised:
            read(reader)
        assert str(path) in str(raised.value)
        assert raised.value.offset == at
        path.write_bytes(whole)


# -- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [9, 10, 11, 20])
def test_a_queue_may_end_exactly_at_a_files_end(builder: StoreBuilder, count: int) -> None:
    builder.append("t", 0, bodies(count))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, count)
        assert read(reader) == numbered(0, count)
        builder.append("t", 0, bodies(1, count))
        assert bounds(reader) == (0, count + 1)
        assert read(reader, count) == numbered(count, count + 1)


@pytest.mark.parametrize("size", [0, 3, UNIT_SIZE, UNITS * UNIT_SIZE])
def test_an_empty_queue_file_allocated_ahead_changes_nothing(builder: StoreBuilder, size: int) -> None:
    builder.append("t", 0, bodies(10))
    ahead = queue_files(builder)[0].parent / file_name_for_offset(10 * UNIT_SIZE)
    ahead.write_bytes(bytes(size))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 10)
        assert read(reader) == numbered(0, 10)


def test_an_empty_log_file_allocated_ahead_changes_nothing(builder: StoreBuilder) -> None:
    builder.append("t", 0, bodies(30))
    end = builder.position
    for ahead in (1, 2):
        base = (end // SMALL_LOG + ahead) * SMALL_LOG
        (builder.path / "commitlog" / file_name_for_offset(base)).write_bytes(bytes(SMALL_LOG))
    with StoreReader.open(builder.path) as reader:
        assert reader.physical_bounds() == (0, end)
        assert read(reader) == numbered(0, 30)
        with pytest.raises(MessageNotFound, match="nothing was written there"):
            reader.message_at(end)


def test_a_copy_that_was_cut_behind_the_last_record_is_whole(builder: StoreBuilder) -> None:
    """Backups leave out the zeros behind the end."""
    builder.append("t", 0, bodies(33))
    os.truncate(log_files(builder)[-1], builder.position % SMALL_LOG)
    os.truncate(queue_files(builder)[-1], 3 * UNIT_SIZE)
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 33)
        assert read(reader) == numbered(0, 33)
        assert reader.physical_bounds() == (0, builder.position)


def test_units_whose_messages_never_reached_the_log_are_not_there(builder: StoreBuilder) -> None:
    """A machine that stops may have written the queue and not the log: RocketMQ cuts such units off when it starts."""
    places = builder.append("t", 0, bodies(33))
    whole = log_files(builder)[-1].read_bytes()
    base = int(log_files(builder)[-1].name)
    for kept in range(33, int(np.searchsorted(places, base)) - 1, -1):
        end = int(places[kept]) - base if kept < 33 else len(whole)
        log_files(builder)[-1].write_bytes(whole[:end].ljust(len(whole), b"\0"))
        with StoreReader.open(builder.path) as reader:
            assert bounds(reader) == (0, kept)
            assert read(reader) == numbered(0, kept)


def test_units_behind_the_last_log_file_are_not_there(builder: StoreBuilder) -> None:
    places = builder.append("t", 0, bodies(60))
    log_files(builder)[-1].unlink()
    kept = int(np.searchsorted(places, int(log_files(builder)[-1].name) + SMALL_LOG))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, kept)
        assert read(reader) == numbered(0, kept)


def test_a_last_log_file_cut_within_a_record_ends_before_it(builder: StoreBuilder) -> None:
    places = builder.append("t", 0, bodies(33))
    os.truncate(log_files(builder)[-1], int(places[32]) % SMALL_LOG + 40)
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 32)
        assert read(reader) == numbered(0, 32)


def test_a_store_without_any_file_is_empty(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    with StoreReader.open(builder.path) as reader:
        assert reader.topics() == []
        assert reader.physical_bounds() == (0, 0)
        assert reader.index_files() == []
        assert reader.query("t", "k") == []
        with pytest.raises(TopicNotFound):
            reader.queues("t")
        with pytest.raises(MessageNotFound, match=r"holds \[0, 0\)"):
            reader.message_at(0)


@pytest.mark.parametrize("left", ["commitlog", "consumequeue", "checkpoint", "abort", "lock"])
def test_a_store_with_only_one_of_its_parts_opens(tmp_path: Path, left: str) -> None:
    """RocketMQ makes the others when it needs them."""
    path = tmp_path / "store"
    path.mkdir()
    if left in {"commitlog", "consumequeue"}:
        (path / left).mkdir()
    else:
        (path / left).write_bytes(b"")
    with StoreReader.open(path) as reader:
        assert reader.topics() == []
        assert reader.physical_bounds() == (0, 0)


def test_queues_without_a_log_are_empty_where_they_end(builder: StoreBuilder) -> None:
    builder.append("t", 0, bodies(33))
    shutil.rmtree(builder.path / "commitlog")
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 0)
        assert read(reader, bounds(reader)[0]) == []


def test_a_queue_directory_without_files_is_an_empty_queue(builder: StoreBuilder) -> None:
    builder.append("t", 0, bodies(3))
    (builder.path / "consumequeue" / "t" / "1").mkdir()
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader, "t", 1) == (0, 0)
        assert read(reader, queue_id=1) == []


# -- names -------------------------------------------------------------------------------------------------------------


def test_topics_are_all_that_have_a_queue_and_foreign_names_are_left_alone(builder: StoreBuilder) -> None:
    for topic in ("orders", "SCHEDULE_TOPIC_XXXX", "%RETRY%group", "RMQ_SYS_TRANS_HALF_TOPIC", "t" * 200):
        builder.append(topic, 0, bodies(1))
    queues = builder.path / "consumequeue"
    for name in ("not a topic", ".hidden", "t\u00e4", "a.b"):
        (queues / name / "0").mkdir(parents=True)
    for name in ("x", "-1", "1x", "\u0663", "99999999999"):
        (queues / "orders" / name).mkdir()
    (queues / "orders" / "0" / "backup").write_bytes(b"?")
    (queues / "orders" / "0" / "123").write_bytes(b"?")
    (builder.path / "commitlog" / "00000000000000000000.bak").write_bytes(b"?")
    with StoreReader.open(builder.path) as reader:
        expected = ["%RETRY%group", "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "orders", "t" * 200]
        assert reader.topics() == expected
        assert reader.queue_ids("orders") == [0]
        assert read(reader, topic="orders") == numbered(0, 1)
        assert reader.physical_bounds() == (0, builder.position)


@pytest.mark.parametrize("topic", ["", ".", "..", "../x", "a/b", "a\\b", "a\0b", "a b", "t" * 256])
def test_topic_that_could_leave_the_directory_is_refused(builder: StoreBuilder, topic: str) -> None:
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(InvalidValue):
            reader.queues(topic)
        with pytest.raises(InvalidValue):
            reader.query(topic, "k")


def test_unknown_topics_and_queues_are_named(builder: StoreBuilder) -> None:
    builder.append("t", [0, 7], bodies(2))
    with StoreReader.open(builder.path) as reader:
        assert reader.queue_ids("t") == [0, 7]
        with pytest.raises(TopicNotFound, match="'nope'"):
            reader.queue_info("nope", 0)
        for queue_id in (-1, 1, 8):
            with pytest.raises(QueueNotFound, match=f"no queue {queue_id} "):
                reader.read("t", queue_id, 0)


def test_a_light_queue_gives_the_messages_of_the_topics_it_was_fed_from(builder: StoreBuilder) -> None:
    """%LMQ% queues hold units only; the records belong to another topic and keep its name and offsets."""
    fed = [*builder.append("orders", 0, bodies(5)), *builder.append("payments", 3, bodies(5, 5))]
    sizes = np.diff([*fed, builder.position])
    units = np.zeros(10, UNIT_FILE_DTYPE)
    units["physical_offset"], units["size"] = fed, sizes
    builder.write_units("%LMQ%me", 0, 0, units[[1, 2, 7, 9]])
    with StoreReader.open(builder.path) as reader:
        columns = ["topic", "queueId", "queueOffset", "body", "physicalOffset"]
        rows = [row for batch in reader.read("%LMQ%me", 0, 0, columns=columns) for row in batch.to_pylist()]
    assert rows == [
        {"topic": "%LMQ%me", "queueId": 0, "queueOffset": at, "body": body(n), "physicalOffset": int(fed[n])}
        for at, n in enumerate((1, 2, 7, 9))
    ]


# -- times -------------------------------------------------------------------------------------------------------------


def _stored_at(builder: StoreBuilder, times: list[int]) -> None:
    for number, time in enumerate(times):
        builder.now_ms = FIRST_STORE_TIME + time
        builder.append("t", 0, [body(number)])


TIMES = [10, 10, 20, 20, 20, 30, 50, 50]


@pytest.mark.parametrize(
    ("time", "lower", "upper"),
    [
        (-1000, 0, 0), (9, 0, 0), (10, 0, 1), (11, 2, 1), (19, 2, 1), (20, 2, 4), (25, 5, 4), (30, 5, 5), (31, 6, 5),
        (49, 6, 5), (50, 6, 7), (51, 8, 7), (10**9, 8, 7),
    ],
)  # fmt: skip
def test_offset_by_time_of_equal_times_gaps_and_both_ends(
    builder: StoreBuilder, time: int, lower: int, upper: int
) -> None:
    _stored_at(builder, TIMES)
    with StoreReader.open(builder.path) as reader:
        assert reader.offset_by_time("t", 0, FIRST_STORE_TIME + time) == lower
        assert reader.offset_by_time("t", 0, FIRST_STORE_TIME + time, boundary="upper") == upper
        assert [reader.store_timestamp("t", 0, at) - FIRST_STORE_TIME for at in range(8)] == TIMES


def test_offset_by_time_when_the_head_expired(builder: StoreBuilder) -> None:
    places = builder.append("t", 0, bodies(60), step_ms=10)
    builder.delete_log_files(2)
    first = int(np.searchsorted(places, int(log_files(builder)[0].name)))
    with StoreReader.open(builder.path) as reader:
        assert reader.offset_by_time("t", 0, 0) == first
        assert reader.offset_by_time("t", 0, 0, boundary="upper") == first
        assert reader.offset_by_time("t", 0, FIRST_STORE_TIME + 10 * (first + 1)) == first + 1


def test_offset_by_time_of_an_empty_queue_is_its_end(builder: StoreBuilder) -> None:
    builder.append("t", 0, bodies(1))
    (builder.path / "consumequeue" / "t" / "1").mkdir()
    with StoreReader.open(builder.path) as reader:
        assert reader.offset_by_time("t", 1, FIRST_STORE_TIME) == 0
        assert reader.offset_by_time("t", 1, FIRST_STORE_TIME, boundary="upper") == 0
        with pytest.raises(InvalidValue, match="'middle'"):
            reader.offset_by_time("t", 0, 0, boundary="middle")  # type: ignore[arg-type]


# -- keys --------------------------------------------------------------------------------------------------------------


def _indexed(builder: StoreBuilder, keys: list[str], *, topic: str = "t", name: str = "20261121000000000") -> list[int]:
    times = builder.now_ms + np.arange(len(keys)) * 1000
    places = builder.append(topic, 0, bodies(len(keys)), keys=keys, step_ms=1000).tolist()
    entries = [
        (f"{topic}#{key}", place, int(time))
        for joined, place, time in zip(keys, places, times, strict=True)
        for key in joined.split()
    ]
    builder.write_index(name, entries, slots=5)
    return [int(place) for place in places]


def test_keys_with_the_same_hash_are_told_apart(builder: StoreBuilder) -> None:
    places = _indexed(builder, ["Aa", "BB", "Aa", "Aa BB"])
    with StoreReader.open(builder.path) as reader:
        assert [m.physical_offset for m in reader.query("t", "Aa")] == [places[0], places[2], places[3]]
        assert [m.physical_offset for m in reader.query("t", "BB")] == [places[1], places[3]]
        assert reader.query("t", "C#") == []


def test_the_newest_messages_of_a_key_come_in_the_order_of_the_log(builder: StoreBuilder) -> None:
    places = _indexed(builder, ["k"] * 10)
    with StoreReader.open(builder.path) as reader:
        assert [m.physical_offset for m in reader.query("t", "k", limit=3)] == places[-3:]
        second = FIRST_STORE_TIME + 2000
        found = reader.query("t", "k", begin=second, end=second + 3000)
        assert [m.physical_offset for m in found] == places[2:6], "both ends count"
        with pytest.raises(InvalidValue, match="limit"):
            reader.query("t", "k", limit=0)
        for key in ("", "two keys"):
            with pytest.raises(InvalidValue, match="key"):
                reader.query("t", key)


def test_keys_are_found_in_every_index_file(builder: StoreBuilder) -> None:
    first = _indexed(builder, ["k", "a"], name="20261121000000000")
    second = _indexed(builder, ["b", "k"], name="20261121000001000")
    (builder.path / "index" / "not an index").write_bytes(b"?")
    with StoreReader.open(builder.path) as reader:
        assert [m.physical_offset for m in reader.query("t", "k")] == [first[0], second[1]]
        assert [m.physical_offset for m in reader.query("t", "k", limit=1)] == [second[1]]
        assert [file.index_count for file in reader.index_files()] == [3, 3]
        third = _indexed(builder, ["k"], name="20261121000002000")
        assert [m.physical_offset for m in reader.query("t", "k")] == [first[0], second[1], third[0]]


def test_expired_messages_are_not_found_by_key(builder: StoreBuilder) -> None:
    places = _indexed(builder, ["k"] * 19)
    builder.append("t", 0, bodies(60))
    builder.delete_log_files(1)
    left = [place for place in places if place >= SMALL_LOG]
    assert 0 < len(left) < len(places)
    with StoreReader.open(builder.path) as reader:
        assert [m.physical_offset for m in reader.query("t", "k")] == left


def test_after_a_crash_index_entries_of_messages_that_are_not_there_are_passed_over(builder: StoreBuilder) -> None:
    """The index may have been flushed and the end of the log not; with an abort file that is no corruption."""
    places = _indexed(builder, ["k"] * 12)
    (builder.path / "abort").write_bytes(b"")
    path = log_files(builder)[-1]
    base = int(path.name)
    kept = [place for place in places if place < base + 400]
    assert kept != places
    path.write_bytes(path.read_bytes()[: max(0, int(min(set(places) - set(kept))) - base)].ljust(SMALL_LOG, b"\0"))
    with StoreReader.open(builder.path) as reader:
        assert [m.physical_offset for m in reader.query("t", "k")] == kept


# -- between two calls of one reader -----------------------------------------------------------------------------------


def test_new_units_files_queues_and_topics_appear(builder: StoreBuilder) -> None:
    with StoreReader.open(builder.path) as reader:
        assert reader.topics() == []
        total = 0
        for step in (1, 2, 8, 1, 30):
            builder.append("t", 0, bodies(step, total))
            total += step
            assert bounds(reader) == (0, total)
            assert read(reader) == numbered(0, total)
            assert reader.physical_bounds() == (0, builder.position)
        builder.append("t", 5, bodies(3))
        assert reader.queue_ids("t") == [0, 5]
        assert read(reader, queue_id=5) == numbered(0, 3)
        builder.append("u", 0, bodies(3))
        assert reader.topics() == ["t", "u"]
        assert read(reader, topic="u") == numbered(0, 3)
        assert reader.message_at(0).body == body(0)


def test_head_files_deleted_between_calls_move_the_min_offset(builder: StoreBuilder) -> None:
    places = builder.append("t", 0, bodies(90))
    with StoreReader.open(builder.path) as reader:
        assert read(reader) == numbered(0, 90)
        while len(log_files(builder)) > 1:
            builder.delete_log_files(1)
            first = int(np.searchsorted(places, int(log_files(builder)[0].name)))
            assert bounds(reader) == (first, 90)
            assert read(reader, first) == numbered(first, 90)
            with pytest.raises(OffsetOutOfRange):
                reader.read("t", 0, first - 1)
            while int(queue_files(builder)[0].name) // UNIT_SIZE + UNITS <= first:
                queue_files(builder)[0].unlink()
            assert bounds(reader) == (first, 90)


def test_head_files_deleted_while_a_range_is_read(builder: StoreBuilder) -> None:
    """What is open can be read on; what is not is named as gone, with what is left."""
    builder.append("t", 0, bodies(90))
    with StoreReader.open(builder.path) as reader:
        batches = reader.read("t", 0, 0, max_batch_rows=5, columns=["queueOffset", "body"])
        found = [row for batch in itertools.islice(batches, 2) for row in batch.to_pylist()]
        builder.delete_log_files(4)
        with pytest.raises(OffsetOutOfRange, match="Retention removed") as raised:
            found.extend(row for batch in batches for row in batch.to_pylist())
        assert [(row["queueOffset"], row["body"]) for row in found] == numbered(0, len(found))
        assert raised.value.start == len(found)
        assert raised.value.min_offset == bounds(reader)[0] > len(found)


def test_a_store_restored_in_place_is_read_anew(builder: StoreBuilder, tmp_path: Path) -> None:
    """A backup that replaces the directory while a reader stands beside it: nothing of the old one may show."""
    builder.append("t", 0, bodies(40))
    other = StoreBuilder(tmp_path / "other", log_file_size=SMALL_LOG, queue_file_units=UNITS)
    other.append("t", 0, bodies(33, 1000))
    with StoreReader.open(builder.path) as reader:
        assert read(reader) == numbered(0, 40)
        shutil.rmtree(builder.path)
        assert reader.topics() == []
        other.path.rename(builder.path)
        assert bounds(reader) == (0, 33)
        assert read(reader) == [(at, body(1000 + at)) for at in range(33)]
        assert reader.message_at(0).body == body(1000)


def test_files_replaced_one_by_one_are_read_anew(builder: StoreBuilder, tmp_path: Path) -> None:
    builder.append("t", 0, bodies(40))
    other = StoreBuilder(tmp_path / "other", log_file_size=SMALL_LOG, queue_file_units=UNITS)
    other.append("t", 0, bodies(33, 1000))
    with StoreReader.open(builder.path) as reader:
        assert read(reader) == numbered(0, 40)
        for kind in (log_files, queue_files):
            for path in kind(builder):
                path.unlink()
            for path in kind(other):
                path.rename(kind_directory(builder, kind) / path.name)
        assert bounds(reader) == (0, 33)
        assert read(reader) == [(at, body(1000 + at)) for at in range(33)]


def kind_directory(builder: StoreBuilder, kind: Callable[[StoreBuilder], list[Path]]) -> Path:
    return builder.path / ("commitlog" if kind is log_files else "consumequeue/t/0")


def test_a_queue_that_lost_its_tail_is_seen_to_end_earlier(builder: StoreBuilder) -> None:
    """Recovery zeroes units behind the log's new end, in the same files."""
    builder.append("t", 0, bodies(40))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 40)
        path = queue_files(builder)[-1]
        path.write_bytes(path.read_bytes()[: 4 * UNIT_SIZE].ljust(UNITS * UNIT_SIZE, b"\0"))
        assert bounds(reader) == (0, 34)
        assert read(reader) == numbered(0, 34)


def test_a_topic_and_a_queue_that_were_deleted_are_not_found_any_more(builder: StoreBuilder) -> None:
    builder.append("t", [0, 1], bodies(4))
    builder.append("u", 0, bodies(4))
    with StoreReader.open(builder.path) as reader:
        assert [q.max_offset for q in reader.queues("t")] == [2, 2]
        shutil.rmtree(builder.path / "consumequeue" / "t" / "1")
        assert reader.queue_ids("t") == [0]
        with pytest.raises(QueueNotFound):
            reader.queue_info("t", 1)
        shutil.rmtree(builder.path / "consumequeue" / "t")
        assert reader.topics() == ["u"]
        with pytest.raises(TopicNotFound):
            reader.queue_info("t", 0)
        with pytest.raises(TopicNotFound):
            reader.read("t", 0, 0)


def test_a_fence_tells_a_message_from_another_that_took_its_offset(builder: StoreBuilder, tmp_path: Path) -> None:
    builder.append("t", 0, bodies(12))
    other = StoreBuilder(tmp_path / "other", log_file_size=SMALL_LOG, queue_file_units=UNITS)
    other.append("t", 0, bodies(11))
    other.append("t", 0, [b"another message"])
    with StoreReader.open(builder.path) as reader, StoreReader.open(other.path) as restored:
        assert reader.fence("t", 0, 11) is not None
        assert reader.fence("t", 0, 10) == restored.fence("t", 0, 10)
        assert reader.fence("t", 0, 11) != restored.fence("t", 0, 11)
        assert reader.fence("t", 0, 12) is None
        assert reader.fence("t", 0, -1) is None
        bounds(reader)
        assert reader.fence("t", 0, 11) is not None, "also when the end is known"


def test_many_readers_and_generators_do_not_disturb_each_other(builder: StoreBuilder) -> None:
    builder.append("t", [0, 1, 2], bodies(300))
    with StoreReader.open(builder.path) as reader:
        streams = [reader.read("t", q, 0, columns=["body"], max_batch_rows=4) for q in (0, 1, 2, 0)]
        found: list[list[bytes]] = [[], [], [], []]
        for batches in itertools.zip_longest(*streams):
            for one, batch in zip(found, batches, strict=True):
                one.extend(batch["body"].to_pylist() if batch is not None else [])
        assert found == [[body(q + 3 * at) for at in range(100)] for q in (0, 1, 2, 0)]


def test_batches_outlive_the_reader_and_its_files(builder: StoreBuilder) -> None:
    builder.append("t", 0, bodies(30))
    with StoreReader.open(builder.path) as reader:
        batches = list(reader.read("t", 0, 0))
    shutil.rmtree(builder.path)
    assert [b for batch in batches for b in batch["body"].to_pylist()] == bodies(30)
