"""The master that is killed: ``python -m tests.crash_kill.replication_master``, forks as in ``forked_programs``.

Words: role, HOST:PORT to serve slaves on, round, store. It opens the store, says ``open`` and where the log ends, and
puts single messages, tables and batches until it is killed. A line for each that was acknowledged: ``both`` (PUT_OK
under SYNC_MASTER) or ``here`` (no slave has acknowledged it), the round, the number of the first message, how many they
are, and where the log ends after them. Files hold a few dozen messages.
"""

from __future__ import annotations

import random

import pyarrow as pa

from commitlog_store import BrokerRole, Message, MessageStore, MessageStoreConfig, PutMessageStatus
from commitlog_store.errors import PutNotConfirmed
from tests.support.forked_programs import serve

QUEUES = 3
TOPIC = "replicated"
SMALL = {
    "mapped_file_size_commit_log": 16 << 10,
    "mapped_file_size_consume_queue": 100 * 20,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    # Everything is flushed all the time, so that kills meet every step of it.
    "flush_interval_commit_log": 1,
    "flush_commit_log_least_pages": 0,
    "flush_interval_consume_queue": 1,
    "flush_consume_queue_least_pages": 0,
    "flush_consume_queue_thorough_interval": 5,
}
_SLAVES = (PutMessageStatus.SLAVE_NOT_AVAILABLE, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)


def body_of(round_: int, number: int, batch: tuple[int, int] | None = None) -> bytes:
    """Its round and number, and of a batch the number of the first message and how many they are."""
    first, count = batch or (number, 1)
    return b"%d:%d:%d:%d:" % (round_, number, first, count) + b"x" * (number * 7 % 300)


def put_until_killed(role: str, address: str, round_word: str, path: str) -> None:
    round_ = int(round_word)
    chance = random.Random(round_)
    config = MessageStoreConfig.from_mapping(
        SMALL
        | {
            "broker_role": BrokerRole(role),
            "flush_disk_type": "SYNC_FLUSH",
            "ha_listen_address": address,
            "slave_timeout_ms": 500,
        }
    )
    store = MessageStore.open(path, config)
    print("open", store.physical_bounds()[1], flush=True)
    confirmed = "both" if role == "SYNC_MASTER" else "here"
    version = max((one.batch.version for one in store.batches()), default=0)
    number = 0
    while True:
        kind = chance.choice(["one", "one", "one", "table", "batch"])
        # A large batch lies in several files.
        count = {"one": 1, "table": chance.randrange(1, 12), "batch": chance.choice([1, 5, 40, 150])}[kind]
        version += kind == "batch"
        try:
            _put(store, kind, round_, number, count, version)
            where = confirmed
        except PutNotConfirmed as error:
            if error.status not in _SLAVES:
                raise
            where = "here"
        print(where, round_, number, count, store.physical_bounds()[1], flush=True)
        number += count


def _put(store: MessageStore, kind: str, round_: int, first: int, count: int, version: int) -> None:
    numbers = range(first, first + count)
    if kind == "one":
        message = Message(topic=TOPIC, body=body_of(round_, first), queue_id=first % QUEUES, keys=["k"])
        store.put_message(message).raise_for_status()
        return
    queue_ids = pa.array([number % QUEUES for number in numbers], pa.int32())
    if kind == "table":
        table = pa.table({"body": [body_of(round_, number) for number in numbers], "queueId": queue_ids})
        store.put_messages(table, topic=TOPIC).raise_for_status()
        return
    bodies = [body_of(round_, number, (first, count)) for number in numbers]
    with store.transaction("app", version) as batch:
        batch.put_messages(pa.table({"body": bodies, "queueId": queue_ids}), topic=TOPIC)


if __name__ == "__main__":
    serve(put_until_killed)
