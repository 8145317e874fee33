"""What an owner does to a store between two calls of one reader."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import OffsetOutOfRange, QueueNotFound, TopicNotFound
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from tests.store.shapes.numbered_bodies import (
    SMALL_LOG,
    UNITS,
    body,
    bounds,
    log_files,
    made_bodies,
    numbered,
    queue_files,
    read,
)
from tests.support.store_builder import StoreBuilder


@pytest.fixture
def other(tmp_path: Path) -> StoreBuilder:
    """Another store of the same settings."""
    return StoreBuilder(tmp_path / "other", log_file_size=SMALL_LOG, queue_file_units=UNITS)


def test_new_units_files_queues_and_topics_appear(builder: StoreBuilder) -> None:
    with StoreReader.open(builder.path) as reader:
        assert reader.topics() == []
        total = 0
        for step in (1, 2, 8, 1, 30):
            builder.append("t", 0, made_bodies(step, total))
            total += step
            assert bounds(reader) == (0, total)
            assert read(reader) == numbered(0, total)
            assert reader.physical_bounds() == (0, builder.position)
        builder.append("t", 5, made_bodies(3))
        assert reader.queue_ids("t") == [0, 5]
        assert read(reader, queue_id=5) == numbered(0, 3)
        builder.append("u", 0, made_bodies(3))
        assert reader.topics() == ["t", "u"]
        assert read(reader, topic="u") == numbered(0, 3)
        assert reader.message_at(0).body == body(0)


def test_head_files_deleted_between_calls_move_the_min_offset(builder: StoreBuilder) -> None:
    places = builder.append("t", 0, made_bodies(90))
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


def test_head_files_deleted_while_a_range_is_read_are_reported(builder: StoreBuilder) -> None:
    """What is open can be read on; what is not is named as gone, with what is left."""
    builder.append("t", 0, made_bodies(90))
    with StoreReader.open(builder.path) as reader:
        batches = reader.read("t", 0, 0, max_batch_rows=5, columns=["queueOffset", "body"])
        found = [row for batch in itertools.islice(batches, 2) for row in batch.to_pylist()]
        builder.delete_log_files(4)
        with pytest.raises(OffsetOutOfRange, match="Retention removed") as raised:
            found.extend(row for batch in batches for row in batch.to_pylist())
        assert [(row["queueOffset"], row["body"]) for row in found] == numbered(0, len(found))
        assert raised.value.start == len(found)
        assert raised.value.min_offset == bounds(reader)[0] > len(found)


def test_a_store_restored_in_place_is_read_from_scratch(builder: StoreBuilder, other: StoreBuilder) -> None:
    """A backup that replaces the directory while a reader stands beside it: nothing of the old one may show."""
    builder.append("t", 0, made_bodies(40))
    other.append("t", 0, made_bodies(33, 1000))
    with StoreReader.open(builder.path) as reader:
        assert read(reader) == numbered(0, 40)
        shutil.rmtree(builder.path)
        assert reader.topics() == []
        other.path.rename(builder.path)
        assert bounds(reader) == (0, 33)
        assert read(reader) == [(at, body(1000 + at)) for at in range(33)]
        assert reader.message_at(0).body == body(1000)


def test_files_replaced_one_by_one_are_read_from_scratch(builder: StoreBuilder, other: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(40))
    other.append("t", 0, made_bodies(33, 1000))
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
    """Recovery zeroes units after the log's new end, in the same files."""
    builder.append("t", 0, made_bodies(40))
    with StoreReader.open(builder.path) as reader:
        assert bounds(reader) == (0, 40)
        path = queue_files(builder)[-1]
        path.write_bytes(path.read_bytes()[: 4 * UNIT_SIZE].ljust(UNITS * UNIT_SIZE, b"\0"))
        assert bounds(reader) == (0, 34)
        assert read(reader) == numbered(0, 34)


def test_a_topic_and_a_queue_that_were_deleted_are_not_found_any_more(builder: StoreBuilder) -> None:
    builder.append("t", [0, 1], made_bodies(4))
    builder.append("u", 0, made_bodies(4))
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


def test_a_fence_distinguishes_a_message_from_another_at_its_offset(builder: StoreBuilder, other: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(12))
    other.append("t", 0, made_bodies(11))
    other.append("t", 0, [b"another message"])
    with StoreReader.open(builder.path) as reader, StoreReader.open(other.path) as restored:
        assert reader.fence("t", 0, 11) is not None
        assert reader.fence("t", 0, 10) == restored.fence("t", 0, 10)
        assert reader.fence("t", 0, 11) != restored.fence("t", 0, 11)
        assert reader.fence("t", 0, 12) is None
        assert reader.fence("t", 0, -1) is None
        bounds(reader)
        assert reader.fence("t", 0, 11) is not None, "also when the end is known"


def test_fences_of_many_messages_are_those_of_each(builder: StoreBuilder) -> None:
    """The places of last messages are read together, file by file."""
    builder.append("t", [0, 1, 2], made_bodies(300))
    builder.append("u", 0, made_bodies(3))
    offsets = range(-1, 102)
    asked = [(topic, queue_id, offset) for topic, queue_id in (("t", 0), ("u", 0), ("t", 2)) for offset in offsets]
    with StoreReader.open(builder.path) as reader, StoreReader.open(builder.path) as other:
        bounds(reader)  # last messages are known of the queues that were asked for
        expected = [other.fence(*one) for one in asked]
        assert reader.fences(asked) == expected
        assert sum(fence is not None for fence in expected) == 203


def test_many_readers_and_generators_do_not_disturb_each_other(builder: StoreBuilder) -> None:
    builder.append("t", [0, 1, 2], made_bodies(300))
    with StoreReader.open(builder.path) as reader:
        streams = [reader.read("t", q, 0, columns=["body"], max_batch_rows=4) for q in (0, 1, 2, 0)]
        found: list[list[bytes]] = [[], [], [], []]
        for batches in itertools.zip_longest(*streams):
            for one, batch in zip(found, batches, strict=True):
                one.extend(batch["body"].to_pylist() if batch is not None else [])
        assert found == [[body(q + 3 * at) for at in range(100)] for q in (0, 1, 2, 0)]


def test_batches_outlive_the_reader_and_its_files(builder: StoreBuilder) -> None:
    builder.append("t", 0, made_bodies(30))
    with StoreReader.open(builder.path) as reader:
        batches = list(reader.read("t", 0, 0))
    shutil.rmtree(builder.path)
    assert [b for batch in batches for b in batch["body"].to_pylist()] == made_bodies(30)
