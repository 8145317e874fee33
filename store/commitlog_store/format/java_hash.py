"""Java's ``String.hashCode`` of one text, and RocketMQ's tags codes and index key hashes made of it.

A hash code is ``s[0]*31^(n-1) + s[1]*31^(n-2) + ... + s[n-1]`` over the UTF-16 units of the text, in signed 32-bit
arithmetic that wraps. It stands on disk in two places:

=================  =======================  =========================================================
where              value                    bytes
=================  =======================  =========================================================
consume-queue unit hash code of the tags    8, big-endian, the 32-bit hash sign-extended; 0 without tags
index entry        ``index_key_hash(key)``  4, big-endian, never negative; slot = hash mod slots
=================  =======================  =========================================================

Source: Java SE ``java.lang.String.hashCode``; RocketMQ ``common/message/MessageExtBrokerInner.java``
(``tagsString2tagsCode``), ``store/index/IndexFile.java`` (``indexKeyHashMethod``).
"""

from __future__ import annotations

import struct

import numpy as np

_MASK = 0xFFFF_FFFF
_SIGN = 0x8000_0000

# Up to about this many units a plain loop is faster than calling numpy.
_LOOP_UNITS = 128


def string_hash_code(text: str) -> int:
    """Java's ``text.hashCode()``: -2**31 to 2**31 - 1.

    Surrogates that stand alone count as the one unit that they are, as in Java.
    """
    data = text.encode("utf-16-be", "surrogatepass")
    count = len(data) // 2
    value = 0
    if count <= _LOOP_UNITS:
        for unit in struct.unpack(f">{count}H", data):
            value = (value * 31 + unit) & _MASK
    else:
        value = _long_hash_code(data)
    return value - (1 << 32) if value & _SIGN else value


def _long_hash_code(data: bytes) -> int:
    units = np.frombuffer(data, ">u2").astype(np.uint32)
    weights = np.full(len(units), 31, np.uint32)
    weights[-1] = 1
    # From the last unit to the first: 1, 31, 31^2, ...; uint32 wraps as Java's int does.
    weights = np.cumprod(weights[::-1], dtype=np.uint32)[::-1]
    return int((units * weights).sum(dtype=np.uint32))


def index_key_hash(key: str) -> int:
    """The hash of an index entry, for ``key`` = ``topic#key``: 0 to 2**31 - 1.

    ``Math.abs`` of the smallest int is still negative in Java; RocketMQ takes 0 for it.
    """
    value = abs(string_hash_code(key))
    return 0 if value == _SIGN else value
