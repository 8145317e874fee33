"""SYSFLAG, the system flag of a record, bit by bit. Four bytes of the record, big-endian, at offset 36.

::

    bit   10  9  8 | 7      6       5      4      3  2          1      0
         +---------+------+-------+------+------+------------+------+------------+
         | COMPR.  | INNER| NEED  | STORE| BORN | TRANSACTION| MULTI| COMPRESSED |
         | TYPE    | BATCH| UNWRAP| IPV6 | IPV6 |            | TAGS |            |
         +---------+------+-------+------+------+------------+------+------------+

    TRANSACTION         0 none, 1 prepared, 2 commit, 3 rollback
    COMPRESSION TYPE    0 zlib (from before there was a choice), 1 LZ4 frame, 2 zstd, 3 zlib; means something only
                        when COMPRESSED is set

COMPRESSION TYPE without COMPRESSED is not damage: when a broker puts a half message back (``resumeCheckHalfMessage``),
it stores the body unpacked, clears that one bit and keeps the others.

The functions take one flag or a numpy array of them. Versions: IPv6 bits since 4.7, compression types since 5.0,
batch bits since 5.0.

Source: RocketMQ ``common/sysflag/MessageSysFlag.java``, ``common/compression/CompressionType.java``,
``broker/processor/AdminBrokerProcessor.java``, ``common/message/MessageDecoder.java`` (``decode``).
"""

from __future__ import annotations

import enum
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from commitlog_store.errors import InvalidValue

COMPRESSED_FLAG = 1 << 0
MULTI_TAGS_FLAG = 1 << 1
TRANSACTION_NOT_TYPE = 0 << 2
TRANSACTION_PREPARED_TYPE = 1 << 2
TRANSACTION_COMMIT_TYPE = 2 << 2
TRANSACTION_ROLLBACK_TYPE = 3 << 2
TRANSACTION_MASK = 3 << 2
BORNHOST_V6_FLAG = 1 << 4
STOREHOSTADDRESS_V6_FLAG = 1 << 5
NEED_UNWRAP_FLAG = 1 << 6
INNER_BATCH_FLAG = 1 << 7
COMPRESSION_TYPE_MASK = 7 << 8

IntArray = npt.NDArray[np.integer[Any]]
BoolArray = npt.NDArray[np.bool_]


class CompressionType(enum.Enum):
    """How a compressed body is packed; the value is the type's bits within the flag."""

    LZ4 = 1 << 8
    ZSTD = 2 << 8
    ZLIB = 3 << 8


_TYPE_OF_BITS = {0: CompressionType.ZLIB} | {kind.value: kind for kind in CompressionType}


def compression_type(sys_flag: int) -> CompressionType:
    """How the body of a record with ``COMPRESSED_FLAG`` is packed. ``InvalidValue`` for the unused types 4 to 7."""
    bits = sys_flag & COMPRESSION_TYPE_MASK
    kind = _TYPE_OF_BITS.get(bits)
    if kind is None:
        raise InvalidValue(
            f"system flag {sys_flag:#x}, which names compression type {bits >> 8} (known: 0 and 3 zlib, 1 LZ4, 2 zstd)"
        )
    return kind


@overload
def transaction_type(sys_flag: int) -> int: ...
@overload
def transaction_type(sys_flag: IntArray) -> IntArray: ...
def transaction_type(sys_flag: int | IntArray) -> int | IntArray:
    """One of the ``TRANSACTION_*_TYPE`` constants."""
    return sys_flag & TRANSACTION_MASK


@overload
def has_queue_unit(sys_flag: int) -> bool: ...
@overload
def has_queue_unit(sys_flag: IntArray) -> BoolArray: ...
def has_queue_unit(sys_flag: int | IntArray) -> bool | BoolArray:
    """Whether the message is for consumers: prepared and rolled-back ones get no unit in a consume queue."""
    # Both of these types, and no other, have the lower transaction bit.
    return (sys_flag & TRANSACTION_PREPARED_TYPE) == 0
