"""The small: one message at a time. From a put to a consumer that waits, puts of messages, an idle store."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from commitlog_store import Consumer, Message, MessageStore
from tests.benchmarks.measure import machine, show

_WAKE_UPS = 300
# Between two messages: they come one at a time.
_PAUSE_S = 0.01
_MESSAGES = 10_000
_TASKS = 1_000
_IDLE_S = 20.0
_TIMES = 5


def _put(store: MessageStore) -> float:
    store.put("orders", b"x" * 100, tags="paid", keys=["k"], queue_id=0)
    return time.perf_counter()


def _by_thread(store: MessageStore, wait: Callable[[], int]) -> list[float]:
    """Seconds from a put's return to that of a wait for its message, by another thread."""
    woken: list[float] = []

    def run() -> None:
        while len(woken) < _WAKE_UPS:
            found = wait()
            woken.extend([time.perf_counter()] * found)

    thread = threading.Thread(target=run)
    thread.start()
    put: list[float] = []
    for _ in range(_WAKE_UPS):
        time.sleep(_PAUSE_S)
        put.append(_put(store))
    thread.join()
    return [end - start for start, end in zip(put, woken, strict=False)]


async def _by_task(store: MessageStore) -> list[float]:
    """The same for a task of asyncio."""
    woken: list[float] = []
    with store.consumer("tasks", "orders") as consumer:
        _drain(consumer)

        async def run() -> None:
            while len(woken) < _WAKE_UPS:
                found = await consumer.apoll(1, 1.0)
                woken.extend([time.perf_counter()] * len(found))

        running = asyncio.create_task(run())
        put: list[float] = []
        for _ in range(_WAKE_UPS):
            await asyncio.sleep(_PAUSE_S)
            put.append(_put(store))
        await running
    return [end - start for start, end in zip(put, woken, strict=False)]


def _show_latency(label: str, seconds: Sequence[float], goal: str = "goal 0.3 / 1 ms") -> None:
    parts = statistics.quantiles(seconds, n=100)
    show(f"{label}, p50 / p99", f"{parts[49] * 1e3:.2f} / {parts[98] * 1e3:.2f} ms", goal)


def _latency(path: Path) -> None:
    with MessageStore.open(path) as store:
        _put(store)
        store.dispatch()
        with store.consumer("threads", "orders") as consumer:
            _drain(consumer)
            _show_latency("put to poll of a thread", _by_thread(store, lambda: len(consumer.poll(1, 1.0))))
        _show_latency("put to apoll of a task", asyncio.run(_by_task(store)))
        place = [1 + 2 * _WAKE_UPS]
        _show_latency("put to wait_for_messages", _by_thread(store, lambda: _wait(store, place)))


def _drain(consumer: Consumer) -> None:
    while consumer.poll(1_000, 0.1):
        pass


def _wait(store: MessageStore, place: list[int]) -> int:
    """Wait for the message at a queue offset, and go one further."""
    found = store.wait_for_messages("orders", 0, place[0], 1.0)
    place[0] += found
    return int(found)


def _puts(path: Path) -> None:
    message = Message(topic="orders", body=b"x" * 100)
    messages = [message] * _MESSAGES
    with MessageStore.open(path) as store:

        def each() -> None:
            for _ in range(_MESSAGES):
                store.put_message(message)

        def as_tasks() -> None:
            async def task() -> None:
                for _ in range(_MESSAGES // _TASKS):
                    await store.aput("orders", b"x" * 100)

            async def all_tasks() -> None:
                await asyncio.gather(*(task() for _ in range(_TASKS)))

            asyncio.run(all_tasks())

        ways: list[tuple[str, Callable[[], object], str]] = [
            ("put_message, one thread", each, ""),
            (f"aput of {_TASKS:,} tasks", as_tasks, "goal 100 k/s"),
            ("put_messages of a list of Message", lambda: store.put_messages(messages), "goal 1 M/s"),
        ]
        for label, put, goal in ways:
            seconds = min(_timed(put) for _ in range(_TIMES))
            show(f"{label}, 100 B", f"{_MESSAGES / seconds / 1e3:.0f} k/s", goal)


def _timed(put: Callable[[], object]) -> float:
    begun = time.perf_counter()
    put()
    return time.perf_counter() - begun


def _idle(path: Path) -> None:
    with MessageStore.open(path) as store:
        _put(store)
        store.dispatch()
        time.sleep(2)
        begun, used = time.perf_counter(), time.process_time()
        time.sleep(_IDLE_S)
        share = (time.process_time() - used) / (time.perf_counter() - begun)
        show("processor time of an idle store", f"{share * 100:.2f} % of a core", "goal 0.2 %")


def main() -> None:
    """Run the benchmark and print its figures."""
    print(machine())
    with tempfile.TemporaryDirectory() as directory:
        _latency(Path(directory) / "latency")
        _puts(Path(directory) / "puts")
        _idle(Path(directory) / "idle")
