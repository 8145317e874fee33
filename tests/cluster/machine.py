"""A cluster on hosts of its own: a host with two stores and their server, Spark's master with a driver, and workers.

    python -m tests.cluster.machine BASE batch|stream

``batch``: two workers, one job of each kind. ``stream``: one worker; a second joins when the first batch is done, and
the first loses its power within a later one, while the owner of a store puts more messages. Prints ``fine`` at the end.
Started by ``hosts.OWN_MACHINE``.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from commitlog_store import MessageStore
from commitlog_store.serve.tokens import Role, new_token
from tests.cluster.hosts import Hosts
from tests.connector.cluster.standalone import StandaloneCluster
from tests.store.follower.certificates import make_certificate
from tests.support.local_spark import PROJECT
from tests.support.programs import child_environment

ROWS = 4_000
QUEUES = 4
SPARK_PORT, SERVER_PORT = 7077, 8815


def main(directory: str, mode: str) -> None:
    base = Path(directory)
    disk, scratch = base / "disk", base / "scratch"
    disk.mkdir()
    scratch.mkdir()
    with MessageStore.open(disk / "a") as first, MessageStore.open(disk / "b") as second:
        write(first, 0)
        write(second, 0)
        hosts = Hosts(disk)
        store_host = hosts.add("store", sees_it=True)
        driver, *workers = (hosts.add(name) for name in ("driver", "worker1", "worker2"))
        with serving(hosts, store_host, base), contextlib.ExitStack() as stack:
            cluster = StandaloneCluster(scratch, master=driver, port=SPARK_PORT, within=hosts.within)
            stack.callback(cluster.stop)
            for worker in workers if mode == "batch" else workers[:1]:
                cluster.add_worker(worker)
            arguments = (mode, base, cluster.address, f"{store_host}:{SERVER_PORT}")
            command = [*hosts.within(driver), sys.executable, "-m", "tests.cluster.job", *map(str, arguments)]
            job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment(), cwd=PROJECT)
            stack.callback(job.kill)
            assert job.stdout is not None
            for line in job.stdout:
                if line == "another worker, please\n":
                    cluster.add_worker(workers[1])
                    write(first, 1)
                elif line == "a worker less, please\n":
                    hosts.power_off(workers[0])
                else:
                    print(line, end="", flush=True)
            assert job.wait() == 0


def write(store: MessageStore, turn: int) -> None:
    """Put the messages of a turn, spread over the queues."""
    rows = {
        "body": [f"{turn}-{number}-{'.' * 100}".encode() for number in range(ROWS)],
        "queueId": pa.array([number % QUEUES for number in range(ROWS)], pa.int32()),
    }
    store.put_messages(pa.table(rows), topic="orders").raise_for_status()


@contextlib.contextmanager
def serving(hosts: Hosts, address: str, base: Path) -> Iterator[None]:
    """``commitlog serve`` of both stores, beside their owner, with TLS and tokens."""
    certificate, key = make_certificate(base, "server", address)
    (base / "token").write_text(new_token(str(base / "tokens"), "spark", Role.READ, expires_in_s=86_400))
    stores = [f"{name}={base / 'disk' / name}" for name in "ab"]
    options = ["--tls-cert", certificate, "--tls-key", key, "--tokens", base / "tokens"]
    command = [sys.executable, "-m", "commitlog_store", "serve", *stores, "--read-only", *options]
    command += ["--listen", f"{address}:{SERVER_PORT}"]
    started = [*hosts.within(address), *map(str, command)]
    server = subprocess.Popen(started, stderr=subprocess.PIPE, text=True, env=child_environment())
    try:
        assert server.stderr is not None
        line = server.stderr.readline()
        assert f"grpc+tls://{address}:{SERVER_PORT}" in line, line
        yield
        server.terminate()
        assert server.wait(60) == 0
    finally:
        server.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
