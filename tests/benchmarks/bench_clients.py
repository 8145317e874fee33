"""RocketMQ's Java client at this package's server beside a real broker, in turns in one run; its start and memory."""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.measure import machine, show
from tests.interop.clients.benchmark import BODY_SIZE, CACHE, IN_MS, WAYS, line, measure, server
from tests.store.serve.memory import anonymous_mib, resident_mib
from tests.store.serve.rocketmq.remoting_client import RemotingClient
from tests.store.serve.servers import ServeProcess
from tests.support.local_spark import make_java_available

_TURNS = 3
_SECONDS = 2.0
# Of the real broker's rates at least so much, of its latency at most so much: the median of the turns.
_GOALS = dict(zip(WAYS, (1.0, 0.8, 1.0, 1.0, 2.0, 2.0), strict=True))
_MESSAGES = 100_000
# As many requests are under way at once.
_IN_FLIGHT = 100
_MOST_START_S = 1.0
_MOST_RESIDENT_MIB = 150
_STARTS = 3


def main() -> None:
    """Print the medians of the turns, and of the ratio of each."""
    make_java_available()
    CACHE.mkdir(parents=True, exist_ok=True)
    print(machine())
    _show_start()
    sides = ("real", "own")
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(_TURNS):
        for side in sides:
            with tempfile.TemporaryDirectory() as name, server(side, Path(name) / "server") as address:
                found[side].append(measure(address, Path(name) / "client", _SECONDS))
    for way in WAYS:
        real, own = ([turn[way] for turn in found[side]] for side in sides)
        ratios = [mine / theirs for mine, theirs in zip(own, real, strict=True)]
        spread = f"{statistics.median(ratios):.2f} times the real broker's ({min(ratios):.2f} to {max(ratios):.2f})"
        show("real", line(way, statistics.median(real)), _range(way, real))
        show("own", line(way, statistics.median(own)), f"{_range(way, own)}; {spread}, goal {_GOALS[way]}")


def _range(way: str, values: list[float]) -> str:
    digits = 2 if way in IN_MS else 0
    return f"{min(values):,.{digits}f} to {max(values):,.{digits}f}"


@contextlib.contextmanager
def _started() -> Iterator[tuple[ServeProcess, RemotingClient, float]]:
    """A server, a client to which it has answered a send, and the seconds that this took."""
    with tempfile.TemporaryDirectory() as name:
        begun = time.perf_counter()
        served = ServeProcess(Path(name) / "s", "--rocketmq", "127.0.0.1:0", new_interpreter=True)
        with served as process, RemotingClient(process.broker) as client:
            assert client.send("orders", b"first").code == 0
            yield process, client, time.perf_counter() - begun


def _show_start() -> None:
    """How long the server takes to its first answer to a send, and what it has in memory after many."""
    starts = []
    for _ in range(_STARTS):
        with _started() as (_, _, seconds):
            starts.append(seconds)
    spread = f"{min(starts):.2f} to {max(starts):.2f}, goal {_MOST_START_S}"
    show("start to first acknowledged message", f"{statistics.median(starts):.2f} s", spread)
    with _started() as (process, client, _):
        body = b"x" * BODY_SIZE
        for _ in range(_MESSAGES // _IN_FLIGHT):
            asked = [client.start_send("orders", body, number % 4) for number in range(_IN_FLIGHT)]
            assert {client.answer(one).code for one in asked} == {0}
        pid = process.process.pid
        anonymous = f"of which {anonymous_mib(pid):.0f} anonymous, goal {_MOST_RESIDENT_MIB}"
        show(f"resident after {_MESSAGES:,} messages", f"{resident_mib(pid):.0f} MiB", anonymous)
