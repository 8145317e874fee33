"""Refusal of a store whose queues lead to a log that is not there: an empty answer would be wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator

from commitlog_store.errors import LogNotFound
from commitlog_store.files import disk
from commitlog_store.files.error_paths import failed_reads
from commitlog_store.log.commit_log import CommitLog
from commitlog_store.paths import CONSUME_QUEUE, is_system_topic, parse_file_name
from commitlog_store.queue.written_units import last_written


def refuse_lost_log(store_path: str, commit_log: CommitLog) -> None:
    """``LogNotFound`` if the log has no file and a queue has units. A store without messages, or a new one, may be so.

    Takes constant time where the log has files.
    """
    commit_log.refresh()
    if commit_log.file_count:
        return
    topic = _topic_with_units(os.path.join(store_path, CONSUME_QUEUE))
    # An owner makes the log's first file before the first unit: look again, after it.
    commit_log.refresh()
    if topic is not None and not commit_log.file_count:
        raise LogNotFound.at(commit_log.path, f"the queues of topic {topic!r} lead to messages in it")


def _topic_with_units(path: str) -> str | None:
    """The first topic of which a queue has a unit; one of a user, if any has."""
    for topic in sorted(_names(path), key=is_system_topic):
        for queue in _names(os.path.join(path, topic)):
            directory = os.path.join(path, topic, queue)
            names = [name for name in _names(directory) if parse_file_name(name) is not None]
            if any(_has_units(os.path.join(directory, name)) for name in names):
                return topic
    return None


def _names(path: str) -> Iterator[str]:
    return iter(sorted(disk.list_names(path)) if disk.is_directory(path) else [])


def _has_units(path: str) -> bool:
    try:
        descriptor = disk.open_file(path)
    except FileNotFoundError:
        return False
    try:
        with failed_reads(path):
            return last_written(descriptor) > 0
    finally:
        disk.close(descriptor)
