"""A store that grows old and a model of it: puts, batches, delayed messages, cleanings, deleted topics, reopenings.

The clock and the disk are inputs. The model knows where each message lies and when it was put, and so which files every
cleaning must take; what is left must be readable, and the ends of queues must stay, whatever came in between.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.files.limits import DiskUse
from commitlog_store.retention.clean import RetentionSettings
from commitlog_store.retention.survey import clean_request
from commitlog_store.testing import parts_of
from tests.model.test_store_model import _copy_if_there
from tests.store.retention.small_stores import HOUR, Clock, store_clock
from tests.support.clean_store import assert_clean
from tests.support.delayed import Deliverer

TOPICS = ("a", "b", "idle")
LOG_FILE = 4096
RESERVED_HOURS = 5
# Hours that messages of each level wait.
DELAYS = (1, 8)
CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=LOG_FILE,
    mapped_file_size_consume_queue=20 * 8,
    max_hash_slot_num=10,
    max_index_num=20,
    message_delay_level=" ".join(f"{hours}h" for hours in DELAYS),
    schedule_enable=False,
    retention_enable=True,
    file_reserved_time=RESERVED_HOURS,
    delete_when="04",
)

_topics = st.sampled_from(TOPICS)
_bodies = st.integers(0, 1_500).map(lambda size: bytes(size % 251 for _ in range(size)))


class Held(NamedTuple):
    """A message of the model."""

    body: bytes
    physical_offset: int


class Waiting(NamedTuple):
    """A delayed message that is not delivered."""

    topic: str
    body: bytes
    physical_offset: int
    due: float


@dataclass
class Queue:
    """A topic's only queue: the offset of its first message that counts, and all messages since."""

    begin: int = 0
    held: list[Held] = field(default_factory=list)
    deleted_before: int = 0

    @property
    def end(self) -> int:
        return self.begin + len(self.held)


