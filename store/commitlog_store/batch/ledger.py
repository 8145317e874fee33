"""The ledger of batches: the last batch that each application committed.

It is derived from the log (invariant 1): the consume queue of the frame topic lists all frames. The copy in
``config/batchLedger.json`` says up to which offset of that queue it is complete, so that few frames are read when a
store is opened. It also keeps applications whose frames retention has removed::

    {"version": 1, "queueOffset": 12, "batches": {"orders-loader": {"version": 7, "fingerprint": "", "rows": 1000,
     "physicalOffset": 123456, "end": 234567, "storeTimestamp": 1700000000000}},
     "lastFrame": {"app": "orders-loader", "version": 7, ...}}

``lastFrame`` is the frame before ``queueOffset``, with the members of a batch; ``app`` is empty for a frame of no
application. When the queue does not have that frame there, the log has lost its end: the file counts frames that are
gone, and others may have their queue offsets. Then all frames are read again. A file without that member is of an
earlier version of this package, which passes over it in turn.

The previous file is kept with ``.bak``, as RocketMQ keeps its own. ``.reserve`` has the space for the next one: on a
full disk the ledger is saved before retention deletes frames, and that must not need new space.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from typing import Annotated, Final, Literal, NamedTuple, Protocol

import msgspec

from commitlog_store.batch.frames import FoundFrame
from commitlog_store.batch_id import BatchId, CommittedBatch, delay_level_of
from commitlog_store.errors import BatchConflict, CorruptConfig, InvalidValue, ReadFailed
from commitlog_store.files import disk
from commitlog_store.files.whole_file import replace_durably, replace_failed, reserve_space
from commitlog_store.format.timestamps import MAX_TIMESTAMP_MS
from commitlog_store.paths import BACKUP_SUFFIX, BATCH_LEDGER, CONFIG, checked_text

_FORMAT: Final = 1
_LARGEST = 256 << 20
# With fewer unsaved frames, the file is not written at a close; the next open reads the frames instead.
_MOST_UNSAVED = 64
# The most bytes of the file without its entries, and of an entry without its texts; a character is escaped in six.
_HEAD_BYTES, _ENTRY_BYTES, _ESCAPED_BYTES = 400, 300, 6
# Space is reserved in steps.
_RESERVE_STEP = 64 << 10


class _LedgerEntry(msgspec.Struct):
    version: int
    fingerprint: str
    rows: int
    physicalOffset: int
    end: int
    storeTimestamp: Annotated[int, msgspec.Meta(ge=0, le=MAX_TIMESTAMP_MS)]

    @classmethod
    def of(cls, batch: CommittedBatch) -> _LedgerEntry:
        identity = batch.batch
        return cls(
            version=identity.version,
            fingerprint=identity.fingerprint,
            rows=batch.rows,
            physicalOffset=batch.physical_offset,
            end=batch.end,
            storeTimestamp=batch.store_timestamp,
        )

    def batch_of(self, app: str) -> CommittedBatch:
        identity = BatchId(app, self.version, self.fingerprint)
        return CommittedBatch(identity, self.physicalOffset, self.end, self.rows, self.storeTimestamp)


class _LastFrame(_LedgerEntry, kw_only=True):
    app: str

    @classmethod
    def of(cls, batch: CommittedBatch) -> _LastFrame:
        return cls(app=batch.batch.app_id, **msgspec.structs.asdict(_LedgerEntry.of(batch)))


class _LedgerFile(msgspec.Struct, omit_defaults=True):
    version: Literal[1]
    queueOffset: int
    batches: dict[str, _LedgerEntry]
    lastFrame: _LastFrame | None = None


class _Saved(NamedTuple):
    """The content of the file: ``last_frame`` is the frame before ``next_offset``, None where it is not known."""

    next_offset: int
    batches: dict[str, CommittedBatch]
    last_frame: CommittedBatch | None


class BatchLedger:
    """The last batch of each application, and up to which frame they are known.

    ``find`` returns the frame record at a physical offset; None when it does not exist any more.
    """

    def __init__(
        self,
        store_path: str,
        batches: dict[str, CommittedBatch],
        next_offset: int,
        find: Callable[[int], FoundFrame | None],
        *,
        saved: dict[str, CommittedBatch],
        last_frame: CommittedBatch | None = None,
        file_is_wrong: bool = False,
    ) -> None:
        """Use ``load_ledger``. ``saved`` are the batches in the file, ``last_frame`` is the one before ``next_offset``.

        ``file_is_wrong``: the file counts frames that the log has lost.
        """
        self.path = os.path.join(store_path, CONFIG, BATCH_LEDGER)
        self.next_offset = next_offset
        self.file_is_wrong = file_is_wrong
        self._store_path = store_path
        self._batches = batches
        self._last_frame = last_frame
        self._find = find
        self._saved = saved
        self._saved_offset = next_offset
        # The most bytes that the next file takes, and the bytes that are known to be reserved for it.
        self._most_bytes = _HEAD_BYTES + sum(_most_bytes_of(one.batch) for one in batches.values())
        self._reserved = 0

    def batches(self) -> list[CommittedBatch]:
        """The last batch of each application, in the order of application ids."""
        return [self._batches[app] for app in sorted(self._batches)]

    def last(self, app_id: str) -> CommittedBatch | None:
        """The application's last batch."""
        return self._batches.get(app_id)

    def add(self, batch: CommittedBatch) -> None:
        """Add a batch that was committed just now; its frame is the next one of the frame topic's queue."""
        self.next_offset += 1
        self._put(batch)

    def _put(self, committed: CommittedBatch) -> None:
        self._last_frame = committed
        app = committed.batch.app_id
        known = self._batches.get(app)
        # Frames that are read once more come before a batch that is known.
        if app and (known is None or known.physical_offset <= committed.physical_offset):
            self._most_bytes += _most_bytes_of(committed.batch) - (0 if known is None else _most_bytes_of(known.batch))
            self._batches[app] = committed

    def reserve_space_for(self, batch: BatchId) -> None:
        """Reserve the space with which the file can be written on a full disk, this batch included.

        ``DiskFull``, ``StoreIOError``: the batch must not be written, since its frame would keep the disk full.
        """
        # It is an application's last batch, and the last frame, too.
        needed = self._most_bytes + 2 * _most_bytes_of(batch)
        if not batch.app_id or needed <= self._reserved:
            return
        size = -(-needed // _RESERVE_STEP) * _RESERVE_STEP
        try:
            reserve_space(self.path, size)
        except OSError as error:
            raise replace_failed(self.path, error) from error
        self._reserved = size

    def read(self, frame: FoundFrame | None) -> None:
        """Add the next frame of the frame topic's queue, in its order; None for a unit without a frame (any more)."""
        self.next_offset += 1
        self._last_frame = None
        if frame is not None:
            self._put(frame.committed())

    def forget(self, app_id: str) -> CommittedBatch | None:
        """Remove an application: its next batch is written, whatever its version. Returns its last batch, if any."""
        return self._batches.pop(checked_text("application", app_id), None)

    def recall(self, batch: CommittedBatch) -> None:
        """Undo ``forget``."""
        self._batches[batch.batch.app_id] = batch

    def check(self, batch: BatchId) -> CommittedBatch | None:
        """The batch if it is in the store already; None if it is to be written. ``BatchConflict``."""
        last = self.last(batch.app_id)
        if last is None or batch.version > last.batch.version:
            return None
        found = self._committed(batch.version, last)
        if found is None:
            if not batch.fingerprint:
                return CommittedBatch(batch, -1, -1, 0, -1, already_there=True)
            raise self._conflict(batch, last, "that version is not among the frames that are left in the log")
        known = found.batch.fingerprint
        if known and batch.fingerprint and known != batch.fingerprint:
            raise self._conflict(batch, last, f"that version is in the store with other contents (fingerprint {known})")
        return CommittedBatch(
            found.batch, found.physical_offset, found.end, found.rows, found.store_timestamp, already_there=True
        )

    def _committed(self, version: int, last: CommittedBatch) -> CommittedBatch | None:
        """An application's batch of a version, searched from the last one backwards."""
        at = last
        while at.batch.version > version:
            frame = self._find(at.physical_offset)
            before = None if frame is None or frame.frame.previous < 0 else self._find(frame.frame.previous)
            # Each points backwards (invariant 9), or following them would not end.
            if before is None or before.physical_offset >= at.physical_offset:
                return None
            if before.frame.batch.app_id != last.batch.app_id:
                return None
            at = before.committed()
        return at if at.batch.version == version else None

    def _conflict(self, batch: BatchId, last: CommittedBatch, why: str) -> BatchConflict:
        return BatchConflict(
            f"Cannot commit {batch} (fingerprint {batch.fingerprint or 'none'}): its last batch in this store is "
            f"{last.batch.version}, and {why}. Was the query restarted from an older copy of its checkpoint? Nothing "
            "was written. Continue with the checkpoint that belongs to the store, or start with a new one. To make "
            "the store forget the query, so that its batches are written again from the checkpoint's position on: "
            f"commitlog txn reset {shlex.quote(self._store_path)} {shlex.quote(batch.app_id)}",
            app_id=batch.app_id,
            version=batch.version,
            committed=last.batch.version,
        )

    @property
    def changed(self) -> bool:
        """Whether the file lacks changes that the frames do not show, or lacks many frames."""
        unsaved = self.next_offset - self._saved_offset
        return self.file_is_wrong or self._saved != self._batches or unsaved >= _MOST_UNSAVED

    @property
    def unsaved_from(self) -> int | None:
        """The physical offset of the first frame that the file lacks and only the log shows; None without any."""
        if self.file_is_wrong:
            return 0  # were the log to begin after lost frames, they would be taken for ones that retention removed
        lacking = [one.physical_offset for app, one in self._batches.items() if self._saved.get(app) != one]
        return min(lacking, default=None)

    def save(self, *, from_reserve: bool = False) -> None:
        """Write the file. All frames up to now must be on the device. ``DiskFull``, ``StoreIOError``.

        ``from_reserve``: on a full disk, in the space that is reserved, since something is to be deleted after it.
        """
        self._reserved = 0  # it may be used up now, and is looked at again
        entries = {app: _LedgerEntry.of(batch) for app, batch in sorted(self._batches.items())}
        last = None if self._last_frame is None else _LastFrame.of(self._last_frame)
        data = msgspec.json.encode(
            _LedgerFile(version=_FORMAT, queueOffset=self.next_offset, batches=entries, lastFrame=last)
        )
        text, backup = msgspec.json.format(data, indent=1), self.path + BACKUP_SUFFIX
        replace_durably(self.path, text, keep_as=backup, from_reserve=from_reserve)
        self._saved, self._saved_offset, self.file_is_wrong = dict(self._batches), self.next_offset, False


def _most_bytes_of(batch: BatchId) -> int:
    """The most bytes that a batch's entry in the file takes."""
    return _ENTRY_BYTES + _ESCAPED_BYTES * (len(batch.app_id.encode()) + len(batch.fingerprint.encode()))


class LedgerSource(Protocol):
    """The source of the ledger: the log, and the consume queue of the frame topic."""

    def log_bounds(self) -> tuple[int, int]:
        """First byte of the log, and its end."""
        ...

    def queue_end(self) -> int:
        """The next offset of the frame topic's queue; 0 when the queue does not exist."""
        ...

    def place(self, queue_offset: int) -> int | None:
        """The physical offset of a frame record; None when retention has removed it."""
        ...

    def frame_at(self, physical_offset: int) -> FoundFrame | None:
        """The frame that begins there; None if none does."""
        ...


def load_ledger(store_path: str, source: LedgerSource) -> BatchLedger:
    """The ledger of a store: the batches in the file, and all frames after it.

    When the log has lost frames that the file counts, or was restored from a copy, all frames are read; of the file
    count the batches that are in the log, and those that retention has removed. ``CorruptConfig`` for a damaged file,
    ``StoreIOError``.
    """
    saved = _load(os.path.join(store_path, CONFIG, BATCH_LEDGER))
    queue_end, bounds = source.queue_end(), source.log_bounds()
    kept = {app: batch for app, batch in saved.batches.items() if _still_there(batch, bounds, source.frame_at)}
    if len(kept) == len(saved.batches) and _counts_what_is_there(saved, queue_end, bounds[0], source):
        next_offset, last, is_wrong = saved.next_offset, saved.last_frame, False
    else:
        # From the first frame on: an earlier batch of an application whose last one is gone may be left.
        next_offset, last, is_wrong = 0, None, True
    ledger = BatchLedger(
        store_path, kept, next_offset, source.frame_at, saved=saved.batches, last_frame=last, file_is_wrong=is_wrong
    )
    while ledger.next_offset < queue_end:
        place = source.place(ledger.next_offset)
        ledger.read(None if place is None else source.frame_at(place))
    return ledger


def _counts_what_is_there(saved: _Saved, queue_end: int, log_start: int, source: LedgerSource) -> bool:
    """Whether the queue of frames has all that the file counts: the last one is in its place, so all before it are."""
    last = saved.last_frame
    if saved.next_offset > queue_end:
        return False
    if last is None or last.physical_offset < log_start:
        return True  # an earlier version does not say which it is, and what retention has removed was there
    place = source.place(saved.next_offset - 1)
    found = None if place is None else source.frame_at(place)
    return found is not None and found.committed() == last


def delivered_offsets(ledger: BatchLedger) -> dict[int, int]:
    """By delay level, the offset of the next message to deliver, as the store's own last delivery left it."""
    levels = ((delay_level_of(one.batch.app_id), one.batch.version) for one in ledger.batches())
    return {level: version for level, version in levels if level is not None}


def last_batch(ledger: BatchLedger, app_id: str) -> BatchId | None:
    """An application's last batch; None without any."""
    last = ledger.last(app_id)
    return None if last is None else last.batch


def saved_batches(store_path: str) -> dict[str, CommittedBatch]:
    """The last batch of each application in the ledger's file alone; none without a file. ``CorruptConfig``."""
    return _load(os.path.join(store_path, CONFIG, BATCH_LEDGER)).batches


def _still_there(batch: CommittedBatch, log_bounds: tuple[int, int], find: Callable[[int], FoundFrame | None]) -> bool:
    if batch.physical_offset < log_bounds[0]:
        return True  # retention has removed the frame
    frame = find(batch.physical_offset) if batch.physical_offset < log_bounds[1] else None
    return frame is not None and frame.frame.batch == batch.batch


def _load(path: str) -> _Saved:
    """The content of the file; nothing without one.

    The previous file counts only when a crash has left no other: batches it lacks may be gone from the log too.
    """
    for name in (path, path + BACKUP_SUFFIX):
        try:
            return _parse(disk.read_file(name, _LARGEST), name)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ReadFailed("read", path=name, cause=error) from error
    return _Saved(0, {}, None)


def _parse(data: bytes, path: str) -> _Saved:
    try:
        found = msgspec.json.decode(data, type=_LedgerFile)
        batches = {app: entry.batch_of(app) for app, entry in found.batches.items()}
        last = found.lastFrame
        return _Saved(found.queueOffset, batches, None if last is None else last.batch_of(last.app))
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidValue, RecursionError) as error:
        raise CorruptConfig(
            "The ledger of batches",
            path=path,
            offset=0,
            expected=f"JSON of version {_FORMAT}",
            found=repr(error),
            advice="Restore it (the previous one has .bak), or remove both: the ledger is then built from the frames "
            "in the log, and lacks queries whose frames retention has removed.",
        ) from error
