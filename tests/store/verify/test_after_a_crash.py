"""Traces of a crash are notes; damage that no crash explains is an error all the same."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader, Verdict, assess_store
from commitlog_store.format.checkpoint import Checkpoint, CheckpointMark, encode_checkpoint
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.format.index_file import HEADER_SIZE, decode_header
from commitlog_store.index.writer import IndexWriter
from commitlog_store.verify.store import verify_store
from tests.store.cli.commands import ended
from tests.store.verify.made_store import (
    CONFIG,
    damage,
    files,
    flip,
    make_store,
    message_place,
    only,
    queue_file,
)  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store whose owner died before anything was synced, as far as the checkpoint knows."""
    made = make_store(tmp_path / "store")
    (made / "abort").write_bytes(b"")
    mark = CheckpointMark(closed=False, flushed_offset=0)
    (made / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(0, 0, 0), mark))
    return made


def _is_mended_by_opening(path: Path) -> None:
    with MessageStore.open(path, CONFIG):
        pass
    assert verify_store(path) == []


def test_unwritten_units_after_a_crash_are_notes(path: Path) -> None:
    file, place = queue_file(path, "audit", 0, 150)
    damage(file, place, bytes(50 * UNIT_SIZE))
    assert "[150, 180)" in only(path, "queue.missing-message", "note").message
    _is_mended_by_opening(path)


def test_units_that_did_not_reach_the_device_are_notes(path: Path) -> None:
    file, place = queue_file(path, "orders", 0, 100)
    damage(file, place + 7 * UNIT_SIZE, b"\0" * 3 * UNIT_SIZE + b"\x01" * UNIT_SIZE)
    assert {one.severity for one in verify_store(path)} == {"note"}
    _is_mended_by_opening(path)


def test_flushed_units_that_are_damaged_are_errors(path: Path) -> None:
    file, place = queue_file(path, "orders", 0, 100)
    damage(file, place, b"\x01" * UNIT_SIZE)
    times = 4_000_000_000_000
    mark = CheckpointMark(closed=False, flushed_offset=0)
    (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(times, times, times), mark))
    found = verify_store(path)
    assert [(one.check, one.severity) for one in found] == [("queue.unit", "error"), ("checkpoint.ahead", "note")]


def test_units_ahead_of_the_log(path: Path) -> None:
    file, place = queue_file(path, "audit", 0, 180)
    damage(file, place, struct.pack(">qiq", 10_000_000, 120, 0))
    extra, end = verify_store(path)
    assert (extra.check, extra.severity, end.check, end.severity) == ("queue.extra-unit", "note", "files.end", "note")
    assert "the log ends at" in extra.message
    _is_mended_by_opening(path)


@pytest.mark.parametrize(("cut_before", "severities"), [(-1, ["note"]), (-2, ["error", "note"])])
def test_an_opening_may_die_while_it_indexes_the_newest_file_again(
    path: Path, cut_before: int, severities: list[str]
) -> None:
    """It indexes what the checkpoint vouches for, too, from the beginning of a log file on."""
    slots, entries = CONFIG.max_hash_slot_num, CONFIG.max_index_num
    index = IndexWriter(str(path / "index"), max_hash_slot_num=slots, max_index_num=entries)
    written = [file for file in files(path, "commitlog") if any(file.read_bytes()[:8])]
    index.truncate(int(written[cut_before].name))
    index.release()
    times = 4_000_000_000_000
    mark = CheckpointMark(closed=False, flushed_offset=0)
    (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(times, times, times), mark))
    found = [one for one in verify_store(path) if one.check != "checkpoint.ahead"]
    assert {one.check for one in found} == {"index.missing-key"}
    assert [one.severity for one in found] == severities
    if cut_before == -1:
        _is_mended_by_opening(path)


def test_a_torn_end_is_a_note(path: Path) -> None:
    newest = files(path, "commitlog")[-1]
    data = newest.read_bytes()
    end = len(data.rstrip(b"\0"))
    damage(newest, end + 30, b"half a record")
    only(path, "tail.not-zero", "note")
    _is_mended_by_opening(path)


def test_damage_is_an_error_where_opening_would_cut_whole_records_off(path: Path) -> None:
    file, at, _ = message_place(path, "orders", 1, 70)
    with StoreReader.open(path) as reader:
        end = reader.physical_bounds()[1]
    flip(file, at + 90)
    found = verify_store(path)
    assert [one.check for one in found if one.severity == "error"] == ["opening.cuts"]
    mark = CheckpointMark(closed=False, flushed_offset=end)
    (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(0, 0, 0), mark))
    assert [(one.check, one.severity) for one in verify_store(path)] == [
        ("log.record", "error"),
        ("opening.refused", "error"),
    ]


def test_an_index_after_the_log(path: Path) -> None:
    file = files(path, "index")[-1]
    count = decode_header(file.read_bytes()[:HEADER_SIZE]).index_count
    damage(file, 36, struct.pack(">i", count - 3))
    found = verify_store(path)
    assert {one.severity for one in found} == {"note"}
    assert any("Expected 3 keys" in one.message for one in found)
    _is_mended_by_opening(path)


def test_a_flushed_message_that_is_gone_is_an_error_at_a_quick_look_too(path: Path) -> None:
    """What follows up to the place that was flushed is damage; a scan says whether the store opens."""
    last, at, size = message_place(path, "orders", 2, 239)
    end = int(last.name) + at + size
    damage(last, at, bytes(size))
    for flushed, severity in ((0, "note"), (end, "error")):
        mark = CheckpointMark(closed=False, flushed_offset=flushed)
        (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(0, 0, 0), mark))
        found = assess_store(path)
        assert [(one.check, one.severity) for one in found.findings if one.check == "log.newest"] == [
            ("log.newest", severity)
        ]
        assert found.opening.unscanned is not None
        shown = " ".join(ended("doctor", path).stdout.split())
        assert "--deep says what it finds, and whether the store opens." in shown
    assert assess_store(path, deep=True).verdict is Verdict.DOES_NOT_OPEN
