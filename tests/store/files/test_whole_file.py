"""Files that are made or replaced as a whole: at every moment the name stands for one that is whole, or for none."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from commitlog_store.errors import DiskFull, StoreIOError
from commitlog_store.files import disk
from commitlog_store.files.whole_file import make_file_once, new_file, replace_durably, replace_file
from tests.crash.simulated_disk import CrashImages, RecordingDisk

CALLS = ["create_file", "write_at", "sync", "rename", "sync_directory"]
CALLS_WITHOUT_A_NAME = ["create_unnamed_file", "write_at", "sync", "give_name", "sync_directory"]


@pytest.fixture
def all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that knows no files without names."""

    def refused(directory: str) -> int:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), directory)

    monkeypatch.setattr(disk, "create_unnamed_file", refused)


def fill(descriptor: int) -> None:
    disk.write_at(descriptor, b"new", 0)


def fail_at(patch: pytest.MonkeyPatch, call: str, turn: int = 0, error: BaseException | None = None) -> Sequence[Any]:
    """Let one call fail; the list has an entry for each that was made."""
    real, made = getattr(disk, call), []

    def failing(*arguments: Any) -> Any:
        made.append(arguments)
        if len(made) == turn + 1:
            raise error or OSError(errno.EIO, "injected")
        return real(*arguments)

    patch.setattr(disk, call, failing)
    return made


def test_a_file_has_its_name_once_it_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def noting(name: str) -> Any:
        real = getattr(disk, name)

        def call(*arguments: Any) -> Any:
            calls.append(name)
            return real(*arguments)

        return call

    for name in {*CALLS, *CALLS_WITHOUT_A_NAME, "unlink"}:
        monkeypatch.setattr(disk, name, noting(name))
    disk.close(new_file(str(tmp_path / "made"), fill))
    assert calls == CALLS_WITHOUT_A_NAME
    calls.clear()
    (tmp_path / "made.tmp").write_bytes(b"left by a crash, and longer")
    replace_file(str(tmp_path / "made"), b"newer", keep_as=str(tmp_path / "kept"))
    assert calls == ["unlink", "create_file", "write_at", "sync", "rename", "rename"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"made": b"newer", "kept": b"new"}


@pytest.mark.parametrize("call", CALLS_WITHOUT_A_NAME)
def test_a_new_file_that_could_not_be_made_leaves_nothing(tmp_path: Path, call: str) -> None:
    """Nor its name, when that may not be on the device."""
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, call)
        with pytest.raises(OSError, match="injected"):
            new_file(str(tmp_path / "made"), fill)
    assert os.listdir(tmp_path) == []


@pytest.mark.usefixtures("all_named")
@pytest.mark.parametrize("call", CALLS)
def test_a_new_file_with_a_temporary_name_that_could_not_be_made_leaves_nothing(tmp_path: Path, call: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, call)
        with pytest.raises(OSError, match="injected"):
            new_file(str(tmp_path / "made"), fill)
    assert os.listdir(tmp_path) == []
    disk.close(new_file(str(tmp_path / "made"), fill))
    assert os.listdir(tmp_path) == ["made"]


def test_without_proc_a_new_file_has_a_temporary_name_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at(monkeypatch, "give_name", error=FileNotFoundError(errno.ENOENT, "no /proc"))
    disk.close(new_file(str(tmp_path / "made"), fill))
    assert (tmp_path / "made").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["made"]


def test_an_existing_file_is_replaced_and_kept_when_that_fails(tmp_path: Path) -> None:
    (tmp_path / "made").write_bytes(b"old")
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, "write_at")
        with pytest.raises(OSError, match="injected"):
            new_file(str(tmp_path / "made"), fill)
    assert (tmp_path / "made").read_bytes() == b"old"
    disk.close(new_file(str(tmp_path / "made"), fill))
    assert (tmp_path / "made").read_bytes() == b"new"


