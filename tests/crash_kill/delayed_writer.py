"""The process of test_delivery_kill.py: puts delayed messages, and delivers them, until it is killed.

``python -m tests.crash_kill.delayed_writer STORE FLUSH FIRST`` puts messages whose bodies are numbers from FIRST on,
and says each number that was acknowledged, one a line.
"""

from __future__ import annotations

import sys

from commitlog_store import FlushDiskType, MessageStore, MessageStoreConfig
from tests.support.delayed import delayed


def config(flush: str) -> MessageStoreConfig:
    """Small files, flushed all the time; what is delayed is due at once, or after a second."""
    return MessageStoreConfig(
        mapped_file_size_commit_log=16 << 10,
        mapped_file_size_consume_queue=200 * 20,
        max_hash_slot_num=100,
        max_index_num=1000,
        flush_disk_type=FlushDiskType(flush),
        flush_interval_commit_log=1,
        flush_commit_log_least_pages=0,
        flush_delay_offset_interval=1,
        message_delay_level="0s 1s",
    )


def _write(path: str, flush: str, number: int) -> None:
    with MessageStore.open(path, config(flush)) as store:
        while True:
            message = delayed(b"%d" % number, 1 + (number % 5 == 0), queue_id=number % 2)
            store.put_message(message).raise_for_status()
            print(number, flush=True)
            number += 1


if __name__ == "__main__":
    _write(sys.argv[1], sys.argv[2], int(sys.argv[3]))
