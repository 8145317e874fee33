"""Bodies of many records: checks their CRC and unpacks compressed ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.byte_parts import crcs_of
from commitlog_store.columnar.locate import RecordBlock, RecordProblem
from commitlog_store.errors import InvalidValue
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format import compression, sys_flag
from commitlog_store.format.compression import MAX_DECOMPRESSED_SIZE
from commitlog_store.format.record import CRC_MASK, Corrupt, field_offset, header_size

# The fields that the errors of ``verify_crc`` name, and what a caller can do about such a body.
BODY_FIELDS = frozenset({"BODYCRC", "SYSFLAG"})
BODY_ADVICE = (
    "The body is not the one that was stored. on_damage='skip' (--on-damage skip) leaves the message out; "
    "verify_crc=False (--no-verify-crc, in Spark verifyCrc=false) gives the body as it is."
)


class BodiesTooLarge(Exception):
    """Bodies unpack to more bytes than a batch may hold. Those of the first ``rows`` records fit, or ``rows`` is 1.

    The log decodes fewer records then; this never leaves the package.
    """

    def __init__(self, rows: int) -> None:
        super().__init__(f"only the bodies of the first {rows} records fit")
        self.rows = rows


def verify_crc(block: RecordBlock) -> None:
    """Compare every body with its BODYCRC; ``RecordProblem`` for the first that differs.

    Also for the first that is compressed although its SYSFLAG, which no CRC covers, has the type bits only.
    """
    computed = crcs_of(block.stored_bodies)
    stored = block.headers["body_crc"]
    bad = (computed & CRC_MASK) != stored
    if bad.any():
        index = int(np.argmax(bad))
        raise RecordProblem(
            "BODYCRC",
            index=index,
            within=block.where("body_crc", index),
            expected=int(computed[index]) & CRC_MASK,
            found=int(stored[index]),
        )
    _refuse_still_packed(block)


def _refuse_still_packed(block: RecordBlock) -> None:
    """``RecordProblem`` for the first body that is ``still_packed``."""
    plain = (block.sys_flags & sys_flag.COMPRESSED_FLAG) == 0
    typed = (block.sys_flags & sys_flag.COMPRESSION_TYPE_MASK) != 0
    for index in np.flatnonzero(plain & typed).tolist():
        fault = packing_fault(block.stored_bodies[index].as_py(), int(block.sys_flags[index]))
        if fault is not None:
            raise _problem(fault, index)


def packing_fault(stored: bytes, flags: int) -> Corrupt | None:
    """Why readers do not give a body whose CRC is right: it is packed, or not, otherwise than the system flag says.

    None for a body that they give.
    """
    if still_packed(stored, flags):
        expected = f"{flags | sys_flag.COMPRESSED_FLAG:#x}, since the body is a whole compressed stream"
        return Corrupt("SYSFLAG", field_offset("sys_flag"), expected, f"{flags:#x}")
    try:
        plain_body(stored, flags)
    except InvalidValue as error:
        return _not_a_stream(flags, error)
    return None


def _not_a_stream(flags: int, error: InvalidValue) -> Corrupt:
    return Corrupt("BODY", header_size(flags), f"a compressed body as the system flag {flags:#x} says", str(error))


def _problem(fault: Corrupt, index: int) -> RecordProblem:
    return RecordProblem(fault.field, index=index, within=fault.offset, expected=fault.expected, found=fault.found)


def still_packed(stored: bytes, flags: int) -> bool:
    """Whether a body is a compressed stream of the type that the flag names, although the flag does not say so.

    Brokers leave the type bits set when they unpack a body (see ``sys_flag``), so they alone are not damage. No CRC
    covers SYSFLAG: this check shows that its compressed bit was lost. Bodies without type bits pass, since an
    application may have packed such a body itself.
    """
    if flags & sys_flag.COMPRESSED_FLAG or not flags & sys_flag.COMPRESSION_TYPE_MASK:
        return False
    try:
        compression.decompress(stored, sys_flag.compression_type(flags), MAX_DECOMPRESSED_SIZE)
    except InvalidValue:
        return False
    return True


def plain_body(stored: bytes, flags: int) -> bytes:
    """The body as the application sent it, unpacked when the system flag says so.

    ``InvalidValue`` for a stream that is broken, of unknown type, or larger than ``MAX_DECOMPRESSED_SIZE``.
    """
    if not flags & sys_flag.COMPRESSED_FLAG:
        return stored
    return compression.decompress(stored, sys_flag.compression_type(flags), MAX_DECOMPRESSED_SIZE)


def plain_bodies(block: RecordBlock) -> pa.BinaryArray:
    """The bodies, unpacked. ``BodiesTooLarge`` when they take more than the limit, unless the block has only one."""
    bodies = block.stored_bodies
    packed = (block.sys_flags & sys_flag.COMPRESSED_FLAG) != 0
    if not packed.any():
        return bodies
    plain: list[bytes] = []
    sizes = np.where(packed, 0, block.parts.body_lengths)
    taken = 0
    for index in np.flatnonzero(packed).tolist():
        flags = int(block.sys_flags[index])
        try:
            plain.append(plain_body(bodies[index].as_py(), flags))
            sizes[index] = len(plain[-1])
            taken += len(plain[-1])
            if taken > block.body_limit:
                break
        except InvalidValue as error:
            raise _problem(_not_a_stream(flags, error), index) from error
    fitting = int(np.searchsorted(np.cumsum(sizes), block.body_limit, side="right"))
    if fitting < len(sizes) > 1:
        raise BodiesTooLarge(max(fitting, 1))
    return pc.replace_with_mask(bodies, pa.array(packed), pa.array(plain, pa.binary()))
