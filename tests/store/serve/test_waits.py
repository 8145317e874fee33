"""Clients that wait for messages: one thread of the server looks for all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.flight as flight
import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.errors import StoreNotFound
from commitlog_store.remote.connection import decode_answer
from commitlog_store.remote.wire import encode
from commitlog_store.serve.waits import WaitingRoom
from tests.store.serve.servers import SPOKEN, served
from tests.support.waiting import wait_for


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store") as store:
        for queue_id in range(3):
            store.put("orders", b"one", queue_id=queue_id)
        yield store


@pytest.fixture
def room(store: MessageStore, tmp_path: Path) -> Iterator[WaitingRoom]:
    """Without a thread: the test calls ``run_once``."""
    room = WaitingRoom(lambda: StoreReader.open(tmp_path / "store"))
    yield room
    room.close()


def put(store: MessageStore, topic: str, queue_id: int) -> None:
    """Put a message, and wait until readers see it."""
    offset = store.put(topic, b"two", queue_id=queue_id).queue_offset
    with StoreReader.open(store.path) as reader:
        assert reader.wait_for_any({(topic, queue_id): offset}, 60)


def test_only_those_are_woken_that_have_something_to_find(store: MessageStore, room: WaitingRoom) -> None:
    with (
        room.joined({("orders", 0): 1}) as first,
        room.joined({("orders", 0): 5, ("orders", 1): 1}) as second,
        room.joined({("none", 0): 0}) as third,
    ):
        room.run_once()
        assert not any(one.wakeup.wait(0) for one in (first, second, third))
        put(store, "orders", 0)
        room.run_once()
        assert [one.wakeup.wait(0) for one in (first, second, third)] == [True, False, False]
        put(store, "orders", 1)
        put(store, "none", 0)
        room.run_once()
        assert [one.wakeup.wait(0) for one in (second, third)] == [True, True]


def test_a_room_without_clients_holds_nothing_of_the_store(store: MessageStore, room: WaitingRoom) -> None:
    with room.joined({("orders", 0): 1}):
        assert room.run_once() == 0
        assert room._reader is not None
    assert room.run_once() > 1
    assert room._reader is None


def test_those_that_wait_are_woken_by_an_error_and_look_for_themselves(tmp_path: Path) -> None:
    room = WaitingRoom(lambda: StoreReader.open(tmp_path / "nothing"))
    with pytest.raises(StoreNotFound):
        StoreReader.open(tmp_path / "nothing")
    with room.joined({("orders", 0): 1}) as waiter:
        assert room.run_once() > 0
        assert waiter.wakeup.wait(0)


def test_a_wait_ends_with_its_time_and_when_it_is_not_wanted(room: WaitingRoom) -> None:
    with room.joined({("orders", 0): 1}) as waiter:
        waiter.wait(0.01, lambda: True)
        waiter.wait(1000, lambda: False)
        assert not waiter.wakeup.wait(0)


def test_many_clients_wait_and_others_are_answered(store: MessageStore, tmp_path: Path) -> None:
    body = encode(("", "raise", ([("orders", queue_id, 1) for queue_id in range(3)], 30.0)))
    answers: list[bool] = []

    def wait(url: str) -> None:
        with flight.connect(url) as client:
            found = next(client.do_action(flight.Action("wait_for_any", body), SPOKEN))
            answers.append(decode_answer("wait_for_any", found.body).value)

    with served(tmp_path / "store") as url, StoreReader.open(url) as reader:
        waiting = [threading.Thread(target=wait, args=(url,)) for _ in range(50)]
        for one in waiting:
            one.start()
        assert reader.topics() == ["orders"]
        store.put("orders", b"two", queue_id=2)
        wait_for(lambda: len(answers) == 50)
        assert all(answers)
        for one in waiting:
            one.join()
