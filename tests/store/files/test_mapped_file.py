"""A mapped file that was closed says so, whatever it is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commitlog_store.errors import ReaderClosed
from commitlog_store.files import disk
from commitlog_store.files.mapped_file import MappedFile

QUESTIONS: dict[str, Callable[[MappedFile], object]] = {
    "size": lambda file: file.size,
    "read": lambda file: file.read(0, 4),
    "read_into": lambda file: file.read_into(np.empty(4, np.uint8), 0),
    "span": lambda file: file.span(0, 4),
    "scanned": lambda file: file.scanned(0, 4),
    "pieces": lambda file: file.pieces(np.array([0]), 4),
    "data_extents": lambda file: file.data_extents(0, 4),
    "sync": lambda file: file.sync(),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_closed_file_names_itself(question: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    file = MappedFile.open(str(tmp_path / "file"), 0)
    QUESTIONS[question](file)
    file.close()
    with pytest.raises(ReaderClosed, match=f"{tmp_path}/file was closed"):
        QUESTIONS[question](file)


def test_blocks_of_one_stretch_take_one_look_for_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In tmpfs a look walks over all pages up to the next hole: once a block, that took a fifth of a recovery."""
    (tmp_path / "file").write_bytes(b"content." * 1024)
    os.truncate(tmp_path / "file", 64 << 10)
    looks: list[int] = []
    first_hole = disk.first_hole

    def noted(descriptor: int, start: int) -> int:
        looks.append(start)
        return first_hole(descriptor, start)

    monkeypatch.setattr(disk, "first_hole", noted)
    file = MappedFile.open(str(tmp_path / "file"), 0)
    assert b"".join(file.scanned(at, at + 4096).tobytes() for at in range(0, 16384, 4096)) == (
        b"content." * 1024 + bytes(8192)
    )
    assert looks in ([0, 8192, 12288], [0])  # the latter on a file system that has no holes
