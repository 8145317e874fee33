"""Damage in a batch that was flushed is named, and not taken for a commit that a crash has cut short."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import FlushDiskType, Message, MessageStore
from commitlog_store.batch.visibility import BatchGate, GateReader
from commitlog_store.errors import CorruptRecord
from commitlog_store.format.record import field_offset
from commitlog_store.log.store_checkpoint import StoreCheckpoint
from commitlog_store.paths import BATCH_LEDGER, CHECKPOINT, COMMIT_LOG, CONFIG
from commitlog_store.testing import kill
from tests.crash.batch_workloads import commit, gate_is_open
from tests.crash.stored_messages import Stored, check_store, log_records
from tests.crash.workloads import small_config
from tests.support.clean_store import assert_clean

# Nothing is flushed or written to the checkpoint but by hand.
CONFIG_SYNC = dataclasses.replace(
    small_config(FlushDiskType.SYNC_FLUSH),
    flush_interval_consume_queue=3_600_000,
    flush_consume_queue_thorough_interval=3_600_000,
)
ROWS = 110
FILE_SIZE = CONFIG_SYNC.mapped_file_size_commit_log


def flip(store: Path, physical_offset: int) -> Path:
    """One bit of the log; the file that it is in."""
    file = store / COMMIT_LOG / f"{physical_offset - physical_offset % FILE_SIZE:020d}"
    data = bytearray(file.read_bytes())
    data[physical_offset % FILE_SIZE] ^= 1
    file.write_bytes(data)
    return file


def killed_store(store: Path, *, more_after: bool) -> list[Stored]:
    """A small batch and one of several files, flushed, perhaps with a message after them; and then a kill."""
    opened = MessageStore.open(store, CONFIG_SYNC)
    commit(opened, "app", 1, 5)
    commit(opened, "app", 2, ROWS)
    if more_after:
        opened.put_message(Message(topic="topic-0", body=b"after", queue_id=0)).raise_for_status()
    opened.flush()
    kill(opened)
    return log_records(store)


def body(record: Stored) -> int:
    return record.physical_offset + field_offset("body_length") + 4


def magic(record: Stored) -> int:
    return record.physical_offset + field_offset("magic")


def queue_offset(record: Stored) -> int:
    return record.physical_offset + field_offset("queue_offset") + 6


# Of the records: the frame record of the first batch and its rows, then the second's.
@pytest.mark.parametrize("where", [6, 7, 7 + ROWS // 2, 6 + ROWS], ids=["frame record", "first", "middle", "last"])
@pytest.mark.parametrize("what", [body, magic, queue_offset])
@pytest.mark.parametrize("more_after", [True, False], ids=["with more after it", "at the end"])
def test_a_flushed_batch_that_is_damaged_is_refused(
    where: int, what: Callable[[Stored], int], more_after: bool, memory: Path
) -> None:
    store = memory / "store"
    records = killed_store(store, more_after=more_after)
    file = flip(store, what(records[where]))
    before = {path.name: path.read_bytes() for path in (store / COMMIT_LOG).iterdir()}
    with pytest.raises(CorruptRecord) as caught:
        MessageStore.open(store, CONFIG_SYNC)
    assert caught.value.path == str(file)
    assert str(records[where].physical_offset) in str(caught.value)
    if where > 6:
        assert "batch 2 of 'app'" in str(caught.value)
    assert {path.name: path.read_bytes() for path in (store / COMMIT_LOG).iterdir()} == before, "nothing is changed"
    flip(store, what(records[where]))
    with MessageStore.open(store, CONFIG_SYNC) as opened:
        assert commit(opened, "app", 2, ROWS).already_there
    assert_clean(store)


def set_flushed(store: Path, flushed_offset: int) -> None:
    checkpoint = StoreCheckpoint.load(str(store / CHECKPOINT))
    assert checkpoint.mark is not None
    checkpoint.flush(dataclasses.replace(checkpoint.mark, flushed_offset=flushed_offset))
    checkpoint.close()


@pytest.mark.parametrize("flushed", ["before the batch", "within the batch"])
@pytest.mark.parametrize("rows_before", [0, 5])
def test_a_part_of_a_batch_ends_the_log_also_when_its_beginning_was_flushed(
    flushed: str, rows_before: int, memory: Path
) -> None:
    """A flush goes file by file, and the checkpoint may speak of the first one only."""
    store = memory / "store"
    opened = MessageStore.open(store, CONFIG_SYNC)
    before = [commit(opened, "app", 1, rows_before)] if rows_before else []
    cut = commit(opened, "app", 2, ROWS)
    opened.flush()
    kill(opened)
    set_flushed(store, FILE_SIZE if flushed == "within the batch" else cut.physical_offset)
    last = sorted((store / COMMIT_LOG).iterdir())[cut.end // FILE_SIZE]
    last.write_bytes(bytes(FILE_SIZE))
    with MessageStore.open(store, CONFIG_SYNC) as opened:
        assert opened.physical_bounds()[1] == cut.physical_offset
        assert opened.batches() == before
        assert gate_is_open(store)
        assert not commit(opened, "app", 2, ROWS).already_there
    check_store(store, log_records(store))
    assert_clean(store)


@pytest.mark.parametrize("flushed", [True, False], ids=["flushed", "not flushed"])
@pytest.mark.parametrize("value", ["x\0", "\0" * 1500 + "x", "\0" * 1500])
@pytest.mark.parametrize("separator", [True, False])
def test_properties_of_zeros_are_not_taken_for_missing_sectors_in_a_whole_batch(
    value: str, separator: bool, flushed: bool, memory: Path
) -> None:
    """A single message of that kind may be lost by a crash; a batch has a checksum that reveals it."""
    store = memory / "store"
    config = dataclasses.replace(CONFIG_SYNC, properties_trailing_separator=separator)
    rows = pa.table(
        {
            "body": [b"body"] * 12,
            "queueId": [0, 1] * 6,
            "properties": pa.array([[("a", value)]] * 12, pa.map_(pa.string(), pa.string())),
        }
    )
    opened = MessageStore.open(store, config)
    commit(opened, "app", 1, 5)
    with opened.transaction("zeros", 1) as batch:
        batch.put_messages(rows, topic="zeros")
    if flushed:
        opened.flush()
    there = log_records(store)
    kill(opened)
    with MessageStore.open(store, config) as opened:
        assert log_records(store) == there
        assert [one.batch.app_id for one in opened.batches()] == ["app", "zeros"]
    check_store(store, there)


def test_a_ledger_that_is_ahead_of_its_log_is_read_from_scratch(memory: Path) -> None:
    """The log was restored from an older copy: what is in that copy must not be written again."""
    store, copy = memory / "store", memory / "copy"
    with MessageStore.open(store, CONFIG_SYNC) as opened:
        first = [commit(opened, "app", 1, 5), commit(opened, "loader", 1, 3)]
    shutil.copytree(store, copy)
    with MessageStore.open(store, CONFIG_SYNC) as opened:
        commit(opened, "app", 2, 5)
    shutil.copy(store / CONFIG / BATCH_LEDGER, copy / CONFIG / BATCH_LEDGER)
    with MessageStore.open(copy, CONFIG_SYNC) as opened:
        assert opened.batches() == first
        assert commit(opened, "app", 1, 5).already_there
        assert not commit(opened, "app", 2, 5).already_there


def test_a_gate_that_names_more_than_the_log_has_hides_the_next_batch(memory: Path) -> None:
    """After a crash that took the log's end, another batch gets the places of one that was shown."""
    store = memory / "store"
    opened = MessageStore.open(store, CONFIG_SYNC)
    commit(opened, "app", 1, 5)
    kill(opened)
    gate = BatchGate(str(store))
    gate.close_from(0)
    gate.open(1 << 40)
    gate.release()
    opened = MessageStore.open(store, CONFIG_SYNC)
    end = opened.physical_bounds()[1]
    kill(opened)
    reader = GateReader(str(store))
    assert reader.look()[1:] == (True, 0, end)
    reader.close()


