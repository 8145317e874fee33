"""Pages and figures of a store with 2,000 topics of 4 queues: the first page, and what they cost the store's puts.

Puts are in turns in one run: nothing else, and an overview that is looked at live by another process. It is open before
a turn begins: a turn has what a page costs while it stays open. On a machine that others use, rates differ by more than
the cost; the processor time of the pages' threads does not, and puts lose about as much. Figures are added once a
minute, so what one addition takes is given as a part of a minute.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

import pyarrow as pa

from commitlog_store import MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.serve.figures.figures_service import FiguresService
from commitlog_store.serve.http.front import HttpFront
from tests.benchmarks.measure import best_of, machine, scratch, show
from tests.store.serve.http.fronts import client_of, shown

_TOPICS, _QUEUES, _GROUPS = 2_000, 4, 100
_TURNS, _TURN_S = 20, 2.0  # a turn alone may be a third slower than the next
_FIRST_PAGE_MS = 150
_MOST_COST = 2.0  # percent
_WARM_S = 2.0
# Follows the overview, and says when it has come.
_VIEWER = """
import socket, sys
host, port = sys.argv[1:]
with socket.create_connection((host, int(port))) as page:
    page.sendall(f"GET /live/ HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n".encode())
    shown = False
    while data := page.recv(1 << 16):
        if not shown and b"data: " in data:
            shown = True
            print("shown", flush=True)
"""


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
    front.warm()  # as the command does after its first line
    time.sleep(_WARM_S)
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
    spent: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(_TURNS):
        for way, beside in ways.items():
            with beside():
                rate, pages = _rate(store)
            rates[way].append(rate)
            spent[way].append(pages)
    alone = statistics.median(rates["nothing"])
    for way, found in rates.items():
        rate, pages = statistics.median(found), 100 * statistics.median(spent[way])
        cost = f"{100 * (1 - rate / alone):.1f} % less, {pages:.2f} % of a processor for pages, goal {_MOST_COST}"
        show(f"puts beside {way}", f"{rate:,.0f} a second", cost)


def _rate(store: MessageStore) -> tuple[float, float]:
    """Puts a second, and processor time of the pages' threads a second."""
    count, begun, before = 0, time.perf_counter(), _time_of_pages()
    while time.perf_counter() - begun < _TURN_S:
        store.put("topic-0000", b"x" * 100, queue_id=0)
        count += 1
    took = time.perf_counter() - begun
    return count / took, (_time_of_pages() - before) / took


def _time_of_pages() -> float:
    """Seconds of the processor of the event loop's thread and of those in which stores are read."""
    return sum(
        time.clock_gettime(time.pthread_getcpuclockid(one.ident))
        for one in threading.enumerate()
        if one.ident is not None and one.name.startswith(("commitlog-http", "asyncio_"))
    )


@contextmanager
def _looked_at(front: HttpFront) -> Iterator[None]:
    """A browser has the overview open, and has got it once."""
    place = front.url.removeprefix("http://")
    with subprocess.Popen([sys.executable, "-c", _VIEWER, *place.split(":")], stdout=subprocess.PIPE) as viewer:
        assert viewer.stdout is not None
        viewer.stdout.readline()
        try:
            yield
        finally:
            viewer.kill()


def _figures(store: MessageStore) -> None:
    clock = [time.time() // 60 * 60 + 30]
    service = FiguresService(store, lambda how: StoreReader.open(store.path, on_damage=how), clock=lambda: clock[0])

    def add() -> None:
        clock[0] += 60
        service.run_once()

    took = best_of(5, add)
    show("figures of a minute", f"{took * 1000:.1f} ms", f"{100 * took / 60:.3f} % of a minute, goal {_MOST_COST}")
    service.stop()
