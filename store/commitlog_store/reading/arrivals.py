"""Waits for messages: until one of several queues has a message at its position."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from commitlog_store.files.file_watch import LOOK_AGAIN_SECONDS, FileWatch
from commitlog_store.format.message_rules import check_queue_place
from commitlog_store.paths import CONSUME_QUEUE
from commitlog_store.timestamps import checked_seconds

Positions = Mapping[tuple[str, int], int]


def checked_deadline(positions: Positions, timeout_s: float | None) -> float | None:
    """When a wait ends, on the clock of ``time.monotonic``; None for one without an end. ``InvalidValue``."""
    deadline = None if timeout_s is None else time.monotonic() + checked_seconds("timeout_s", timeout_s)
    for (topic, queue_id), offset in positions.items():
        check_queue_place(topic, queue_id, offset)
    return deadline


def wait_for_files(
    watch: FileWatch,
    path: str,
    positions: Positions,
    timeout_s: float | None,
    is_filled: Callable[[str, int, int], bool],
) -> bool:
    """``StoreReader.wait_for_any`` of the store at ``path``, whose files ``watch`` follows."""
    deadline = checked_deadline(positions, timeout_s)
    queues = os.path.join(path, CONSUME_QUEUE)
    # The gate, which opens after a batch, lies in the store's directory.
    directories = [path, *(os.path.join(queues, topic, str(queue_id)) for topic, queue_id in positions)]
    while True:
        watch.follow(directories)
        if any(is_filled(*queue, offset) for queue, offset in positions.items()):
            return True
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        watch.wait(LOOK_AGAIN_SECONDS if left is None else left)
