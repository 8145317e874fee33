"""Runs of a store on a ``RecordingDisk``, and what of each must be stored after a crash at any point."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig
from commitlog_store.format.sys_flag import (
    TRANSACTION_COMMIT_TYPE,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
)
from commitlog_store.message import MessageExtBrokerInner
from commitlog_store.testing import kill, parts_of
from tests.crash.simulated_disk import RecordingDisk
from tests.crash.stored_messages import Stored, log_records
from tests.store.retention.small_stores import store_clock


def small_config(flush: FlushDiskType, *, log_size: int = 16 << 10, pool: bool = False) -> MessageStoreConfig:
    """Files so small that all of them roll, and services so quick that they come in between."""
    return MessageStoreConfig(
        mapped_file_size_commit_log=log_size,
        mapped_file_size_consume_queue=20 * 50,
        max_hash_slot_num=50,
        max_index_num=200,
        flush_disk_type=flush,
        flush_interval_commit_log=2,
        flush_commit_log_least_pages=1,
        transient_store_pool_enable=pool,
        transient_store_pool_size=2,
        commit_interval_commit_log=1,
        commit_commit_log_least_pages=1,
        commit_commit_log_thorough_interval=2,
        flush_interval_consume_queue=3,
        flush_consume_queue_least_pages=0,
        flush_consume_queue_thorough_interval=10,
        # Every record of a run is counted; test_delivery.py has the runs with deliveries.
        schedule_enable=False,
    )


@contextmanager
def slow_clock() -> Iterator[None]:
    """Half a second between two puts, so that recovery finds files that are older than its margin."""
    ticks = itertools.count(time.time(), 0.5)
    with store_clock(lambda: next(ticks)):
        yield


class Run:
    """Puts messages, each one different, and notes from when on they have to be there."""

    def __init__(self, recorder: RecordingDisk, path: Path, config: MessageStoreConfig, first: int = 0) -> None:
        self.recorder = recorder
        self.path = path
        self.config = config
        self.sync = config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        # From this many operations on, the log's first so many bytes are safe.
        self.floors: list[tuple[int, int]] = []
        self.acknowledged: dict[int, bytes] = {}
        self._number = first
        self.store = self._open()

    def _open(self) -> MessageStore:
        store = MessageStore.open(self.path, self.config)
        self._safe(store.physical_bounds()[1])
        return store

    def _safe(self, end: int) -> None:
        self.floors.append((self.recorder.now, end))

    def message(self, **given: object) -> Message:
        """The next message: topics, queues, keys, sizes of bodies and properties all change."""
        number = self._number
        self._number += 1
        fields: dict[str, object] = {
            "topic": f"topic-{number % 3}",
            "body": f"{number:05d}".encode() * (1 + number * 37 % 90),
            "keys": [f"key-{number}", f"shared-{number % 4}"],
            "queue_id": number % 2,
            "properties": {"padding": "p" * (1 + number * 61 % 700), "UNIQ_KEY": f"unique-{number}"},
        }
        kind = MessageExtBrokerInner if "sys_flag" in given else Message
        return kind(**(fields | given))  # type: ignore[arg-type]

    def put(self, count: int = 1, **given: object) -> None:
        for _ in range(count):
            message = self.message(**given)
            result = self.store.put_message(message)
            assert result.ok, result
            self.acknowledged[result.physical_offset] = message.body
            if self.sync and message.properties.get("WAIT") != "false":
                self._safe(result.physical_offset + 1)

    def put_batch(self, count: int) -> None:
        messages = [self.message(topic="batches", queue_id=1) for _ in range(count)]
        result = self.store.put_message_batch(messages)
        assert result.ok, result
        self.acknowledged[result.physical_offset] = messages[0].body
        if self.sync:
            self._safe(self.store.physical_bounds()[1])

    def put_table(self, count: int) -> None:
        messages = [self.message() for _ in range(count)]
        table = pa.table(
            {
                "body": pa.array([one.body for one in messages], pa.binary()),
                "keys": pa.array([list(one.keys) for one in messages], pa.list_(pa.string())),
                "queueId": pa.array([one.queue_id for one in messages], pa.int32()),
            }
        )
        result = self.store.put_messages(table, topic="tables").raise_for_status()
        places = result.rows.column("physicalOffset").to_pylist()
        self.acknowledged.update(zip(places, (one.body for one in messages), strict=True))
        if self.sync:
            self._safe(places[-1] + 1)

    def put_specials(self) -> None:
        self.put(properties={"DELAY": "3"}, topic="delayed", keys=["late"])
        self.put(sys_flag=TRANSACTION_PREPARED_TYPE, topic="halves")
        self.put(sys_flag=TRANSACTION_COMMIT_TYPE, topic="wholes")
        self.put(sys_flag=TRANSACTION_ROLLBACK_TYPE, topic="wholes")
        self.put(2, properties={"WAIT": "false"})
        self.put(body=b"", keys=[], properties={})

    def flush(self) -> None:
        end = self.store.physical_bounds()[1]
        self.store.flush()
        self._safe(end)

    def reopen(self) -> None:
        self.close()
        self.store = self._open()

    def close(self) -> None:
        end = self.store.physical_bounds()[1]
        self.store.close()
        self._safe(end)

    def kill_and_reopen(self) -> None:
        kill(self.store)
        self.store = self._open()


@dataclass(frozen=True)
class Recording:
    """A run that is over: ``history`` is every record that was ever appended."""

    recorder: RecordingDisk
    history: list[Stored]
    floors: list[tuple[int, int]]

    def safe_at(self, point: int) -> int:
        """How many bytes of the log have to be there after a crash at a point."""
        return max((end for noted, end in self.floors if noted <= point), default=0)


@dataclass(frozen=True)
class Workload:
    name: str
    config: MessageStoreConfig
    steps: Callable[[Run], None] = field(repr=False)

    def record(self, root: Path, path: Path | None = None, first: int = 0) -> Recording:
        """Run it on the store ``path`` below ``root``, where perhaps something lies already."""
        recorder = RecordingDisk(root)
        path = path or root / "store"
        with slow_clock(), recorder.recording():
            run = Run(recorder, path, self.config, first)
            self.steps(run)
            if not parts_of(run.store).engine.state.closed:
                kill(run.store)
        history = log_records(path)
        there = {record.physical_offset: record.body for record in history}
        if not self.config.transient_store_pool_enable:
            assert all(there.get(place) == body for place, body in run.acknowledged.items())
        return Recording(recorder, history, run.floors)


def _singles(run: Run) -> None:
    run.put(40)
    run.put_specials()
    run.flush()
    run.put(30)
    run.close()


def _everything(run: Run) -> None:
    run.put(10)
    run.put_table(20)
    run.put_batch(5)
    run.put_specials()
    run.reopen()
    run.put(12)
    run.flush()
    run.put_table(15)
    run.put_batch(7)
    run.put(3)


def _kills(run: Run) -> None:
    run.put(15)
    run.put_specials()
    run.kill_and_reopen()
    run.put(10)
    run.put_table(9)
    run.kill_and_reopen()
    run.put_batch(6)
    run.flush()
    run.put(8)
    run.reopen()
    run.put(9)


_SYNC, _ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH

WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("sync-singles", small_config(_SYNC), _singles),
        Workload("sync-everything", small_config(_SYNC, log_size=20 << 10), _everything),
        Workload("sync-kills", small_config(_SYNC), _kills),
        Workload("async-singles", small_config(_ASYNC), _singles),
        Workload("async-everything", small_config(_ASYNC, log_size=64 << 10), _everything),
        Workload("async-kills", small_config(_ASYNC), _kills),
        Workload("pool-singles", small_config(_ASYNC, pool=True), _singles),
        Workload("pool-everything", small_config(_ASYNC, pool=True), _everything),
    )
}
