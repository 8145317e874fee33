"""A file of lines: each is on the device at the end of its call, and one that was torn stays by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store.errors import TargetFailed
from commitlog_store.files.line_log import LineLog
from tests.store.files.test_whole_file import fail_at


def test_a_line_is_synced_with_its_file_and_follows_a_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    log = LineLog(str(path), largest=1 << 20, kept=2)
    with pytest.MonkeyPatch.context() as patch:
        synced, named = fail_at(patch, "sync", turn=99), fail_at(patch, "sync_directory", turn=99)
        log.append(b"one")
        assert (len(synced), len(named)) == (1, 1)
        log.append(b"two")
        assert (len(synced), len(named)) == (2, 1)
    path.write_bytes(path.read_bytes() + b"to")  # a crash has torn the third
    log.append(b"four")
    assert path.read_bytes() == b"one\ntwo\nto\nfour\n"
    path.rename(tmp_path / "moved")
    log.append(b"five")
    assert path.read_bytes() == b"five\n"
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("call", ["create_file", "write_at", "sync", "sync_directory"])
def test_a_line_that_may_not_be_on_the_device_is_an_error(tmp_path: Path, call: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, call)
        with pytest.raises(TargetFailed, match="lines"):
            LineLog(str(tmp_path / "lines"), largest=1 << 20, kept=2).append(b"one")


def test_a_full_file_is_put_aside_and_the_oldest_one_goes(tmp_path: Path) -> None:
    log = LineLog(str(tmp_path / "lines"), largest=8, kept=2)
    for number in range(7):
        log.append(b"%03d" % number)
    found = {path.name: path.read_text().split() for path in tmp_path.iterdir()}
    assert found == {"lines": ["006"], "lines.1": ["004", "005"], "lines.2": ["002", "003"]}
