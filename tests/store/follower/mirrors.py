"""Masters and mirrors of small stores, in one process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from commitlog_store import BrokerRole, MessageStore
from commitlog_store.follower.log_follower import LogFollower
from tests.store.owner.owned_store import open_store, small
from tests.support.waiting import WAIT_LIMIT_S


@contextmanager
def master_of(path: Path, **settings: Any) -> Iterator[MessageStore]:
    """A store that serves slaves on a free port of the loopback."""
    with open_store(path, **{"ha_listen_address": "127.0.0.1:0", **settings}) as store:
        yield store


@contextmanager
def follow(master: MessageStore | str, path: Path, **arguments: Any) -> Iterator[LogFollower]:
    """A mirror of a master's store, with small files."""
    address = master if isinstance(master, str) else master.ha_address
    assert address is not None
    settings = arguments.pop("settings", {})
    with LogFollower(address, path, config=small(**settings), **arguments) as follower:
        yield follower


def log_bytes(path: Path, start: int, stop: int) -> bytes:
    """The bytes of a store's log."""
    data = bytearray()
    for file in sorted((path / "commitlog").iterdir()):
        base = int(file.name)
        if base >= stop:
            break  # made ahead: recovery, in another process, may remove it at this moment
        content = file.read_bytes()
        first, last = max(start - base, 0), min(stop - base, len(content))
        if first < last:
            data += content[first:last]
    return bytes(data)


def assert_identical(master: MessageStore, follower: LogFollower) -> None:
    """The mirror has the master's bytes, all of them, and no others."""
    start, end = master.physical_bounds()
    assert follower.wait_for(end, timeout_s=WAIT_LIMIT_S)
    assert follower.status.end == end
    assert log_bytes(Path(follower.path), start, end) == log_bytes(Path(master.path), start, end)


SLAVE = BrokerRole.SLAVE
