"""State of an export: how far it has come, in a small file beside or in its target, so that it can be resumed.

An export holds a lock beside it (``_export.lock``, ``FILE.export.lock``): two at once would remove each other's rows.

For ``parquet:DIR`` it is ``DIR/_export.json``, for the others ``FILE.export.json``. It is replaced after each finished
file or piece: ``queues`` has the next queue offset of each queue, and ``committed`` the number of finished files or the
length of the file. Rows beyond that are removed when the export is resumed, so each row is there exactly once::

    {"version": 1, "store": "/data/store", "format": "parquet", "columns": ["topic", ...], "tags": ["paid"],
     "queues": {"orders": {"0": 1200, "1": 1187}}, "committed": 3, "rows": 2387, "finished": false,
     "fences": {"orders": {"0": [81920, 305419896], "1": [81032, 2271560481]}}}

``skipped`` (``{"orders": 2}``) counts the messages before these positions that could not be read, by topic: with
``on_damage="skip"``, they are in no row.

``fences`` has the message before the position of each queue: its physical offset and CRC (``reader.Fence``). If the
store loses its end and grows again, other messages get the offsets of exported ones, and only the fence shows it. A
state without fences is of an earlier version of this package, which passes over them in turn.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field

import msgspec
import orjson

from commitlog_store.errors import CorruptConfig, InvalidValue, StoreLocked, TargetFailed
from commitlog_store.export.targets import ExportFormat, ExportTarget, check_file_target
from commitlog_store.files import disk
from commitlog_store.files.store_lock import StoreLock
from commitlog_store.files.whole_file import TEMPORARY_SUFFIX, replace_synced

_FORMAT = 1
_LARGEST = 256 << 20
_IN_DIRECTORY = "_export.json"
_BESIDE_FILE = ".export.json"
_STATE_SUFFIX, _LOCK_SUFFIX = ".json", ".lock"


@dataclass(frozen=True, kw_only=True)
class ExportState:
    """How far an export has come. ``queues`` has the next queue offset, by topic and queue id (as text, for JSON).

    ``fences`` identifies the message before it, by the same keys, where that message exists.
    """

    store: str
    format: str
    columns: list[str]
    tags: list[str] | None
    queues: dict[str, dict[str, int]] = field(default_factory=dict)
    committed: int = 0
    rows: int = 0
    finished: bool = False
    version: int = _FORMAT
    filter: str | None = None
    fences: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    # In object storage (``object_target.py``): each attempt, and the number of its first object.
    parts: list[tuple[str, int]] = field(default_factory=list)

    def check_same(self, other: ExportState, target: ExportTarget) -> None:
        """``InvalidValue`` when ``other``, the options of this call, would make other rows."""
        for name in ("store", "format", "columns", "tags", "filter"):
            began, now = getattr(self, name), getattr(other, name)
            if began != now:
                raise InvalidValue(
                    f"The export to {target} was begun with the {name} {began!r}; it cannot be resumed with {now!r}. "
                    "Resume it with the same options, or export into another target."
                )


def state_path(target: ExportTarget) -> str:
    """The path of the target's state file."""
    if target.format is ExportFormat.PARQUET:
        return os.path.join(target.path, _IN_DIRECTORY)
    return target.path + _BESIDE_FILE


def lock_target(target: ExportTarget) -> StoreLock:
    """The lock of the target, whose directory exists. ``TargetFailed`` while another export holds it; ``OSError``."""
    path = state_path(target).removesuffix(_STATE_SUFFIX) + _LOCK_SUFFIX
    try:
        return StoreLock.acquire(path)
    except StoreLocked as error:
        holder = "another export" if error.holder is None else f"the export of process {error.holder}"
        cause = OSError(errno.EAGAIN, f"{holder} is writing there")
        raise TargetFailed("export to", path=target.path, cause=cause) from error


def load_state(target: ExportTarget) -> ExportState | None:
    """The state of an export that was begun; None when none was. ``CorruptConfig``."""
    path = state_path(target)
    try:
        data = disk.read_file(path, _LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return decode_state(data, path)


def decode_state(data: bytes, path: str) -> ExportState:
    """The state in a file or object. ``CorruptConfig``."""
    try:
        state = msgspec.json.decode(data, type=ExportState)
        if state.version != _FORMAT:
            raise ValueError(f"version {state.version}")
        return state
    except ValueError as error:  # msgspec's errors are among these
        raise CorruptConfig(
            "The state of an export",
            path=path,
            offset=0,
            expected=f"JSON of version {_FORMAT}",
            found=str(error),
            advice="Export into another target.",
        ) from error


def save_state(target: ExportTarget, state: ExportState) -> None:
    """Replace the state file, on the device too. ``OSError``."""
    replace_synced(state_path(target), orjson.dumps(state))


def refuse_used_target(target: ExportTarget) -> None:
    """``InvalidValue`` when something is in the target's place already."""
    path = target.path
    check_file_target(target)
    if target.format is not ExportFormat.PARQUET:
        used = disk.exists(path) and disk.file_size(path) > 0
    else:
        # The lock, and a state file that was being written, are all that a killed export leaves before its first row.
        left = (_IN_DIRECTORY + TEMPORARY_SUFFIX, _IN_DIRECTORY.removesuffix(_STATE_SUFFIX) + _LOCK_SUFFIX)
        names = disk.list_names(path) if disk.is_directory(path) else []
        used = any(name not in left for name in names)
    if used or disk.exists(state_path(target)):
        hint = "" if load_state(target) is None else " To continue the export that was begun there: --resume."
        raise InvalidValue(f"{path} exists already; an export begins in an empty target.{hint}")
