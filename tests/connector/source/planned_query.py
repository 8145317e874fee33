"""A query as Spark runs it, with a planner in place of Spark's own, and a store for it to read."""

from __future__ import annotations

import json
from typing import Any

from pyspark_commitlog.options.read import parse_stream_options
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.connector.source.sized_store import NewStore, SizedStore

Json = dict[str, Any]
FROM_START = {"subscribe": "orders,audit", "startingOffsets": "earliest"}


class Query:
    """What Spark does with a planner: write the end of a batch down, run it, commit it; and all over after a crash."""

    def __init__(self, store: SizedStore, **options: str) -> None:
        self.store = store
        self.options = {"path": str(store.path)} | (options or FROM_START)
        self.log: list[Json] = []
        self.committed = 0
        # What the planner's clock shows, in seconds.
        self.now_s = 0.0
        self.rows: list[tuple[str, int, int]] = []
        self.restart()

    def restart(self, **changed: str) -> None:
        self.options |= changed
        reader, options = self.store.reopen(), parse_stream_options(self.options)
        object.__setattr__(options, "open_store", lambda: reader)  # it counts what is read
        self.planner = StreamPlanner(options, clock=lambda: self.now_s)

    def start(self) -> Json:
        """What Spark takes the next batch to start from. It keeps text only."""
        if self.committed:
            return json.loads(json.dumps(self.log[self.committed - 1]))  # type: ignore[no-any-return]
        return json.loads(json.dumps(self.planner.initial_offset()))  # type: ignore[no-any-return]

    def plan(self, *, limited: bool = True) -> bool:
        """Write the next batch to the log; False without one. Batch 0 is run even if empty."""
        start = self.start()
        end = self.planner.latest_offset(start, limited=limited)
        if self.committed and json.dumps(end) == json.dumps(start):
            return False
        del self.log[self.committed :]
        self.log.append(json.loads(json.dumps(end)))
        return True

    def read(self) -> list[tuple[str, int, int]]:
        """The rows of the batch that was planned last."""
        partitions = self.planner.partitions(self.start(), json.loads(json.dumps(self.log[self.committed])))
        return [
            (topic, queue_id, offset)
            for partition in partitions
            for topic, queue_id, start, stop in partition.ranges
            for offset in range(start, stop)
        ]

    def commit(self) -> None:
        self.rows += self.read()
        self.committed += 1

    def run(self, *, limited: bool = True, batches: int = 1000) -> None:
        for _ in range(batches):
            if not self.plan(limited=limited):
                return
            self.commit()


def filled(new_store: NewStore, count: int = 10) -> SizedStore:
    """Four queues of ``count`` messages of 200 bytes, one queue after the other; a file of the log holds five."""
    store = new_store(log_file_size=1024)
    for topic in ("orders", "audit"):
        for queue_id in (0, 1):
            store.append(topic, queue_id, [200] * count)
    return store


def all_rows(store: SizedStore) -> list[tuple[str, int, int]]:
    return [(topic, queue_id, offset) for topic, queue_id, _, end in store.whole() for offset in range(end)]
