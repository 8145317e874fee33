"""Rows that name their place, and the valid outputs of them: at the end, and at any moment before.

Batch *n* of an input has rows for all of its queues, another number of them each time. So what is in a store says
whether rows are missing, there twice, or out of order, and the ends of its queues say whether batches are whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from commitlog_store import StoreReader
from commitlog_store.errors import NotAStore, QueueNotFound, StoreNotFound, TopicNotFound
from tests.connector.sink.sink_helpers import messages
from tests.support.clean_store import assert_clean

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


TOPIC = "orders"
# Often after each change, for so long; less often while a Spark starts, which takes most of the time of many tests.
_POLL_INTERVAL_S, _IDLE_INTERVAL_S = 0.001, 0.01
_OFTEN_S = 1.0


class Input:
    """A directory of directories, each a batch: ``parts`` text files, so that it is written by as many tasks."""

    def __init__(self, path: Path, name: str = "m", queues: Sequence[int] = (0, 1, 2, 3), parts: int = 2) -> None:
        self.path = path
        self.name = name
        self.queues = tuple(queues)
        self.parts = parts
        self.count = 0
        # How many more rows each batch has.
        self.extra_rows = 0
        # What each body ends with.
        self.padding = ""
        # Which of the rows, by body and queue, the query writes.
        self.lets_through: Callable[[str, int], bool] = lambda *_: True
        # The batches as a query took them, when that is not the order in which they were added.
        self._order: list[int] | None = None
        # Spark takes files in the order of their times.
        self._begun = int(time.time()) - 3600
        path.mkdir(exist_ok=True)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The input as a stream: columns body and queueId."""
        lines = spark.readStream.option("maxFilesPerTrigger", self.parts).text(str(self.path / "[0-9]*"))
        return self._columns(lines)

    def all_frame(self, spark: SparkSession) -> DataFrame:
        """All batches that are there, to be written at once."""
        return self._columns(spark.read.text(str(self.path / "[0-9]*")))

    def _columns(self, lines: DataFrame) -> DataFrame:
        return lines.selectExpr("split(value, ' ')[0] as body", "cast(split(value, ' ')[1] as int) as queueId")

    def rows(self, batch: int) -> list[tuple[str, int]]:
        """Body and queue of each row of a batch."""
        count = 2 * len(self.queues) + batch * 7 % 11 + self.extra_rows
        return [(f"{self.name}-{batch}-{at}{self.padding}", self.queues[at % len(self.queues)]) for at in range(count)]

    def add(self, batches: int = 1) -> None:
        size = -(-len(self.queues) // self.parts)
        for batch in range(self.count, self.count + batches):
            # Its files come in one moment, or a query that runs would take one of them alone.
            unfinished = self.path / f".{batch}"
            unfinished.mkdir()
            for part in range(self.parts):
                queues = self.queues[part * size : (part + 1) * size]
                lines = [f"{body} {queue}\n" for body, queue in self.rows(batch) if queue in queues]
                file = unfinished / f"{part}.txt"
                file.write_text("".join(lines))
                os.utime(file, (self._begun + self.parts * batch + part,) * 2)
            unfinished.rename(self.path / f"{batch:06}")
        self.count += batches

    def written(self, batch: int) -> list[tuple[str, int]]:
        """Body and queue of each row of a batch that comes to be in the store."""
        return [row for row in self.rows(batch) if self.lets_through(*row)]

    @property
    def order(self) -> list[int]:
        """The batches in the order in which they were written."""
        return list(range(self.count)) if self._order is None else self._order

    @order.setter
    def order(self, batches: Sequence[int]) -> None:
        """For who has batches written again."""
        self._order = list(batches)

    def take_order(self, checkpoint: Path) -> None:
        """As a query's checkpoint has it: a query that was killed as it planned a batch takes that one and the next
        one together when it starts again, and Spark reads the larger files of a batch first.
        """
        found: dict[int, int] = {}
        for log in (checkpoint / "sources" / "0").glob("[0-9]*"):
            for line in log.read_text().splitlines()[1:]:
                entry = json.loads(line)
                found[int(Path(entry["path"]).parent.name)] = entry["batchId"]
        assert len(found) == self.count, "the query took other files"
        offsets = (checkpoint / "offsets").glob("[0-9]*")
        ends = sorted(json.loads(file.read_text().splitlines()[-1])["logOffset"] for file in offsets)
        batch_of = {batch: bisect_left(ends, place) for batch, place in found.items()}
        self._order = sorted(found, key=lambda batch: (batch_of[batch], -len(self.rows(batch))))

    def ends(self, batches: Iterable[int]) -> tuple[int, ...]:
        """How many rows of these batches each queue has."""
        found = [queue for batch in batches for _, queue in self.written(batch)]
        return tuple(found.count(queue) for queue in self.queues)


def check_output(store: Path, *inputs: Input, expired: bool = False) -> None:
    """Each row once, in order within its queue, nothing else, nothing staged, and a store without a fault.

    ``expired``: retention has taken rows, so the first ones of a queue may be missing, as many as it says itself.
    """
    by_queue: dict[int, list[str]] = {}
    for message in messages(store, TOPIC):
        by_queue.setdefault(message.queue_id, []).append(message.body.decode())
    with StoreReader.open(store) as reader:
        gone = {info.queue_id: info.min_offset for info in reader.queues(TOPIC)}
    assert expired or not any(gone.values()), f"rows are gone: {gone}"
    for one in inputs:
        rows = [row for batch in one.order for row in one.written(batch)]
        for queue in one.queues:
            wanted = [body for body, its in rows if its == queue][gone.get(queue, 0) :]
            assert by_queue.pop(queue, []) == wanted, f"{one.name}: queue {queue}"
    assert not by_queue
    left = [path for path in (store / "staging").rglob("*") if path.is_file()]
    assert not left
    assert_clean(store)


def has_whole_batches(rows: Iterable[tuple[str, int]], one: Input) -> bool:
    """Whether each batch of the input is stored whole or not at all."""
    found: dict[int, set[tuple[str, int]]] = {}
    for body, queue in rows:
        name, batch, _ = body.split("-")
        if name == one.name:
            found.setdefault(int(batch), set()).add((body, queue))
    return all(there == set(one.written(batch)) for batch, there in found.items())


class Watcher:
    """A reader that looks at the ends of all queues again and again, from before the first batch to after the last.

    ``queues`` are those to look at without an input that names them.
    """

    def __init__(self, store: Path, *inputs: Input, queues: Iterable[int] = ()) -> None:
        self._store = store
        self._inputs = inputs
        self._queues = sorted({(TOPIC, queue) for one in inputs for queue in one.queues} | {(TOPIC, q) for q in queues})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="Watcher")
        self._error: BaseException | None = None
        self.seen: list[tuple[int, ...]] = []

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            if self._error is not None:
                raise self._error
            self._check()

    def _watch(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                reader: StoreReader | None = None
                changed = time.monotonic()
                while True:
                    last = self._stop.is_set()
                    try:
                        reader = reader or stack.enter_context(StoreReader.open(self._store))
                        ends = tuple(info.max_offset for info in reader.queue_infos(self._queues))
                        if not self.seen or ends != self.seen[-1]:
                            self.seen.append(ends)
                            changed = time.monotonic()
                    except (StoreNotFound, NotAStore, TopicNotFound, QueueNotFound):
                        pass  # not made yet, or not all of it
                    if last:
                        return
                    often = time.monotonic() - changed < _OFTEN_S
                    self._stop.wait(_POLL_INTERVAL_S if often else _IDLE_INTERVAL_S)
        except BaseException as error:  # noqa: BLE001  # it is raised where the test waits
            self._error = error

    def _check(self) -> None:
        """Each input's queues always ended after a whole batch, and never went back."""
        for one in self._inputs:
            places = [self._queues.index((TOPIC, queue)) for queue in one.queues]
            whole = {one.ends(one.order[:count]): count for count in range(len(one.order) + 1)}
            counts = []
            for ends in self.seen:
                its = tuple(ends[place] for place in places)
                assert its in whole, f"part of a batch of {one.name} was seen: {its}"
                counts.append(whole[its])
            assert counts == sorted(counts), f"batches of {one.name} were seen and gone again: {counts}"
            assert counts[-1:] == [len(one.order)] or not one.order
