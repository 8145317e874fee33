"""The program whose device loses power.

``python -m tests.power_cut.writer STORE NOTES SEED STEPS FLUSH [LEFT_OUT...]`` opens the store (FLUSH: SYNC_FLUSH or
ASYNC_FLUSH) and does what STEPS random steps say: single puts, tables, transactions, delayed messages, half messages,
consuming, flushes, cleaning, closing and opening; none of LEFT_OUT. A mirror of the store on the same device follows
it. Each line of NOTES says what has returned; a body is ``kind:number:...``.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from commitlog_store import Message, MessageStore, MessageStoreConfig
from commitlog_store.follower.log_follower import LogFollower
from tests.power_cut.bodies import body_of, number_of, rows_of

APPLICATION, GROUP, MIRROR = "loader", "readers", "mirror"
_ROWS = 40
_SYNC_FILE_RANGE_WRITE = 2

SETTINGS: dict[str, object] = {
    "mapped_file_size_commit_log": 64 << 10,
    "mapped_file_size_consume_queue": 100 * 20,
    "max_hash_slot_num": 100,
    "max_index_num": 400,
    "message_delay_level": "1s 2s",
    "transaction_time_out": 0,
    "transaction_check_max": 10_000,
    # Everything is flushed all the time, so that cuts meet every step of it.
    "flush_interval_commit_log": 5,
    "flush_commit_log_least_pages": 0,
    "flush_interval_consume_queue": 5,
    "flush_consume_queue_least_pages": 0,
    "flush_consume_queue_thorough_interval": 20,
    "flush_consumer_offset_interval": 50,
}


class _Writer:
    def __init__(self, path: Path, notes: Path, seed: str, flush: str, left_out: tuple[str, ...]) -> None:
        self._path = path
        self._chance = random.Random(seed)
        self._notes = os.open(notes, os.O_WRONLY)
        # In half of the runs, nothing is flushed unless it is asked for.
        rarely = {name: 60_000 for name in SETTINGS if "flush_" in name} if self._chance.random() < 0.5 else {}
        config = SETTINGS | rarely | {"flush_disk_type": flush, "ha_listen_address": "127.0.0.1:0"}
        self._config = MessageStoreConfig.from_mapping(config)
        # Each run does some things often and others hardly ever, so that rare sequences come in some runs.
        self._steps = {name: weight * self._chance.choice([0.1, 1, 1, 5]) for name, weight in _STEPS.items()}
        for name in left_out:
            del self._steps[name]
        self._number = 0
        self._handles: dict[int, object] = {}
        self._open()

    def _note(self, *words: object) -> None:
        os.write(self._notes, " ".join(map(str, words)).encode())

    def _open(self) -> None:
        self.store = MessageStore.open(self._path, self._config)
        self._note("opened", self.store.physical_bounds()[1])
        self._version = max((one.batch.version for one in self.store.batches()), default=0)
        self._consumer = self.store.consumer(GROUP, "orders")
        self._follower = LogFollower(
            str(self.store.ha_address), self._path.parent / MIRROR, config=MessageStoreConfig.from_mapping(SETTINGS)
        )

    def _close(self) -> None:
        end = self.store.physical_bounds()[1]
        self._follower.close()
        self.store.close()
        self._note("flushed", end)

    def step(self) -> None:
        chosen = self._chance.choices(list(self._steps), list(self._steps.values()))[0]
        getattr(self, f"_{chosen}")()
        # The mirror says that it has what it acknowledged.
        self._note("mirror", self._follower.status.acknowledged)

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _message(self, kind: str, topic: str, number: int, **properties: str) -> Message:
        padding = {"padding": "p" * self._chance.randrange(1, 700)}
        size = self._chance.choice([5, 100, 400, 3000])
        body = body_of(kind, number, size)
        keys = [f"{kind}-{number}"]
        return Message(topic=topic, body=body, keys=keys, queue_id=number % 2, properties=padding | properties)

    def _put(self) -> None:
        number = self._next()
        result = self.store.put_message(self._message("put", "orders", number)).raise_for_status()
        self._note("put", number, result.physical_offset)

    def _delayed(self) -> None:
        number = self._next()
        message = self._message("delayed", "later", number, DELAY=str(self._chance.choice([1, 2])))
        result = self.store.put_message(message).raise_for_status()
        self._note("delayed", number, result.physical_offset)

    def _table(self) -> None:
        numbers = [self._next() for _ in range(self._chance.randrange(1, _ROWS))]
        bodies = [body_of("table", number, 60) for number in numbers]
        result = self.store.put_messages(pa.table({"body": bodies}), topic="orders").raise_for_status()
        for number, place in zip(numbers, result.rows.column("physicalOffset").to_pylist(), strict=True):
            self._note("table", number, place)

    def _transaction(self) -> None:
        self._version += 1
        rows = self._chance.choice([1, 5, 40, 300])
        with self.store.transaction(APPLICATION, self._version) as batch:
            bodies = rows_of(self._version, rows)
            batch.put_messages(pa.table({"body": bodies, "topic": ["batches"] * rows}))
        assert batch.result is not None
        self._note("transaction", self._version, batch.result.physical_offset)

    def _half(self) -> None:
        number = self._next()
        handle = self.store.half_messages.prepare(self._message("half", "payments", number), "producers")
        self._note("prepared", number, -1)
        self._handles[number] = handle

    def _end_half(self) -> None:
        if self._handles:
            number = self._chance.choice(list(self._handles))
            handle, how = self._handles.pop(number), self._chance.choice(["commit", "rollback"])
            self._note(f"asked-{how}", number, -1)
            getattr(self.store.half_messages, how)(handle)
            self._note(how, number, -1)

    def _consume(self) -> None:
        got = self._consumer.poll(self._chance.randrange(1, 60))
        for message in got:
            self._note("consumed", number_of(message.body), -1)
            self._consumer.ack(message)
        self._consumer.commit(sync=self._chance.random() < 0.5)

    def _flush(self) -> None:
        end = self.store.physical_bounds()[1]
        self.store.flush()
        self._note("flushed", end)

    def _clean(self) -> None:
        self._note("cleaning", self.store.physical_bounds()[1])
        self.store.clean(max_bytes=self._chance.choice([64, 128, 256]) << 10)

    def _wait(self) -> None:
        """Delayed messages become due, and the services run."""
        time.sleep(self._chance.choice([0.01, 0.05, 0.3]))

    def _reopen(self) -> None:
        self._consumer.close()
        self._handles.clear()
        self._close()
        self._open()

    def end(self) -> None:
        if self._chance.random() < 0.5:
            self._close()
        # Otherwise as kill -9 does; the device goes on for a while.


_STEPS = {
    "put": 30,
    "delayed": 8,
    "table": 8,
    "transaction": 8,
    "half": 6,
    "end_half": 6,
    "consume": 8,
    "flush": 4,
    "clean": 4,
    "wait": 5,
    "reopen": 1,
}


@contextlib.contextmanager
def _stirred(path: Path, seed: str) -> Iterator[None]:
    """The kernel writes pages of files to the device whenever it likes, without a flush of the device; often here."""
    ended = threading.Event()
    libc = ctypes.CDLL(None, use_errno=True)

    def stir() -> None:
        chance = random.Random(f"{seed}/stir")
        while not ended.wait(chance.choice([0.002, 0.02])):
            for directory, _, names in os.walk(path):
                for one in [name for name in names if chance.random() < 0.3]:
                    with contextlib.suppress(OSError):  # it may have gone
                        descriptor = os.open(os.path.join(directory, one), os.O_RDONLY)
                        libc.sync_file_range(
                            descriptor, ctypes.c_int64(0), ctypes.c_int64(0), ctypes.c_uint(_SYNC_FILE_RANGE_WRITE)
                        )
                        os.close(descriptor)

    thread = threading.Thread(target=stir, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


def main(store: str, notes: str, seed: str, steps: str, flush: str, *left_out: str) -> None:
    path = Path(store)
    with _stirred(path.parent, seed):
        writer = _Writer(path, Path(notes), seed, flush, left_out)
        for _ in range(int(steps)):
            writer.step()
        writer.end()
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