@pytest.mark.parametrize("kind", ["batch", "message"])
@pytest.mark.parametrize("over", [1, 2, 3])
def test_a_record_without_properties_may_end_just_after_a_sector(kind: str, over: int, memory: Path) -> None:
    """The next sector then holds nothing of it but the length of no properties: two zeros, as in a lost sector."""
    store = memory / "store"
    opened = MessageStore.open(store, CONFIG_SYNC)

    def put(*sizes: int) -> int:
        rows = pa.table({"body": [bytes(size) for size in sizes], "queueId": [0] * len(sizes)})
        opened.put_messages(rows, topic="plain").raise_for_status()
        return opened.physical_bounds()[1]

    head = put(0)  # what a record takes beside its body
    if kind == "batch":
        before = opened.physical_bounds()[1]
        frame = commit(opened, "app", 1, 5)
        size = next(one.size for one in log_records(store) if one.physical_offset == before)
        assert frame.physical_offset == before
    else:
        size = head + 40
    at = opened.physical_bounds()[1]
    end = put((over - at - head - size) % 512)
    assert (end + size) % 512 == over
    if kind == "batch":
        commit(opened, "app", 2, 5)
    else:
        put(40)
    there = log_records(store)
    assert next(one.end for one in there if one.physical_offset == end) % 512 == over
    kill(opened)
    with MessageStore.open(store, CONFIG_SYNC):
        assert log_records(store) == there
