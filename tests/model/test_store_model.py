"""A store and a model of it, driven through the same random history: they must agree at every look.

The model is what a store is for its users: for each queue a list of messages, each with its keys and where it lies. A
crash is that of a process: the directory is copied while the store is open, ``abort`` and all, and the copy is opened.
Files hold a few messages, so that everything rolls over all the time.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from commitlog_store import FlushDiskType, Message, MessageStore, MessageStoreConfig, PutMessageStatus, StoreReader
from tests.support.waiting import WAIT_LIMIT_S

TOPICS = ("a", "b")
QUEUES = 2
KEYS = ("k0", "k1", "Aa", "BB")  # the last two have one hash
LOG_FILE = 4096

_queues = st.tuples(st.sampled_from(TOPICS), st.integers(0, QUEUES - 1))
_bodies = st.integers(0, 900).map(lambda size: bytes(size % 251 for _ in range(size)))
_keys = st.lists(st.sampled_from(KEYS), max_size=2, unique=True)


class Held(NamedTuple):
    """A message of the model. The id is empty where the put gave none."""

    body: bytes
    keys: tuple[str, ...]
    physical_offset: int
    message_id: str


def _copy_if_there(source: str, target: str) -> str:
    """Files that are being made for later vanish under their first names."""
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(source, target)
    return target


class StoreMachine(RuleBasedStateMachine):
    """The rules are what users do, and what happens to them."""

    @initialize(flush=st.sampled_from(FlushDiskType), pool=st.booleans())
    def open(self, flush: FlushDiskType, pool: bool) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="store-model-"))
        self.lives = 0
        self.queues: dict[tuple[str, int], list[Held]] = {}
        self.pool = pool and flush is FlushDiskType.ASYNC_FLUSH
        self.config = MessageStoreConfig(
            mapped_file_size_commit_log=LOG_FILE,
            mapped_file_size_consume_queue=20 * 8,
            max_hash_slot_num=3,
            max_index_num=12,
            flush_disk_type=flush,
            transient_store_pool_enable=self.pool,
        )
        self.store = MessageStore.open(self.scratch / "0", self.config)
        self.reader = self.store.reader()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.check_everything()
            self.reader.close()
            self.store.close()
            shutil.rmtree(self.scratch)

    def _held(self, queue: tuple[str, int]) -> list[Held]:
        return self.queues.setdefault(queue, [])

    @rule(queue=_queues, body=_bodies, keys=_keys)
    def put(self, queue: tuple[str, int], body: bytes, keys: list[str]) -> None:
        held = self._held(queue)
        result = self.store.put_message(Message(topic=queue[0], queue_id=queue[1], body=body, keys=keys))
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, len(held))
        held.append(Held(body, tuple(keys), result.physical_offset, result.message_id))

    @rule(queue=_queues, bodies=st.lists(_bodies, min_size=1, max_size=4), keys=_keys)
    def put_batch(self, queue: tuple[str, int], bodies: list[bytes], keys: list[str]) -> None:
        messages = [Message(topic=queue[0], queue_id=queue[1], body=body, keys=keys) for body in bodies]
        result = self.store.put_message_batch(messages)
        held = self._held(queue)
        if result.status is PutMessageStatus.MESSAGE_ILLEGAL:
            assert sum(len(body) + 91 for body in bodies) + 60 > LOG_FILE - 8, result.reason
            return
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, len(held))
        for body, message_id in zip(bodies, result.message_id.split(","), strict=True):
            held.append(Held(body, tuple(keys), int(message_id[-16:], 16), message_id))

    @rule(rows=st.lists(st.tuples(_queues, st.none() | _bodies, st.sampled_from(KEYS)), max_size=12))
    def put_messages(self, rows: list[tuple[tuple[str, int], bytes | None, str]]) -> None:
        table = pa.table(
            {
                "topic": pa.array([topic for (topic, _), _, _ in rows], pa.string()),
                "queueId": pa.array([queue_id for (_, queue_id), _, _ in rows], pa.int32()),
                "body": pa.array([body for _, body, _ in rows], pa.binary()),
                "keys": pa.array([key for _, _, key in rows], pa.string()),
            }
        )
        result = self.store.put_messages(table)
        for (queue, body, key), row in zip(rows, result.rows.to_pylist(), strict=True):
            if body is None:
                assert (row["status"], row["queueOffset"]) == ("MESSAGE_ILLEGAL", -1)
                continue
            held = self._held(queue)
            assert (row["status"], row["queueOffset"], row["queueId"]) == ("PUT_OK", len(held), queue[1])
            held.append(Held(body, (key,), row["physicalOffset"], ""))

    @rule(queue=_queues, size=st.sampled_from([LOG_FILE, 5 << 20]))
    def put_too_large(self, queue: tuple[str, int], size: int) -> None:
        result = self.store.put_message(Message(topic=queue[0], queue_id=queue[1], body=bytes(size)))
        assert (result.status, result.queue_offset) == (PutMessageStatus.MESSAGE_ILLEGAL, -1)

    @rule()
    def flush(self) -> None:
        self.store.flush()
        assert self.store.flushed_where() == self.store.physical_bounds()[1]

    @rule()
    def close_and_reopen(self) -> None:
        self.reader.close()
        self.store.close()
        self._open_again()
        assert self.store.recovered is None, "a clean close needs no recovery"

    @rule(flushed=st.booleans())
    def crash(self, flushed: bool) -> None:
        """What only the pool's memory held is lost with the process; all that was committed is not."""
        if flushed or self.pool:
            self.store.flush()
        self.lives += 1
        crashed = self.scratch / str(self.lives)
        # A lock drops when its process closes any descriptor of the file, so this one must not read it.
        shutil.copytree(self.store.path, crashed, ignore=shutil.ignore_patterns("lock"), copy_function=_copy_if_there)
        self.reader.close()
        self.store.close()
        shutil.rmtree(self.store.path)
        self._open_again()
        assert self.store.recovered is not None

    @rule()
    def rebuild(self) -> None:
        """Queues and index hold nothing that the log does not (invariant 1)."""
        self.reader.close()
        self.store.close()
        self.store = MessageStore.open(self.scratch / str(self.lives), self.config, rebuild=True)
        self.reader = self.store.reader()
        self.check_everything()

    def _open_again(self) -> None:
        self.store = MessageStore.open(self.scratch / str(self.lives), self.config)
        self.reader = self.store.reader()

    def _dispatch(self) -> None:
        if self.pool:
            self.store.flush()
        self.store.dispatch()

    @precondition(lambda self: any(self.queues.values()))
    @rule(queue=_queues, start=st.integers(0, 60), count=st.integers(0, 60))
    def read(self, queue: tuple[str, int], start: int, count: int) -> None:
        held = self._held(queue)
        if not held:
            return
        self._dispatch()
        assert self.reader.queue_info(*queue).max_offset == len(held)
        start = min(start, len(held))
        stop = min(start + count, len(held))
        batches = self.reader.read(*queue, start, stop, columns=["body", "keys", "physicalOffset"], verify_crc=True)
        found = [row for batch in batches for row in batch.to_pylist()]
        assert [(row["body"], row["keys"], row["physicalOffset"]) for row in found] == [
            (one.body, " ".join(one.keys) or None, one.physical_offset) for one in held[start:stop]
        ]

    @rule(topic=st.sampled_from(TOPICS), key=st.sampled_from(KEYS), limit=st.sampled_from([1, 3, 1000]))
    def query(self, topic: str, key: str, limit: int) -> None:
        self._dispatch()
        hits = [one for (name, _), held in self.queues.items() if name == topic for one in held if key in one.keys]
        places = sorted(one.physical_offset for one in hits)
        found = self.reader.query(topic, key, limit=limit)
        assert [message.physical_offset for message in found] == places[-limit:]

    @precondition(lambda self: any(self.queues.values()))
    @rule(data=st.data())
    def message_by_id(self, data: st.DataObject) -> None:
        queue = data.draw(st.sampled_from(sorted(queue for queue, held in self.queues.items() if held)))
        offset = data.draw(st.integers(0, len(self.queues[queue]) - 1))
        one = self.queues[queue][offset]
        self._dispatch()
        message = self.reader.message_at(one.physical_offset)
        if one.message_id:
            assert self.reader.message_by_id(one.message_id) == message
        assert (message.topic, message.queue_id, message.queue_offset) == (*queue, offset)
        assert message.body == one.body

    @rule(queue=_queues)
    def wait_for_messages(self, queue: tuple[str, int]) -> None:
        held = self._held(queue)
        if self.pool:
            self.store.flush()
        if held:
            assert self.store.wait_for_messages(*queue, len(held) - 1, timeout_s=WAIT_LIMIT_S)
        assert not self.store.wait_for_messages(*queue, len(held), timeout_s=0)

    @invariant()
    def log_ends_behind_the_last_message(self) -> None:
        if hasattr(self, "store"):
            last = max((one.physical_offset for held in self.queues.values() for one in held), default=-1)
            assert self.store.physical_bounds()[1] > last
            assert self.store.flushed_where() <= self.store.physical_bounds()[1]
            assert self.store.writable

    def check_everything(self) -> None:
        self._dispatch()
        with StoreReader.open(self.store.path) as reader:
            wanted = {queue: held for queue, held in self.queues.items() if held}
            assert {(topic, queue.queue_id) for topic in reader.topics() for queue in reader.queues(topic)} == set(
                wanted
            )
            for queue, held in wanted.items():
                batches = list(reader.read(*queue, 0, columns=["body", "queueOffset"], verify_crc=True))
                assert [body for batch in batches for body in batch["body"].to_pylist()] == [one.body for one in held]
                assert [n for batch in batches for n in batch["queueOffset"].to_pylist()] == list(range(len(held)))


TestStoreModel = StoreMachine.TestCase
# What the profile says goes for single calls; a history is as much work as some of those.
_PART = 3 if settings().derandomize else 2
TestStoreModel.settings = settings(max_examples=settings().max_examples // _PART, stateful_step_count=30)
