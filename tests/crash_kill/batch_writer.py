"""The processes of test_batch_kill.py: writers that commit batches until they are killed, and a reader beside them.

``python -m tests.crash_kill.batch_writer write`` starts a writer for each line of its input (flush mode, version to
begin with, store): a fork, since importing takes longer than most writers live. It says the writer's process id, then
the writer says ``open`` and each version that is committed, one a line; when it is gone, ``gone``.

``python -m tests.crash_kill.batch_writer read STORE`` looks at the ends of all queues again and again until its input
ends. For each line of it, it says how many different ends it has seen, after one more look. Anything between two
batches is an error.
"""

from __future__ import annotations

import os
import random
import select
import sys
import time
from collections.abc import Iterator

import pyarrow as pa

from commitlog_store import FlushDiskType, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.errors import QueueNotFound, TopicNotFound

APP = "loader"
TOPIC = "batches"
QUEUES = 3
SMALL = {
    "mapped_file_size_commit_log": 16 << 10,
    "mapped_file_size_consume_queue": 200 * 20,
    # Everything is flushed all the time, so that kills meet every step of it.
    "flush_interval_commit_log": 1,
    "flush_commit_log_least_pages": 0,
    "flush_interval_consume_queue": 1,
    "flush_consume_queue_least_pages": 0,
    "flush_consume_queue_thorough_interval": 5,
}
_MOST_ROWS = 400


def rows_of(version: int) -> int:
    """How many rows the batch of a version has."""
    return random.Random(version).choice([1, 2, 5, 40, random.Random(~version).randrange(1, _MOST_ROWS + 1)])


def bodies_of(version: int) -> list[bytes]:
    return [b"%d:%d:" % (version, row) + b"x" * (row * 7 % 150) for row in range(rows_of(version))]


def ends_after() -> Iterator[tuple[int, ...]]:
    """The ends of all queues with no batch, with the first (which is version 1), with the first two, and so on."""
    ends, version = [0] * QUEUES, 0
    while True:
        yield tuple(ends)
        version += 1
        for row in range(rows_of(version)):
            ends[row % QUEUES] += 1


def write(flush: str, version: int, path: str) -> None:
    """Commit until killed."""
    config = MessageStoreConfig(**SMALL, flush_disk_type=FlushDiskType(flush))  # type: ignore[arg-type]
    store = MessageStore.open(path, config)
    print("open", flush=True)
    while True:
        bodies = bodies_of(version)
        table = pa.table(
            {"body": bodies, "queueId": pa.array([row % QUEUES for row in range(len(bodies))], pa.int32())}
        )
        # Also when the batch is committed already: its rows are skipped then.
        with store.transaction(APP, version, f"{len(bodies)} rows") as batch:
            batch.put_messages(table, topic=TOPIC)
        print(version, flush=True)
        version += 1


def start_writers() -> None:
    for line in sys.stdin:
        flush, version, path = line.rstrip("\n").split(" ", 2)
        child = os.fork()
        if not child:
            try:
                write(flush, int(version), path)
            finally:
                sys.stderr.flush()
                os._exit(1)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("\ngone", flush=True)  # the writer may have been killed within a line


def read(path: str) -> None:
    boundaries = ends_after()
    last, looks, different = next(boundaries), 0, 0
    reader = StoreReader.open(path)
    queues = [(TOPIC, queue_id) for queue_id in range(QUEUES)]
    while True:
        is_asked = bool(select.select([sys.stdin], [], [], 0)[0])
        if is_asked and not sys.stdin.readline():
            return
        looks += 1
        try:
            ends = tuple(info.max_offset for info in reader.queue_infos(queues))
        except (TopicNotFound, QueueNotFound):
            ends = last
        different += ends != last
        while last < ends:
            last = next(boundaries)
        assert last == ends, f"look {looks} saw {ends}, and a batch ends at {last}"
        if is_asked:
            print(different, flush=True)
        if looks % 500 == 0:
            reader.close()
            reader = StoreReader.open(path)
        time.sleep(0.0002)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        start_writers()
    else:
        read(sys.argv[2])
