"""CRC-32, the checksum of records, frames and the store's own small files.

zlib-ng uses the processor's carry-less multiplication, the interpreter's own zlib mostly tables; both give the same
numbers (docs/decisions/0008-checksums.md).
"""

from __future__ import annotations

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:  # where zlib-ng publishes no wheels; see the marker in pyproject.toml
    from zlib import crc32

__all__ = ["crc32"]
