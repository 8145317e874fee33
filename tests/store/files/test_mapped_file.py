"""A mapped file that was closed says so, whatever it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from commitlog_store.errors import ReaderClosed
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
