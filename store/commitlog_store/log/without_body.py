"""A record of one file, read without its body: what a question for its store time needs."""

from __future__ import annotations

from commitlog_store.files.mapped_file import MappedFile
from commitlog_store.format.record import Decoded, decode_without_body

# Most messages fit in so many bytes, which take one call. Of longer ones, what follows the body takes another.
_FIRST_READ = 4096


def record_without_body(file: MappedFile, physical_offset: int) -> Decoded:
    """The record at a place of a file, its body ``b""``; or what is there. All fields are checked but the body's CRC.

    The errors of ``MappedFile.read``.
    """
    position = physical_offset - file.base

    def read(start: int, length: int) -> bytes:
        return file.read(position + start, length)

    return decode_without_body(
        file.read(position, _FIRST_READ), file.size - position, read, physical_offset=physical_offset
    )
