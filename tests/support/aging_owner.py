"""Another process that fills a store, archives it, and deletes what is archived: ``python -m tests.support.aging_owner
STORE ARCHIVE``.

Message *n* has the body ``n`` in decimal digits, and is in queue *n* modulo 2 of ``orders``. It archives and deletes
after every 40 messages, so that few log files are left, and ends when its standard input does; then it prints how many
messages it has put.
"""

from __future__ import annotations

import sys
import threading

from commitlog_store import Message, MessageStore, MessageStoreConfig
from commitlog_store.archive.archiver import archive_store

QUEUES = 2
_STEP = 40
_PAUSE_S = 0.1
_SETTINGS = MessageStoreConfig(
    mapped_file_size_commit_log=4 << 10,
    mapped_file_size_consume_queue=20 * 10,
    max_hash_slot_num=50,
    max_index_num=60,
)


def main(path: str, archive: str) -> None:
    """Fill, archive and delete until standard input ends."""
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    number = 0
    with MessageStore.open(path, _SETTINGS) as store:
        while not ended.wait(_PAUSE_S if number else 0):
            for _ in range(_STEP):
                store.put_message(
                    Message(topic="orders", body=b"%d" % number, tags="ab"[number // 2 % 2], queue_id=number % QUEUES)
                ).raise_for_status()
                number += 1
            store.dispatch()
            archive_store(path, archive)
            store.clean(max_bytes=16 << 10)
            print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
