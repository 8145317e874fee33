"""RocketMQ's Java client at this package's server beside a real broker, in turns in one run."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.benchmarks.measure import machine, show
from tests.interop.clients.benchmark import CACHE, IN_MS, WAYS, line, measure, server
from tests.support.local_spark import make_java_available

_TURNS = 3
_SECONDS = 5.0
# Of the real broker's rates at least so much, of its latency at most so much.
_GOALS = dict(zip(WAYS, (1.0, 0.8, 1.0, 1.0, 2.0, 2.0), strict=True))


def _best(way: str, values: list[float]) -> float:
    return min(values) if way in IN_MS else max(values)


def main() -> None:
    """Print the best of the turns."""
    make_java_available()
    CACHE.mkdir(parents=True, exist_ok=True)
    print(machine())
    sides = ("real", "own")
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for _ in range(_TURNS):
        for side in sides:
            with tempfile.TemporaryDirectory() as name, server(side, Path(name) / "server") as address:
                found[side].append(measure(address, Path(name) / "client", _SECONDS))
    for way in WAYS:
        best = {side: _best(way, [turn[way] for turn in turns]) for side, turns in found.items()}
        for side, value in best.items():
            beside = f"{value / best['real']:.2f} times the real broker's, goal {_GOALS[way]}" if side == "own" else ""
            show(side, line(way, value), beside)
