"""The ``checkpoint`` file: up to which messages the store's files were flushed. Recovery starts from it.

4,096 bytes, big-endian::

    0                  8                  16                 24                 32                 40         4096
    +------------------+------------------+------------------+------------------+------------------+-- - - --+
    | PHYSIC MSG       | LOGICS MSG       | INDEX MSG        | MASTER FLUSHED   | CONFIRM PHY      | zeros   |
    | TIMESTAMP        | TIMESTAMP        | TIMESTAMP        | OFFSET           | OFFSET           |         |
    +------------------+------------------+------------------+------------------+------------------+-- - - --+

The times are store times (ms) of the last message that was flushed to the CommitLog, to the consume queues, and to an
index file; 0 before the first. The two offsets are written by 5.x, and are zeros in a store of 4.x.

What follows is zero in RocketMQ's own checkpoints, and RocketMQ leaves it as it finds it. This package keeps a *mark*
there, in a sector of its own::

    512        516        520                528                536                544                568        576
    +----------+----------+------------------+------------------+------------------+-- - - - ---------+----------+
    | MAGIC    | STATE    | FLUSHED PHYSICAL | END OF THE LOG   | LAST RECORD      | the three times  | QUEUE F.,|
    | "PYCL"   | 0 1      | OFFSET           |                  | (-1 none)        | once more        | INDEX F. |
    +----------+----------+------------------+------------------+------------------+-- - - - ---------+----------+
    576                584                592                600
    +------------------+------------------+------------------+----------+
    | START OF THE LOG | QUEUE ENDS       | SAVED ENDS       | CRC-32   |  of the bytes 512 to 600
    +------------------+------------------+------------------+----------+

STATE is 1 in a store that was closed cleanly; only then are LAST RECORD and QUEUE ENDS meant. With another STATE, END
is that of a closed log whose queues are being rebuilt. QUEUE F. and INDEX F. are how many files consume queues and the
index had: with fewer, files are missing and are to be built again, unless retention has removed them together with log
files before START OF THE LOG. QUEUE ENDS is the sum of the byte positions, in their queues, at which the queues' last
files and their last units end: retention does not change it. SAVED ENDS is the generation of the file ``savedends``
that may be used, 0 for none. The times show whether the mark still belongs to its checkpoint: another program that
wrote the store since has moved them. A mark that does not agree is ignored.

Source: RocketMQ ``store/StoreCheckpoint.java``; the mark is this package's own.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass, fields

from commitlog_store.errors import InvalidValue
from commitlog_store.format.checksum import crc32
from commitlog_store.format.timestamps import MAX_TIMESTAMP_MS
from commitlog_store.java_numbers import MAX_LONG

CHECKPOINT_SIZE = 4096

# RocketMQ's own margin: messages that are this much older than a checkpoint's time are trusted to be flushed.
TRUST_MARGIN_MS = 3_000

# The value of RocketMQ's offsets until replication sets them.
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
_BOUNDS = {"_timestamp": (0, MAX_TIMESTAMP_MS), "_offset": (NO_OFFSET, MAX_LONG)}


def decode_checkpoint(data: bytes) -> Checkpoint:
    """The fields of a checkpoint file's bytes. ``InvalidValue`` for a wrong size, or an impossible time or offset.

    The bytes after the fields are ignored: a later version may use them. The error's text fits after "found".
    """
    if len(data) != CHECKPOINT_SIZE:
        raise InvalidValue(f"a file that should have {CHECKPOINT_SIZE} bytes, not {len(data)}")
    checkpoint = Checkpoint(*_FIELDS.unpack_from(data))
    _check(checkpoint)
    return checkpoint


@dataclass(frozen=True, kw_only=True)
class CheckpointMark:
    """This package's addition to a checkpoint. ``end_offset`` and ``last_record`` are valid only when ``closed``.

    An ``end_offset`` in a mark that is not closed: the store was closed there, and its queues are being rebuilt.
    The numbers of files count those whose names are on the device; 0 claims nothing.
    """

    closed: bool
    flushed_offset: int
    end_offset: int = 0
    last_record: int = NO_OFFSET
    queue_file_count: int = 0
    index_file_count: int = 0
    log_start: int = 0
    queue_ends: int = 0
    saved_ends: int = 0
    """The generation of the file of saved ends (``queue/saved_ends.py``); 0 for none."""


_MARK_AT = 512
_MARK_MAGIC = b"PYCL"
# Magic, state, flushed offset, end, last record, three times, queue files, index files, start of the log, queue ends,
# saved ends.
_MARK = struct.Struct(">4si" + "q" * 6 + "ii" + "qqq")
_MARK_CRC = struct.Struct(">I")

assert _MARK_AT + _MARK.size == 600


def encode_checkpoint(checkpoint: Checkpoint, mark: CheckpointMark | None = None) -> bytes:
    """The bytes of a checkpoint file. ``InvalidValue`` for an impossible time or offset."""
    _check(checkpoint)
    data = _FIELDS.pack(*astuple(checkpoint)).ljust(_MARK_AT, b"\0")
    if mark is not None:
        packed = _MARK.pack(
            _MARK_MAGIC,
            int(mark.closed),
            mark.flushed_offset,
            mark.end_offset,
            mark.last_record,
            *_times(checkpoint),
            mark.queue_file_count,
            mark.index_file_count,
            mark.log_start,
            mark.queue_ends,
            mark.saved_ends,
        )
        data += packed + _MARK_CRC.pack(crc32(packed))
    return data.ljust(CHECKPOINT_SIZE, b"\0")


def has_bytes_of_mark(data: bytes) -> bool:
    """Whether a mark was written into a checkpoint file's bytes, be it one that does not agree with the checkpoint."""
    return any(data[_MARK_AT : _MARK_AT + _MARK.size])


def decode_mark(data: bytes) -> CheckpointMark | None:
    """The mark in a checkpoint file's bytes; None when it is missing or does not agree with the checkpoint."""
    if len(data) != CHECKPOINT_SIZE:
        return None
    packed = data[_MARK_AT : _MARK_AT + _MARK.size]
    magic, state, flushed, end, last, *rest = _MARK.unpack(packed)
    *times, queue_files, index_files, log_start, queue_ends, saved_ends = rest
    (crc,) = _MARK_CRC.unpack_from(data, _MARK_AT + _MARK.size)
    if magic != _MARK_MAGIC or crc != crc32(packed) or tuple(times) != _FIELDS.unpack_from(data)[:3]:
        return None
    return CheckpointMark(
        closed=state == 1,
        flushed_offset=flushed,
        end_offset=end,
        last_record=last,
        queue_file_count=queue_files,
        index_file_count=index_files,
        log_start=log_start,
        queue_ends=queue_ends,
        saved_ends=saved_ends,
    )


def _times(checkpoint: Checkpoint) -> tuple[int, int, int]:
    return checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp, checkpoint.index_msg_timestamp


def _check(checkpoint: Checkpoint) -> None:
    for field in fields(checkpoint):
        value = getattr(checkpoint, field.name)
        low, high = next(bounds for end, bounds in _BOUNDS.items() if field.name.endswith(end))
        if not low <= value <= high:
            raise InvalidValue(f"a {field.name} that should be {low} to {high}, not {value}")
