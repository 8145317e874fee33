"""Topics and queues by name."""

from __future__ import annotations

import numpy as np
import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import InvalidValue, QueueNotFound, TopicNotFound
from commitlog_store.format.consume_queue_unit import UNIT_FILE_DTYPE
from tests.store.shapes.numbered_bodies import body, made_bodies, numbered, read
from tests.support.store_builder import StoreBuilder


def test_topics_are_all_that_have_a_queue_and_foreign_names_are_left_alone(builder: StoreBuilder) -> None:
    for topic in ("orders", "SCHEDULE_TOPIC_XXXX", "%RETRY%group", "RMQ_SYS_TRANS_HALF_TOPIC", "t" * 200):
        builder.append(topic, 0, made_bodies(1))
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
    builder.append("t", [0, 7], made_bodies(2))
    with StoreReader.open(builder.path) as reader:
        assert reader.queue_ids("t") == [0, 7]
        with pytest.raises(TopicNotFound, match="'nope'"):
            reader.queue_info("nope", 0)
        for queue_id in (-1, 1, 8):
            with pytest.raises(QueueNotFound, match=f"no queue {queue_id} "):
                reader.read("t", queue_id, 0)


def test_a_light_queue_gives_the_messages_of_the_topics_it_was_fed_from(builder: StoreBuilder) -> None:
    """%LMQ% queues hold units only; the records belong to another topic and keep its name and offsets."""
    fed = [*builder.append("orders", 0, made_bodies(5)), *builder.append("payments", 3, made_bodies(5, 5))]
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
