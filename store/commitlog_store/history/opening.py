"""Opening of a store with its archive: both must have the same log."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from commitlog_store.archive.manifest import ObjectRef
from commitlog_store.archive.refusals import refuse_selection
from commitlog_store.archive_reader.reader import ArchiveReader, open_archive
from commitlog_store.errors import (
    ArchiveDamaged,
    ArchiveMismatch,
    CommitLogError,
    CorruptRecord,
    MessageNotFound,
    OffsetOutOfRange,
)
from commitlog_store.format.consume_queue_unit import FILLER_SIZE
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
    manifest: ObjectRef | None = None,
) -> HistoryReader:
    """A reader of both. ``live`` is closed where it cannot be made. ``ArchiveMismatch``, and those of ``open``.

    ``manifest``: see ``open_archive``.
    """
    past: ArchiveReader | None = None
    try:
        past = open_archive(archive, on_damage, storage_options, cache_dir, cache_size, manifest)
        refuse_selection(
            past.path, past.selection, "it cannot be read with it as one. Read it alone, by its own address."
        )
        live.consistently(lambda: refuse_other_store(live, past))
        return HistoryReader(live, past, on_damage=on_damage)
    except BaseException:
        live.close()
        if past is not None:
            past.close()
        raise


def refuse_other_store(live: StoreReader, past: ArchiveReader) -> None:
    """``ArchiveMismatch`` where a file that both have begins with different messages, or none can be shared.

    ``ArchiveDamaged`` or ``CorruptRecord`` instead, where the oldest file that both have shows damage: the archive's
    object begins or ends with other bytes than were archived, or a CRC is not that of the body in one of them. Other
    damage, such as that of a header in the store, makes another message, so ``ArchiveMismatch``.

    Each file of a log begins with a record. The oldest and the newest one are compared, and the last record that both
    have of the newest file: the log may have lost its end and grown again, and once retention has deleted what both
    have, the archive's other messages would be read. An archive that ends before the log begins has nothing to compare.
    """
    shared = _shared_files(live, past)
    if not shared:
        return
    mine, theirs = _message(live, shared[0]), _archived(past, shared[0])
    while mine is None and (rest := _shared_files(live, past)) != shared:  # retention has deleted it since
        if not rest:
            return
        shared = rest
        mine, theirs = _message(live, shared[0]), _archived(past, shared[0])
    if mine is None or theirs is None or mine != theirs:
        damage = _damage_of(live, past, shared[0], mine, theirs)
        raise damage or _mismatch(live, past, shared[0], mine, theirs)
    live_end = live.physical_bounds()[1]
    newest = shared[bisect_left(shared, live_end) - 1]
    for place in (newest, _last_record(past, newest, live_end)):
        if place is None or place == shared[0]:
            continue
        mine, theirs, is_corrupt = None, None, False
        try:
            theirs = _message(past, place)
            mine = _message(live, place)
        except CorruptRecord:
            is_corrupt = theirs is not None
        except CommitLogError:
            return  # a read says what is missing or damaged there
        if theirs is None or (mine is None and not _has_other_message(live, theirs, is_corrupt=is_corrupt)):
            return
        if mine != theirs:
            if _damage_of(live, past, newest, mine, theirs) is not None:
                return
            raise _mismatch(live, past, place, mine, theirs)


def _last_record(past: ArchiveReader, segment_start: int, end: int) -> int | None:
    """``ArchiveReader.last_record``; None where that is missing or damaged, as a read of it says."""
    try:
        return past.last_record(segment_start, end)
    except CommitLogError:
        return None


def _has_other_message(live: StoreReader, message: MessageExt, *, is_corrupt: bool) -> bool:
    """Whether the live store, which has no record at the place of a message of the archive, has others around it.

    Its queue says so: it leads elsewhere at the message's offset, or, where bytes of something else are at the place,
    ends before it. A queue that leads there has a damaged record, one that begins after it is that of a log whose file
    retention has deleted, and one that ends before an empty place may belong to a batch that is not shown yet.
    """
    if message.physical_offset < live.log_start():
        return False
    offset = message.queue_offset
    try:
        (unit,) = next(iter(live.units(message.topic, message.queue_id, offset, offset + 1)))
    except OffsetOutOfRange as outside:
        return is_corrupt and offset >= outside.max_offset
    except CommitLogError:
        return False
    return bool(unit["size"] != FILLER_SIZE and unit["physical_offset"] != message.physical_offset)


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
        "archive that was made of this store, or leave it out. If this one was, the record may be damaged: "
        "'commitlog verify' checks the store, and 'commitlog archive --check --deep' the archive. A store that has "
        "lost its end goes into an archive of its own, under another prefix.",
        offset=offset,
    )


def _archived(past: ArchiveReader, segment_start: int) -> MessageExt | None:
    """The first message of a segment. ``ArchiveDamaged`` for an object that begins or ends otherwise than archived."""
    try:
        return _message(past, segment_start)
    except CorruptRecord:
        past.refuse_changed_ends(segment_start)
        raise


def _damage_of(
    live: StoreReader, past: ArchiveReader, segment_start: int, mine: MessageExt | None, theirs: MessageExt | None
) -> CommitLogError | None:
    """What shows that messages of a segment differ by damage; None also where retention has deleted them since."""
    try:
        past.refuse_changed_ends(segment_start)
        for reader, message in ((past, theirs), (live, mine)):
            if message is not None:
                reader.message_at(message.physical_offset)  # compared with its CRC
    except (ArchiveDamaged, CorruptRecord) as error:
        return error
    except MessageNotFound:
        return None
    return None


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
