"""The mark of a store that takes part in a replication, ``config/replica.json``. ::

    {"state":"mirror","peer":"10.0.0.5:10912","epoch":0,"settings":{"mapped_file_size_consume_queue":6000000}}

==============  =======================================================================================================
state           what it means
==============  =======================================================================================================
``mirror``      the store holds the log of ``peer`` and rejects puts. Without the mark, the first program that opens it
                would make it a second master.
``promoted``    the store was a mirror of ``peer`` and is the master of ``epoch``; ``peer`` has not confirmed it yet.
``superseded``  the store was a master; its mirror has become the master of ``epoch``, as ``peer`` has reported.
==============  =======================================================================================================

``settings`` are those of the peer's configuration that a mirror has taken (``follower/broker_settings.py``), by the
names of ``MessageStoreConfig``: they hold also while the peer cannot be asked, and for the promotion.
"""

from __future__ import annotations

import os
from typing import Literal

import msgspec

from commitlog_store.config import BrokerRole
from commitlog_store.config_files.json_file import JsonConfigFile
from commitlog_store.errors import ReplicaStore, StoreIOError
from commitlog_store.files import disk
from commitlog_store.paths import BACKUP_SUFFIX, CONFIG, REPLICA_MARK


class ReplicaMark(msgspec.Struct, frozen=True):
    """The content. ``peer`` is HOST:PORT."""

    state: Literal["mirror", "promoted", "superseded"]
    peer: str
    epoch: int = 0
    settings: dict[str, int | str] = {}


def read_mark(store_path: str) -> ReplicaMark | None:
    """The mark of a store; None without one. ``CorruptConfig``, ``ReadFailed``."""
    file = _file(store_path)
    root = file.read()
    expected = "an object with state (mirror, promoted or superseded), peer and epoch"
    return file.checked(root, ReplicaMark, expected) if root else None


def write_mark(store_path: str, mark: ReplicaMark) -> None:
    """Mark a store, for its owner. ``StoreIOError``, ``StoreAccessDenied``, ``NotAStore``."""
    if read_mark(store_path) != mark:
        _file(store_path).write(msgspec.to_builtins(mark))


def remove_mark(store_path: str) -> None:
    """The store is one of its own; for its owner. ``StoreIOError``."""
    path = _file(store_path).path
    try:
        # The copy first: it would count when the file is missing.
        for name in (path + BACKUP_SUFFIX, path):
            if disk.exists(name):
                disk.unlink(name)
        disk.sync_directory(os.path.dirname(path))
    except OSError as error:
        raise StoreIOError("remove", path=path, cause=error) from error


def refuse_replica(store_path: str, role: BrokerRole) -> None:
    """``ReplicaStore`` for a mirror, or a superseded master, that is opened in another role than SLAVE.

    ``CorruptConfig``, ``ReadFailed``.
    """
    mark = None if role is BrokerRole.SLAVE else read_mark(store_path)
    if mark is None or mark.state == "promoted":
        return
    if mark.state == "mirror":
        what = f"is a mirror of the store at {mark.peer}, and takes no other messages"
        instead = "Follow its master with commitlog follow. If the master is lost"
    else:
        what = f"was superseded by epoch {mark.epoch} of its mirror, as {mark.peer} has reported"
        instead = "Put to the new master. If that one is lost"
    raise ReplicaStore(
        f"{store_path} {what}. It can be read with StoreReader. {instead}, commitlog promote {store_path} makes it a "
        "store of its own.",
        path=store_path,
    )


def _file(store_path: str) -> JsonConfigFile:
    return JsonConfigFile(os.path.join(store_path, CONFIG, REPLICA_MARK), "The mark of a replica")
