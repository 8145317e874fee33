"""A query over several stores as Spark runs it, with a planner in place of Spark's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark_commitlog.options.read import parse_stream_options
from pyspark_commitlog.source.stream_planner import StreamPlanner
from tests.connector.source.sized_store import SizedStore

Json = dict[str, Any]
Row = tuple[str, str, int, int]


class SeveralStores:
    """Stores ``a``, ``b``, .. in a directory; one may be away, as if its disk were not mounted."""

    def __init__(self, directory: Path, names: str = "ab") -> None:
        self.directory = directory
        self.stores: dict[str, SizedStore] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> SizedStore:
        self.stores[name] = SizedStore(self.directory / name, log_file_size=1024)
        self.stores[name].close()
        return self.stores[name]

    def __getitem__(self, name: str) -> SizedStore:
        return self.stores[name]

    def take_away(self, name: str) -> None:
        self[name].path.rename(self.directory / f"{name}.away")

    def bring_back(self, name: str) -> None:
        (self.directory / f"{name}.away").rename(self[name].path)

    @property
    def path(self) -> str:
        return path_of({name: store.path for name, store in self.stores.items()})

    def rows(self) -> list[Row]:
        """All that was ever written."""
        return [
            (name, topic, queue_id, offset)
            for name, store in sorted(self.stores.items())
            for topic, queue_id, _, end in store.whole()
            for offset in range(end)
        ]


def path_of(stores: Mapping[str, Path]) -> str:
    return ",".join(f"{name}={path}" for name, path in stores.items())


class SeveralStoresQuery:
    """What Spark does with a planner: write the end of a batch down, run it, commit it; and all over after a crash."""

    def __init__(self, stores: SeveralStores, **options: str) -> None:
        self.stores = stores
        self.options = {"path": stores.path, "subscribe": "orders,audit", "startingOffsets": "earliest"} | options
        self.log: list[Json] = []
        self.committed = 0
        self.now_s = 0.0
        self.rows: list[Row] = []
        self.planner: StreamPlanner | None = None
        self.restart()

    def restart(self, **changed: str) -> None:
        self.options |= changed
        self.close()
        self.planner = StreamPlanner(parse_stream_options(self.options), clock=lambda: self.now_s)

    def close(self) -> None:
        if self.planner is not None:
            self.planner.close()

    @property
    def running(self) -> StreamPlanner:
        assert self.planner is not None
        return self.planner

    def start(self) -> Json:
        value = self.log[self.committed - 1] if self.committed else self.running.initial_offset()
        return json.loads(json.dumps(value))  # type: ignore[no-any-return]

    def plan(self, *, limited: bool = True) -> bool:
        """Write the next batch to the log; False without one. Batch 0 is run even if empty."""
        start = self.start()
        end = self.running.latest_offset(start, limited=limited)
        if self.committed and json.dumps(end) == json.dumps(start):
            return False
        del self.log[self.committed :]
        self.log.append(json.loads(json.dumps(end)))
        return True

    def read(self) -> list[Row]:
        """The rows of the batch that was planned last."""
        partitions = self.running.partitions(self.start(), json.loads(json.dumps(self.log[self.committed])))
        return [
            (str(partition.store), topic, queue_id, offset)
            for partition in partitions
            for topic, queue_id, start, stop in partition.ranges
            for offset in range(start, stop)
        ]

    def commit(self) -> list[Row]:
        rows = self.read()
        self.rows += rows
        self.committed += 1
        return rows

    def run(self, *, batches: int = 1000) -> None:
        for _ in range(batches):
            if not self.plan():
                return
            self.commit()
