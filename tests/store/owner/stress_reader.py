"""A reader in a process of its own beside a store that is written: ``python -m tests.store.owner.stress_reader STORE``.

It follows every queue until its standard input ends, and prints how many messages it has seen.
"""

from __future__ import annotations

import os
import select
import sys

from commitlog_store import StoreReader
from commitlog_store.errors import TopicNotFound

TOPIC = "stress"


def follow(reader: StoreReader, seen: dict[int, int]) -> None:
    """Read what is new in every queue; each writer's numbers have to go up by one, without a gap in the queue."""
    try:
        queues = reader.queues(TOPIC)
    except TopicNotFound:
        return
    for queue in queues:
        start = seen.get(queue.queue_id, 0)
        columns = ["queueOffset", "body"]
        for batch in reader.read(TOPIC, queue.queue_id, start, queue.max_offset, columns=columns, verify_crc=True):
            offsets = batch["queueOffset"].to_pylist()
            assert offsets == list(range(start, start + len(offsets))), (queue, start, offsets[:3])
            start += len(offsets)
        assert start == queue.max_offset
        seen[queue.queue_id] = start


def main(path: str) -> None:
    """Follow until stdin has input or ends, and once more."""
    seen: dict[int, int] = {}
    with StoreReader.open(path) as reader:
        print("ready", flush=True)
        while not select.select([sys.stdin], [], [], 0)[0]:
            follow(reader, seen)
            os.sched_yield()
        follow(reader, seen)
    print(sum(seen.values()), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
