"""Assessments of a store on a disk that fails reads: a verdict, with the file and what it held, and no traceback."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commitlog_store import Verdict, assess_store
from commitlog_store.files import disk
from tests.store.verify.made_store import files, make_store
from tests.store.verify.test_assessment import newest_file

__all__: list[str] = []


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("made") / "store")


@pytest.fixture
def path(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "store"))


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Make every read of a file, or of all files below a directory, fail, as a bad sector does."""

    def fail(bad: Path) -> None:
        def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
            def read(descriptor: int, *arguments: Any) -> Any:
                if Path(f"/proc/self/fd/{descriptor}").resolve().is_relative_to(bad):
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return call(descriptor, *arguments)

            return read

        for name in ("read_at", "read_into"):
            monkeypatch.setattr(disk, name, guarded(getattr(disk, name)))

    return fail


@pytest.mark.parametrize("deep", [False, True])
def test_the_messages_of_a_log_file_that_cannot_be_read_are_unreadable(
    path: Path, failing: Callable[[Path], None], deep: bool
) -> None:
    bad = files(path, "commitlog")[1]
    failing(bad)
    found = assess_store(path, deep=deep)
    (finding,) = found.findings
    assert (finding.check, finding.severity, finding.path) == ("access.read", "error", str(bad))
    assert finding.message.startswith(f"Cannot read {bad}: Input/output error.")
    assert (found.verdict, found.lost, found.unreadable) == (Verdict.DAMAGED, 195, 195)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("part", ["commitlog", "consumequeue", "consumequeue/orders/1", "index"])
def test_a_part_that_cannot_be_read_keeps_the_store_from_opening(
    path: Path, failing: Callable[[Path], None], part: str, deep: bool
) -> None:
    failing(path / part)
    found = assess_store(path, deep=deep)
    assert (found.verdict, found.lost) == (Verdict.DOES_NOT_OPEN, 900 if part == "commitlog" else 0)
    first = next(one for one in found.findings if one.severity == "error")
    assert first.check in ("access.read", "index.header")
    assert Path(first.path).is_relative_to(path / part)


@pytest.mark.parametrize("deep", [False, True])
def test_one_bad_queue_file_is_reported_once(path: Path, failing: Callable[[Path], None], deep: bool) -> None:
    bad = files(path, "consumequeue/orders/1")[0]
    failing(bad)
    found = assess_store(path, deep=deep)
    assert found.lost == 0
    assert [one.path for one in found.findings if one.check == "access.read"] in ([], [str(bad)])
    assert {one.check for one in found.findings} <= {"access.read", "opening.refused"}


def test_a_newest_message_that_cannot_be_read_is_not_said_to_be_gone(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = newest_file(path)
    read_at = disk.read_at

    def read(descriptor: int, length: int, offset: int) -> bytes:
        if offset and Path(f"/proc/self/fd/{descriptor}").resolve() == newest:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read_at(descriptor, length, offset)

    monkeypatch.setattr(disk, "read_at", read)
    found = assess_store(path)
    assert [(one.check, one.path) for one in found.findings if one.check != "opening.refused"] == [
        ("access.read", str(newest))
    ]
    assert found.lost == 0
