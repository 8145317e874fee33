"""Waiting for messages: in the owner's process by dispatch, elsewhere by what the kernel reports of its files."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from commitlog import GetMessageStatus, Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog.files import file_watch
from tests.support.waiting import WAIT_LIMIT_S, wait_for

__all__: list[str] = []

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere a reader only looks again")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MessageStore]:
    # Whatever the kernel does not report is waited for until the time limit of the test.
    monkeypatch.setattr(file_watch, "LOOK_AGAIN_SECONDS", 10 * WAIT_LIMIT_S)
    with MessageStore.open(tmp_path / "store", MessageStoreConfig(mapped_file_size_commit_log=1 << 20)) as store:
        store.put_message(Message(topic="orders", body=b"first", queue_id=0)).raise_for_status()
        store.dispatch()
        yield store


def while_it_waits(reader: StoreReader, wait: Callable[[], object], change: Callable[[], object]) -> object:
    """Make the change when the other thread has begun to wait; what that thread was given."""
    answers: list[object] = []
    waiting = threading.Thread(target=lambda: answers.append(wait()))
    waiting.start()
    wait_for(lambda: reader._watch.reports)
    change()
    waiting.join()
    return answers[0]


def test_a_put_wakes_a_reader(store: MessageStore) -> None:
    with store.reader() as reader:
        assert while_it_waits(
            reader,
            lambda: reader.wait_for_any({("orders", 0): 1}, WAIT_LIMIT_S),
            lambda: store.put_message(Message(topic="orders", body=b"second", queue_id=0)),
        )


def test_the_first_message_of_a_topic_wakes_a_reader(store: MessageStore) -> None:
    with store.reader() as reader:
        assert while_it_waits(
            reader,
            lambda: reader.wait_for_any({("audit", 3): 0}, WAIT_LIMIT_S),
            lambda: store.put_message(Message(topic="audit", body=b"", queue_id=3)),
        )


def test_a_batch_wakes_a_reader_when_it_is_visible(store: MessageStore) -> None:
    def commit() -> None:
        with store.transaction("loader", version=1) as batch:
            batch.put_messages(pa.table({"topic": ["orders"] * 3, "queueId": [0] * 3, "body": [b"a", b"b", b"c"]}))

    with store.reader() as reader:
        result = while_it_waits(reader, lambda: reader.get_message("orders", 0, 1, wait_s=WAIT_LIMIT_S), commit)
        assert [message.body for message in result.messages] == [b"a", b"b", b"c"]  # type: ignore[attr-defined]


def test_a_wait_for_nothing_ends(store: MessageStore) -> None:
    with store.reader() as reader:
        assert not reader.wait_for_any({("orders", 0): 1, ("nowhere", 0): 0}, 0.01)
        assert reader.get_message("orders", 0, 1, wait_s=0.01).status is GetMessageStatus.OFFSET_OVERFLOW_ONE
    assert store.get_message("orders", 0, 1, wait_s=0.01).status is GetMessageStatus.OFFSET_OVERFLOW_ONE


def test_positions_where_no_message_will_be_are_answered_at_once(store: MessageStore) -> None:
    for offset in (-1, 7):
        assert not store.get_message("orders", 0, offset, wait_s=10 * WAIT_LIMIT_S).messages
    assert not store.get_message("nowhere", 0, 7, wait_s=10 * WAIT_LIMIT_S).messages


def test_a_put_wakes_a_thread_of_the_owner(store: MessageStore) -> None:
    results = []
    waiting = threading.Thread(target=lambda: results.append(store.get_message("orders", 0, 1, wait_s=WAIT_LIMIT_S)))
    waiting.start()
    wait_for(lambda: len(store._owned.waiters))
    store.put_message(Message(topic="orders", body=b"second", queue_id=0))
    waiting.join()
    assert results[0].messages[0].body == b"second"
