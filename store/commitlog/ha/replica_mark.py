"""The mark of a mirror, ``config/replica.json``: the store holds another one's log, and nobody may put into it. ::

    {"master":"10.0.0.5:10912"}

Without it a mirror would become a second master by the first program that opens it.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import msgspec

from commitlog.config import BrokerRole
from commitlog.config_files.json_file import JsonConfigFile
from commitlog.errors import ReplicaStore
from commitlog.files import disk
from commitlog.paths import BACKUP_SUFFIX, CONFIG, REPLICA_MARK

__all__ = ["ReplicaMark", "read_mark", "refuse_replica", "remove_mark", "write_mark"]


class _Content(msgspec.Struct):
    master: str


class ReplicaMark(NamedTuple):
    """The master whose log a mirror holds, as HOST:PORT."""

    master: str


def read_mark(store_path: str) -> ReplicaMark | None:
    """The mark of a store; None where it is not a mirror. ``CorruptConfig``, ``ReadFailed``."""
    file = _file(store_path)
    root = file.read()
    if not root:
        return None
    return ReplicaMark(file.checked(root, _Content, "an object with the text master").master)


def write_mark(store_path: str, mark: ReplicaMark) -> None:
    """Mark a store as a mirror, for its owner. ``StoreIOError``, ``StoreAccessDenied``, ``NotAStore``."""
    if read_mark(store_path) != mark:
        _file(store_path).write(mark._asdict())


def remove_mark(store_path: str) -> None:
    """The store is not a mirror any more; for its owner. ``StoreIOError``."""
    path = _file(store_path).path
    # The copy first: it would count when the file is missing.
    for name in (path + BACKUP_SUFFIX, path):
        if disk.exists(name):
            disk.unlink(name)
    disk.sync_directory(os.path.dirname(path))


def refuse_replica(store_path: str, role: BrokerRole) -> None:
    """``ReplicaStore`` for a mirror that is opened in another role than SLAVE; ``CorruptConfig``, ``ReadFailed``."""
    mark = None if role is BrokerRole.SLAVE else read_mark(store_path)
    if mark is not None:
        raise ReplicaStore(
            f"{store_path} is a mirror of the store at {mark.master}, and takes no other messages. Read it with "
            f"StoreReader; follow its master with commitlog follow. If the master is lost, commitlog promote "
            f"{store_path} makes it a store of its own.",
            path=store_path,
        )


def _file(store_path: str) -> JsonConfigFile:
    return JsonConfigFile(os.path.join(store_path, CONFIG, REPLICA_MARK), "The mark of a mirror")
