"""CRC-32, the checksum of records, frames and the store's own small files.

zlib-ng uses the processor's carry-less multiplication, the interpreter's own zlib mostly tables; both give the same
numbers (docs/decisions/0008-checksums.md).
"""

from __future__ import annotations

try:
    from zlib_ng.zlib_ng import crc32, crc32_combine
except ImportError:  # where zlib-ng publishes no wheels; see the marker in pyproject.toml
    from zlib import crc32

    def crc32_combine(crc1: int, crc2: int, crc2_length: int, /) -> int:
        """The CRC-32 of two adjacent pieces, from that of each; the second has ``crc2_length`` bytes."""
        # The first CRC, without the complements of start and end, moved over as many zeros as the second has bytes.
        return crc32(bytes(crc2_length), crc1 ^ 0xFFFF_FFFF) ^ 0xFFFF_FFFF ^ crc2


__all__ = ["crc32", "crc32_combine"]
