"""The search for good records in a file with holes, as a log file is after its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.log.record_search import first_good_record
from tests.store.columnar.log_stretches import record_of, stretch

_SIZE = 64 << 20
_PAGE = 4096


@pytest.mark.parametrize("page", [0, 1, 9000])
@pytest.mark.parametrize("before", [0, 1, 2, 3, 7, 100])
def test_a_record_after_a_hole_is_found(before: int, page: int, tmp_path: Path) -> None:
    """Its first bytes are zeros, so they may lie in the hole: the pages of both need not be lost together."""
    at = max(page * _PAGE - before, 0)
    data = stretch([record_of(body=b"x" * 300)], at)
    path = tmp_path / "file"
    with open(path, "wb") as file:
        zeros = len(data) - len(data.lstrip(b"\0"))
        file.seek(at + zeros)
        file.write(data[zeros:])
        file.truncate(_SIZE)
    opened = MappedFile.open(str(path), 0)
    try:
        found = first_good_record(opened, 0, _SIZE, _SIZE)
        assert found is not None
        assert (found.physical_offset, found.body) == (at, b"x" * 300)
        assert first_good_record(opened, at, at + 1, _SIZE) == found
        assert first_good_record(opened, 0, at, _SIZE) is None
        assert first_good_record(opened, at + 1, _SIZE, _SIZE) is None
    finally:
        opened.close()


def test_space_that_was_never_written_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    with open(path, "wb") as file:
        file.write(b"junk" * 100)
        file.truncate(_SIZE)
    read: list[int] = []
    real = disk.read_at

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        data = real(descriptor, length, offset)
        read.append(len(data))
        return data

    monkeypatch.setattr(disk, "read_at", counted)
    opened = MappedFile.open(str(path), 0)
    try:
        assert first_good_record(opened, 0, _SIZE, _SIZE) is None
    finally:
        opened.close()
    assert sum(read) < 1 << 20
