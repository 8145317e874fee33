"""The process that is killed: ``python -m tests.crash_kill.writer SYNC_FLUSH|ASYNC_FLUSH STORE ROUND``.

It says ``opening``, opens the store (with what recovery that takes), says ``open``, and puts messages in every way
until it is killed, one acknowledgement a line: queue, queue offset, number of messages, body of the first, and its
message id.
Every body names the round and counts up, so that their order in a queue is known. Files hold a few dozen messages.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pyarrow as pa

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig

QUEUES = 3
TOPIC = "kills"
SMALL = {
    "mapped_file_size_commit_log": 8 << 10,
    "mapped_file_size_consume_queue": 40 * 20,
    "max_hash_slot_num": 20,
    "max_index_num": 80,
    # Everything is flushed all the time, so that kills meet every step of it.
    "flush_interval_commit_log": 1,
    "flush_commit_log_least_pages": 0,
    "flush_interval_consume_queue": 1,
    "flush_consume_queue_least_pages": 0,
    "flush_consume_queue_thorough_interval": 5,
}


def body_of(round_: int, number: int) -> bytes:
    return b"%d:%d:" % (round_, number) + b"x" * (number * 7 % 300)


def main(flush: str, path: str, round_: int) -> None:
    """Put until killed."""
    chance = random.Random(round_)
    config = MessageStoreConfig(**SMALL, flush_disk_type=FlushDiskType(flush))  # type: ignore[arg-type]
    print("opening", flush=True)
    store = MessageStore.open(Path(path), config)
    print("open", flush=True)
    number = 0
    while True:
        queue_id, kind = chance.randrange(QUEUES), chance.choice(["one", "one", "one", "batch", "table"])
        count = 1 if kind == "one" else chance.randrange(1, 12)
        bodies = [body_of(round_, number + at) for at in range(count)]
        number += count
        first = _put(store, kind, queue_id, bodies)
        print(queue_id, first[0], count, f"{round_}:{number - count}", first[1], flush=True)


def _put(store: MessageStore, kind: str, queue_id: int, bodies: list[bytes]) -> tuple[int, str]:
    """Queue offset and message id (of a table: none) of the first message."""
    if kind == "table":
        table = pa.table({"body": bodies, "queueId": [queue_id] * len(bodies), "keys": ["k"] * len(bodies)})
        result = store.put_messages(table, topic=TOPIC).raise_for_status()
        return result.rows["queueOffset"][0].as_py(), "-"
    messages = [Message(topic=TOPIC, body=body, queue_id=queue_id, keys=["k"]) for body in bodies]
    put = (store.put_message(messages[0]) if kind == "one" else store.put_message_batch(messages)).raise_for_status()
    return put.queue_offset, put.message_id.split(",")[0]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
