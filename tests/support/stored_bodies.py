"""The bodies that a store holds, as a reader gives them."""

from __future__ import annotations

from pathlib import Path

from commitlog_store import MessageStore, StoreReader


def bodies(store: MessageStore | Path, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
    """The bodies of a queue in order, from its min offset; what the owner has put before is dispatched first."""
    if isinstance(store, MessageStore):
        store.dispatch()
    with StoreReader.open(store.path if isinstance(store, MessageStore) else store) as reader:
        return _bodies(reader, topic, queue_id)


def topic_bodies(path: Path, topic: str = "orders") -> list[bytes]:
    """The bodies of all queues of a topic, queue by queue; none when the topic does not exist."""
    with StoreReader.open(path) as reader:
        if topic not in reader.topics():
            return []
        return [body for queue in reader.queues(topic) for body in _bodies(reader, topic, queue.queue_id)]


def _bodies(reader: StoreReader, topic: str, queue_id: int) -> list[bytes]:
    start = reader.queue_info(topic, queue_id).min_offset
    found, offsets = [], []
    for batch in reader.read(topic, queue_id, start, columns=["queueOffset", "body"], verify_crc=True):
        offsets += batch["queueOffset"].to_pylist()
        found += batch["body"].to_pylist()
    assert offsets == list(range(start, start + len(found)))
    return found
