"""A refused opening is refused again: it changes nothing that tells damage from a crash, or how much is missing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import FlushDiskType, MessageStore, StoreReader, repair_store, salvage_store
from commitlog_store.errors import CorruptConfig, DamagedLog, LogShort, NotAStore, StoreLocked
from commitlog_store.recovery.forecast import forecast_open
from commitlog_store.recovery.kept import drop_kept, kept_pieces
from commitlog_store.testing import kill
from commitlog_store.verify.store import verification_report
from tests.crash.cuts import whole_records
from tests.store.owner.owned_store import open_store, put_ok, small
from tests.support import quick_programs
from tests.support.programs import child_environment


def flip(path: Path, place: int) -> None:
    """Change four bytes of the log."""
    file = max(file for file in (path / "commitlog").iterdir() if int(file.name) <= place)
    with file.open("r+b") as stream:
        stream.seek(place - int(file.name))
        data = stream.read(4)
        stream.seek(place - int(file.name))
        stream.write(bytes(byte ^ 0xFF for byte in data))


def places(path: Path) -> list[int]:
    return sorted(place for place, _ in whole_records(path))


def cut_queue_file(path: Path) -> None:
    os.truncate(next((path / "consumequeue" / "orders" / "0").iterdir()), 200)


@pytest.mark.parametrize("change", [lambda _: None, cut_queue_file], ids=["damage", "damage and a cut queue file"])
def test_damage_of_a_store_that_rocketmq_closed_is_refused_every_time(
    change: Callable[[Path], None], golden_533: Path, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden_533, store)
    flip(store, places(store)[-10] + 95)
    change(store)
    for rebuild in (False, True, False, True):
        with pytest.raises(DamagedLog):
            MessageStore.open(store, rebuild=rebuild)


def test_a_refused_opening_still_knows_how_much_is_missing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with open_store(store) as opened:
        for number in range(300):
            put_ok(opened, "orders", b"%06d" % number * 20, queue_id=0)
    last = max(int(file.name) for file in (store / "commitlog").iterdir() if any(file.read_bytes()))
    for file in (store / "commitlog").iterdir():
        if int(file.name) >= last:
            file.unlink()
    os.truncate(store / "consumequeue" / "orders" / "0" / f"{0:020d}", 200)
    counted = []
    for _ in range(2):
        with pytest.raises(LogShort) as caught:
            open_store(store)
        counted.append(caught.value.missing_messages)
    assert counted[0]
    assert counted[0] == counted[1]


_KILLED_WITHIN_A_COMMIT = """
import os, signal, sys
import pyarrow as pa
from commitlog_store import MessageStore
from commitlog_store.log.commit_log_writer import CommitLogWriter
from tests.store.owner.owned_store import small

write = CommitLogWriter._write_block

def and_die(self, *arguments, **named):
    write(self, *arguments, **named)
    os.kill(os.getpid(), signal.SIGKILL)

store = MessageStore.open(sys.argv[1], small())
CommitLogWriter._write_block = and_die
with store.transaction("app", 1) as batch:
    batch.put_messages(pa.table({"body": [b"x" * 100] * 200}), topic="orders")
