"""Compression of message bodies: packs and unpacks the streams that the system flag names.

==================  ===================  =========================================================
system flag         stream               starts with
==================  ===================  =========================================================
0x000, 0x300        zlib (RFC 1950)      0x78 (deflate with a window of 32 KiB)
0x100               LZ4 frame            04 22 4D 18
0x200               Zstandard (RFC 8878) 28 B5 2F FD
==================  ===================  =========================================================

The streams carry no trustworthy size, so unpacking goes piece by piece and stops at a limit that the caller gives. As
in RocketMQ, bytes after the end of a zlib stream are skipped, and frames of LZ4 or zstd may follow each other.

Source: RocketMQ ``common/compression/ZlibCompressor.java``, ``Lz4Compressor.java``, ``ZstdCompressor.java``.
"""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa

from commitlog_store.errors import InvalidValue
from commitlog_store.format.sys_flag import CompressionType

# pyarrow's names; "lz4" is its name of the frame format, "lz4_raw" of a block of it.
_ARROW_CODECS = {CompressionType.LZ4: "lz4", CompressionType.ZSTD: "zstd"}

# The default level of RocketMQ's producers (compressLevel).
_ZLIB_LEVEL = 5

# A frame of independent blocks, without sizes and checksums, as RocketMQ writes it. In liblz4's own frames, blocks
# after the first 64 KiB refer to earlier ones; RocketMQ's reader (lz4-java) refuses these.
_LZ4_HEAD = bytes.fromhex("04224d18 60 70 73")  # magic number; version 1 and the flag; 4 MiB a block; their checksum
_LZ4_BLOCK_SIZE = 4 << 20
_LZ4_BLOCK = struct.Struct("<I")
_LZ4_NOT_PACKED = 1 << 31
_LZ4_END = bytes(4)

# Readers unpack no more than this, and writers pack no longer body. A broker takes at most maxMessageSize (4 MiB unless
# raised) before compression; the bound keeps a hostile body from unpacking without end.
MAX_DECOMPRESSED_SIZE = 256 << 20

# The first piece to unpack; each further one is as large as all before it.
_FIRST_PIECE_SIZE = 1 << 16


def decompress(data: bytes, compression_type: CompressionType, max_size: int) -> bytes:
    """The unpacked body. ``InvalidValue`` when ``data`` is not a whole stream or unpacks to over ``max_size`` bytes.

    The error's text fits after "found".
    """
    if max_size < 0:
        raise InvalidValue(f"The largest size to unpack to is at least 0, not {max_size}.")
    if not data:
        raise _broken(compression_type, data, "it is empty")
    # One byte more than is allowed distinguishes a body that just fits from a longer one.
    unpack = _unpack_zlib if compression_type is CompressionType.ZLIB else _unpack_arrow
    body = unpack(data, compression_type, max_size + 1)
    if len(body) > max_size:
        raise InvalidValue(
            f"a {compression_type.name} stream of {len(data)} bytes that unpacks to more than the allowed {max_size}"
        )
    return body


def _unpack_zlib(data: bytes, compression_type: CompressionType, limit: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        body = stream.decompress(data, limit)
    except zlib.error as error:
        raise _broken(compression_type, data, str(error)) from error
    if not stream.eof and len(body) < limit:
        raise _broken(compression_type, data, "it ends too early")
    return body


def _unpack_arrow(data: bytes, compression_type: CompressionType, limit: int) -> bytes:
    pieces = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), _ARROW_CODECS[compression_type]) as stream:
            while size < limit:
                piece = stream.read(min(max(size, _FIRST_PIECE_SIZE), limit - size))
                if not piece:
                    break
                pieces.append(piece)
                size += len(piece)
    except (OSError, pa.ArrowException) as error:
        raise _broken(compression_type, data, str(error)) from error
    return b"".join(pieces)


def _broken(compression_type: CompressionType, data: bytes, why: str) -> InvalidValue:
    return InvalidValue(
        f"{len(data)} bytes that are not a whole {compression_type.name} stream ({why.strip().rstrip('.')})"
    )


def compress(data: bytes, compression_type: CompressionType) -> bytes:
    """``data`` as one stream of that type."""
    if compression_type is CompressionType.ZLIB:
        return zlib.compress(data, _ZLIB_LEVEL)
    if compression_type is CompressionType.LZ4:
        return _pack_lz4(data)
    packed: bytes = pa.Codec(_ARROW_CODECS[compression_type]).compress(data, asbytes=True)
    return packed


def _pack_lz4(data: bytes) -> bytes:
    codec = pa.Codec("lz4_raw")
    parts = [_LZ4_HEAD]
    for start in range(0, len(data), _LZ4_BLOCK_SIZE):
        block = data[start : start + _LZ4_BLOCK_SIZE]
        packed = codec.compress(block, asbytes=True)
        if len(packed) < len(block):
            parts += [_LZ4_BLOCK.pack(len(packed)), packed]
        else:
            parts += [_LZ4_BLOCK.pack(len(block) | _LZ4_NOT_PACKED), block]
    return b"".join([*parts, _LZ4_END])
