"""Copies of the golden store of RocketMQ 4.9.8, damaged in many ways, and what is left of their messages."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from commitlog_store import MessageStoreConfig, StoreReader
from commitlog_store.files.mapped_file_queue import MappedFileQueue
from commitlog_store.log.past_damage import Gap, walk_past_damage
from tests.support.golden import GOLDEN, ROCKETMQ_498

GOLDEN_498 = GOLDEN / ROCKETMQ_498 / "store"
FILE_SIZE = 256 << 10
# RocketMQ's index files take 420 MB.
SMALL_INDEX = MessageStoreConfig(max_hash_slot_num=100, max_index_num=4000)


class Place(NamedTuple):
    """Where a record of the log starts and stops."""

    start: int
    stop: int


def places(store: Path) -> list[Place]:
    """The records of a store's log."""
    files = MappedFileQueue(str(store / "commitlog"))
    files.refresh()
    found = []
    for part in walk_past_damage(files, 0, 2**63 - 1):
        assert not isinstance(part, Gap)
        starts = (part.positions + part.physical_offset).tolist()
        found += [Place(start, start + size) for start, size in zip(starts, part.sizes.tolist(), strict=True)]
    files.close()
    return found


def log_file(store: Path, physical_offset: int) -> Path:
    base = physical_offset - physical_offset % FILE_SIZE
    return store / "commitlog" / f"{base:020d}"


def damaged(target: Path, at: int, data: bytes) -> Path:
    """The log alone, with these bytes at a physical offset."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(GOLDEN_498 / "commitlog", target / "commitlog")
    with log_file(target, at).open("r+b") as file:
        file.seek(at % FILE_SIZE)
        file.write(data[: FILE_SIZE - at % FILE_SIZE])
    return target


def messages(store: Path) -> Counter[tuple[str, int, bytes]]:
    """All messages that a reader sees: topic, queue, body."""
    found: Counter[tuple[str, int, bytes]] = Counter()
    with StoreReader.open(store) as reader:
        for info in [info for topic in reader.topics() for info in reader.queues(topic)]:
            for batch in reader.read(info.topic, info.queue_id, info.min_offset, info.max_offset, columns=["body"]):
                found.update((info.topic, info.queue_id, body) for body in batch.column("body").to_pylist())
    return found
