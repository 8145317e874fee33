"""Damaged half messages and op messages: reported, skipped, and all others are answered."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from commitlog_store import HalfMessagesChecked, MessageStore, StoreReader
from commitlog_store.errors import CorruptRecord, HalfMessageEnded, HalfMessageNotFound
from commitlog_store.format.half_messages import HALF_TOPIC, OP_TOPIC
from commitlog_store.format.record import HEADER_SIZE, field_offset
from commitlog_store.reader import pending_half_part
from tests.store.half.brokers import put_half
from tests.store.half.test_half_messages import prepare, stored
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.stored_bodies import bodies as stored_bodies

FAR_MS = 1_000_000


def fill_the_file(store: MessageStore) -> None:
    """The log's last file is looked at whenever a store is opened, the ones before it are not."""
    for _ in range(20):
        put_ok(store, "others", body=b"x" * 1_000)


def damage(path: Path, physical_offset: int, within: int) -> None:
    """Overwrite four bytes of a record of the log's first file."""
    with (path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(physical_offset + within)
        file.write(b"\xee" * 4)


@pytest.mark.parametrize("field", ["queue_offset", "magic", "body"])
def test_a_damaged_half_message_is_reported_and_the_others_are_checked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, field: str
) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        bodies = (b"a" * 40, b"b" * 40, b"c" * 40)
        places = [put_half(store, body, born=FAR_MS).physical_offset for body in bodies]
        fill_the_file(store)
    damage(path, places[1], HEADER_SIZE + 4 if field == "body" else field_offset(field))
    with open_store(path, file_reserved_time=24 * 365 * 100) as store, caplog.at_level(logging.WARNING):
        half = store.half_messages
        assert [one.message.body for one in half.pending()] == [bodies[0], bodies[2]]
        assert [(one.topic, one.start, one.stop) for one in half.unreadable] == [(HALF_TOPIC, 1, 2)]
        assert f"{HALF_TOPIC}, queue 0, offset 1. This half message is neither listed nor checked" in caplog.text
        assert "commitlog verify" in caplog.text
        assert half.check(lambda _: "commit") == HalfMessagesChecked(committed=2, unreadable=1)
        assert stored_bodies(store) == [bodies[0], bodies[2]]
    with open_store(path) as store:
        assert store.half_messages.pending() == []
        assert store.half_messages.unreadable == [], "reading has passed it"


def test_a_reader_raises_or_skips_as_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        places = [put_half(store, body * 40).physical_offset for body in (b"a", b"b", b"c")]
        fill_the_file(store)
    damage(path, places[0], HEADER_SIZE + 4)
    damage(path, places[1], field_offset("magic"))
    with StoreReader.open(path) as reader, pytest.raises(CorruptRecord):
        reader.pending_half_messages()
    with StoreReader.open(path, on_damage="skip") as reader:
        assert [one.message.body for one in reader.pending_half_messages()] == [b"c" * 40]
        assert {one.start for one in reader.skipped} == {0, 1}


def test_a_part_of_the_pending_ones_reads_no_other_bodies(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        places = [put_half(store, body * 40).physical_offset for body in (b"a", b"b", b"c")]
        fill_the_file(store)
    damage(path, places[1], HEADER_SIZE + 4)
    counts = []

    def last(count: int) -> slice:
        counts.append(count)
        return slice(count - 1, count)

    with StoreReader.open(path) as reader:
        (found,) = pending_half_part(reader, lambda place: bool(place.topic and place.producer_group), last)
        assert pending_half_part(reader, lambda place: place.topic == "other", last) == []
    assert (found.message.body, counts) == (b"c" * 40, [3, 0])


def test_the_handle_of_a_damaged_half_message_leads_to_none(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        handle = prepare(store, b"a" * 40)
        fill_the_file(store)
    damage(path, handle.physical_offset, HEADER_SIZE + 4)
    with open_store(path) as store:
        for _ in range(2):
            with pytest.raises(HalfMessageNotFound, match="BODYCRC"):
                store.half_messages.commit(handle)
            assert store.half_messages.pending() == []


def test_an_op_message_with_another_number_in_its_body_ends_no_other_half_message(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        handles = [prepare(store, body) for body in (b"rolled back", b"left", b"left too")]
        store.half_messages.rollback(handles[0])
        fill_the_file(store)
    (op,) = stored(path, OP_TOPIC)
    assert op.body == b"0"
    with (path / "commitlog" / f"{0:020}").open("r+b") as file:
        file.seek(op.physical_offset + HEADER_SIZE)
        file.write(b"2")
    with StoreReader.open(path) as reader, pytest.raises(CorruptRecord, match="BODYCRC"):
        reader.pending_half_messages()
    with open_store(path) as store:
        assert [one.message.body for one in store.half_messages.pending()] == [b"rolled back", b"left", b"left too"]
        assert [(one.topic, one.start, one.stop) for one in store.half_messages.unreadable] == [(OP_TOPIC, 0, 1)]


def test_what_a_damaged_op_message_has_ended_is_not_committed_twice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    with open_store(path, transaction_time_out=0) as store:
        handles = [prepare(store, body) for body in (b"committed", b"rolled back", b"left")]
        store.half_messages.commit(handles[0])
        store.half_messages.rollback(handles[1])
        fill_the_file(store)
    for op in stored(path, OP_TOPIC):
        damage(path, op.physical_offset, field_offset("magic"))
    asked = []

    def rollback(message: object) -> str:
        asked.append(message.body)  # type: ignore[attr-defined]
        return "rollback"

    with open_store(path, transaction_time_out=0) as store, caplog.at_level(logging.WARNING):
        assert store.half_messages.check(rollback).rolled_back == 2  # type: ignore[arg-type]
        assert asked == [b"rolled back", b"left"]
        assert [(one.topic, one.start, one.stop) for one in store.half_messages.unreadable] == [(OP_TOPIC, 0, 2)]
        assert "Half messages that ended by it look pending" in caplog.text
        assert stored_bodies(store) == [b"committed"]
        assert store.half_messages.pending() == []
        with pytest.raises(HalfMessageEnded) as ended:
            store.half_messages.commit(handles[0])
        assert ended.value.committed


@pytest.mark.parametrize("unit", [b"\xff" * 20, b"\x00" * 20, b"\x00" * 7 + b"\x01" + b"\x00" * 12])
def test_a_damaged_unit_of_the_half_queue_costs_its_message_alone(tmp_path: Path, unit: bytes) -> None:
    path = tmp_path / "store"
    with open_store(path) as store:
        for number in range(8):
            put_half(store, b"%d" % number)
        fill_the_file(store)
    with (path / "consumequeue" / HALF_TOPIC / "0" / f"{0:020}").open("r+b") as file:
        file.seek(3 * 20)
        file.write(unit)
    with open_store(path) as store:
        assert [one.message.body for one in store.half_messages.pending()] == [b"%d" % n for n in range(8) if n != 3]
        assert [(one.start, one.stop) for one in store.half_messages.unreadable] == [(3, 4)]
