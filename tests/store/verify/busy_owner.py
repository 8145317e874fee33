"""An owner that changes everything a store has, until it is ended, for tests that look at the store beside it.

python -m tests.store.verify.busy_owner STORE
"""

from __future__ import annotations

import random
import sys

from commitlog_store import Message, MessageStore, MessageStoreConfig

_CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=64 << 10,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=100,
    max_index_num=400,
)


def main(path: str) -> None:
    chance = random.Random(1)
    with MessageStore.open(path, _CONFIG) as store:
        store.put("t1", b"first", queue_id=0)
        print("open", flush=True)
        turn = 0
        while True:
            turn += 1
            change(store, turn, chance)


def change(store: MessageStore, turn: int, chance: random.Random) -> None:
    """One round: puts always, and each other change now and then."""
    rows = [
        {"topic": f"t{row % 5}", "body": b"x" * chance.randrange(300), "keys": [f"{turn}-{row}"], "queueId": row % 3}
        for row in range(40)
    ]
    store.put_messages(rows).raise_for_status()
    store.put("delayed", b"later", delay="1s", keys=["d"])
    if turn % 7 == 0:
        store.commit_group_offsets("billing", {("t1", 0): store.get_message("t1", 0, 0).next_begin_offset})
    if turn % 10 == 0:
        with store.transaction("loader", turn) as batch:
            batch.put_messages([{"topic": "t9", "body": b"b"}] * 50)
    if turn % 15 == 0:
        store.clean(max_bytes=300 << 10)
    if turn % 20 == 0:
        store.half_messages.commit(store.half_messages.prepare(Message(topic="t1", body=b"half"), "payments"))
    if turn % 25 == 0:
        store.delete_topic(f"t{turn // 25 % 5}", with_messages=True)


if __name__ == "__main__":
    main(sys.argv[1])
