"""Repair: a log that is damaged before its end is cut where its owner decides, and the part cut off is kept."""

from __future__ import annotations

import errno
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commitlog_store import FlushDiskType, MessageStore, StoreReader, repair_store
from commitlog_store.cli.app import app
from commitlog_store.errors import DiskFull, InvalidValue, StoreIOError, StoreLocked, StoreNotFound
from commitlog_store.files import disk
from commitlog_store.recovery.kept import kept_pieces
from commitlog_store.testing import kill
from tests.crash.batch_workloads import commit
from tests.crash.stored_messages import Stored, check_store, log_records
from tests.crash.test_damaged_tail import alter, closed_store, files_below, garbled, killed_store, message, zeroed
from tests.crash.workloads import slow_clock, small_config
from tests.support.clean_store import assert_clean

CONFIG = small_config(FlushDiskType.SYNC_FLUSH)


def damaged_store(path: Path, change: Callable[[bytes], bytes] = garbled) -> tuple[list[Stored], Stored]:
    """A store that does not open: its records as they were, and which of them is bad."""
    records = closed_store(path)
    bad = records[-5]
    alter(path, bad.physical_offset + 100, lambda tail: change(tail[:20]) + tail[20:])
    (path / "abort").touch()
    return records, bad


def repaired(path: Path, cut_at: int | None = None) -> tuple[int, dict[str, object]]:
    """The command's exit code, and what it says of the store."""
    arguments = ["repair", str(path), "--json", *([] if cut_at is None else ["--cut-at", str(cut_at)])]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.parametrize("change", [zeroed, garbled])
def test_repair_says_what_a_cut_would_take_and_changes_nothing(change: Callable[[bytes], bytes], memory: Path) -> None:
    store = memory / "store"
    records, bad = damaged_store(store, change)
    log = files_below(store / "commitlog")
    report = repair_store(store, config=CONFIG)
    assert report.loses
    assert report.cut_at == bad.physical_offset
    assert f"commitlog repair {store}" in str(report.damage)
    later = [record for record in records if record.physical_offset > bad.physical_offset]
    assert [tuple(one) for one in report.lost] == [
        (topic, queue_id, min(offsets), max(offsets) + 1, len(offsets))
        for topic, queue_id in sorted({(record.topic, record.queue_id) for record in later})
        if (offsets := [one.queue_offset for one in later if (one.topic, one.queue_id) == (topic, queue_id)])
    ]
    assert report.kept is None
    assert files_below(store / "commitlog") == log
    assert not (store / "repair").exists()


def test_a_cut_ends_the_log_before_the_damage_and_the_store_continues(memory: Path) -> None:
    store = memory / "store"
    records, bad = damaged_store(store)
    log = files_below(store / "commitlog")
    code, found = repaired(store)
    assert (code, found["opens"], found["cutAt"]) == (1, False, bad.physical_offset)
    code, found = repaired(store, bad.physical_offset)
    assert (code, found["opens"]) == (0, True)
    kept = [record for record in records if record.physical_offset < bad.physical_offset]
    assert log_records(store) == kept
    check_store(store, kept)
    assert_clean(store)
    with MessageStore.open(store, CONFIG) as opened:
        result = opened.put_message(message(records.index(bad)))
        assert (result.physical_offset, result.queue_offset) == (bad.physical_offset, bad.queue_offset)
    # All that was cut off is there, under the log's own names, at its own places.
    (piece,) = kept_pieces(store)
    assert (found["keptIn"], found["messages"]) == (piece.path, 4)
    assert (piece.start, piece.messages) == (bad.physical_offset, 4)
    with StoreReader.open(piece.path) as reader:
        assert [
            (one.topic, one.queue_id, one.min_offset, one.max_offset)
            for one in reader.queue_infos([(lost.topic, lost.queue_id) for lost in piece.lost])
        ] == [(lost.topic, lost.queue_id, lost.start, lost.stop) for lost in piece.lost]
    cut_off = files_below(Path(piece.path) / "commitlog")
    for name, data in log.items():
        at = max(bad.physical_offset - int(name), 0)
        assert cut_off.get(name, b"") == (bytes(at) + data[at:] if at < len(data) else b"")
    assert repaired(store)[0] == 0


def test_a_damaged_batch_is_cut_off_whole_and_may_be_committed_again(memory: Path) -> None:
    store = memory / "store"
    with slow_clock():
        opened = MessageStore.open(store, small_config(FlushDiskType.SYNC_FLUSH, log_size=64 << 10))
        commit(opened, "app", 1, 5)
        frame = commit(opened, "app", 2, 20)
        commit(opened, "app", 3, 5)
        opened.flush()
        kill(opened)
    rows = [record for record in log_records(store) if frame.physical_offset < record.physical_offset < frame.end]
    alter(store, rows[10].physical_offset + 90, garbled)
    report = repair_store(store, config=CONFIG)
    assert report.damage is not None
    assert report.cut_at == frame.physical_offset
    assert "batch 2 of 'app'" in str(report.damage)
    repair_store(store, config=CONFIG, cut_at=frame.physical_offset)
    with MessageStore.open(store, CONFIG) as opened:
        assert [batch.batch.version for batch in opened.batches()] == [1]
        assert not commit(opened, "app", 2, 20).already_there
    assert_clean(store)


