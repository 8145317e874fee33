"""A store with one thing wrong gives exactly the finding that names it."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest

from commitlog_store.format.checkpoint import Checkpoint, encode_checkpoint
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.format.index_file import HEADER_SIZE, SLOT_SIZE, decode_header, entry_offset
from commitlog_store.verify.findings import FINDINGS_PER_FILE
from commitlog_store.verify.store import verify_store
from tests.store.verify.made_store import (
    CONFIG,
    checks,
    damage,
    files,
    flip,
    make_store,
    message_place,
    only,
    queue_file,
)  # fmt: skip
from tests.support.store_builder import StoreBuilder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


@pytest.mark.parametrize(
    ("within", "words"),
    [(0, "TOTALSIZE"), (4, "MAGICCODE"), (8, "BODYCRC"), (34, "PHYSICALOFFSET"), (95, "BODYCRC"), (85, "BODYLENGTH")],
)
def test_a_damaged_record_is_found_and_no_other(path: Path, within: int, words: str) -> None:
    file, at, _ = message_place(path, "orders", 1, 70)
    flip(file, at + within)
    found = only(path, "log.record")
    assert words in found.message
    assert found.path == str(file)
    assert found.offset is not None
    assert at <= found.offset <= at + within
    assert "the log continues at physical offset" in found.message


def test_a_record_with_another_queue_offset_breaks_the_row(path: Path) -> None:
    file, at, _ = message_place(path, "orders", 1, 70)
    damage(file, at + 20, struct.pack(">q", 75))
    found = verify_store(path)
    assert {one.check for one in found} == {"queue.contiguous", "queue.unit"}
    assert all(one.severity == "error" and (one.topic, one.queue_id) == ("orders", 1) for one in found)


@pytest.mark.parametrize("offset", [-1, 2**63 - 1])
def test_a_record_with_an_impossible_queue_offset_is_reported(path: Path, offset: int) -> None:
    file, at, _ = message_place(path, "orders", 1, 70)
    damage(file, at + 20, struct.pack(">q", offset))
    assert checks(path) == [("log.record", "error"), ("queue.contiguous", "error")]


def test_zeros_in_the_middle_of_the_log_are_reported(path: Path) -> None:
    file, at, size = message_place(path, "orders", 1, 70)
    damage(file, at, bytes(size))
    found = only(path, "log.record")
    assert "nothing written" in found.message
    assert found.offset == at


def test_a_damaged_last_record_is_reported(path: Path) -> None:
    with_last = sorted(
        (message_place(path, "orders", queue, _last(path, queue)) for queue in (0, 1, 2)), key=lambda one: one[:2]
    )
    file, at, size = with_last[-1]
    flip(file, at + size - 3)  # perhaps no CRC covers it
    flip(file, at + 90)
    damaged, refused = verify_store(path)
    assert (damaged.check, damaged.severity, damaged.path) == ("log.record", "error", str(file))
    assert (refused.check, refused.severity) == ("opening.refused", "error")
    assert "bytes are missing at its end" in refused.message


def _last(path: Path, queue: int) -> int:
    from commitlog_store import StoreReader

    with StoreReader.open(path) as reader:
        return reader.queue_info("orders", queue).max_offset - 1


def test_the_log_cut_at_the_end_is_reported_by_units_index_and_checkpoint(path: Path) -> None:
    for file in reversed(files(path, "commitlog")):  # those that were allocated ahead are empty
        written = any(file.read_bytes())
        file.unlink()
        if written:
            break
    found = verify_store(path)
    assert {one.check for one in found} == {
        "queue.extra-unit", "index.entry", "checkpoint.ahead", "files.end", "opening.refused",
    }  # fmt: skip
    assert {one.severity for one in found} == {"error"}
    assert any(one.message.endswith("more like these here.") for one in found)


def test_a_filler_of_another_size_is_reported(path: Path) -> None:
    file = files(path, "commitlog")[1]
    data = file.read_bytes()
    at = data.rindex(bytes.fromhex("cbd43194")) - 4
    damage(file, at, struct.pack(">i", len(data) - at - 1))
    found = only(path, "log.filler")
    assert (found.path, found.offset) == (str(file), at)


def test_bytes_after_the_logs_end_are_reported(path: Path) -> None:
    newest = files(path, "commitlog")[-1]
    damage(newest, CONFIG.mapped_file_size_commit_log - 5, b"x")
    found = only(path, "tail.not-zero")
    assert (found.path, found.offset) == (str(newest), CONFIG.mapped_file_size_commit_log - 5)


def test_a_missing_log_file_is_reported(path: Path) -> None:
    files(path, "commitlog")[1].unlink()
    assert "is missing" in only(path, "files.gap", opens=False).message


def test_a_log_file_that_was_cut_is_reported(path: Path) -> None:
    file = files(path, "commitlog")[1]
    os.truncate(file, 20_000)
    found = only(path, "files.size", opens=False)
    assert found.path == str(file)
    assert "20000" in found.message


def test_a_foreign_file_among_the_log_files_is_reported(path: Path) -> None:
    (path / "commitlog" / "copy of 0").write_bytes(b"")
    only(path, "files.name", "note")


@pytest.mark.parametrize(
    ("at", "data"), [(0, struct.pack(">q", 12_345)), (8, struct.pack(">i", 99)), (12, struct.pack(">q", 42))]
)
def test_a_damaged_unit_is_reported(path: Path, at: int, data: bytes) -> None:
    file, place = queue_file(path, "orders", 2, 130)
    damage(file, place + at, data)
    found = only(path, "queue.unit")
    assert (found.path, found.offset) == (str(file), place)
    assert (found.topic, found.queue_id, found.queue_offset) == ("orders", 2, 130)


def test_missing_units_are_reported_in_one_piece(path: Path) -> None:
    file, place = queue_file(path, "orders", 2, 110)
    damage(file, place, bytes(30 * UNIT_SIZE))
    found = only(path, "queue.missing-message")
    assert "[110, 140)" in found.message
    assert (found.path, found.offset) == (str(file), place)


def test_many_damaged_units_do_not_fill_the_memory(path: Path) -> None:
    file, place = queue_file(path, "orders", 2, 100)
    damage(file, place, b"\x01" * 100 * UNIT_SIZE)
    found = verify_store(path)
    assert {one.check for one in found} == {"queue.unit"}
    assert len(found) == FINDINGS_PER_FILE + 1
    assert found[-1].message == f"{100 - FINDINGS_PER_FILE} more like these here."


def test_a_missing_queue_file_is_reported(path: Path) -> None:
    file, _ = queue_file(path, "orders", 0, 100)
    file.unlink()
    found = verify_store(path)
    assert {one.check for one in found} == {"files.gap", "queue.missing-message"}
    assert any("[100, 200)" in one.message for one in found)


def test_a_queue_file_of_another_size_is_reported(path: Path) -> None:
    file, _ = queue_file(path, "orders", 0, 100)
    os.truncate(file, 50 * UNIT_SIZE)
    assert checks(path) == [("queue.missing-message", "error"), ("files.size", "error")]


def test_of_two_files_the_names_say_which_one_was_cut(path: Path) -> None:
    for file in files(path, "commitlog")[2:]:
        file.unlink()
    first, second = files(path, "commitlog")
    os.truncate(first, 1000)
    found = [one for one in verify_store(path) if one.check.startswith("files.") and one.check != "files.end"]
    assert [(one.check, one.path) for one in found] == [("files.size", str(first))]
    assert found[0].message == f"A CommitLog file of 1000 bytes; the others have {second.stat().st_size}."


def test_a_missing_queue_is_reported(path: Path) -> None:
    shutil.rmtree(path / "consumequeue" / "audit")
    assert "[0, 180)" in only(path, "queue.missing-message").message
    (path / "config").mkdir(exist_ok=True)
    (path / "config" / "topics.json").write_text('{"topicConfigTable": {"orders": {}}}')
    note, error = verify_store(path)
    assert (note.check, note.severity) == ("queue.missing-message", "note")
    assert "was deleted" in note.message
    # Whatever the reason is, the files that the checkpoint counts are missing.
    assert (error.check, error.severity) == ("opening.rebuild", "error")


def test_units_after_the_queues_end_are_reported(path: Path) -> None:
    file, place = queue_file(path, "audit", 0, 179)
    unit = file.read_bytes()[place : place + UNIT_SIZE]
    damage(file, place + 3 * UNIT_SIZE, unit)
    found = only(path, "queue.extra-unit")
    assert found.queue_offset == 182
    assert "no such message" in found.message


def test_a_queue_without_messages_in_the_log_is_reported(path: Path) -> None:
    shutil.copytree(path / "consumequeue" / "audit" / "0", path / "consumequeue" / "audit" / "7")
    found = verify_store(path)
    assert {(one.check, one.severity) for one in found} == {("queue.extra-unit", "error")}
    assert {one.queue_id for one in found} == {7, None}


def test_a_hole_at_a_queues_head_is_reported(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.start_queue_at("t", 0, 7)
    builder.append("t", 0, [b"x"] * 3)
    assert "offset 0" in only(builder.path, "queue.unit").message


def test_a_topic_that_was_deleted_and_made_again(tmp_path: Path) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"old"] * 9)
    builder.delete_queue("t", 0)
    builder.append("t", 0, [b"new"] * 4)
    assert "begins again" in only(builder.path, "queue.contiguous", "note").message


def test_a_chain_that_leads_elsewhere_is_reported(path: Path) -> None:
    file = files(path, "index")[0]
    at = entry_offset(300, CONFIG.max_hash_slot_num) + 16
    damage(file, at, struct.pack(">i", 301))
    found = only(path, "index.chain")
    assert (found.path, found.offset) == (str(file), at)


def test_a_slot_that_leads_elsewhere_is_reported(path: Path) -> None:
    file = files(path, "index")[0]
    at = HEADER_SIZE + 17 * SLOT_SIZE
    damage(file, at, struct.pack(">i", 3))
    assert only(path, "index.chain").offset == at


@pytest.mark.parametrize("number", [2, 200, 399])
@pytest.mark.parametrize("field", [0, 4, 12], ids=["hash", "place", "seconds"])
def test_a_damaged_entry_is_reported(path: Path, number: int, field: int) -> None:
    file = files(path, "index")[0]
    at = entry_offset(number, CONFIG.max_hash_slot_num)
    if number == 399 and field == 4:
        pytest.skip("header and entry disagree too")
    flip(file, at + field + (3 if field != 4 else 7))
    found = only(path, "index.entry")
    assert (found.path, found.offset) == (str(file), at)
    assert f"ntry {number}" in found.message


def test_an_index_that_ends_too_early_is_reported(path: Path) -> None:
    """The header counts three entries less: their keys are not found any more."""
    file = files(path, "index")[-1]
    count = decode_header(file.read_bytes()[:HEADER_SIZE]).index_count
    damage(file, 36, struct.pack(">i", count - 3))
    found = verify_store(path)
    assert [one.check for one in found if one.check != "index.chain"] == ["index.header", "index.missing-key"] or {
        one.check for one in found
    } == {"index.header", "index.missing-key", "index.chain"}
    (missing,) = [one for one in found if one.check == "index.missing-key"]
    assert "Expected 3 keys" in missing.message


def test_a_missing_index_file_in_the_middle_is_reported(path: Path) -> None:
    files(path, "index")[1].unlink()
    found = verify_store(path)
    assert [(one.check, one.severity) for one in found] == [
        ("index.missing-key", "error"), ("checkpoint.ahead", "error"),
    ]  # fmt: skip
    assert "Expected 399 keys" in found[0].message
    # In RocketMQ's own stores that is what a crash may leave.
    (path / "checkpoint").write_bytes(bytes(4096))
    assert "RocketMQ drops" in only(path, "index.missing-key", "note").message


def test_a_header_with_other_counts_is_reported(path: Path) -> None:
    file = files(path, "index")[0]
    damage(file, 32, struct.pack(">i", 7))
    assert "HASH SLOT COUNT" in only(path, "index.header").message


def test_an_unreadable_index_file_is_reported(path: Path) -> None:
    os.truncate(files(path, "index")[0], 21)
    only(path, "index.header")


def test_a_checkpoint_ahead_of_the_log_is_reported(path: Path) -> None:
    times = 4_000_000_000_000
    (path / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(times, times, times)))
    assert "gone from the log's end" in only(path, "checkpoint.ahead").message


@pytest.mark.parametrize("data", [b"?", b"\xff" * 4096])
def test_a_file_that_is_not_a_checkpoint_is_reported(path: Path, data: bytes) -> None:
    (path / "checkpoint").write_bytes(data)
    only(path, "checkpoint.format")
    (path / "checkpoint").unlink()
    only(path, "checkpoint.format", "note")
