"""A sector that never reached the device is noticed wherever the end or the beginning of a record lies in it.

The log is zero where nothing was written (invariant 4), so a lost sector is zero as far as it belongs to a record.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import CommittedBatch, FlushDiskType, Message, MessageStore, MessageStoreConfig
from commitlog_store.errors import DamagedLog, LogShort
from commitlog_store.log.store_checkpoint import read_mark
from commitlog_store.paths import CHECKPOINT, COMMIT_LOG
from commitlog_store.testing import kill
from tests.crash.cuts import opened_as_forecast
from tests.crash.stored_messages import Stored, check_store, log_records
from tests.crash.workloads import small_config
from tests.support.clean_store import assert_clean

SECTOR, PAGE = 512, 4096
# Nothing is flushed but by the puts themselves, so the checkpoint says nothing of the last one.
CONFIG = dataclasses.replace(
    small_config(FlushDiskType.SYNC_FLUSH),
    flush_interval_consume_queue=3_600_000,
    flush_consume_queue_thorough_interval=3_600_000,
)
FILE_SIZE = CONFIG.mapped_file_size_commit_log
# What records end with: a separator after their properties, a value, zeros of a value, or a length of zero.
KINDS = {
    "separator": ({"a": "x" * 30}, True),
    "value": ({"a": "x" * 30}, False),
    "zeros": ({"a": "x" * 30 + "\0" * 5}, False),
    "no properties": ({}, True),
}
ROWS = 36

# Bytes of a record in the lost sector: those that a short piece has, and some of the others.
few = [1, 3, 6, 90, SECTOR]
places = pytest.mark.parametrize(
    "bytes_in_sector", [pytest.param(few, id="some"), pytest.param(range(1, SECTOR + 1), marks=pytest.mark.stress)]
)
kinds = pytest.mark.parametrize("kind", KINDS)


def config_of(kind: str) -> MessageStoreConfig:
    """The store whose records end like that."""
    return dataclasses.replace(CONFIG, properties_trailing_separator=KINDS[kind][1])


def table(rows: int, kind: str = "no properties", size: int = 20) -> pa.Table:
    """Rows of three queues, no two alike."""
    properties = [list(KINDS[kind][0].items())] * rows
    return pa.table(
        {
            "body": pa.array([f"{row:05d}".encode() + b"b" * (size - 5) for row in range(rows)], pa.binary()),
            "queueId": pa.array([row % 3 for row in range(rows)], pa.int32()),
            "properties": pa.array(properties, pa.map_(pa.string(), pa.string())),
        }
    )


def put(store: MessageStore, rows: pa.Table) -> None:
    store.put_messages(rows, topic="single").raise_for_status()


def commit(store: MessageStore, *tables: pa.Table) -> CommittedBatch:
    """Commit a batch; each table is written at once, the first ones before the next."""
    with store.transaction("app", 1) as batch:
        if not batch.already_there:
            for rows in tables:
                batch.put_messages(rows, topic="batch")
    assert batch.result is not None
    return batch.result


def pad(store: MessageStore, size: int, place: int, *, within: int = SECTOR) -> None:
    """Put a message so that the end of what takes ``size`` bytes more is at a place of its sector or page."""
    at = store.physical_bounds()[1]
    least = 200  # a record, and something in its body
    padding = (place - at - size - least) % within
    put(store, table(1, size=padding + least - 97))
    assert (store.physical_bounds()[1] + size) % within == place % within


def sizes_of(records: Iterable[Stored]) -> int:
    return sum(record.size for record in records)


def zero(store: Path, start: int, stop: int) -> bool:
    """Zero bytes of the log; whether they were not zero."""
    file = store / COMMIT_LOG / f"{start - start % FILE_SIZE:020d}"
    data = bytearray(file.read_bytes())
    lost = data[start % FILE_SIZE : start % FILE_SIZE + stop - start]
    data[start % FILE_SIZE : start % FILE_SIZE + stop - start] = bytes(stop - start)
    file.write_bytes(data)
    return any(lost)


def check_frame(store: Path, whole: list[Stored], frame: CommittedBatch, *, lost: bool, rows: list[pa.Table]) -> None:
    """The store opens with the frame wholly there or wholly absent, and takes it again."""
    before = [record for record in whole if record.physical_offset < frame.physical_offset]
    with opened_as_forecast(store, CONFIG) as opened:
        assert log_records(store) == (before if lost else whole)
        assert commit(opened, *rows).already_there != lost
        opened.dispatch()
    check_store(store, log_records(store))
    assert len(log_records(store)) == len(whole)
    assert_clean(store)


@places
@kinds
@pytest.mark.parametrize("unit", [SECTOR, PAGE], ids=["sector", "page"])
def test_a_frame_that_ends_in_a_lost_sector_is_there_wholly_or_not_at_all(
    unit: int, kind: str, bytes_in_sector: Iterable[int], memory: Path
) -> None:
    config = config_of(kind)
    rows = [table(ROWS, kind)]
    with MessageStore.open(memory / "first", config) as first:
        commit(first, *rows)
    size = sizes_of(log_records(memory / "first"))
    assert size > unit
    for place in bytes_in_sector:
        store = memory / str(place)
        opened = MessageStore.open(store, config)
        pad(opened, size, place, within=unit)
        frame = commit(opened, *rows)
        kill(opened)
        whole = log_records(store)
        assert whole[-1].end == frame.end
        lost = zero(store, frame.end - place, frame.end)
        assert lost or place <= (2 if kind == "no properties" else 5)
        check_frame(store, whole, frame, lost=lost, rows=rows)


@places
@pytest.mark.parametrize("size", [20, 300], ids=["shorter than 256", "longer"])
def test_the_second_of_two_writes_to_a_sector_may_be_lost(
    size: int, bytes_in_sector: Iterable[int], memory: Path
) -> None:
    """The sector then holds the end of a record, and zeros where the next one should begin."""
    rows = [table(7), table(5, "separator", size)]
    with MessageStore.open(memory / "first", CONFIG) as first:
        commit(first, *rows)
    there = log_records(memory / "first")
    head = sizes_of(there[:8])
    for place in bytes_in_sector:
        store = memory / str(place)
        opened = MessageStore.open(store, CONFIG)
        pad(opened, head, SECTOR - place)
        frame = commit(opened, *rows)
        kill(opened)
        whole = log_records(store)
        border = frame.physical_offset + head
        assert border in {record.physical_offset for record in whole}
        assert (border + place) % SECTOR == 0
        lost = zero(store, border, border + place)
        assert lost or place < 4, "a length of a record begins with zeros"
        check_frame(store, whole, frame, lost=lost, rows=rows)


def test_the_blank_filler_of_a_frame_may_be_lost(memory: Path) -> None:
    """A filler is written after the record before it, and nothing follows it in its file."""
    rows = [table(3, size=600), table(2, size=600)]
    with MessageStore.open(memory / "first", CONFIG) as first:
        commit(first, *rows)
    there = log_records(memory / "first")
    head = sizes_of(there[:3])
    for place in few:
        store = memory / str(place)
        opened = MessageStore.open(store, CONFIG)
        filler = FILE_SIZE - place - (SECTOR if place < 100 else 0)
        put(opened, table(1, size=filler - head - 97))
        frame = commit(opened, *rows)
        kill(opened)
        whole = log_records(store)
        assert filler in {record.end for record in whole}
        assert filler not in {record.physical_offset for record in whole}
        lost = zero(store, filler, filler + place)
        assert lost or place < 4
        check_frame(store, whole, frame, lost=lost, rows=rows)


@pytest.mark.parametrize("place", [1, 2, 3, 4])
@pytest.mark.parametrize("size", [20, 300], ids=["shorter than 256", "longer"])
def test_a_lost_sector_may_end_with_the_zeros_that_begin_the_next_record(place: int, size: int, memory: Path) -> None:
    rows = [table(5, "separator", 600), table(5, "separator", size)]
    with MessageStore.open(memory / "first", CONFIG) as first:
        commit(first, *rows)
    head = sizes_of(log_records(memory / "first")[:6])
    store = memory / "store"
    opened = MessageStore.open(store, CONFIG)
    pad(opened, head, SECTOR - place)
    frame = commit(opened, *rows)
    kill(opened)
    whole = log_records(store)
    border = frame.physical_offset + head + place
    assert zero(store, border - SECTOR, border)
    check_frame(store, whole, frame, lost=True, rows=rows)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.stress) for seed in range(3, 400))])
@kinds
def test_any_sectors_of_a_frame_may_be_lost(seed: int, kind: str, memory: Path) -> None:
    chance = random.Random(f"{seed}/{kind}")
    rows = [table(chance.randrange(1, 60), kind, chance.randrange(20, 700)) for _ in range(chance.randrange(1, 4))]
    store = memory / "store"
    opened = MessageStore.open(store, CONFIG)
    pad(opened, 0, chance.randrange(SECTOR))
    frame = commit(opened, *rows)
    kill(opened)
    whole = log_records(store)
    sectors = range(frame.physical_offset // SECTOR, -(-frame.end // SECTOR))
    lost = False
    for sector in chance.sample(sectors, min(chance.choice((1, 1, 2, 5, len(sectors))), len(sectors))):
        start, stop = max(sector * SECTOR, frame.physical_offset), min((sector + 1) * SECTOR, frame.end)
        lost |= zero(store, start, stop)
    check_frame(store, whole, frame, lost=lost, rows=rows)


@places
@kinds
@pytest.mark.parametrize("bulk", [True, False], ids=["table", "message"])
def test_a_single_record_that_ends_in_a_lost_sector_is_there_or_not(
    bulk: bool, kind: str, bytes_in_sector: Iterable[int], memory: Path
) -> None:
    config = config_of(kind)

    def put_last(store: MessageStore) -> None:
        if bulk:
            put(store, table(1, kind, 500))
        else:
            message = Message(topic="single", body=b"m" * 500, queue_id=0, properties=KINDS[kind][0])
            store.put_message(message).raise_for_status()

    with MessageStore.open(memory / "first", config) as first:
        put_last(first)
    size = sizes_of(log_records(memory / "first"))
    for place in bytes_in_sector:
        store = memory / str(place)
        opened = MessageStore.open(store, config)
        pad(opened, size, place)
        put_last(opened)
        kill(opened)
        whole = log_records(store)
        lost = zero(store, whole[-1].end - place, whole[-1].end)
        # A value that ends in a zero, without a separator after it, looks like one that lacks its end.
        doubted = kind == "zeros"
        mark = read_mark(str(store / CHECKPOINT))
        if lost and mark is not None and mark.flushed_offset >= whole[-1].end:
            # The machine stopped for a while after the put, and the checkpoint says that the record was flushed.
            with pytest.raises(LogShort):
                MessageStore.open(store, config)
            continue
        with opened_as_forecast(store, config):
            assert log_records(store) == (whole[:-1] if lost or doubted else whole)
        check_store(store, log_records(store))


def flip(store: Path, physical_offset: int) -> None:
    """One bit of the log."""
    file = store / COMMIT_LOG / f"{physical_offset - physical_offset % FILE_SIZE:020d}"
    data = bytearray(file.read_bytes())
    data[physical_offset % FILE_SIZE] ^= 1
    file.write_bytes(data)


@kinds
@pytest.mark.parametrize("in_sector", [(1, 5, 100), pytest.param((2, 3, 8), marks=pytest.mark.stress)])
def test_a_frame_with_zeros_of_its_own_is_not_cut_off_when_it_is_damaged(
    in_sector: Sequence[int], kind: str, memory: Path
) -> None:
    """Records end with zeros when they have no properties, and a body may consist of them."""
    config = config_of(kind)
    zeros = pa.table({"body": [bytes(3 * SECTOR)] * 2, "queueId": [0, 1]})
    rows = [table(5, kind), zeros, table(5, kind)]
    with MessageStore.open(memory / "first", config) as first:
        commit(first, *rows)
    size = sizes_of(log_records(memory / "first"))
    # No check can tell zeros at the end of a value from a lost sector, when nothing else lies in it.
    for place in (7, 100) if kind == "zeros" else in_sector:
        store = memory / str(place)
        opened = MessageStore.open(store, config)
        pad(opened, size, place)
        commit(opened, *rows)
        kill(opened)
        whole = log_records(store)
        for record in [*whole[2:7], whole[-1]]:
            for damaged in (15, 63, 90):  # QUEUEID, STORETIMESTAMP, and the body
                flip(store, record.physical_offset + damaged)
                with pytest.raises(DamagedLog):
                    MessageStore.open(store, config)
                flip(store, record.physical_offset + damaged)
        with opened_as_forecast(store, config):
            assert log_records(store) == whole
