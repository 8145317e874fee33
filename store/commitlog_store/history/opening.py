"""Opening of a store with its archive: both must have the same log."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from commitlog_store.archive_reader.opening import open_archive
from commitlog_store.archive_reader.reader import ArchiveReader
from commitlog_store.errors import ArchiveMismatch, CommitLogError, MessageNotFound
from commitlog_store.history.reader import HistoryReader
from commitlog_store.message import MessageExt
from commitlog_store.reader import OnDamage, StoreReader


def open_history(
    live: StoreReader,
    archive: str,
    on_damage: OnDamage,
    storage_options: Mapping[str, str] | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | None = None,
) -> HistoryReader:
    """A reader of both. ``live`` is closed where it cannot be made. ``ArchiveMismatch``, and those of ``open``."""
    past: ArchiveReader | None = None
    try:
        past = open_archive(archive, on_damage, storage_options, cache_dir, cache_size)
        live.consistently(lambda: refuse_other_store(live, past))
        return HistoryReader(live, past, on_damage=on_damage)
    except BaseException:
        live.close()
        if past is not None:
            past.close()
        raise


def refuse_other_store(live: StoreReader, past: ArchiveReader) -> None:
    """``ArchiveMismatch`` where a file that both have begins with different messages, or none can be shared.

    Each file of a log begins with a record. The oldest and the newest one are compared: the log may have lost its end
    and grown again, and once retention has deleted what both have, the archive's other messages would be read. An
    archive that ends before the log begins has nothing to compare.
    """
    shared = _shared_files(live, past)
    if not shared:
        return
    mine, theirs = _message(live, shared[0]), _message(past, shared[0])
    while mine is None and (rest := _shared_files(live, past)) != shared:  # retention has deleted it since
        if not rest:
            return
        shared = rest
        mine, theirs = _message(live, shared[0]), _message(past, shared[0])
    if mine is None or theirs is None or mine != theirs:
        raise _mismatch(live, past, shared[0], mine, theirs)
    newest = shared[bisect_left(shared, live.physical_bounds()[1]) - 1]
    if newest <= shared[0]:
        return
    try:
        mine, theirs = _message(live, newest), _message(past, newest)
    except CommitLogError:
        return  # a read says what is missing or damaged there
    if mine is not None and theirs is not None and mine != theirs:
        raise _mismatch(live, past, newest, mine, theirs)


def _shared_files(live: StoreReader, past: ArchiveReader) -> Sequence[int]:
    """The first offsets of the archive's segments that the log has now."""
    start = live.log_start()
    bases = past.segment_starts()
    return bases[bisect_left(bases, start) :] if start >= 0 else []


def _mismatch(
    live: StoreReader, past: ArchiveReader, offset: int, mine: MessageExt | None, theirs: MessageExt | None
) -> ArchiveMismatch:
    return ArchiveMismatch(
        f"{past.path} is not an archive of {live.path}, or one of them has lost its end and grown again: at "
        f"physical offset {offset} the archive has {_shown(theirs)}, and the store {_shown(mine)}. Name the "
        "archive that was made of this store, or leave it out.",
        offset=offset,
    )


def _message(reader: StoreReader, physical_offset: int) -> MessageExt | None:
    try:
        return reader.message_at(physical_offset, verify_crc=False)
    except MessageNotFound:
        return None


def _shown(message: MessageExt | None) -> str:
    if message is None:
        return "no message"
    return (
        f"offset {message.queue_offset} of topic {message.topic!r}, queue {message.queue_id}, stored at "
        f"{message.store_timestamp} ms"
    )
