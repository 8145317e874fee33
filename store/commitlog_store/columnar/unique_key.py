r"""UNIQ_KEY of messages without a client: derived from their place, so that the same messages get the same keys.

32 characters, upper-case hexadecimal as RocketMQ's clients write theirs, so that tools show and find them alike::

    0                                16            22                    32
    +--------------------------------+-------------+---------------------+
    | hash of the prefix             | partition   | row                 |
    +--------------------------------+-------------+---------------------+

The hash is BLAKE2b of 8 bytes. A client's own key is its address, process, class loader, time and a counter, which
would differ each time that the messages are made.

Source: RocketMQ ``common/message/MessageClientIDSetter.java``.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.byte_parts import binary_parts, fixed_width, large_binary_of
from commitlog_store.columnar.input_properties import blank_to_null, illegible_rows, separator_rows
from commitlog_store.errors import InvalidValue
from commitlog_store.format.arrays import BoolArray

_HASH_SIZE = 8
_PARTITION_SIZE = 3
_ROW_SIZE = 5
# Two digits a byte. The hash and the partition are the same in all keys of a call.
_KEY = np.dtype([("constant", f"V{2 * (_HASH_SIZE + _PARTITION_SIZE)}"), ("row", f"V{2 * _ROW_SIZE}")])
assert _KEY.itemsize == 32

# The two digits of every byte, as one item.
_PAIRS = np.frombuffer(bytes(range(256)).hex().upper().encode(), np.uint16)


def unique_keys(prefix: bytes, partition: int, first_row: int, count: int) -> pa.LargeBinaryArray:
    """The keys of the rows ``[first_row, first_row + count)`` of a partition.

    ``prefix`` distinguishes the messages from all others: their maker, and which run it is.
    ``InvalidValue`` for a partition of 2**24 or more, for a row of 2**40 or more, and for negative numbers.
    """
    partitions, rows = 1 << 8 * _PARTITION_SIZE, 1 << 8 * _ROW_SIZE
    if not 0 <= partition < partitions:
        raise InvalidValue(f"A partition is 0 to {partitions - 1}, not {partition}.")
    if first_row < 0 or count < 0 or first_row + count > rows:
        raise InvalidValue(f"Rows are 0 to {rows - 1}, not {count} from {first_row} on.")
    constant = hashlib.blake2b(prefix, digest_size=_HASH_SIZE).digest() + partition.to_bytes(_PARTITION_SIZE, "big")
    numbers = np.arange(first_row, first_row + count, dtype=">u8").view(np.uint8).reshape(count, 8)
    keys = np.empty(count, _KEY)
    keys["constant"] = np.void(constant.hex().upper().encode())
    keys["row"] = _PAIRS.take(numbers[:, -_ROW_SIZE:]).view(_KEY["row"])[:, 0]
    return fixed_width(keys)


def unique_keys_to_write(given: pa.Array, own: pa.LargeBinaryArray | None, count: int) -> pa.LargeBinaryArray:
    """The keys for ``count`` rows, null for the rows that have one of their ``own`` among their properties.

    An empty key says the same as null. ``InvalidValue`` for another number of keys, and for one that is not UTF-8 text
    or holds a separator: the caller makes keys that can be stored.
    """
    if len(given) != count:
        raise InvalidValue(f"{len(given)} unique keys for {count} messages: give one for each.")
    keys = blank_to_null(large_binary_of(given))
    wrong = separator_rows(keys) | illegible_rows(keys)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidValue(
            f"The unique key of row {row} is not UTF-8 text, or holds '\\x01' or '\\x02': {keys[row].as_py()!r}."
        )
    return keys if own is None else _without(keys, own.is_valid().to_numpy(zero_copy_only=False))


def _without(keys: pa.LargeBinaryArray, rows: BoolArray) -> pa.LargeBinaryArray:
    if not rows.any():
        return keys
    valid = keys.is_valid().to_numpy(zero_copy_only=False) & ~rows
    bounds, _ = binary_parts(keys)
    bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(keys.type, len(keys), [bitmap, pa.py_buffer(bounds), keys.buffers()[2]])
