"""Waiting for messages: in the owner's process by dispatch, elsewhere by what the kernel reports of its files."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import GetMessageResult, GetMessageStatus, Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.errors import StoreClosed
from commitlog_store.files import file_watch
from commitlog_store.queue.get_message import Pulls
from commitlog_store.reading import arrivals
from commitlog_store.testing import parts_of, waiting_calls
from tests.support.waiting import WAIT_LIMIT_S, wait_for

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


def test_a_reader_does_not_look_again_for_messages_of_other_queues(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for those, nor for the files by which the owner says that queues have changed."""
    looks = []
    is_any_filled = arrivals.is_any_filled

    def counted(*arguments: Any) -> bool:
        looks.append(1)
        return is_any_filled(*arguments)

    monkeypatch.setattr(arrivals, "is_any_filled", counted)
    with store.reader() as reader, ThreadPoolExecutor() as threads:
        waiting = threads.submit(reader.wait_for_any, {("orders", 0): 1, ("audit", 3): 0}, 10 * WAIT_LIMIT_S)
        wait_for(lambda: looks)
        for topic, queue_id in (("orders", 1), ("payments", 3)) * 10:
            store.put(topic, b"", queue_id=queue_id)
            store.dispatch()
            wait_for(lambda: parts_of(store).engine.reput.idle)  # which is when the queues are settled
        assert len(looks) == 1
        store.put("orders", b"", queue_id=0)
        assert waiting.result(WAIT_LIMIT_S)


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
    wait_for(lambda: waiting_calls(store))
    store.put_message(Message(topic="orders", body=b"second", queue_id=0))
    waiting.join()
    assert results[0].messages[0].body == b"second"


def _put(store: MessageStore, tags: str, count: int = 1) -> None:
    rows = [{"body": tags, "tags": tags, "queueId": 0, "properties": {"kind": tags}}] * count
    store.put_messages(rows, topic="orders").raise_for_status()
    store.dispatch()


WANTED: list[dict[str, str]] = [{"tags": "paid"}, {"filter": "kind = 'paid'"}]


@pytest.mark.parametrize("wanted", WANTED, ids=["tags", "filter"])
@pytest.mark.parametrize("by", ["owner", "reader"])
def test_a_long_poll_is_held_until_a_message_matches(store: MessageStore, by: str, wanted: dict[str, str]) -> None:
    with store.reader() as reader, ThreadPoolExecutor() as threads:
        asked = store if by == "owner" else reader
        waiting = threads.submit(asked.get_message, "orders", 0, 0, wait_s=10 * WAIT_LIMIT_S, **wanted)  # type: ignore[arg-type]
        for _ in range(20):
            _put(store, "sent")
            assert not waiting.done()
        _put(store, "paid")
        result = waiting.result(WAIT_LIMIT_S)
    assert [(one.queue_offset, one.tags) for one in result.messages] == [(21, "paid")]
    assert (result.status, result.next_begin_offset, result.min_offset) == (GetMessageStatus.FOUND, 22, 0)


@pytest.mark.parametrize("wanted", WANTED, ids=["tags", "filter"])
def test_a_long_poll_whose_time_is_over_passes_what_did_not_match(store: MessageStore, wanted: dict[str, str]) -> None:
    _put(store, "sent", 2_000)
    with store.reader() as reader:
        for asked in (store, reader):
            assert asked.get_message("orders", 0, 0, **wanted).next_begin_offset == 800, "one look without a wait"  # type: ignore[arg-type]
            begin = 0
            while begin < 2_001:  # once, but on a machine that is so slow that the time is over before
                result = asked.get_message("orders", 0, begin, wait_s=0.5, **wanted)  # type: ignore[arg-type]
                assert result.next_begin_offset > max(begin, 800)
                assert (result.status, result.max_offset, result.messages) == (
                    GetMessageStatus.NO_MATCHED_MESSAGE,
                    2_001,
                    [],
                )
                begin = result.next_begin_offset


def test_each_message_that_does_not_match_is_looked_at_once(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100,000 of them, in tables of 5,000; each table wakes the wait once or twice."""
    looks: list[tuple[int, int]] = []
    look = Pulls.messages

    def counted(pulls: Pulls, topic: str, queue_id: int, offset: int, *others: object) -> GetMessageResult:
        result = look(pulls, topic, queue_id, offset, *others)  # type: ignore[arg-type]
        if result.next_begin_offset != offset:
            looks.append((offset, result.next_begin_offset))
        return result

    monkeypatch.setattr(Pulls, "messages", counted)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(store.get_message, "orders", 0, 1, tags="paid", wait_s=10 * WAIT_LIMIT_S)
        for _ in range(20):
            _put(store, "sent", 5_000)
        _put(store, "paid")
        assert waiting.result(WAIT_LIMIT_S).messages[0].queue_offset == 100_001
    assert looks[0][0] == 1
    assert [stop for _, stop in looks[:-1]] == [start for start, _ in looks[1:]], "each from where the last one ended"


def test_closing_the_store_ends_a_long_poll_that_has_passed_messages(store: MessageStore) -> None:
    _put(store, "sent", 100)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(store.get_message, "orders", 0, 0, tags="paid", wait_s=10 * WAIT_LIMIT_S)
        wait_for(lambda: waiting_calls(store))
        store.close()
        with pytest.raises(StoreClosed):
            waiting.result(WAIT_LIMIT_S)


@pytest.mark.parametrize("rows", [False, True])
def test_a_consumers_poll_is_held_until_a_message_matches(store: MessageStore, *, rows: bool) -> None:
    with store.consumer("billing", "orders", tags="paid") as consumer, ThreadPoolExecutor() as threads:
        poll = consumer.poll_batch if rows else consumer.poll
        waiting = threads.submit(poll, 10, 10 * WAIT_LIMIT_S)
        for _ in range(5):
            _put(store, "sent", 1_000)
            assert not waiting.done()
        _put(store, "paid")
        found = waiting.result(WAIT_LIMIT_S)
        assert found is not None
        assert len(found) == 1
        assert consumer.positions() == {("orders", 0): 5_002}
