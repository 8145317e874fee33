"""``repair_store``: reports damage that keeps a store from being opened, and cuts the log there (invariant 5)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from commitlog.config import MessageStoreConfig
from commitlog.errors import CommitLogError, DamagedLog, InvalidValue
from commitlog.log.owner_directory import OwnerDirectory
from commitlog.log.store_directory import check_store_directory
from commitlog.recovery.log_cut import LostMessages, cut_log, messages_from
from commitlog.recovery.recover import Progress
from commitlog.store import MessageStore

__all__ = ["LostMessages", "RepairReport", "repair_store"]


@dataclass(frozen=True, kw_only=True)
class RepairReport:
    """Report of a repair. ``damage`` is None if the store opens as it is.

    ``lost`` are the messages that a cut removes, or has removed; ``kept_in`` is the directory where a cut has kept
    them, None if nothing was cut.
    """

    path: str
    damage: DamagedLog | None = None
    lost: list[LostMessages] = field(default_factory=list)
    kept_in: str | None = None


def repair_store(
    path: str | os.PathLike[str],
    *,
    cut_at: int | None = None,
    config: MessageStoreConfig | None = None,
    lock_timeout_s: float = 0.0,
    progress: Progress | None = None,
) -> RepairReport:
    """Open a store as its owner would, and close it again; report the damage that keeps it from being opened.

    With ``cut_at``, end its log at that physical offset, which must be that of the damage that opening reports now
    (``DamagedLog.cut_at``), or ``InvalidValue``. A copy of the rest is kept in the store's directory ``repair``.

    The errors of ``MessageStore.open``, except ``DamagedLog``; after a cut that too, for further damage before it.
    ``StoreNotFound`` and ``NotAStore`` if the path is not a store; ``DiskFull`` if the copy has no space, and then
    nothing was cut.
    """
    where = os.path.abspath(os.fspath(path))
    check_store_directory(where)  # or opening would create a store there

    def open_and_close() -> None:
        MessageStore.open(where, config, lock_timeout_s=lock_timeout_s, progress=progress).close()

    try:
        open_and_close()
    except DamagedLog as error:
        damage = error
    else:
        if cut_at is not None:
            raise InvalidValue(f"The store of {where} opens as it is; nothing was cut.")
        return RepairReport(path=where)
    if cut_at is not None and cut_at != damage.cut_at:
        raise InvalidValue(
            f"The log of {where} is to be cut at physical offset {damage.cut_at}, not at {cut_at}; nothing was cut. "
            f"What opening says: {damage}"
        )
    with OwnerDirectory.open(where, lock_timeout_s=lock_timeout_s) as directory:
        lost = messages_from(directory, damage.cut_at)
        kept_in = None if cut_at is None else cut_log(directory, cut_at)
    if kept_in is not None:
        try:
            open_and_close()
        except CommitLogError as error:
            done = f"Before this, the log was cut at physical offset {cut_at}; what was cut off is in {kept_in}."
            error.args = (f"{error} {done}", *error.args[1:])
            raise
    return RepairReport(path=where, damage=damage, lost=lost, kept_in=kept_in)
