"""Producer and consumer in plain Python, without Spark: a durable queue inside one program.

One thread puts messages into a store, some of them in a transaction, which is stored as a whole or not at all. Another
thread follows each queue by its offset and keeps its positions in a file. Run it again on the same directory, and the
consumer continues at these positions.

    python examples/producer_consumer.py [DIRECTORY]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa

from commitlog_store import FlushDiskType, MessageStore, MessageStoreConfig, StoreReader

QUEUES = 2
BATCHES = 5
ROWS = 200

# With SYNC_FLUSH a message that was put survives a stop of the machine. Files of 16 MiB suffice for an example;
# RocketMQ's are of 1 GiB.
CONFIG = MessageStoreConfig(
    flush_disk_type=FlushDiskType.SYNC_FLUSH,
    default_topic_queue_nums=QUEUES,
    mapped_file_size_commit_log=16 << 20,
    max_hash_slot_num=10_000,
    max_index_num=40_000,
)


def produce(store: MessageStore, ended: threading.Event) -> None:
    """Put some tables, then a transaction; ``ended`` is set also after an error."""
    try:
        put_everything(store)
    finally:
        ended.set()


def put_everything(store: MessageStore) -> None:
    for batch in range(BATCHES):
        keys = [f"order-{batch * ROWS + row}" for row in range(ROWS)]
        orders = pa.table({"body": [f"{key} paid" for key in keys], "keys": keys})
        store.put_messages(orders, topic="orders").raise_for_status()
        time.sleep(0.2)
    # Versions go up with every run, so that this one is not taken for a repetition of the last.
    last = {committed.batch.app_id: committed.batch.version for committed in store.batches()}
    with store.transaction("closing-time", version=last.get("closing-time", -1) + 1) as transaction:
        transaction.put_messages(pa.table({"body": ["one more", "the last one"], "queueId": [0, 1]}), topic="orders")
    print(f"Producer: {BATCHES} tables of {ROWS} rows, and a transaction of 2 rows.")


class Positions:
    """The next offset to read of each queue, in a file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.next: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}

    def save(self) -> None:
        unfinished = self._path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(self.next))
        os.replace(unfinished, self._path)


def consume(store: MessageStore, reader: StoreReader, positions: Positions, produced: threading.Event) -> int:
    """Read until the producer has ended and no message is left; the number of messages."""
    total = 0
    while True:
        ended = produced.is_set()  # asked before reading, so that no message comes after the last read
        count = sum(read_new(store, reader, positions, queue_id) for queue_id in range(QUEUES))
        total += count
        if count:
            positions.save()  # after the work: a crash in between repeats these messages and loses none
        elif ended:
            return total


def read_new(store: MessageStore, reader: StoreReader, positions: Positions, queue_id: int) -> int:
    """Wait a moment for messages of one queue, and handle them."""
    start = positions.next.get(str(queue_id), 0)
    if not store.wait_for_messages("orders", queue_id, start, timeout_s=0.1):
        return 0
    count = 0
    for batch in reader.read("orders", queue_id, start, columns=["queueOffset", "body"]):
        count += batch.num_rows
        last = batch.column("body")[-1].as_py().decode()
        print(f"Consumer: queue {queue_id}, {batch.num_rows:>3} messages from {start}, the last one: {last}")
    positions.next[str(queue_id)] = start + count
    return count


def main(directory: Path) -> int:
    """Run both, each in a thread; 0 when the consumer got what the producer put."""
    positions = Positions(directory / "positions.json")
    produced = threading.Event()
    with MessageStore.open(directory / "store", CONFIG) as store, store.reader() as reader:
        producer = threading.Thread(target=produce, args=(store, produced))
        producer.start()
        consumed = consume(store, reader, positions, produced)
        producer.join()
    print(f"Consumed {consumed} messages; the positions are {positions.next}. The store is {directory / 'store'}.")
    return 0 if consumed == BATCHES * ROWS + 2 else 1


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="commitlog-"))))
