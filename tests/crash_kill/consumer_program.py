"""A consumer that copies messages until it is killed: ``python -m tests.crash_kill.consumer_program STORE HOW``.

It copies the topic "in" to the topic "out".
``HOW`` is ``exactly-once`` (positions and copies in one transaction) or ``at-least-once`` (a commit after each copy).
It prints a line for each step, and ends when nothing is left.
"""

from __future__ import annotations

import sys

from commitlog_store import Consumer, FlushDiskType, MessageStore, MessageStoreConfig

CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 20,
    flush_disk_type=FlushDiskType.SYNC_FLUSH,
    flush_consumer_offset_interval=20,
    disk_space_warning_level_ratio=1.0,
)
_STEP = 50


def main(path: str, how: str) -> None:
    step = _in_a_transaction if how == "exactly-once" else _one_after_the_other
    with MessageStore.open(path, CONFIG) as store, store.consumer("copies", "in") as consumer:
        while step(store, consumer):
            print("step", flush=True)
    print("done", flush=True)


def _in_a_transaction(store: MessageStore, consumer: Consumer) -> bool:
    version = max((batch.batch.version for batch in store.batches()), default=0) + 1
    with store.transaction("copies", version) as transaction:
        batch = consumer.poll_batch(_STEP, columns=["body"])
        consumer.commit(in_transaction=transaction)
        if batch is not None:
            transaction.put_messages(batch, topic="out")
    return batch is not None


def _one_after_the_other(store: MessageStore, consumer: Consumer) -> bool:
    batch = consumer.poll_batch(_STEP, columns=["body"])
    if batch is not None:
        store.put_messages(batch, topic="out").raise_for_status()
        consumer.commit()
    return batch is not None


if __name__ == "__main__":
    main(*sys.argv[1:])
