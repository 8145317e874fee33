"""Reads that do not wait for the device: what the page cache has, and nothing else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commitlog_store import MessageStore
from commitlog_store.files import disk
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.queue.get_message import PullLimits
from commitlog_store.store import pulls_from
from tests.support.waiting import wait_for


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory of a file system on a device, which can say what is in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        probe = Path(directory, "probe")
        probe.write_bytes(b"x")
        try:
            _cached(probe, 1)
        except disk.CachedUnknown:
            pytest.skip("the file system of /var/tmp cannot say what is in memory")
        yield Path(directory)


def _cached(path: Path, length: int, offset: int = 0) -> bytearray | None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return disk.read_cached(descriptor, length, offset)
    finally:
        os.close(descriptor)


def _forgotten(path: Path, ask: Callable[[], object]) -> None:
    """Wait until ``ask`` gives None: the kernel keeps pages that are on their way between its lists, and a read that
    finds nothing has pages read ahead."""

    def is_forgotten() -> bool:
        _forget(path)
        return ask() is None

    wait_for(is_forgotten)


def _forget(path: Path) -> None:
    """Have the page cache forget a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def test_only_what_is_in_memory_is_read(on_disk: Path) -> None:
    path = on_disk / "file"
    path.write_bytes(b"0123456789" * 100_000)
    assert _cached(path, 10, 5) == bytearray(b"5678901234")
    assert _cached(path, 10, 999_995) is None, "the file ends before"
    _forgotten(path, lambda: _cached(path, 10, 5))
    path.read_bytes()
    assert _cached(path, 10, 5) == bytearray(b"5678901234")


def test_a_file_system_that_cannot_say_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    monkeypatch.setattr(disk, "_NOT_WAITING", None)
    with pytest.raises(disk.CachedUnknown):
        _cached(path, 10)


def test_pulls_from_memory_leave_the_rest_to_another_thread(on_disk: Path) -> None:
    with MessageStore.open(on_disk / "s") as store:
        for number in range(10):
            store.put("orders", b"%d" % number * 10_000, queue_id=0)
    with MessageStore.open(on_disk / "s") as store:  # which has no page of the log mapped: those stay in the cache
        pulls, place = pulls_from(store), ("orders", 0, 0, PullLimits(), MessageFilter())
        found = pulls.stored_in_memory(*place)
        assert found is not None
        _forgotten(next(Path(store.path, "commitlog").iterdir()), lambda: pulls.stored_in_memory(*place))
        assert pulls.stored_messages(*place) == found
        wait_for(lambda: pulls.stored_in_memory(*place) == found)


def test_pulls_go_by_the_distance_from_the_end_where_the_file_system_cannot_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_NOT_WAITING", None)
    monkeypatch.setattr("commitlog_store.engine.stored_messages._NEAR_END", 5_000)
    with MessageStore.open(tmp_path / "s") as store:
        for _ in range(10):
            store.put("orders", b"x" * 1_000, queue_id=0)
        store.dispatch()
        near, far = (
            pulls_from(store).stored_in_memory("orders", 0, offset, PullLimits(), MessageFilter()) for offset in (9, 0)
        )
        assert near is not None
        assert far is None