"""


def test_a_process_that_dies_within_a_commit_has_lost_nothing(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for _ in range(3):
        program = [sys.executable, "-c", _KILLED_WITHIN_A_COMMIT, str(store)]
        assert quick_programs.run(program, check=False, env=child_environment()).returncode == -signal.SIGKILL
        forecast = forecast_open(store, small())
        assert forecast.cut is not None
        assert forecast.cut.uncommitted
        assert not forecast.loses
        assert verification_report(store).errors == 0
        with MessageStore.open(store, small(), on_cut="refuse"):
            assert len(kept_pieces(store)) == 1, "the last one replaces the one before"
    with StoreReader.open(store) as reader:
        assert "orders" not in reader.topics()


@pytest.mark.parametrize("repeats", [30, 500], ids=["short rows", "long rows, and blank fillers of several sectors"])
def test_damage_within_a_committed_batch_is_not_taken_for_an_unfinished_one(repeats: int, tmp_path: Path) -> None:
    """The mark lags behind the commit; but a crash leaves sectors of zeros, and damage does not."""
    store = tmp_path / "store"
    opened = open_store(store, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    for version in range(3):
        with opened.transaction("app", version) as batch:
            batch.put_messages(pa.table({"body": [b"%06d" % row * repeats for row in range(50)]}), topic="orders")
    opened.dispatch()
    kill(opened)
    flip(store, places(store)[-20] + 120)
    with pytest.raises(DamagedLog, match="no crash has left it so") as caught:
        open_store(store)
    assert repair_store(store, config=small()).loses
    report = repair_store(store, config=small(), cut_at=caught.value.cut_at)
    assert report.kept is not None
    with StoreReader.open(report.kept.path, on_damage="skip") as reader:
        found = sum(
            len(part)
            for queue in reader.queues("orders")
            for part in reader.read("orders", queue.queue_id, queue.min_offset, columns=["body"])
        )
        assert found == 49, "all rows but the damaged one"
        assert len(reader.log_gaps) == 1
    salvaged = salvage_store(report.kept.path, tmp_path / "salvaged")
    assert {one.topic: one.found for one in salvaged.topics if not one.is_system} == {"orders": 49}
    with StoreReader.open(report.kept.path, on_damage="skip") as reader:
        assert reader.log_gaps[0].size < 1000 + 6 * repeats


@pytest.fixture
def with_piece(tmp_path: Path) -> tuple[Path, Path]:
    """A store and the piece that was cut off it."""
    store = tmp_path / "store"
    with open_store(store) as opened:
        for _ in range(50):
            put_ok(opened, "orders", b"x" * 100)
        kill(opened)
    (store / "checkpoint").unlink()
    flip(store, places(store)[30] + 95)
    open_store(store).close()
    (piece,) = kept_pieces(store)
    return store, Path(piece.path)


def test_a_kept_piece_has_no_owner(with_piece: tuple[Path, Path]) -> None:
    store, piece = with_piece
    before = sorted(piece.rglob("*"))
    for call in (MessageStore.open, repair_store, lambda path: repair_store(path, cut_at=0)):
        with pytest.raises(NotAStore, match="kept to be read"):
            call(piece)
    assert sorted(piece.rglob("*")) == before
    (piece / "config").mkdir()
    (piece / "config" / "topics.json").write_text("{}")
    assert [Path(one.path) for one in drop_kept(store)] == [piece]
    assert not piece.exists()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"reason":"\xff"}'])
def test_a_report_of_a_kept_piece_that_cannot_be_read_is_named(with_piece: tuple[Path, Path], content: bytes) -> None:
    store, piece = with_piece
    (piece / "kept.json").write_bytes(content)
    with pytest.raises(CorruptConfig, match="Report of a kept piece"):
        kept_pieces(store)


def test_nothing_that_a_link_leads_to_is_dropped(with_piece: tuple[Path, Path], tmp_path: Path) -> None:
    store, piece = with_piece
    elsewhere = tmp_path / "elsewhere"
    piece.rename(elsewhere)
    piece.symlink_to(elsewhere)
    assert drop_kept(store) == []
    assert kept_pieces(elsewhere.parent) == []
    piece.unlink()
    elsewhere.rename(piece)
    (store / "repair").rename(elsewhere)
    (store / "repair").symlink_to(elsewhere)
    assert drop_kept(store) == []
    assert (elsewhere / piece.name / "kept.json").exists()


def test_an_owner_in_another_container_is_seen(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-Upr", "true"], check=False).returncode:
        pytest.skip("this user may not make a process namespace")
    with open_store(tmp_path / "store"):
        with pytest.raises(StoreLocked):
            forecast_open(tmp_path / "store")
        done = subprocess.run(
            ["unshare", "-Urpf", "--mount-proc", sys.executable, "-m", "commitlog_store", "repair", tmp_path / "store"],
            check=False, capture_output=True, text=True, env=child_environment(),
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert "is open in a process that cannot be seen from here" in done.stderr
