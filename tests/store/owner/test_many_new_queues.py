"""Puts into many new queues: making their files holds up neither puts into other queues nor those into known ones."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.files import disk
from commitlog_store.threads import fair_lock
from tests.support.clean_store import assert_clean
from tests.support.waiting import WAIT_LIMIT_S

CONFIG = MessageStoreConfig(mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=2000)


def one_each(topics: list[str]) -> pa.Table:
    return pa.table({"topic": topics, "queueId": pa.array([0] * len(topics), pa.int32()), "body": [b"x"] * len(topics)})


def is_in(thread: threading.Thread, module: ModuleType) -> bool:
    """Whether the thread runs, or waits in, code of the module."""
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_filename == module.__file__


class SlowQueues:
    """Stands in for a device: makes the directory of the topic "slow" only when ``go`` is set, and counts others."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.go, self.waits, self.made = threading.Event(), threading.Event(), 0
        make_directory = disk.make_directory

        def slow(path: str) -> None:
            if path.endswith("/slow"):
                self.waits.set()
                assert self.go.wait(WAIT_LIMIT_S), "no other put came through"
            self.made += "consumequeue" in path
            make_directory(path)

        patch.setattr(disk, "make_directory", slow)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowQueues]:
    queues = SlowQueues(monkeypatch)
    yield queues
    queues.go.set()


def test_a_put_into_new_queues_that_waits_for_dispatch_holds_up_no_other_put(tmp_path: Path, slow: SlowQueues) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.put_message(Message(topic="known", body=b"1", queue_id=0)).raise_for_status()
        store.create_topic("new-1", 1)
        store.create_topic("new-2", 1)
        store.dispatch()
        store.put_message(Message(topic="slow", body=b"1")).raise_for_status()
        assert slow.waits.wait(WAIT_LIMIT_S)
        many = threading.Thread(target=lambda: store.put_messages(one_each(["new-1", "new-2"])).raise_for_status())
        many.start()
        while not is_in(many, fair_lock):
            time.sleep(0.001)
        for _ in range(20):
            store.put_message(Message(topic="known", body=b"2", queue_id=0)).raise_for_status()
        slow.go.set()
        many.join(WAIT_LIMIT_S)
        assert not many.is_alive()
    assert_clean(tmp_path)


def test_a_put_into_a_new_queue_waits_for_a_few_of_the_files_that_dispatch_makes(
    tmp_path: Path, slow: SlowQueues
) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.put_messages(one_each(["slow", *(f"topic-{number}" for number in range(3000))])).raise_for_status()
        assert slow.waits.wait(WAIT_LIMIT_S)
        slow.go.set()
        store.put_message(Message(topic="another", body=b"1", queue_id=0)).raise_for_status()
        assert slow.made < 3000, "it did not wait for all of them"
    with StoreReader.open(tmp_path) as reader:
        assert len(reader.topics()) == 3002
    assert_clean(tmp_path)


def test_a_list_of_topics_that_a_put_has_written_is_not_read_again(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, CONFIG) as store, pytest.MonkeyPatch.context() as patch:
        store.put_messages(one_each(["topic-0"])).raise_for_status()
        read_file, reads = disk.read_file, []

        def read(path: str, limit: int) -> bytes:
            reads.append(path)
            return read_file(path, limit)

        patch.setattr(disk, "read_file", read)
        store.put_messages(one_each([f"topic-{number}" for number in range(1, 100)])).raise_for_status()
        store.put_messages(one_each([f"topic-{number}" for number in range(100)])).raise_for_status()
        lists = [path for path in reads if path.endswith("topics.json")]
        assert len(lists) == 1, "to keep the old one as .bak"
