"""Read-ahead: the bytes that a reader of the log requests from the device in advance."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from commitlog.files import disk
from commitlog.files.mapped_file import MappedFile

__all__: list[str] = []

_MIB = 1 << 20
_SIZE = 400 * _MIB


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The stretches that the kernel is asked for."""
    found: list[tuple[int, int]] = []
    read_ahead = disk.read_ahead

    def noted(descriptor: int, start: int, stop: int) -> None:
        found.append((start, stop))
        read_ahead(descriptor, start, stop)

    monkeypatch.setattr(disk, "read_ahead", noted)
    return found


@pytest.fixture
def file(tmp_path: Path) -> Iterator[MappedFile]:
    path = tmp_path / f"{0:020d}"
    with path.open("wb") as sparse:
        sparse.truncate(_SIZE)
    opened = MappedFile.open(str(path), 0)
    yield opened
    opened.close()


def test_queues_side_by_side_request_each_byte_once(file: MappedFile, requests: list[tuple[int, int]]) -> None:
    for start in range(0, 300 * _MIB, 10 * _MIB):
        for queue in range(4):
            file.read_ahead(start + queue * 1500, start + 10 * _MIB + queue * 1500, _SIZE)
    assert requests[0] == (0, 74 * _MIB)
    assert all(before[1] == after[0] for before, after in pairwise(requests))
    assert all(stop - start >= 16 * _MIB for start, stop in requests)


def test_nothing_is_requested_beyond_the_range(file: MappedFile, requests: list[tuple[int, int]]) -> None:
    for start in range(0, 100 * _MIB, 10 * _MIB):
        file.read_ahead(start, start + 10 * _MIB, 100 * _MIB)
    assert max(stop for _, stop in requests) == 100 * _MIB
    file.read_ahead(_SIZE - _MIB, _SIZE, 10 * _SIZE)
    assert requests[-1] == (_SIZE - _MIB, _SIZE)


def test_another_pass_over_the_file_requests_it_again(file: MappedFile, requests: list[tuple[int, int]]) -> None:
    for _ in range(2):
        for start in range(0, 300 * _MIB, 10 * _MIB):
            file.read_ahead(start, start + 10 * _MIB, _SIZE)
    assert [start for start, _ in requests].count(0) == 2
