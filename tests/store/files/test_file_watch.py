"""FileWatch: changes end a wait where the kernel reports them; elsewhere a wait is a pause."""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from pathlib import Path

import pytest

from commitlog_store.files import file_watch
from commitlog_store.files.file_watch import FileWatch
from tests.support.waiting import WAIT_LIMIT_S

on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify is Linux's")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that nothing ends takes so long that the test fails by its time limit."""
    monkeypatch.setattr(file_watch, "LOOK_AGAIN_SECONDS", 10 * WAIT_LIMIT_S)


@on_linux
@pytest.mark.usefixtures("patient")
def test_a_change_between_follow_and_wait_is_not_missed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    watch = FileWatch(str(tmp_path))
    for change in (b"new", b"newer"):
        watch.follow([str(tmp_path)])
        (tmp_path / "file").write_bytes(change)
        watch.wait(WAIT_LIMIT_S)
    assert watch.reports
    watch.close()


@on_linux
@pytest.mark.usefixtures("patient")
def test_a_directory_that_does_not_exist_yet_is_watched_step_by_step(tmp_path: Path) -> None:
    wanted = tmp_path / "consumequeue" / "orders" / "0"
    watch = FileWatch(str(tmp_path))
    for made in (tmp_path / "consumequeue", wanted.parent, wanted):
        watch.follow([str(wanted)])
        made.mkdir()
        watch.wait(WAIT_LIMIT_S)
    watch.follow([str(wanted)])
    (wanted / "00000000000000000000").touch()
    watch.wait(WAIT_LIMIT_S)
    watch.close()


@on_linux
@pytest.mark.usefixtures("patient")
def test_a_directory_that_was_removed_and_made_again_is_watched_again(tmp_path: Path) -> None:
    directory = tmp_path / "0"
    directory.mkdir()
    watch = FileWatch(str(tmp_path))
    watch.follow([str(directory), str(tmp_path)])
    directory.rmdir()
    directory.mkdir()
    watch.wait(WAIT_LIMIT_S)
    watch.follow([str(directory)])
    (directory / "file").touch()
    watch.wait(WAIT_LIMIT_S)
    watch.close()


@on_linux
@pytest.mark.usefixtures("patient")
def test_only_the_file_that_is_followed_ends_a_wait(tmp_path: Path) -> None:
    followed, other = tmp_path / "gate", tmp_path / "settled"
    watch = FileWatch(str(tmp_path))
    watch.follow([], [str(followed)])
    other.write_bytes(b"new")
    assert not watch.wait(0.01)
    for content in (b"new", b"newer"):
        followed.write_bytes(content)
        assert watch.wait(WAIT_LIMIT_S)
        while watch.wait(0):
            pass
    watch.close()


@on_linux
@pytest.mark.usefixtures("patient")
def test_another_directory_beside_a_missing_one_does_not_end_a_wait(tmp_path: Path) -> None:
    watch = FileWatch(str(tmp_path))
    watch.follow([str(tmp_path / "orders" / "0")])
    (tmp_path / "audit").mkdir()
    assert not watch.wait(0.01)
    (tmp_path / "orders").mkdir()
    assert watch.wait(WAIT_LIMIT_S)
    watch.close()


@on_linux
@pytest.mark.usefixtures("patient")
def test_single_files_are_watched_before_more_directories_than_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "_MOST_WATCHES", 2)
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    watch = FileWatch(str(tmp_path))
    watch.follow([str(tmp_path / name) for name in ("a", "b", "c")], [str(tmp_path / "gate")])
    (tmp_path / "c" / "file").touch()
    assert not watch.wait(0.01)
    (tmp_path / "gate").touch()
    assert watch.wait(WAIT_LIMIT_S)
    watch.close()


@on_linux
@pytest.mark.usefixtures("patient")
def test_a_directory_that_is_followed_whole_stays_so(tmp_path: Path) -> None:
    watch = FileWatch(str(tmp_path))
    watch.follow([str(tmp_path)], [str(tmp_path / "gate")])
    (tmp_path / "settled").touch()
    assert watch.wait(WAIT_LIMIT_S)
    watch.close()


def test_a_wait_ends_when_it_is_time_to_look_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "LOOK_AGAIN_SECONDS", 0.001)
    watch = FileWatch(str(tmp_path))
    watch.follow([str(tmp_path)])
    watch.wait(10 * WAIT_LIMIT_S)
    watch.close()


def test_without_inotify_a_wait_is_a_pause(tmp_path: Path) -> None:
    watch = FileWatch(str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))  # the kernel gives no more descriptors
    try:
        watch.follow([str(tmp_path)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not watch.reports
    started = time.monotonic()
    watch.wait(0.01)
    assert time.monotonic() - started >= 0.01
    watch.close()


@on_linux
def test_a_watch_that_is_dropped_gives_its_descriptor_back(tmp_path: Path) -> None:
    watch = FileWatch(str(tmp_path))
    watch.follow([str(tmp_path)])
    assert watch._inotify is not None
    descriptor = watch._inotify.fileno()
    os.fstat(descriptor)
    del watch
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
