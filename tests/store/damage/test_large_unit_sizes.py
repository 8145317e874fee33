"""A consume-queue unit whose size is damaged costs no memory of that size (invariant 9)."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import CommitLogError
from tests.support.store_builder import StoreBuilder


def test_a_damaged_size_of_a_unit_within_its_file_is_not_allocated(tmp_path: Path) -> None:
    store = StoreBuilder(tmp_path / "store", log_file_size=128 << 20)
    store.append("t", 0, [b"x"] * 3)
    with (store.path / "consumequeue/t/0" / ("0" * 20)).open("r+b") as file:
        file.seek(20 + 8)
        file.write(struct.pack(">i", 100 << 20))
    before = pa.default_memory_pool().max_memory()
    with StoreReader.open(store.path) as reader, pytest.raises(CommitLogError):
        list(reader.read("t", 0, 1, 2))
    assert pa.default_memory_pool().max_memory() - before < 32 << 20
