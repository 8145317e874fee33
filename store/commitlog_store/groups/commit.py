"""Changing the files of ``config/`` as a store's owner, without opening the store: with its lock, and no recovery.

A broker reads these files when it starts, so a change counts from then on.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from commitlog_store.config import BrokerRole
from commitlog_store.files import disk
from commitlog_store.groups.consumer_offset import ConsumerOffsets
from commitlog_store.log.owner_directory import OwnerDirectory
from commitlog_store.log.store_directory import check_store_directory
from commitlog_store.paths import ABORT, CONSUME_QUEUE, POSITIONS_TOPIC
from commitlog_store.replication.replica_mark import refuse_replica


@contextlib.contextmanager
def owned_config(store_path: str | os.PathLike[str], *, lock_timeout_s: float = 0.0) -> Iterator[str]:
    """Own a store that exists, but open no more than its ``config/``; gives the store's path.

    The errors of ``MessageStore.open`` as to the directory and its lock, ``ReplicaStore`` for a mirror, whose
    configuration is its master's, and ``StoreNotFound``.
    """
    path = disk.absolute_path(store_path)
    check_store_directory(path)
    with OwnerDirectory.open(path, lock_timeout_s=lock_timeout_s):
        refuse_replica(path, BrokerRole.ASYNC_MASTER)
        yield path


def commit_group_offsets(
    store_path: str | os.PathLike[str],
    group: str,
    offsets: Mapping[tuple[str, int], int],
    *,
    lock_timeout_s: float = 0.0,
) -> None:
    """Set positions of a consumer group, ``{(topic, queue id): next queue offset}``, in a store that is not open.

    All of them are on the device when it returns, or none. A broker that owns the store next continues from them.
    ``StoreLocked`` beside an owner, which keeps the positions itself; ``InvalidValue`` for what cannot be a position;
    ``ReplicaStore`` for a mirror; ``StoreNotFound``, ``NotAStore``, ``StoreAccessDenied``, ``CorruptConfig``,
    ``StoreIOError``.

    ::

        commit_group_offsets("/data/store", "billing", {("orders", 0): 120, ("orders", 1): 97})
    """
    with owned_config(store_path, lock_timeout_s=lock_timeout_s) as path:
        set_positions(path, group, offsets)


def set_positions(path: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """``commit_group_offsets`` in a store that the caller owns, and that is not open."""
    positions = ConsumerOffsets(path)
    # After a kill the log may have positions that the file lacks, perhaps in no queue yet; the next open applies them.
    unapplied = os.path.join(path, ABORT), os.path.join(path, CONSUME_QUEUE, POSITIONS_TOPIC)
    if any(disk.exists(place) for place in unapplied):
        positions.set_over_log(group, offsets)
    else:
        positions.commit(group, offsets)
    positions.flush()
