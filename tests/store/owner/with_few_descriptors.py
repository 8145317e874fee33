"""A store in a process that may open few files: ``python -m tests.store.owner.with_few_descriptors DIR KIND``.

It lowers its own limit, which cannot be raised again, and prints one line, ``fine``, or fails.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from commitlog_store import Message, MessageStore, StoreReader, verify_store
from tests.store.owner.owned_store import SYNC, open_store, small

MESSAGES = 150
_LIMIT = 128
_SETTINGS: dict[str, dict[str, Any]] = {
    "async": {},
    "sync": {"flush_disk_type": SYNC},
    "lagging": {"flush_interval_commit_log": 600_000},
    "pooled": {"transient_store_pool_enable": True},
}


def main(path: Path, kind: str) -> None:
    """A log of more small files than it may open, or of as many queues: put, read, close, recover."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_LIMIT, _LIMIT))
    if kind == "killed":
        _put_files(open_store(path, mapped_file_size_commit_log=4096))
        os._exit(0)
    elif kind == "recovered":
        with open_store(path) as store:
            assert store.recovered is not None
            _put_files(store)
    elif kind == "queues":
        _put_queues(path)
    else:
        with open_store(path, mapped_file_size_commit_log=4096, **_SETTINGS[kind]) as store:
            _put_files(store)
        with MessageStore.open(path, small(), rebuild=True) as store:
            assert store.recovered is not None
            assert store.recovered.scanned_records == MESSAGES
    assert verify_store(path) == []
    print("fine")


def _put_files(store: MessageStore) -> None:
    for _ in range(MESSAGES):
        store.put_message(Message(topic="orders", body=bytes(3_000), queue_id=0)).raise_for_status()
    store.dispatch()
    assert store.writable, store.flags


def _put_queues(path: Path) -> None:
    table = pa.table({"body": [b"x"] * MESSAGES, "queueId": list(range(MESSAGES))})
    with open_store(path) as store:
        store.put_messages(table, topic="orders").raise_for_status()
        store.dispatch()
        store.put_messages(table, topic="orders").raise_for_status()
    with open_store(path) as store:
        store.put_messages(table, topic="orders").raise_for_status()
        store.dispatch()
        assert store.writable, store.flags
    with StoreReader.open(path) as reader:
        assert {queue.max_offset for queue in reader.queues("orders")} == {3}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
