"""Names of queues in an archive's binary objects: topics, and queues that point to them.

Part of ``unit_objects`` and ``catalog``, which give the counts. Big-endian::

    topic lengths    4 bytes a topic: of its UTF-8 bytes
    topics           the UTF-8 bytes of all topics, back to back
    queues           one entry a queue, whose first two fields are: topic (4 bytes, its index), queue id (4 bytes)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

QueueName: TypeAlias = tuple[str, int]
"""Topic and queue id."""

Structured: TypeAlias = npt.NDArray[np.void]

_LENGTH = np.dtype(">u4")


def topic_indexes(queues: Sequence[QueueName]) -> dict[str, int]:
    """Every topic of the queues, in order of appearance, and its index."""
    indexes: dict[str, int] = {}
    for topic, _ in queues:
        indexes.setdefault(topic, len(indexes))
    return indexes


def encode_topics(topics: Sequence[str]) -> bytes:
    """Lengths and bytes of the topics."""
    encoded = [topic.encode() for topic in topics]
    return np.array([len(one) for one in encoded], _LENGTH).tobytes() + b"".join(encoded)


def decode_topics(data: memoryview, count: int) -> tuple[list[str], int]:
    """The topics with which ``data`` begins, and where they end. ``ValueError``."""
    at = count * _LENGTH.itemsize
    lengths = np.frombuffer(data[:at], _LENGTH, count)
    topics = []
    for length in lengths.tolist():
        topics.append(str(data[at : at + length], "utf-8"))
        at += length
    if at > len(data):
        raise ValueError(f"its topics end after {at} bytes, of {len(data)}")
    return topics, at


def queue_names(topics: Sequence[str], entries: Structured) -> list[QueueName]:
    """The names of the queues. ``ValueError``."""
    indexes = entries["topic"]
    if len(entries) and not 0 <= int(indexes.min()) <= int(indexes.max()) < len(topics):
        raise ValueError(f"a queue is of topic {int(indexes.max())}, and it has {len(topics)} topics")
    return [
        (topics[index], queue_id)
        for index, queue_id in zip(indexes.tolist(), entries["queue_id"].tolist(), strict=True)
    ]
