"""The ``checkpoint`` file: up to which messages the store's files were flushed. Recovery starts from it.

4,096 bytes, big-endian::

    0                  8                  16                 24                 32                 40         4096
    +------------------+------------------+------------------+------------------+------------------+-- - - --+
    | PHYSIC MSG       | LOGICS MSG       | INDEX MSG        | MASTER FLUSHED   | CONFIRM PHY      | zeros   |
    | TIMESTAMP        | TIMESTAMP        | TIMESTAMP        | OFFSET           | OFFSET           |         |
    +------------------+------------------+------------------+------------------+------------------+-- - - --+

The times are store times (ms) of the last message that was flushed to the CommitLog, to the consume queues, and to an
index file; 0 before the first. The two offsets are written by 5.x, and are zeros in a store of 4.x.

Source: RocketMQ ``store/StoreCheckpoint.java``.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, fields

from commitlog.errors import InvalidValue

__all__ = ["CHECKPOINT_SIZE", "MAX_TIMESTAMP_MS", "NO_OFFSET", "Checkpoint", "decode_checkpoint", "encode_checkpoint"]

CHECKPOINT_SIZE = 4096

# The end of the year 9999: the last time that other programs (Spark, Python) can show.
MAX_TIMESTAMP_MS = 253_402_300_799_999

# What RocketMQ starts its offsets from where replication has not set them yet.
NO_OFFSET = -1


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint's fields in the order of the file. Times are milliseconds, offsets are bytes of the CommitLog."""

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int = 0
    confirm_physical_offset: int = 0


_FIELDS = struct.Struct(">" + "q" * len(fields(Checkpoint)))

assert _FIELDS.size == 40

# Lowest and highest value, by the end of the field's name.
_BOUNDS = {"_timestamp": (0, MAX_TIMESTAMP_MS), "_offset": (NO_OFFSET, 2**63 - 1)}


def decode_checkpoint(data: bytes) -> Checkpoint:
    """The fields of a checkpoint file's bytes. ``InvalidValue`` for another size, or a time or offset that cannot be.

    What follows the fields is not looked at: a later version may use it. The error's words fit behind "found".
    """
    if len(data) != CHECKPOINT_SIZE:
        raise InvalidValue(f"a file that should have {CHECKPOINT_SIZE} bytes, not {len(data)}")
    checkpoint = Checkpoint(*_FIELDS.unpack_from(data))
    _check(checkpoint)
    return checkpoint


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The bytes of a checkpoint file. ``InvalidValue`` for a time or offset that cannot be."""
    _check(checkpoint)
    return _FIELDS.pack(*astuple(checkpoint)).ljust(CHECKPOINT_SIZE, b"\0")


def _check(checkpoint: Checkpoint) -> None:
    for field in fields(checkpoint):
        value = getattr(checkpoint, field.name)
        low, high = next(bounds for end, bounds in _BOUNDS.items() if field.name.endswith(end))
        if not low <= value <= high:
            raise InvalidValue(f"a {field.name} that should be {low} to {high}, not {value}")