class RetentionMachine(RuleBasedStateMachine):
    """The rules are what users, time and the disk do."""

    @initialize()
    def open(self) -> None:
        self.stack = ExitStack()
        self.scratch = Path(tempfile.mkdtemp(prefix="retention-model-"))
        self.stack.callback(shutil.rmtree, self.scratch)
        self.clock = Clock()
        self.stack.enter_context(store_clock(self.clock))
        self.used = 0.5
        self.lives = 0
        self.queues = {topic: Queue() for topic in TOPICS}
        self.waiting: dict[int, list[Waiting]] = {level: [] for level in range(1, len(DELAYS) + 1)}
        # After each change of the log: its end, and the time.
        self.ends: list[tuple[int, float]] = []
        self.start = 0
        self._open()

    def _open(self, *, rebuild: bool = False) -> None:
        self.store = MessageStore.open(self.scratch / str(self.lives), CONFIG, rebuild=rebuild)
        self.deliverer = Deliverer(self.store)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            try:
                self.check()
            finally:
                self.store.close()
                with self.stack:
                    assert_clean(self.scratch / str(self.lives))

    def _note_end(self) -> None:
        self.store.dispatch()
        self.ends.append((self.store.physical_bounds()[1], self.clock.now))

    @rule(topic=_topics, bodies=st.lists(_bodies, min_size=1, max_size=6))
    def put(self, topic: str, bodies: list[bytes]) -> None:
        for body in bodies:
            result = self.store.put_message(Message(topic=topic, queue_id=0, body=body, keys=["k"]))
            assert result.ok
            assert result.queue_offset == self.queues[topic].end
            self.queues[topic].held.append(Held(body, result.physical_offset))
            self._note_end()

    @rule(topic=_topics, count=st.integers(1, 5), size=st.integers(1, 900))
    def commit_batch(self, topic: str, count: int, size: int) -> None:
        body = bytes(size)
        table = pa.table({"body": [body] * count, "queueId": pa.array([0] * count, pa.int32())})
        with self.store.transaction("app", version=len(self.ends) + 1) as batch:
            batch.put_messages(table, topic=topic)
        self._note_end()
        self._take_over([body] * count, topic)

    def _take_over(self, bodies: list[bytes], topic: str) -> None:
        """Take messages that came with a frame into the model: the store knows where they lie."""
        queue = self.queues[topic]
        with self.store.reader() as reader:
            first = queue.end
            rows = [
                row
                for batch in reader.read(topic, 0, first, columns=["body", "physicalOffset"])
                for row in batch.to_pylist()
            ]
        assert [row["body"] for row in rows] == bodies
        queue.held += [Held(row["body"], row["physicalOffset"]) for row in rows]

    @rule(topic=_topics, level=st.integers(1, len(DELAYS)), body=_bodies)
    def put_delayed(self, topic: str, level: int, body: bytes) -> None:
        message = Message(topic=topic, queue_id=0, body=body, delay_level=level)
        result = self.store.put_message(message)
        assert result.ok
        due = self.clock.now + DELAYS[level - 1] * HOUR
        self.waiting[level].append(Waiting(topic, body, result.physical_offset, due))
        self._note_end()

    @rule()
    def deliver(self) -> None:
        self.deliverer.now = self.clock.now
        while self.deliverer.step() == 0:
            pass
        self._note_end()
        delivered: dict[str, list[bytes]] = {}
        for level, waiting in self.waiting.items():
            for one in waiting:
                if one.due <= self.clock.now and one.physical_offset >= self.queues[one.topic].deleted_before:
                    delivered.setdefault(one.topic, []).append(one.body)
            self.waiting[level] = [one for one in waiting if one.due > self.clock.now]
        for topic, bodies in delivered.items():
            self._take_over(bodies, topic)

    @rule(hours=st.sampled_from([0.5, 1, 3, 20]))
    def time_passes(self, hours: float) -> None:
        self.clock.now += hours * HOUR

    @rule(used=st.sampled_from([0.5, 0.76, 0.86]))
    def disk_fills(self, used: float) -> None:
        self.used = used

    @rule(older_than=st.sampled_from([None, 0, 2, 10]), max_bytes=st.sampled_from([None, 0, 3 * LOG_FILE]))
    def clean(self, older_than: float | None, max_bytes: int | None) -> None:
        if older_than is None and max_bytes is None:
            return
        request = clean_request(older_than_hours=older_than, max_bytes=max_bytes)
        cleaner, now_ms = parts_of(self.store).retention.cleaner, int(self.clock.now * 1000)
        self._take_expected(older_than, max_bytes)
        report = parts_of(self.store).engine.run(lambda: cleaner.clean(request, now_ms, dry_run=False))
        assert report.log_start == self.start
        self._forget_deleted_topics()

    @rule()
    def clean_by_settings(self) -> None:
        """As ``clean`` without limits: by age, and down to the last file while the disk is too full."""
        config = self.store.config
        self._take_expected(RESERVED_HOURS, None)
        if self.used > config.disk_space_clean_forcibly_ratio:
            self._take_expected(None, 0)
        request = clean_request(older_than_hours=RESERVED_HOURS, max_bytes=None)
        retention = RetentionSettings(config, lambda: DiskUse("", self.used))
        cleaner, now_ms = parts_of(self.store).retention.cleaner, int(self.clock.now * 1000)
        report = parts_of(self.store).engine.run(lambda: cleaner.clean_by_settings(retention, request, now_ms))
        assert report.log_start == self.start
        self._forget_deleted_topics()

    def _take_expected(self, older_than: float | None, max_bytes: int | None) -> None:
        """Move the model's beginning of the log over the files that the limits take."""
        end = self.store.physical_bounds()[1]
        needed = min((one.physical_offset for level in self.waiting.values() for one in level), default=end)
        while self.start + LOG_FILE < end and self.start + LOG_FILE <= needed:
            following = self.start + LOG_FILE
            newest = next(at for log_end, at in self.ends if log_end > following)
            is_old = older_than is not None and self.clock.now - newest >= older_than * HOUR
            if not is_old and (max_bytes is None or end - self.start <= max_bytes):
                break
            self.start = following

    def _forget_deleted_topics(self) -> None:
        """With the last of its messages a deleted topic is forgotten: it begins at 0 again."""
        for queue in self.queues.values():
            if queue.deleted_before and queue.deleted_before <= self.start:
                queue.deleted_before = 0
                if not queue.held:
                    queue.begin = 0

    @rule(topic=_topics)
    def delete_topic(self, topic: str) -> None:
        queue = self.queues[topic]
        # Messages that wait for it, deleted ones apart.
        waits = [
            one
            for level in self.waiting.values()
            for one in level
            if one.topic == topic and one.physical_offset >= queue.deleted_before
        ]
        if not queue.held and not waits:
            return
        is_left = bool(waits) or queue.held[-1].physical_offset >= self.start
        self.store.delete_topic(topic, with_messages=True)
        before = self.store.physical_bounds()[1] if is_left else queue.deleted_before
        keeps_end = before > self.start
        self.queues[topic] = Queue(begin=queue.end if keeps_end else 0, deleted_before=before if keeps_end else 0)

    @rule()
    def close_and_reopen(self) -> None:
        self.deliverer.service.save()
        self.store.close()
        self._open()
        assert self.store.recovered is None

    @rule()
    def crash(self) -> None:
        self.store.flush()
        self.lives += 1
        crashed = self.scratch / str(self.lives)
        shutil.copytree(self.store.path, crashed, ignore=shutil.ignore_patterns("lock"), copy_function=_copy_if_there)
        self.store.close()
        shutil.rmtree(self.store.path)
        self._open()
        self.check()

    @rule()
    def rebuild(self) -> None:
        self.store.close()
        self._open(rebuild=True)
        self.check()

    @rule()
    def look(self) -> None:
        self.check()

    def check(self) -> None:
        self.store.dispatch()
        assert self.store.physical_bounds()[0] == self.start
        with StoreReader.open(self.store.path) as reader:
            topics = {topic for topic, queue in self.queues.items() if queue.held}
            assert {topic for topic in reader.topics() if topic in TOPICS} == topics
            for topic in topics:
                self._check_queue(reader, topic)
            for level, waiting in self.waiting.items():
                for one in waiting:
                    found = reader.message_at(one.physical_offset)
                    assert (found.body, found.properties["DELAY"]) == (one.body, str(level))

    def _check_queue(self, reader: StoreReader, topic: str) -> None:
        queue = self.queues[topic]
        left = [one for one in queue.held if one.physical_offset >= self.start]
        info = reader.queue_info(topic, 0)
        assert (info.min_offset, info.max_offset) == (queue.end - len(left), queue.end), topic
        batches = reader.read(topic, 0, info.min_offset, columns=["body"], verify_crc=True)
        assert [body for batch in batches for body in batch["body"].to_pylist()] == [one.body for one in left]


TestRetentionModel = RetentionMachine.TestCase
TestRetentionModel.settings = settings(max_examples=settings().max_examples // 12, stateful_step_count=30)
