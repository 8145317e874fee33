"""Shapes of stores with many queues: topics, and queues of each; ``SCALE_QUEUES`` names others, as ``5000,200x16``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

BODY = bytes(100)
_ROWS_A_CALL = 10_000


class Shape(NamedTuple):
    """So many topics, with so many queues each."""

    topics: int
    queues_each: int = 1

    @property
    def queues(self) -> int:
        return self.topics * self.queues_each

    def __str__(self) -> str:
        if self.queues_each == 1:
            return f"{self.topics:,} queues"
        return f"{self.topics:,} topics of {self.queues_each} queues"

    def places(self) -> list[tuple[str, int]]:
        """Topic and queue id of each queue."""
        return [(topic_name(topic), queue_id) for topic in range(self.topics) for queue_id in range(self.queues_each)]

    def tables(self) -> Iterator[pa.Table]:
        """A message of 100 B for each queue, 10,000 rows at a time."""
        places = self.places()
        for first in range(0, len(places), _ROWS_A_CALL):
            topics, queue_ids = zip(*places[first : first + _ROWS_A_CALL], strict=True)
            yield pa.table({"topic": topics, "queueId": pa.array(queue_ids, pa.int32()), "body": [BODY] * len(topics)})


def topic_name(number: int) -> str:
    return f"topic-{number:06d}"


def shapes(*usual: Shape) -> Sequence[Shape]:
    """Those of ``SCALE_QUEUES``, else the usual ones."""
    named = [one for one in os.environ.get("SCALE_QUEUES", "").split(",") if one]
    return [Shape(*map(int, one.split("x"))) for one in named] or usual
