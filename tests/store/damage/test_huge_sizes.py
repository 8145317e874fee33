"""Sizes that would take all memory."""

from __future__ import annotations

import os
import resource
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import StoreReader
from commitlog_store.columnar import bodies
from commitlog_store.errors import CommitLogError, CorruptRecord
from commitlog_store.format import compression
from commitlog_store.format.sys_flag import CompressionType
from tests.store.damage.filled_store import log_file, poke, queue_file
from tests.support.store_builder import StoreBuilder


def _peak(look: Callable[[], object]) -> int:
    """Bytes that Python and numpy allocate at most while ``look`` fails, or Arrow beyond its highest mark so far."""
    pool = pa.default_memory_pool()
    mark = pool.max_memory() or 0
    tracemalloc.start()
    try:
        with pytest.raises(CommitLogError):
            look()
        return max(tracemalloc.get_traced_memory()[1], (pool.max_memory() or 0) - mark)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("where", "at", "code"), [("log", 0, "i"), ("log", 84, "i"), ("queue", 8, "i"), ("both", 0, "i")]
)
@pytest.mark.parametrize("value", [0x7FFFFFFE, 0x7FFFFFFF - 91, 1 << 30])
def test_a_huge_size_allocates_nothing(builder: StoreBuilder, where: str, at: int, code: str, value: int) -> None:
    """A length is compared with the file before anything is made of it."""
    if where in {"log", "both"}:
        poke(log_file(builder), at, code, value)
    if where in {"queue", "both"}:
        poke(queue_file(builder), 8, code, value)
    with StoreReader.open(builder.path) as reader:
        assert _peak(lambda: list(reader.read("a", 0, 0))) < 4 << 20
        if where != "queue":
            assert _peak(lambda: reader.message_at(0)) < 4 << 20


@pytest.mark.parametrize("kind", CompressionType)
def test_a_body_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: CompressionType
) -> None:
    """A few kilobytes of stream can hold gigabytes of zeros."""
    monkeypatch.setattr(bodies, "MAX_DECOMPRESSED_SIZE", 1 << 20)
    builder = StoreBuilder(tmp_path / "store")
    bomb = compression.compress(bytes(64 << 20), kind)
    assert len(bomb) < 1 << 19
    builder.append("t", 0, [b"before"])
    builder.append("t", 0, [bomb], sys_flag=1 | kind.value)
    with StoreReader.open(builder.path) as reader:
        (unit,) = next(reader.units("t", 0, 1, 2))
        with pytest.raises(CorruptRecord, match="unpacks to more than the allowed 1048576") as by_column:
            list(reader.read("t", 0, 0))
        with pytest.raises(CorruptRecord, match="unpacks to more than the allowed 1048576") as by_place:
            reader.message_at(int(unit["physical_offset"]))
        assert str(log_file(builder)) == by_column.value.path == by_place.value.path
        assert _peak(lambda: reader.message_at(int(unit["physical_offset"]))) < 16 << 20


@pytest.mark.parametrize("bits", [0x400, 0x700])
def test_a_body_of_an_unknown_compression_type_is_refused(tmp_path: Path, bits: int) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"what is this"], sys_flag=1 | bits)
    with StoreReader.open(builder.path) as reader:
        with pytest.raises(CorruptRecord, match="compression type"):
            list(reader.read("t", 0, 0))
        with pytest.raises(CorruptRecord, match="compression type"):
            reader.message_at(0)
        assert [b["sysFlag"].to_pylist() for b in reader.read("t", 0, 0, columns=["sysFlag"])] == [[1 | bits]]


def test_a_sparse_file_of_terabytes_takes_no_more_than_its_messages(tmp_path: Path) -> None:
    """Files are allocated ahead; their size says nothing about their contents."""
    builder = StoreBuilder(tmp_path / "store")
    builder.append("t", 0, [b"x"] * 10)
    os.truncate(log_file(builder), 1 << 31)
    os.truncate(builder.path / "consumequeue" / "t" / "0" / f"{0:020d}", 20 * (1 << 36))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with StoreReader.open(builder.path) as reader:
        assert reader.queue_info("t", 0).max_offset == 10
        assert sum(batch.num_rows for batch in reader.read("t", 0, 0)) == 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB
