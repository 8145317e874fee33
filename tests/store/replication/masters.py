"""Masters with small files and short intervals, and what their logs hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from commitlog_store import BrokerRole, MessageStore
from tests.store.owner.owned_store import open_store, put_ok
from tests.support.waiting import wait_for

ANY_PORT = "127.0.0.1:0"
SYNC_MASTER = BrokerRole.SYNC_MASTER


def open_master(path: Path, **settings: Any) -> MessageStore:
    return open_store(path, **{"ha_listen_address": ANY_PORT, "slave_timeout_ms": 60_000} | settings)


def fill(store: MessageStore, messages: int = 100, size: int = 400) -> int:
    """Put messages, by default three files of them; returns where the log ends."""
    for number in range(messages):
        put_ok(store, body=b"%0*d" % (size, number))
    return store.physical_bounds()[1]


def log_bytes(store: MessageStore, start: int, end: int) -> bytes:
    """The bytes of the log's files."""
    files = sorted(file for file in Path(store.path, "commitlog").iterdir() if file.name.isdigit())
    first = int(files[0].name)
    return b"".join(file.read_bytes() for file in files)[start - first : end - first]


def wait_for_slaves(store: MessageStore, count: int = 1) -> None:
    """Return when that many slaves have asked for the log, no more and no less."""
    wait_for(lambda: [slave.request_offset >= 0 for slave in store.slaves()] == [True] * count)
