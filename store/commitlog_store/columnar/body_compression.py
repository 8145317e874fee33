"""Compression of large bodies as by RocketMQ's producers, with the bits of SYSFLAG for it.

A producer packs a body that reaches a size (``compressMsgBodyOverHowmuch``, 4,096 by default), keeps the result even
where it is longer, and sets COMPRESSED and the bits of the type. Readers of the record unpack it, up to a bound; a
longer body is stored as it is.

Source: RocketMQ ``client/impl/producer/DefaultMQProducerImpl.java`` (``tryToCompressMessage``, ``sendKernelImpl``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.byte_parts import binary_parts
from commitlog_store.errors import InvalidValue
from commitlog_store.format.compression import MAX_DECOMPRESSED_SIZE, compress
from commitlog_store.format.sys_flag import COMPRESSED_FLAG, CompressionType


@dataclass(frozen=True)
class BodyCompression:
    """Bodies of more than ``over`` bytes are packed as ``type`` says, but for those that readers would not unpack."""

    type: CompressionType
    over: int

    def __post_init__(self) -> None:
        if self.over < 0:
            raise InvalidValue(f"over is a number of bytes from 0 on, not {self.over}.")

    @property
    def sys_flag(self) -> int:
        """The bits of a record's system flag for a packed body of this type."""
        return COMPRESSED_FLAG | self.type.value


def compress_bodies(
    bodies: pa.LargeBinaryArray, compression: BodyCompression
) -> tuple[pa.LargeBinaryArray, npt.NDArray[np.int32]]:
    """The bodies as they are stored, and each one's bits of the system flag. Nothing may be null.

    Only the bodies that are packed take a step each.
    """
    bounds, data = binary_parts(bodies)
    sizes = np.diff(bounds)
    large = (sizes > compression.over) & (sizes <= MAX_DECOMPRESSED_SIZE)
    rows = np.flatnonzero(large)
    if not len(rows):
        return bodies, np.zeros(len(bodies), np.int32)
    pieces: list[bytes | memoryview] = []
    stored, done = sizes.copy(), int(bounds[0])
    for row, start, stop in zip(rows.tolist(), bounds[rows].tolist(), bounds[rows + 1].tolist(), strict=True):
        packed = compress(data[start:stop].tobytes(), compression.type)
        stored[row] = len(packed)
        # The bodies between the last packed one and this one stay unchanged.
        pieces += [data[done:start].data, packed]
        done = stop
    pieces.append(data[done : bounds[-1]].data)
    stored_bounds = np.zeros(len(bodies) + 1, np.int64)
    np.cumsum(stored, out=stored_bounds[1:])
    array = pa.Array.from_buffers(
        pa.large_binary(), len(bodies), [None, pa.py_buffer(stored_bounds), pa.py_buffer(b"".join(pieces))]
    )
    return array, np.where(large, np.int32(compression.sys_flag), np.int32(0))
