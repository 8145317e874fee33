"""A body that does not match its CRC is given in no way of reading, unless the caller asks for bodies as they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageStore, StoreReader
from commitlog_store.errors import CorruptRecord
from tests.store.damage.flipped_bodies import BAD, COUNT, KINDS, SMALL, FlippedStore, flip_byte, make
from tests.support import golden

RANGE = ("orders", 0, 0, COUNT)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> FlippedStore:
    return make(request.param, tmp_path / "store")


def bodies_in(batches: Any) -> list[bytes]:
    return [body for batch in batches for body in batch.column("body").to_pylist() if body is not None]


# Each takes verify_crc among its options. Those of the first table give all bodies, the others that of one message.
MANY: dict[str, Callable[..., list[bytes]]] = {
    "read": lambda reader, **more: bodies_in(reader.read("orders", 0, 0, **more)),
    "read the body alone": lambda reader, **more: bodies_in(reader.read("orders", 0, 0, columns=["body"], **more)),
    "read by a filter": lambda reader, **more: bodies_in(
        reader.read("orders", 0, 0, filter="KEYS IS NOT NULL", **more)
    ),
    "scan": lambda reader, **more: bodies_in(reader.scan("orders", **more)),
}
ONE: dict[str, Callable[..., list[bytes]]] = {
    "message_at": lambda reader, place, **more: [reader.message_at(place, **more).body],
    "message_by_id": lambda reader, place, **more: [
        reader.message_by_id(reader.message_at(place, verify_crc=False).message_id, **more).body
    ],
    "query": lambda reader, _, **more: [one.body for one in reader.query("orders", f"k{BAD}", **more)],
    "query_keys": lambda reader, _, **more: bodies_in(reader.query_keys("orders", [f"k{BAD}"], **more)),
}


@pytest.mark.parametrize("way", MANY)
def test_a_flipped_byte_of_a_body_ends_a_read_or_is_skipped(store: FlippedStore, way: str) -> None:
    with StoreReader.open(store.path) as reader:
        with pytest.raises(CorruptRecord, match="BODYCRC of the record") as raised:
            MANY[way](reader)
        assert "verify_crc=False (--no-verify-crc, in Spark verifyCrc=false) gives the body" in str(raised.value)
        assert MANY[way](reader, verify_crc=False) == store.changed
    with StoreReader.open(store.path, on_damage="skip") as reader:
        assert MANY[way](reader) == store.good
        assert [(gap.topic, gap.start, gap.stop, gap.physical_start) for gap in reader.skipped] == [
            ("orders", BAD, BAD + 1, store.place)
        ]


@pytest.mark.parametrize("way", ONE)
def test_a_flipped_byte_of_a_body_ends_the_read_of_one_message(store: FlippedStore, way: str) -> None:
    with StoreReader.open(store.path) as reader:
        with pytest.raises(CorruptRecord, match="BODYCRC of the record"):
            ONE[way](reader, store.place)
        assert ONE[way](reader, store.place, verify_crc=False) == [store.changed[BAD]]


def test_a_message_that_a_query_skips_is_among_what_was_skipped(store: FlippedStore) -> None:
    with StoreReader.open(store.path, on_damage="skip") as reader:
        for _ in range(2):
            assert reader.query("orders", f"k{BAD}") == []
        assert bodies_in(reader.query_keys("orders", [f"k{BAD}", "k5"])) == [store.whole[5]]
        assert [(gap.topic, gap.queue_id, gap.start, gap.stop) for gap in reader.skipped] == [
            ("orders", 0, BAD, BAD + 1)
        ]


def test_get_message_gives_the_messages_around_a_flipped_body(store: FlippedStore) -> None:
    with StoreReader.open(store.path) as reader:
        with pytest.raises(CorruptRecord):
            reader.get_message("orders", 0, 0)
        assert reader.get_message("orders", 0, BAD + 1).messages[0].body == store.whole[BAD + 1]


def test_ranges_that_are_read_together_leave_a_flipped_body_to_read(store: FlippedStore) -> None:
    with StoreReader.open(store.path) as reader:
        assert reader.read_together([RANGE]) is None
        assert bodies_in(reader.read_together([RANGE], verify_crc=False)) == store.changed
        batches = reader.read_side_by_side([RANGE])
        given = bodies_in(batches)
        assert store.changed[BAD] not in given
        assert batches.positions[0] <= BAD
        assert bodies_in(reader.read_side_by_side([RANGE], verify_crc=False)) == store.changed


def test_without_the_column_body_nothing_is_checked(store: FlippedStore) -> None:
    columns = ["queueOffset", "keys"]
    with StoreReader.open(store.path) as reader:
        assert sum(batch.num_rows for batch in reader.read("orders", 0, 0, columns=columns)) == COUNT
        assert reader.scan("orders", columns=columns).read_all().num_rows == COUNT
        assert sum(batch.num_rows for batch in reader.read_together([RANGE], columns=columns) or []) == COUNT
        assert sum(batch.num_rows for batch in reader.read_side_by_side([RANGE], columns=columns)) == COUNT


def test_polled_batches_end_before_a_flipped_body(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        places = [
            store.put_message(Message(topic="orders", body=b"body %d" % number, queue_id=0)).physical_offset
            for number in range(COUNT)
        ]
        store.flush()
        store.dispatch()
        flip_byte(tmp_path / "store", places[BAD] + 90)
        with store.consumer("billing", "orders") as consumer:
            given: list[bytes] = []
            while len(given) < BAD:
                batch = consumer.poll_batch()
                assert batch is not None
                given += batch.column("body").to_pylist()
            with pytest.raises(CorruptRecord, match="BODYCRC"):
                consumer.poll_batch()
            assert given == [b"body %d" % number for number in range(BAD)]
        with store.consumer("audit", "orders") as consumer:
            batch = consumer.poll_batch(columns=["queueOffset"])
            assert batch is not None
            assert batch.num_rows == COUNT


@pytest.mark.parametrize("size", [0, 1, 100, 3 << 10, 40_000])
def test_a_flipped_byte_is_found_in_bodies_of_any_size(tmp_path: Path, size: int) -> None:
    """Bodies of many sizes, so that they are checked in several parts, and long ones without a copy."""
    with MessageStore.open(tmp_path / "store", SMALL) as store:
        bodies = [bytes([number % 251]) * size for number in range(300)]
        store.put_messages(
            pa.table({"body": pa.array([*bodies, b"last"], pa.binary()), "queueId": [0] * 301}), topic="t"
        )
    with StoreReader.open(tmp_path / "store") as reader:
        assert bodies_in(reader.read("t", 0, 0)) == [*bodies, b"last"]
        (units,) = reader.units("t", 0, 0, 301)
        flip_byte(tmp_path / "store", int(units["physical_offset"][300]) + 88)
        with pytest.raises(CorruptRecord, match="offset 300 in"):
            bodies_in(reader.read("t", 0, 0))


@pytest.mark.parametrize("name", [golden.ROCKETMQ_533, golden.ROCKETMQ_533_HALF])
def test_every_body_that_rocketmq_stored_matches_its_crc(name: str, tmp_path: Path) -> None:
    path = golden.copy_golden(name, tmp_path / "store")
    with StoreReader.open(path) as reader:
        for topic in reader.topics():
            for queue in reader.queues(topic):
                read = (topic, queue.queue_id, queue.min_offset)
                assert bodies_in(reader.read(*read)) == bodies_in(reader.read(*read, verify_crc=False))
