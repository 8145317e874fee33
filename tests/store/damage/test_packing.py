"""Bodies packed otherwise than SYSFLAG says, which no CRC covers: readers refuse them, and verify lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import CorruptRecord
from commitlog_store.format.compression import compress
from commitlog_store.format.sys_flag import COMPRESSED_FLAG, CompressionType
from commitlog_store.verify.assessment import Verdict, assess_store
from commitlog_store.verify.store import verify_store
from tests.support.store_builder import StoreBuilder

_ZSTD = CompressionType.ZSTD.value
_PACKED = compress(b"abc" * 100, CompressionType.ZSTD)


@pytest.mark.parametrize(
    ("field", "body", "flags"),
    [
        ("BODY", b"not a stream", COMPRESSED_FLAG),
        ("BODY", b"", COMPRESSED_FLAG),
        ("BODY", _PACKED[:-5], COMPRESSED_FLAG | _ZSTD),
        ("BODY", _PACKED, COMPRESSED_FLAG | 0x700),
        ("SYSFLAG", _PACKED, _ZSTD),
    ],
)
def test_verify_lists_what_readers_refuse(tmp_path: Path, field: str, body: bytes, flags: int) -> None:
    builder = StoreBuilder(tmp_path / "store")
    builder.append("orders", 0, [b"before"])
    (place,) = builder.append("orders", 0, [body], sys_flag=flags).tolist()
    builder.append("orders", 0, [b"after"])
    with StoreReader.open(builder.path) as reader, pytest.raises(CorruptRecord) as refused:
        list(reader.read("orders", 0, 0))
    (finding,) = verify_store(builder.path)
    assert (finding.check, finding.severity) == ("log.body", "error")
    assert (finding.path, finding.offset) == (refused.value.path, refused.value.offset)
    assert f"{field} of the record at physical offset {place}: expected " in finding.message
    assert assess_store(builder.path, deep=True).verdict is Verdict.DAMAGED


def test_bodies_that_are_packed_as_they_say_are_no_fault(tmp_path: Path) -> None:
    """Type bits alone are none, either: a broker leaves them where it has unpacked a body."""
    builder = StoreBuilder(tmp_path / "store")
    for body, flags in [(_PACKED, COMPRESSED_FLAG | _ZSTD), (b"plain", _ZSTD), (_PACKED, 0)]:
        builder.append("orders", 0, [body], sys_flag=flags)
    assert verify_store(builder.path) == []
