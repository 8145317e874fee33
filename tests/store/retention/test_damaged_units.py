"""Cleaning beside damage: a unit or an index entry that cannot be right is not taken for an expired one."""

from __future__ import annotations

import logging
import shutil
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from commitlog_store import GetMessageStatus, MessageStore, StoreReader
from commitlog_store.errors import CorruptConsumeQueue
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.retention.holders import ReadPositions, hold_of
from commitlog_store.testing import parts_of
from tests.store.retention.small_stores import SMALL, fill, queue_bases
from tests.support.delayed import Deliverer, bodies_of, delayed

COUNT = 100
TOPICS = ("orders", "others")
# Of the unit's 20 bytes, from its first on.
DAMAGE = {
    "sign bit": b"\x80",
    "place of an expired one": struct.pack(">q", 1100),
    "place 0": bytes(8),
    "zeros": bytes(UNIT_SIZE),
    "no size": struct.pack(">qi", 1100, 0),
    "after the log": b"\x70",
}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store of two queues, ten units to a file."""
    path = tmp_path_factory.mktemp("damaged") / "store"
    with MessageStore.open(path, SMALL) as store:
        for _ in range(COUNT // 10):
            for topic in TOPICS:
                fill(store, 10, topic=topic)
    return path


@pytest.fixture
def path(full: Path, tmp_path: Path) -> Path:
    shutil.copytree(full, tmp_path / "store")
    return tmp_path / "store"


def damage(path: Path, offset: int, data: bytes) -> Path:
    """Write over a unit of ``orders``; the file that it is in."""
    file = path / "consumequeue/orders/0" / f"{offset // 10 * 200:020d}"
    with file.open("r+b") as stream:
        stream.seek(offset % 10 * UNIT_SIZE)
        stream.write(data)
    return file


def offsets(path: Path, topic: str) -> list[int]:
    """Of all messages that can be read."""
    with StoreReader.open(path, on_damage="skip") as reader:
        info = reader.queue_info(topic, 0)
        batches = reader.read(topic, 0, info.min_offset, columns=["queueOffset"])
        return [offset for batch in batches for offset in batch["queueOffset"].to_pylist()]


@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("offset", [9, 49, 89])
def test_a_log_that_begins_at_0_has_no_expired_queue_files(
    path: Path, offset: int, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with MessageStore.open(path, SMALL) as store:
        file = damage(path, offset, data)
        with caplog.at_level(logging.WARNING):
            report = store.clean(max_bytes=10**9)
        assert (report.queue_files, report.log_start) == (0, 0)
        if offset == 9:  # no file after the first one is looked at
            assert "Unit of queue offset 9 of topic 'orders'" in caplog.text
        assert file.exists()
        assert offsets(path, "orders") == [one for one in range(COUNT) if one != offset]
        with StoreReader.open(path) as reader, pytest.raises(CorruptConsumeQueue, match=file.name):
            list(reader.read("orders", 0, 0))
        assert offsets(path, "others") == list(range(COUNT))
    with MessageStore.open(path, SMALL, rebuild=True):
        assert offsets(path, "orders") == list(range(COUNT))


@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_queue_keeps_its_files_and_others_are_cleaned(
    path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with MessageStore.open(path, SMALL) as store:
        file = damage(path, 19, data)
        damage(path, 69, data)
        with caplog.at_level(logging.WARNING):
            report = store.clean(max_bytes=140_000)
        assert str(file) in caplog.text
        low = min(offsets(path, "others"))
        assert 30 <= low < 50
        assert queue_bases(path, "others")[0] == low - low % 10
        assert queue_bases(path, "orders") == list(range(10, COUNT, 10))
        assert report.queue_files == 1 + low // 10
        with StoreReader.open(path) as reader:
            info = reader.queue_info("orders", 0)
            assert abs(info.min_offset - low) <= 9, "the two queues take turns of ten"
            assert info.max_offset == COUNT
            assert offsets(path, "orders") == [one for one in range(info.min_offset, COUNT) if one != 69]
            with pytest.raises(CorruptConsumeQueue, match="queue offset 69"):
                list(reader.read("orders", 0, info.min_offset))
    with MessageStore.open(path, SMALL, rebuild=True) as store:
        fill(store, 1)
        assert offsets(path, "orders")[-1] == COUNT
        assert len(offsets(path, "orders")) == COUNT + 1 - offsets(path, "orders")[0]


@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE)
def test_get_message_takes_no_damaged_unit_for_a_removed_message(path: Path, data: bytes) -> None:
    """What it counts as removed is skipped without a word."""
    with MessageStore.open(path, SMALL) as store:
        store.clean(max_bytes=140_000)
        damage(path, 69, data)
        with StoreReader.open(path) as reader:
            with pytest.raises(CorruptConsumeQueue, match="queue offset 69"):
                reader.get_message("orders", 0, 65)
            low = reader.queue_info("orders", 0).min_offset
            found = reader.get_message("orders", 0, low, max_messages=3)
            assert [message.queue_offset for message in found.messages] == [low, low + 1, low + 2]
            assert reader.get_message("orders", 0, low - 1).status is GetMessageStatus.OFFSET_TOO_SMALL
        with StoreReader.open(path, on_damage="skip") as reader:
            found = reader.get_message("orders", 0, 65)
            assert [message.queue_offset for message in found.messages] == [65, 66, 67, 68]


@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE)
def test_a_reader_at_a_damaged_unit_holds_the_log_from_the_message_before_it(path: Path, data: bytes) -> None:
    damage(path, 69, data)
    with StoreReader.open(path, on_damage="skip") as reader:
        (units,) = reader.units("orders", 0, 68, 69)
        for position, place in ((68, units), (69, units)):
            wanted = ReadPositions(holder="a group", offsets={("orders", 0): position}, topics=frozenset({"orders"}))
            hold = hold_of(wanted, reader._catalog, reader._commit_log, at_most_ms=None)
            assert hold is not None
            assert hold.from_offset == int(place["physical_offset"][0])


@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE)
def test_a_delivery_at_a_damaged_unit_holds_the_log_from_the_message_before_it(path: Path, data: bytes) -> None:
    """None, as for a queue without messages that wait, would let retention delete them."""
    with MessageStore.open(path, SMALL) as store:
        report = store.clean(max_bytes=140_000)
        queues = parts_of(store).engine.log.queues
        places = {at: queues.place("orders", 0, at) for at in (67, 68, 70)}
        damage(path, 69, data)
        for position, expected in ((0, None), (68, 68), (69, 68), (70, 70)):
            found = queues.place_left("orders", 0, position, report.log_start)
            assert found == places[expected] if expected else found is not None and found >= report.log_start
        assert queues.place_left("orders", 0, COUNT, report.log_start) is None


@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_unit_holds_up_no_delivery_on_a_nearly_full_disk(tmp_path: Path, data: bytes) -> None:
    """Those of the log's first file are delivered, so that retention can delete it: the unit is in none."""
    with MessageStore.open(tmp_path, replace(SMALL, schedule_enable=False)) as store:
        for body in (b"a", b"b", b"c"):
            store.put_message(delayed(body)).raise_for_status()
        fill(store, 30)
    with (tmp_path / "consumequeue/SCHEDULE_TOPIC_XXXX/0/00000000000000000000").open("r+b") as stream:
        stream.seek(UNIT_SIZE)
        stream.write(data)
    full = replace(SMALL, schedule_enable=False, disk_space_warning_level_ratio=0.001)
    with MessageStore.open(tmp_path, full) as store:
        assert not store.writable
        Deliverer(store).everything()
        assert bodies_of(store.path)[30:] == [b"a", b"c"]


@pytest.mark.parametrize("data", [data for data in DAMAGE.values() if any(data)])
def test_a_topic_whose_last_unit_is_damaged_is_neither_expired_nor_deleted(path: Path, data: bytes) -> None:
    damage(path, 99, data)
    with MessageStore.open(path, SMALL) as store:
        assert store.expired_topics() == []
        with pytest.raises(CorruptConsumeQueue, match="queue offset 99"):
            store.delete_topic("orders")
        assert queue_bases(path, "orders")


def test_an_index_file_with_a_damaged_header_is_kept(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def set_end(file: Path, value: int) -> None:
        with file.open("r+b") as stream:
            stream.seek(24)
            stream.write(struct.pack(">q", value))

    def files() -> list[Path]:
        return sorted((path / "index").iterdir())

    with MessageStore.open(path, SMALL) as store, caplog.at_level(logging.WARNING):
        before = files()[0].read_bytes()
        set_end(files()[0], -1)
        assert store.clean(max_bytes=10**9).index_files == 0
        assert str(files()[0]) in caplog.text
        files()[0].write_bytes(before)
        assert store.clean(max_bytes=140_000).index_files == 1
        first, *_ = files()
        set_end(first, 1100)
        assert store.clean(max_bytes=140_000).index_files == 0, "its last entry is that of a message in the log"
        assert first.exists()
