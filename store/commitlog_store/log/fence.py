"""Fence: the identity of a message, by which a reader checks that a position still names the same one."""

from __future__ import annotations

from typing import NamedTuple

from commitlog_store.format.checksum import crc32
from commitlog_store.log.commit_log import CommitLog

__all__ = ["Fence", "fence_at"]


class Fence(NamedTuple):
    """Identity of a message: differs for another one that got its queue offset after the store lost its tail.

    ``crc`` is the CRC-32 of the record's first 88 bytes, its BODYCRC and store time among them.
    """

    physical_offset: int
    crc: int


def fence_at(commit_log: CommitLog, physical_offset: int) -> Fence | None:
    """The fence of the record at a physical offset; None outside the log and where nothing was written."""
    head = commit_log.header(physical_offset)
    return None if head is None else Fence(physical_offset, crc32(head))
