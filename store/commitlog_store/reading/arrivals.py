"""Waits for messages: until one of several queues has a message at its position, or a pull finds one that matches."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from commitlog_store.errors import QueueNotFound, TopicNotFound
from commitlog_store.files.file_watch import LOOK_AGAIN_SECONDS, FileWatch
from commitlog_store.format.message_rules import check_queue_place
from commitlog_store.paths import CONSUME_QUEUE, GATE
from commitlog_store.queue.get_message import GetMessageResult, checked_int, wait_for_match
from commitlog_store.queue.views import ReaderView
from commitlog_store.reading.arguments import Place, checked_positions, checked_queue
from commitlog_store.timestamps import checked_seconds

Positions = Mapping[tuple[str, int], int]


def checked_deadline(positions: Positions, timeout_s: float | None) -> float | None:
    """When a wait ends, on the clock of ``time.monotonic``; None for one without an end. ``InvalidValue``."""
    deadline = None if timeout_s is None else time.monotonic() + checked_seconds("timeout_s", timeout_s)
    for (topic, queue_id), offset in checked_positions(positions).items():
        check_queue_place(topic, queue_id, offset)
    return deadline


def is_any_filled(reader: ReaderView, positions: Positions) -> bool:
    """Whether one of the queues has a message at its position or after it."""
    return any(_is_filled(reader, *queue, offset) for queue, offset in positions.items())


def _is_filled(reader: ReaderView, topic: str, queue_id: int, offset: int) -> bool:
    try:
        return reader.queue_info(topic, queue_id).max_offset > offset
    except (TopicNotFound, QueueNotFound):
        return False


def wait_for_files(reader: ReaderView, watch: FileWatch, positions: Positions, timeout_s: float | None) -> bool:
    """``StoreReader.wait_for_any`` of a store in a directory, whose files ``watch`` follows."""
    deadline = checked_deadline(positions, timeout_s)
    queues = os.path.join(reader.path, CONSUME_QUEUE)
    directories = [os.path.join(queues, topic, str(queue_id)) for topic, queue_id in positions]
    gate = os.path.join(reader.path, GATE)  # it opens after a batch
    while True:
        watch.follow(directories, [gate])
        if is_any_filled(reader, positions):
            return True
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            return False
        watch.wait(LOOK_AGAIN_SECONDS if left is None else left)


def pull_or_wait(
    reader: ReaderView, pull: Callable[[str, int, int], GetMessageResult], place: Place, wait_s: float
) -> GetMessageResult:
    """``StoreReader.get_message``: what ``pull`` answers at a place, or later, after it has waited for messages."""
    topic, queue_id, offset = place
    return wait_for_match(
        lambda position: pull(*checked_queue(topic, queue_id), position),
        lambda position, left: reader.wait_for_any({(topic, queue_id): position}, left),
        checked_int("offset", offset),
        checked_seconds("wait_s", wait_s),
    )
