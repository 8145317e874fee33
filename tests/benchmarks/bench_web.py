"""Pages and figures of a store with 2,000 topics of 4 queues: the first page, and what they cost the store's puts.

Puts are in turns in one run: nothing else, an overview that is looked at live, and figures that are kept. Figures are
added once a minute, so what one addition takes is given as a part of a minute.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import httpx
import pyarrow as pa

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.serve.figures.figures_service import FiguresService
from commitlog_store.serve.http.front import HttpFront
from tests.benchmarks.measure import best_of, machine, scratch, show
from tests.store.serve.http.fronts import client_of, shown

_TOPICS, _QUEUES, _GROUPS = 2_000, 4, 100
_TURNS, _TURN_S = 5, 4.0
_FIRST_PAGE_MS = 150
_MOST_COST = 2.0  # percent


def main() -> None:
    """Print the times of pages, and the rates of puts beside them."""
    print(machine())
    config = MessageStoreConfig(mapped_file_size_consume_queue=2000)
    with tempfile.TemporaryDirectory(dir=scratch()) as name, MessageStore.open(Path(name) / "store", config) as store:
        _fill(store)
        with shown(owned=store) as front:
            _pages(front)
            _puts(store, front)
        _figures(store)


def _fill(store: MessageStore) -> None:
    places = [(f"topic-{number:04}", queue) for number in range(_TOPICS) for queue in range(_QUEUES)]
    topics, queues = zip(*places, strict=True)
    store.put_messages(pa.table({"topic": topics, "queueId": queues, "body": [b"x" * 100] * len(places)}))
    for number in range(_GROUPS):
        store.commit_group_offsets(f"group-{number:03}", {(f"topic-{number * 7:04}", 0): 0})
    store.dispatch()


def _pages(front: HttpFront) -> None:
    with client_of(front, headers={"accept": "text/html"}) as client:
        for path in ("/", "/topics", "/groups", "/figures?span=7d"):
            begun = time.perf_counter()
            client.get(path).raise_for_status()
            first = time.perf_counter() - begun
            again = best_of(5, partial(client.get, path))
            show(path, f"{first * 1000:.0f} ms the first time, {again * 1000:.0f} ms then", f"goal {_FIRST_PAGE_MS} ms")


def _puts(store: MessageStore, front: HttpFront) -> None:
    ways: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "nothing": nullcontext,
        "a live overview": partial(_looked_at, front),
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(_TURNS):
        for way, beside in ways.items():
            with beside():
                rates[way].append(_rate(store))
    alone = statistics.median(rates["nothing"])
    for way, found in rates.items():
        rate = statistics.median(found)
        show(f"puts beside {way}", f"{rate:,.0f} a second", f"{100 * (1 - rate / alone):.1f} % less, goal {_MOST_COST}")


def _rate(store: MessageStore) -> float:
    count, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < _TURN_S:
        store.put("topic-0000", b"x" * 100, queue_id=0)
        count += 1
    return count / (time.perf_counter() - begun)


@contextmanager
def _looked_at(front: HttpFront) -> Iterator[None]:
    """A browser has the overview open."""
    stopping = threading.Event()

    def follow() -> None:
        with client_of(front) as client, client.stream("GET", "/live/") as stream:
            for _ in stream.iter_lines():
                if stopping.is_set():
                    return

    thread = threading.Thread(target=_until_closed(follow), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(10)


def _until_closed(follow: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            follow()
        except httpx.HTTPError as error:
            print(f"  the page was closed: {error}")

    return run


def _figures(store: MessageStore) -> None:
    clock = [time.time() // 60 * 60 + 30]
    service = FiguresService(store, lambda how: StoreReader.open(store.path, on_damage=how), clock=lambda: clock[0])

    def add() -> None:
        clock[0] += 60
        service.run_once()

    took = best_of(5, add)
    show("figures of a minute", f"{took * 1000:.1f} ms", f"{100 * took / 60:.3f} % of a minute, goal {_MOST_COST}")
    service.stop()
