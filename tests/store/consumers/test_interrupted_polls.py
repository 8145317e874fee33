"""Polls that are cancelled, closed from elsewhere or asked in other ways: no message is lost, and none comes twice."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from commitlog_store import Consumer, MessageExt, MessageStore
from commitlog_store.errors import ConsumerClosed, InvalidValue, NestedCall, StoreForked
from commitlog_store.testing import waiting_calls
from tests.store.consumers.test_consumer import CONFIG, consumer_offsets, numbers, put
from tests.support.waiting import WAIT_LIMIT_S, wait_for


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        yield store


@pytest.fixture
def consumer(store: MessageStore) -> Iterator[Consumer]:
    with store.consumer("billing", "orders") as consumer:
        yield consumer


def test_a_poll_that_is_cancelled_while_its_thread_reads_takes_nothing(store: MessageStore, consumer: Consumer) -> None:
    put(store, 10, queues=1)

    async def consume() -> list[int]:
        with consumer._lock:  # so the thread of the first poll is in the middle when its task ends
            cancelled = asyncio.create_task(consumer.apoll(5))
            await asyncio.sleep(0.01)
            cancelled.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        found = []
        while messages := await consumer.apoll(3):
            found += numbers(messages)
        return found

    assert asyncio.run(consume()) == list(range(10))


def test_polls_that_are_cancelled_at_any_moment_lose_and_repeat_nothing(
    store: MessageStore, consumer: Consumer
) -> None:
    put(store, 400)

    async def consume() -> tuple[list[int], int]:
        found: list[int] = []
        cancelled = 0
        for patience in range(2_000):
            task = asyncio.create_task(consumer.apoll(3))
            for _ in range(patience % 8):
                await asyncio.sleep(0)
            task.cancel()
            try:
                found += numbers(await task)
            except asyncio.CancelledError:
                cancelled += 1
        while messages := await consumer.apoll(300):
            found += numbers(messages)
        return found, cancelled

    found, cancelled = asyncio.run(consume())
    assert cancelled > 100
    assert sorted(found) == list(range(400))
    for queue_id in range(4):
        assert [one for one in found if one % 4 == queue_id] == list(range(queue_id, 400, 4)), "in order"


def test_tasks_that_wait_take_no_threads_and_wake_together(store: MessageStore) -> None:
    async def consume() -> list[list[int]]:
        with contextlib.ExitStack() as consumers:
            opened = [consumers.enter_context(store.consumer(f"group-{number}", "orders")) for number in range(40)]
            polls = [asyncio.create_task(one.apoll(1, WAIT_LIMIT_S)) for one in opened]
            while waiting_calls(store) < len(polls):
                await asyncio.sleep(0.001)
            # With a thread for each of them, the threads of the loop would be taken.
            await asyncio.to_thread(put, store, 1)
            return [numbers(await poll) for poll in polls]

    assert asyncio.run(consume()) == [[0]] * 40


def test_closing_ends_a_poll_that_waits(store: MessageStore, consumer: Consumer) -> None:
    raised: list[BaseException] = []

    def poll() -> None:
        try:
            consumer.poll(1, WAIT_LIMIT_S)
        except ConsumerClosed as error:
            raised.append(error)

    waiting = threading.Thread(target=poll)
    waiting.start()
    wait_for(lambda: waiting_calls(store))
    consumer.close()
    waiting.join()
    assert len(raised) == 1


def test_closing_from_another_thread_ends_iterations(store: MessageStore, consumer: Consumer) -> None:
    put(store, 5)
    found: list[int] = []

    def iterate() -> None:
        found.extend(int(message.body) for message in consumer)

    iterating = threading.Thread(target=iterate)
    iterating.start()
    wait_for(lambda: len(found) == 5 and waiting_calls(store))
    consumer.close()
    iterating.join()
    assert sorted(found) == list(range(5))

    async def iterate_there() -> int:
        other = store.consumer("audit", "orders")
        count = 0
        async for _ in other:
            count += 1
            if count == 5:
                asyncio.get_running_loop().call_later(0.01, other.close)
        return count

    assert asyncio.run(iterate_there()) == 5


class PollingThread:
    """Polls without end, and keeps the error that ends it."""

    def __init__(self, consumer: Consumer) -> None:
        self.error: Exception | None = None
        self._consumer = consumer
        self.thread = threading.Thread(target=self._poll)
        self.thread.start()

    def _poll(self) -> None:
        try:
            while True:
                self._consumer.poll(7)
                self._consumer.rewind()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error


def test_closing_waits_for_a_call_that_reads(store: MessageStore) -> None:
    put(store, 100)
    for pause_s in (0.0, 0.001, 0.002, 0.003, 0.004):
        consumer = store.consumer("billing", "orders")
        polling = PollingThread(consumer)
        threading.Event().wait(pause_s)
        consumer.close()
        polling.thread.join()
        assert isinstance(polling.error, ConsumerClosed), "it did not read through a closed reader"


def test_a_signal_handler_within_a_call_may_close_and_not_poll(consumer: Consumer) -> None:
    with consumer._calls.enter(), consumer._lock:  # as if it had interrupted a call of this thread
        with pytest.raises(NestedCall):
            consumer.poll()
        consumer.close()
        assert not consumer._reader._closed, "the call still reads"
    with pytest.raises(ConsumerClosed):
        consumer.poll()
    assert consumer._reader._closed


def test_a_forked_child_is_refused_though_another_thread_was_polling(store: MessageStore, consumer: Consumer) -> None:
    put(store, 1)
    (message,) = consumer.poll()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(20)  # ends the child, and not the test within it
        os._exit(_refusals(consumer, message))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    consumer.ack(message)


def _refusals(consumer: Consumer, message: MessageExt) -> int:
    """The number of calls that are refused in the child."""
    consumer._lock.acquire()  # as another thread of the parent may have left it
    refused = 0
    for call in (consumer.poll, consumer.commit, consumer.positions, lambda: consumer.ack(message)):
        try:
            call()
        except StoreForked:
            refused += 1
        except BaseException:  # noqa: BLE001 - the child must not go on with the test
            return -1
    consumer.close()
    return refused


WRONG_ARGUMENTS: list[tuple[dict[str, object], str]] = [
    ({"timeout_s": math.nan}, "timeout_s is a number of seconds, not nan"),
    ({"timeout_s": "1"}, "timeout_s is a number of seconds, not '1'"),
    ({"timeout_s": None}, "timeout_s is a number"),
    ({"max_messages": 0}, "max_messages is at least 1, not 0"),
    ({"max_messages": "3"}, "max_messages is an int, not '3'"),
    ({"max_messages": 1.5}, "max_messages is an int"),
    ({"max_messages": True}, "max_messages is an int"),
]


def test_what_is_not_a_number_is_refused(consumer: Consumer) -> None:
    for arguments, said in WRONG_ARGUMENTS:
        with pytest.raises(InvalidValue, match=said):
            consumer.poll(**arguments)  # type: ignore[arg-type]
        with pytest.raises(InvalidValue, match=said):
            asyncio.run(consumer.apoll(**arguments))  # type: ignore[arg-type]
        of_rows = {name.replace("messages", "rows"): value for name, value in arguments.items()}
        with pytest.raises(InvalidValue, match=said.replace("messages", "rows")):
            consumer.poll_batch(**of_rows)  # type: ignore[arg-type]


def test_a_delay_of_no_level_is_refused_and_nothing_is_done(store: MessageStore, consumer: Consumer) -> None:
    put(store, 1)
    (message,) = consumer.poll()
    for wrong in (90, "90s", timedelta(seconds=90)):
        with pytest.raises(InvalidValue, match=r"one of the levels 1 \(1s\), 2 \(5s\)"):
            consumer.retry(message, wrong)
    with pytest.raises(InvalidValue, match="delay_level is an int"):
        consumer.retry(message, 1.5)  # type: ignore[arg-type]
    assert "SCHEDULE_TOPIC_XXXX" not in store.reader().topics()
    consumer.retry(message, "10s")


def test_numbers_of_numpy_and_times_in_the_past_are_taken(store: MessageStore, consumer: Consumer) -> None:
    put(store, 3, queues=1)
    assert numbers(consumer.poll(np.int64(2), np.float32(0.0))) == [0, 1]  # type: ignore[arg-type]
    consumer.seek("orders", 0, np.int64(2))  # type: ignore[arg-type]
    assert numbers(consumer.poll(1, -1)) == [2]
    assert consumer.poll(1, -math.inf) == []
    for place in (("orders", 0, -1), ("orders", 0, "1"), ("orders", "0", 1), ("no topic", 0, 1)):
        with pytest.raises(InvalidValue):
            consumer.seek(*place)


def test_a_batch_has_no_more_rows_and_the_columns_that_its_own_poll_names(
    store: MessageStore, consumer: Consumer
) -> None:
    put(store, 300, queues=1)  # the queue's files have 100 units, so a pull finds several batches
    sizes, bodies = [], []
    for rows, columns in [(250, ["body"]), (20, ["body"]), (30, ["body", "tags"]), (300, ["body"]), (300, ["body"])]:
        batch = consumer.poll_batch(rows, columns=columns)
        assert batch is not None
        assert batch.schema.names == columns
        sizes.append(batch.num_rows)
        bodies += batch.column("body").to_pylist()
    assert all(size <= most for size, most in zip(sizes, (250, 20, 30, 300, 300), strict=True))
    assert [int(body) for body in bodies] == list(range(sum(sizes))), "every message once"
    consumer.commit()
    assert consumer_offsets(store) == {("orders", 0): sum(sizes)}