@pytest.mark.parametrize("keep_as", ["", "kept"])
@pytest.mark.parametrize(("call", "turn"), [(call, 0) for call in CALLS[:-1]] + [("rename", 1)])
def test_a_file_that_could_not_be_replaced_still_exists(tmp_path: Path, call: str, turn: int, keep_as: str) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with pytest.MonkeyPatch.context() as patch:
        made = fail_at(patch, call, turn)
        failed = None
        try:
            replace_file(str(tmp_path / "file"), b"new", keep_as=str(tmp_path / keep_as) if keep_as else "")
        except OSError as error:
            failed = error
    assert (failed is not None) == (len(made) > turn)
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    if failed is None:
        assert left == {"file": b"new"}
    else:
        assert left == {"file": b"old"}


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_old_file_that_cannot_get_its_name_back_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """``DiskFull`` would say that the file is as it was."""
    (tmp_path / "file").write_bytes(b"old")
    real = disk.rename

    def rename(source: str, target: str) -> None:
        if target == str(tmp_path / "file"):
            raise OSError(code, "injected")
        real(source, target)

    monkeypatch.setattr(disk, "rename", rename)
    with pytest.raises(StoreIOError, match=f"injected; the old file is {tmp_path / 'kept'}"):
        replace_durably(str(tmp_path / "file"), b"new", keep_as=str(tmp_path / "kept"))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"kept": b"old"}


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EACCES])
@pytest.mark.parametrize(("call", "turn"), [(call, 0) for call in CALLS] + [("rename", 1)])
def test_a_durable_replacement_that_fails_says_whether_the_old_file_is_there(
    tmp_path: Path, call: str, turn: int, code: int
) -> None:
    """``DiskFull`` promises that it is; other failures do not, and it is there unless only the last sync failed."""
    (tmp_path / "file").write_bytes(b"old")
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, call, turn, OSError(code, os.strerror(code)))
        with pytest.raises((DiskFull, StoreIOError)) as raised:
            replace_durably(str(tmp_path / "file"), b"new", keep_as=str(tmp_path / "kept"))
    assert (raised.value.path, raised.value.errno) == (str(tmp_path / "file"), code)
    is_replaced = call == "sync_directory"
    assert isinstance(raised.value, DiskFull) is (code == errno.ENOSPC and not is_replaced)
    left = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert left == ({"file": b"new", "kept": b"old"} if is_replaced else {"file": b"old"})


@pytest.mark.parametrize("keep_as", ["", "kept"])
def test_a_power_cut_leaves_a_file_that_is_replaced_durably_whole(tmp_path: Path, keep_as: str) -> None:
    """With ``keep_as`` the old one may have that name alone, as long as the replacement has not ended."""
    store, crashed = tmp_path / "store", tmp_path / "crashed"
    store.mkdir()
    path = store / "file"
    path.write_bytes(b"content 0")
    recorded, ends = RecordingDisk(store), [0]
    with recorded.recording():
        for number in (1, 2):
            replace_durably(str(path), b"content %d" % number, keep_as=str(store / keep_as) if keep_as else "")
            ends.append(recorded.now)
    images, chance, found = CrashImages(recorded), random.Random(7), set()
    for point in range(recorded.now + 1):
        images.advance(point)
        last = max(number for number, end in enumerate(ends) if end <= point)
        for _ in range(20):
            images.write(crashed, chance)
            names = [name for name in ("file", keep_as) if name and (crashed / name).exists()]
            assert names, "the file is lost"
            assert names[0] == "file" or point not in ends
            content = (crashed / names[0]).read_bytes()
            assert content in {b"content %d" % number for number in (last, last + 1)}
            found.add((names[0], content))
    assert found >= {("file", b"content %d" % number) for number in range(3)}
    assert (("kept", b"content 1") in found) is bool(keep_as)


def test_an_interrupt_leaves_no_file_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with pytest.MonkeyPatch.context() as patch:
        fail_at(patch, "sync", error=KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            replace_file(str(tmp_path / "file"), b"new")
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert os.listdir(tmp_path) == []


def test_a_link_under_the_temporary_name_is_not_followed(tmp_path: Path) -> None:
    """Invariant 10."""
    outside = tmp_path / "outside"
    outside.write_bytes(b"not ours")
    (tmp_path / "file.tmp").symlink_to(outside)
    replace_file(str(tmp_path / "file"), b"new")
    assert outside.read_bytes() == b"not ours"
    assert not (tmp_path / "file").is_symlink()


def test_a_file_that_is_made_once_is_whole_and_the_first_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "deep" / "file"
    synced: list[bytes] = []
    real_sync = disk.sync

    def sync(descriptor: int) -> None:
        assert not path.exists(), "a name before its bytes are on the device may be empty after a power cut"
        synced.append(os.pread(descriptor, 10, 0))
        real_sync(descriptor)

    monkeypatch.setattr(disk, "sync", sync)
    assert make_file_once(str(path), b"first") is True
    monkeypatch.undo()
    assert make_file_once(str(path), b"second") is False
    assert (path.read_bytes(), synced, os.listdir(path.parent)) == (b"first", [b"first"], ["file"])