def test_nothing_is_cut_at_any_other_place(memory: Path) -> None:
    store = memory / "store"
    records, bad = damaged_store(store)
    log = files_below(store / "commitlog")
    with pytest.raises(InvalidValue, match=f"cut at physical offset {bad.physical_offset}, not at 0"):
        repair_store(store, config=CONFIG, cut_at=0)
    assert files_below(store / "commitlog") == log
    alter(store, bad.physical_offset + 100, lambda tail: garbled(tail[:20]) + tail[20:])  # as it was
    with pytest.raises(InvalidValue, match="cuts nothing off its log; nothing was cut"):
        repair_store(store, config=CONFIG, cut_at=bad.physical_offset)
    assert log_records(store) == records


def test_a_second_cut_at_the_same_place_is_kept_beside_the_first(memory: Path) -> None:
    store = memory / "a-store"
    _, bad = damaged_store(store)
    for number in range(1, 4):
        kept = repair_store(store, config=CONFIG, cut_at=bad.physical_offset).kept
        assert kept is not None
        assert len(kept_pieces(store)) == number
        assert kept_pieces(store)[-1] == kept
        with MessageStore.open(store, CONFIG) as opened:
            for key in range(8):
                opened.put_message(message(key)).raise_for_status()
        alter(store, bad.physical_offset + 100, lambda tail: garbled(tail[:20]) + tail[20:])
        (store / "abort").touch()
    assert sorted(path.name for path in memory.iterdir()) == ["a-store"]


def test_a_damaged_index_does_not_keep_the_damage_of_the_log_from_being_reported(memory: Path) -> None:
    store = memory / "store"
    _, bad = damaged_store(store)
    for file in (store / "index").iterdir():
        file.write_bytes(b"no index")
    code, found = repaired(store)
    assert (code, found["cutAt"]) == (1, bad.physical_offset)


def test_a_store_that_opens_needs_no_repair(memory: Path) -> None:
    store = memory / "store"
    records = killed_store(store, FlushDiskType.SYNC_FLUSH)
    code, found = repaired(store)
    assert (code, found["opens"], found["damage"], found["cutAt"], found["lost"]) == (0, True, None, None, [])
    assert log_records(store) == records


def test_repair_creates_no_store_and_takes_none_from_its_owner(memory: Path) -> None:
    with pytest.raises(StoreNotFound):
        repair_store(memory / "nowhere")
    assert not (memory / "nowhere").exists()
    with MessageStore.open(memory / "store", CONFIG), pytest.raises(StoreLocked):
        repair_store(memory / "store", config=CONFIG)


def test_without_disk_space_for_the_part_cut_off_nothing_is_cut(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = memory / "store"
    _, bad = damaged_store(store)
    log = files_below(store / "commitlog")
    real = disk.write_at

    def full(descriptor: int, data: disk.Bytes, offset: int) -> None:
        if "/repair/" in disk_path(descriptor):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_at", full)
        with pytest.raises(DiskFull, match="Nothing was cut"):
            repair_store(store, config=CONFIG, cut_at=bad.physical_offset)
    assert files_below(store / "commitlog") == log
    assert files_below(store / "repair") == {}
    assert repair_store(store, config=CONFIG, cut_at=bad.physical_offset).kept is not None


def test_a_store_that_fails_to_open_after_a_cut_says_what_was_done(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = memory / "store"
    _, bad = damaged_store(store)
    real = disk.sync

    def fail(descriptor: int) -> None:
        if kept_pieces(store) and "/consumequeue/" in disk_path(descriptor):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync", fail)
        with pytest.raises(StoreIOError, match="Input/output error") as caught:
            repair_store(store, config=CONFIG, cut_at=bad.physical_offset)
    assert f"cut at physical offset {bad.physical_offset}; what was cut off is in {kept_pieces(store)[0].path}" in str(
        caught.value
    )
    MessageStore.open(store, CONFIG).close()
    assert_clean(store)


def disk_path(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


class Stopped(BaseException):
    """The process dies here."""


def test_a_cut_that_is_interrupted_at_any_operation_loses_nothing(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever it stops, the store does not open, or it is cut and what was cut off is kept."""
    source = memory / "source"
    records, bad = damaged_store(source)
    kept = [record for record in records if record.physical_offset < bad.physical_offset]
    later = files_below(source / "commitlog")
    names = ("write_at", "sync", "sync_directory", "truncate", "rename", "unlink", "make_directory", "create_file")
    for stop_at in range(1, 1000):
        store = memory / "store"
        shutil.copytree(source, store)
        calls = 0

        def counted(real: Callable[..., object], stop: int = stop_at) -> Callable[..., object]:
            def call(*arguments: object, **named: object) -> object:
                nonlocal calls
                # Not those of the services of the store that is opened.
                if threading.current_thread() is threading.main_thread():
                    calls += 1
                    if calls == stop:
                        raise Stopped
                return real(*arguments, **named)

            return call

        with monkeypatch.context() as patch:
            for name in names:
                patch.setattr(disk, name, counted(getattr(disk, name)))
            try:
                repair_store(store, config=CONFIG, cut_at=bad.physical_offset)
                done = True
            except Stopped:
                done = False
        if (report := repair_store(store, config=CONFIG)).loses:
            assert not done
            repair_store(store, config=CONFIG, cut_at=report.cut_at)
        assert log_records(store) == kept, f"stopped at operation {stop_at}"
        whole = [Path(piece.path) for piece in kept_pieces(store)]
        assert any(
            all(
                files_below(path / "commitlog").get(name, b"")[max(bad.physical_offset - int(name), 0) :]
                == data[max(bad.physical_offset - int(name), 0) :]
                for name, data in later.items()
                if int(name) + len(data) > bad.physical_offset
            )
            for path in whole
        ), f"stopped at operation {stop_at}: something is not kept"
        shutil.rmtree(store)
        if done:
            assert stop_at > 20
            return
    raise AssertionError("it never came to an end")
