"""The stores that the table damages: written by this package and by RocketMQ, closed and left open, and older copies.

All of this package's are states of one store, whose directory was copied at these times::

    backup      three of five parts were put, and the store was closed
    torn        a copy beside the owner in the wrong order: the log first, then a part was put, then all else
    killed      all was put, and the owner has not closed the store
    closed      the same, closed
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np

from commitlog_store import Message, MessageStore, MessageStoreConfig
from tests.support import golden

LOG_FILE_SIZE = 64 << 10
QUEUE_FILE_UNITS = 50
PARTS = 5
_PART_ROWS = 80
_CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=LOG_FILE_SIZE,
    mapped_file_size_consume_queue=QUEUE_FILE_UNITS * 20,
    max_hash_slot_num=100,
    max_index_num=400,
)


def copy_store(source: Path, target: Path) -> Path:
    """A copy with the holes of its files: most of a store is zeros."""
    for directory, _, names in os.walk(source):
        there = target / os.path.relpath(directory, source)
        there.mkdir(parents=True, exist_ok=True)
        for name in names:
            _copy_sparse(Path(directory, name), there / name)
    return target


def _copy_sparse(source: Path, target: Path) -> None:
    data = source.read_bytes()
    written = data.rstrip(b"\0")
    target.write_bytes(written)
    if len(written) < len(data):
        os.truncate(target, len(data))
    shutil.copystat(source, target)


class StoreStates:
    """Directories of the states; ``path(name)`` is one, not to be changed."""

    NAMES = ("backup", "torn", "killed", "closed", "rocketmq", "rocketmq-killed")

    def __init__(self, root: Path) -> None:
        self.root = root
        live = root / "live"
        rng = np.random.default_rng(30)
        with MessageStore.open(live, _CONFIG) as store:
            for part in range(3):
                _put_part(store, rng, part)
        copy_store(live, self.path("backup"))
        with MessageStore.open(live, _CONFIG) as store:
            _put_part(store, rng, 3)
            _settle(store)
            copy_store(live / "commitlog", self.path("torn") / "commitlog")
            _put_part(store, rng, 4)
            _settle(store)
            for entry in live.iterdir():
                if entry.is_dir() and entry.name != "commitlog":
                    copy_store(entry, self.path("torn") / entry.name)
                elif entry.is_file():
                    _copy_sparse(entry, self.path("torn") / entry.name)
            copy_store(live, self.path("killed"))
        copy_store(live, self.path("closed"))
        golden.copy_golden(golden.ROCKETMQ_533, self.path("rocketmq"))
        golden.copy_golden(golden.ROCKETMQ_498, self.path("rocketmq-killed"))

    def path(self, name: str) -> Path:
        assert name in self.NAMES
        return self.root / name


def _settle(store: MessageStore) -> None:
    """All is written: log, queues, index, checkpoint and positions."""
    store.flush()
    store.dispatch()
    store.flush()


def _put_part(store: MessageStore, rng: np.random.Generator, part: int) -> None:
    """Rows of three topics, a batch, delayed and half messages, and the position of a group."""
    rows = [
        {
            "topic": ("orders", "orders", "audit", "clicks")[row % 4],
            "queueId": row % 3 if row % 4 < 2 else 0,
            "body": rng.bytes(int(rng.integers(300, 900))),
            "tags": ("paid", "open", None)[row % 3],
            "keys": [f"key-{part}-{row}"],
        }
        for row in range(_PART_ROWS)
    ]
    store.put_messages(rows[:-10]).raise_for_status()
    with store.transaction("loader", version=part) as batch:
        batch.put_messages(rows[-10:])
    store.put("orders", b"later, part %d" % part, delay="2h", keys=[f"later-{part}"])
    half = store.half_messages
    ended = half.prepare(Message(topic="orders", body=b"decided, part %d" % part, queue_id=1), producer_group="pay")
    half.commit(ended)
    half.prepare(Message(topic="orders", body=b"open, part %d" % part, queue_id=1), producer_group="pay")
    with store.consumer("billing", "audit") as consumer:
        consumer.poll(5)
        consumer.commit(sync=True)
