"""A writer that dies while it makes a file: ``python -m tests.interop.killed_making_a_file STORE DIRECTORY``.

It puts messages until MessageStore has the next file of that directory (``commitlog``, ``consumequeue``, ``index``)
ready, and is killed before the file gets its name.
"""

from __future__ import annotations

import os
import signal
import sys

from commitlog_store import Message, MessageStore, MessageStoreConfig
from commitlog_store.files import disk

MESSAGES_BEFORE = 20
SETTINGS: dict[str, object] = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 37 * 20,
    "max_hash_slot_num": 500,
    # RocketMQ names index files by the millisecond: two that it makes within one, as it recovers, are one file.
    "max_index_num": 2_000,
}


def main(path: str, directory: str) -> None:
    """Put until killed."""
    settings = SETTINGS | {"disk_space_warning_level_ratio": 1.0}
    store = MessageStore.open(path, MessageStoreConfig.from_mapping(settings))
    message = Message(queue_id=0, topic="topic", body=b"x" * 100, keys=["key"])
    for _ in range(MESSAGES_BEFORE):
        store.put_message(message).raise_for_status()
    store.dispatch()
    give_name = disk.give_name

    def killed_before(descriptor: int, path: str) -> None:
        if f"/{directory}/" in path:
            os.kill(os.getpid(), signal.SIGKILL)
        give_name(descriptor, path)

    disk.give_name = killed_before
    while True:
        store.put_message(message).raise_for_status()
        store.dispatch()  # else thousands are put while dispatch makes the file


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
