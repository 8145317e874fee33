"""A store that ``MessageStore`` made and closed, and functions that damage it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.verify.findings import Finding
from commitlog_store.verify.store import verify_store

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=100 * UNIT_SIZE,
    max_hash_slot_num=100,
    max_index_num=400,
)


def make_store(path: Path, *, count: int = 900, config: MessageStoreConfig = CONFIG) -> Path:
    """``count`` messages in three queues of "orders" and one of "audit", with a key each, over several files."""
    rng = np.random.default_rng(7)
    sizes = rng.integers(20, 400, count).tolist()
    table = pa.table(
        {
            "body": pa.array([rng.bytes(size) for size in sizes], pa.binary()),
            "topic": pa.array(["audit" if row % 5 == 0 else "orders" for row in range(count)]),
            "tags": pa.array([("paid", "open", None)[row % 3] for row in range(count)]),
            "keys": pa.array([f"key-{row}" for row in range(count)]),
            "queueId": pa.array([0 if row % 5 == 0 else row % 3 for row in range(count)]),
        }
    )
    with MessageStore.open(path, config) as store:
        store.put_messages(table).raise_for_status()
    return path


def files(path: Path, directory: str) -> list[Path]:
    """The files of one of a store's directories, in order."""
    return sorted(file for file in (path / directory).iterdir() if file.name.isdigit())


def queue_file(path: Path, topic: str, queue_id: int, offset: int) -> tuple[Path, int]:
    """The file that holds a unit, and the byte where it begins."""
    at = offset * UNIT_SIZE
    base = at - at % CONFIG.mapped_file_size_consume_queue
    return path / "consumequeue" / topic / str(queue_id) / f"{base:020d}", at - base


def message_place(path: Path, topic: str, queue_id: int, offset: int) -> tuple[Path, int, int]:
    """The log file that holds a message, the byte where its record begins, and its size."""
    with StoreReader.open(path) as reader:
        (unit,) = next(iter(reader.units(topic, queue_id, offset, offset + 1)))
    place, size = int(unit["physical_offset"]), int(unit["size"])
    base = place - place % CONFIG.mapped_file_size_commit_log
    return path / "commitlog" / f"{base:020d}", place - base, size


def damage(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int) -> None:
    data = path.read_bytes()
    damage(path, at, bytes([data[at] ^ 0x10]))


def checks(path: Path) -> list[tuple[str, str]]:
    """Check and severity of everything that is found."""
    return [(finding.check, finding.severity) for finding in verify_store(path)]


def only(path: Path, check: str, severity: str = "error", *, opens: bool = True) -> Finding:
    """The one finding there is, which must be of this kind; one more if the store does not open because of it."""
    found = verify_store(path)
    if not opens:
        assert found.pop().check == "opening.refused"
    assert [(one.check, one.severity) for one in found] == [(check, severity)], found
    return found[0]
