"""promote: makes a mirror a store of its own, when its master is lost."""

from __future__ import annotations

import errno
import os
import time
from typing import NamedTuple

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import InvalidValue, StoreIOError
from commitlog_store.files import disk
from commitlog_store.follower.broker_settings import with_settings_of_broker
from commitlog_store.log.owner_directory import OwnerDirectory
from commitlog_store.owned_store.opening import StoreOpening
from commitlog_store.recovery.recover import Recovered
from commitlog_store.recovery.start import OpenWishes
from commitlog_store.replication.replica_mark import ReplicaMark, read_mark, remove_mark, write_mark


class Promotion(NamedTuple):
    """What a promotion did. ``recovered`` is None for a mirror that was closed; else it says what was cut off.

    ``epoch`` is the store's from now on, ``end`` the physical offset after the last message of the old master.
    """

    old_master: str
    epoch: int
    end: int
    recovered: Recovered | None


def promote(path: str | os.PathLike[str], *, lock_timeout_s: float = 0.0) -> Promotion:
    """Make the mirror at ``path`` a store that takes messages. No follower and no owner may have it open.

    Recovery runs first, as after any crash: what is not whole is cut off, with its report. Then the next epoch begins,
    by a record in the log. Opened as a master, the store reports to the old one, when that is available again,
    that it is superseded.

    ``InvalidValue`` for a store that is not a mirror; the errors of ``MessageStore.open``. After an error the store is
    still a mirror. ::

        with MessageStore.open("/data/store", MessageStoreConfig(ha_listen_address="127.0.0.1:0")) as master:
            with LogFollower(master.ha_address, "/data/store-mirror") as follower:
                follower.wait_for(master.physical_bounds()[1], timeout_s=60)
        print(promote("/data/store-mirror").epoch)
        with MessageStore.open("/data/store-mirror") as store:
            store.put("orders", b"to the new master")
    """
    place, mark = disk.absolute_path(path), promotable(path)
    # No thread of it may put anything before the epoch begins.
    config = with_settings_of_broker(MessageStoreConfig(schedule_enable=False), mark.settings)
    opening = StoreOpening(
        place, config, lock_timeout_s=lock_timeout_s, wishes=OpenWishes(), progress=None, takes_replica=True
    )
    try:
        owned = opening.run()
    except BaseException:
        opening.undo()
        raise
    try:
        end = owned.engine.log.files.max_wrote
        epoch = owned.engine.run(owned.engine.batches.begin_epoch)
        if mark.state == "mirror":
            write_mark(place, ReplicaMark("promoted", mark.peer, epoch))
        else:
            remove_mark(place)
        return Promotion(mark.peer, epoch, end, owned.engine.log.recovered)
    finally:
        owned.close()


def promotable(path: str | os.PathLike[str]) -> ReplicaMark:
    """The mark of a store that can be promoted. ``InvalidValue`` for another one."""
    place = disk.absolute_path(path)
    mark = read_mark(place)
    if mark is None or mark.state == "promoted":
        raise InvalidValue(f"{place} is not a mirror, nor a superseded master; only such a store is promoted.")
    return mark


def move_aside(path: str | os.PathLike[str], *, lock_timeout_s: float = 0.0) -> str:
    """Give a mirror another name beside its own, so that a new one can begin in its place. Returns that name.

    Nothing of it is lost; readers that have it open read on. ``InvalidValue`` for a store that is not a mirror;
    ``StoreLocked`` while it is followed; ``StoreIOError``.
    """
    place = disk.absolute_path(path)
    mark = read_mark(place)
    if mark is None or mark.state == "promoted":
        raise InvalidValue(f"{place} is not a mirror: there is nothing to begin again.")
    target = f"{place}.{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    directory = OwnerDirectory.open(place, lock_timeout_s=lock_timeout_s)
    try:
        if disk.exists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        disk.rename(place, target)
        disk.sync_directory(os.path.dirname(place))
    except OSError as error:
        raise StoreIOError("rename", path=place, cause=error) from error
    finally:
        directory.close(clean=False)
    return target
