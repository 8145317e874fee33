"""Number of queues of each topic, read from outside without owning the store; for staging.

All tasks that stage for one batch choose queues by one such reading, so that a sharding key goes to one queue in all of
them.
"""

from __future__ import annotations

import os
from functools import lru_cache

from commitlog_store.files import disk
from commitlog_store.paths import CONFIG, CONSUME_QUEUE, TOPICS_CONFIG, parse_file_name
from commitlog_store.queue.topic_config import read_topic_config, spread_over, topic_list_signature


def queue_counts(path: str, topic: str | None, default: int) -> dict[str, int]:
    """The number of queues of ``topic``, or of all topics; topics that do not exist are left out.

    A topic that ``topics.json`` does not list has as many queues as exist, and at least ``default``.
    ``CorruptConfig``, ``ReadFailed``.
    """
    listed = _listed(path)
    directory = os.path.join(path, CONSUME_QUEUE)
    present = _names(directory) if topic is None else [topic]
    wanted = {*listed, *present} if topic is None else {topic}
    counts = {name: listed[name] for name in wanted if listed.get(name, 0) > 0}
    for name in wanted - counts.keys():
        highest = max(
            (int(text) for text in _names(os.path.join(directory, name)) if text.isascii() and text.isdigit()),
            default=-1,
        )
        if highest >= 0:
            counts[name] = spread_over(highest + 1, default)
    return counts


def file_size_of(directory: str) -> int:
    """The size of the CommitLog files in a log's directory, in bytes; 0 while it has none."""
    names = sorted(name for name in _names(directory) if parse_file_name(name) is not None)
    return disk.file_size(os.path.join(directory, names[0])) if names else 0


def queue_file_size_of(store_path: str) -> int:
    """The size of the store's consume-queue files in bytes, by the first one that has a size; 0 while it has none."""
    root = os.path.join(store_path, CONSUME_QUEUE)
    for topic in _names(root):
        for queue_id in _names(os.path.join(root, topic)):
            directory = os.path.join(root, topic, queue_id)
            for name in _names(directory):
                size = disk.file_size(os.path.join(directory, name)) if parse_file_name(name) is not None else 0
                if size:
                    return size
    return 0


def _names(directory: str) -> list[str]:
    try:
        return list(disk.list_names(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _listed(path: str) -> dict[str, int]:
    return _parsed(path, topic_list_signature(os.path.join(path, CONFIG, TOPICS_CONFIG)))


@lru_cache(maxsize=8)
def _parsed(path: str, signature: object) -> dict[str, int]:  # noqa: ARG001  # a changed file is another one
    """Batches are planned one after another, so the list is parsed only after a change."""
    return read_topic_config(path)
