"""Rates and latencies of RocketMQ's Java client at a server: ``python -m tests.interop.clients.benchmark WHERE``.

WHERE is ``real`` (a broker with its name server), ``own`` (this package's server), both in turns if there is none, or
the address of a name server that runs. Bodies have 1 KiB.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.clients.rocketmq_client import RocketMQClient
from tests.interop.clients.servers import SERVER_VERSION, SETTINGS, own_server, real_broker
from tests.support.local_spark import make_java_available

CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "pyspark-commitlog" / "rocketmq"
BODY_SIZE = 1_024
BATCH = 100
LATENCY_PER_SECOND = 100
# As brokers have them by default.
_SIZES: dict[str, object] = {"mappedFileSizeCommitLog": 1 << 30, "mappedFileSizeConsumeQueue": 6_000_000}
# A Java machine as users have it, for client and broker.
_JVM = ("-Xms512m", "-Xmx1g")
WAYS = ("sync, 1 thread", "sync, 8 threads", f"batches of {BATCH}", "push consume", "send to listener, p50", "p99")
# Those that count milliseconds; the others are messages a second.
IN_MS = WAYS[4:]


@contextmanager
def server(where: str, directory: Path) -> Iterator[str]:
    """The address of a name server: of a new server, or the one that is given."""
    if where == "real":
        with real_broker(SERVER_VERSION, CACHE, directory, SETTINGS | _SIZES, jvm=_JVM) as address:
            yield address
    elif where == "own":
        with own_server(directory, SETTINGS | _SIZES) as address:
            yield address
    else:
        yield where


def measure(address: str, directory: Path, seconds: float, version: str = "5.3.3") -> dict[str, float]:
    """By the names of ``WAYS``. Each is measured after a round that warms up client and server."""
    directory.mkdir(parents=True, exist_ok=True)
    with RocketMQClient(f"java-{version}", CACHE, directory, jvm=_JVM) as client:
        run = time.time_ns()
        topic = f"benchmark-{run}"
        common = {"namesrv": address, "size": BODY_SIZE, "seconds": seconds}

        def sends(threads: int, batch: int) -> float:
            rounds = [
                client.ask("benchmark", kind="send", topic=topic, threads=threads, batch=batch, **common)
                for _ in range(2)
            ]
            return float(rounds[-1]["perSecond"])

        found = {WAYS[0]: sends(1, 1), WAYS[1]: sends(8, 1), WAYS[2]: sends(1, BATCH)}
        # What was sent last is read, so that it is in memory.
        filled = client.ask("benchmark", kind="send", topic=f"{topic}-full", threads=1, batch=BATCH, **common)
        wanted = {"namesrv": address, "messages": filled["messages"], "timeoutSeconds": 100}
        rounds = [client.ask("benchmark", kind="consume", topic=f"{topic}-full", **wanted) for _ in range(2)]
        found[WAYS[3]] = float(rounds[-1]["perSecond"])
        answer = client.ask(
            "benchmark", kind="latency", topic=f"{topic}-latency", perSecond=LATENCY_PER_SECOND, **common
        )
        return found | {WAYS[4]: float(answer["p50Ms"]), WAYS[5]: float(answer["p99Ms"])}


def line(way: str, value: float) -> str:
    """One result with its unit."""
    return f"{way:24} {value:10.2f} ms" if way in IN_MS else f"{way:24} {value:10,.0f}/s"


def main() -> None:
    """Measure where the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("where", nargs="*", help="real, own, or HOST:PORT of a name server")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--client", default="5.3.3", help="the version of the Java client")
    arguments = parser.parse_args()
    make_java_available()
    CACHE.mkdir(parents=True, exist_ok=True)
    for where in arguments.where or ["real", "own"]:
        with contextlib.ExitStack() as stack:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            address = stack.enter_context(server(where, directory / "server"))
            print(f"== {where}: {address}", flush=True)
            for way, value in measure(address, directory / "client", arguments.seconds, arguments.client).items():
                print(line(way, value), flush=True)


if __name__ == "__main__":
    main()
