"""A cluster on hosts of its own: a host with stores and their servers, Spark's master with a driver, and workers.

    python -m tests.cluster.machine BASE batch|stream hosts|addresses

``batch``: two workers read two stores, and copy them as a stream to a third one, which a server owns; an executor is
killed while tasks upload. Before, they copy a store in a directory that all hosts have. ``stream``: one worker; a
second joins when the first batch is done, and the first loses its power within a later one, while the owner of a store
puts more messages. Prints ``fine`` at the end.

With ``hosts`` it is started by ``hosts.OWN_MACHINE``, and the stores are in ``BASE/disk``, which other hosts do not
have. With ``addresses`` all is on this machine, and the stores in another place, which the job is not given.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from commitlog_store import MessageStore
from commitlog_store.serve.tokens import Role, new_token
from tests.cluster.hosts import Addresses, Hosts
from tests.connector.cluster.standalone import StandaloneCluster
from tests.store.follower.certificates import make_certificate
from tests.support.clean_store import assert_clean
from tests.support.local_spark import PROJECT
from tests.support.programs import child_environment
from tests.support.stored_bodies import topic_bodies
from tests.support.waiting import wait_for

ROWS = 4_000
QUEUES = 4
SPARK_PORT, SERVER_PORT, OWNER_PORT = 7077, 8815, 8816


def main(directory: str, mode: str, machines: str) -> None:
    base = Path(directory)
    with contextlib.ExitStack() as stack:
        if machines == "hosts":
            disk = base / "disk"
            disk.mkdir()
            hosts: Hosts | Addresses = Hosts(disk)
        else:
            disk = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            hosts = Addresses()
        first, second = (stack.enter_context(MessageStore.open(disk / name)) for name in "ab")
        write(first, 0)
        write(second, 0)
        store_host = hosts.add("store", sees_it=True)
        with serving(hosts, store_host, base, disk):
            run_job(hosts, store_host, base, disk, mode, first)
        if mode == "batch":
            check_copies(disk)


def run_job(hosts: Hosts | Addresses, store_host: str, base: Path, disk: Path, mode: str, first: MessageStore) -> None:
    """``job.py`` on a host of its own, and what it asks for."""
    driver, *workers = (hosts.add(name) for name in ("driver", "worker1", "worker2"))
    (base / "scratch").mkdir()
    with contextlib.ExitStack() as stack:
        cluster = StandaloneCluster(base / "scratch", master=driver, port=SPARK_PORT, within=hosts.within)
        stack.callback(cluster.stop)
        for worker in workers if mode == "batch" else workers[:1]:
            cluster.add_worker(worker)
        arguments = (mode, base, cluster.address, store_host)
        command = [*hosts.within(driver), sys.executable, "-m", "tests.cluster.job", *map(str, arguments)]
        job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment(), cwd=PROJECT)
        stack.callback(job.kill)
        assert job.stdout is not None
        for line in job.stdout:
            if line == "another worker, please\n":
                cluster.add_worker(workers[1])
                write(first, 1)
            elif line == "a worker less, please\n":
                assert isinstance(hosts, Hosts)
                hosts.power_off(workers[0])
            elif line == "an executor less, please\n":
                wait_for(lambda: any(path.is_file() for path in (disk / "c" / "staging").rglob("*")))
                (base / "killed").touch()
            else:
                print(line, end="", flush=True)
        assert job.wait() == 0


def check_copies(disk: Path) -> None:
    """Each message of both stores is in the third one, once."""
    wanted = [
        f"{name}-{queue_id}-{offset}" for name in "ab" for queue_id in range(QUEUES) for offset in range(ROWS // QUEUES)
    ]
    found = [body.decode().rstrip(".") for body in topic_bodies(disk / "c", "copies")]
    assert sorted(found) == sorted(wanted)
    assert not [path for path in (disk / "c" / "staging").rglob("*") if path.is_file()]
    assert_clean(disk / "c")


def write(store: MessageStore, turn: int) -> None:
    """Put the messages of a turn, spread over the queues."""
    rows = {
        "body": [f"{turn}-{number}-{'.' * 100}".encode() for number in range(ROWS)],
        "queueId": pa.array([number % QUEUES for number in range(ROWS)], pa.int32()),
    }
    store.put_messages(pa.table(rows), topic="orders").raise_for_status()


@contextlib.contextmanager
def serving(hosts: Hosts | Addresses, address: str, base: Path, disk: Path) -> Iterator[None]:
    """``commitlog serve`` of two stores beside their owner, and of a third one as its owner, with TLS and tokens."""
    certificate, key = make_certificate(base, "server", address)
    for name, role in (("read", Role.READ), ("write", Role.WRITE)):
        (base / f"{name}-token").write_text(new_token(str(base / "tokens"), name, role, expires_in_s=86_400))
    secured = ["--tls-cert", certificate, "--tls-key", key, "--tokens", base / "tokens"]
    shown = [*(f"{name}={disk / name}" for name in "ab"), "--read-only"]
    with contextlib.ExitStack() as servers:
        for port, stores in ((SERVER_PORT, shown), (OWNER_PORT, [disk / "c", "--create"])):
            command = [
                sys.executable,
                "-m",
                "commitlog_store",
                "serve",
                *stores,
                *secured,
                "--listen",
                f"{address}:{port}",
            ]
            servers.enter_context(running([*hosts.within(address), *map(str, command)], f"grpc+tls://{address}:{port}"))
        yield


@contextlib.contextmanager
def running(command: list[str], says: str) -> Iterator[None]:
    """A program whose first line has these words, until SIGTERM."""
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=child_environment())
    try:
        assert server.stderr is not None
        line = server.stderr.readline()
        assert says in line, line
        yield
        server.terminate()
        assert server.wait(60) == 0
    finally:
        server.kill()


if __name__ == "__main__":
    main(*sys.argv[1:])
