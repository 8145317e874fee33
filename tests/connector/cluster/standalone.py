"""A standalone cluster of Spark on this machine: a master, and workers at addresses of their own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyspark

from tests.support.local_spark import make_java_available

_MASTER = "127.0.0.1"
_DEPLOY = "org.apache.spark.deploy"

# What goes before a command that runs at an address.
Prefix = Callable[[str], Sequence[str]]


class StandaloneCluster:
    """A master; ``add_worker`` starts workers of two cores each, ``kill_worker`` kills one with its executors."""

    def __init__(self, scratch: Path, *, master: str = _MASTER, port: int = 0, within: Prefix = lambda _: ()) -> None:
        """``within`` has what goes before the command of a daemon; a ``port`` of 0 is a free one."""
        self._scratch = scratch
        self._within = within
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        make_java_available()
        if not port:
            with socket.socket() as free:
                free.bind((master, 0))
                port = free.getsockname()[1]
        self.address = f"spark://{master}:{port}"
        self._start(master, f"{_DEPLOY}.master.Master", "--port", str(port))

    def add_worker(self, host: str) -> None:
        """Start a worker at ``host``: Spark puts a copy of a task on another host only, which an address is to it."""
        sizes = ["--cores", "2", "--memory", "1g", "--work-dir", str(self._scratch / host)]
        self._start(host, f"{_DEPLOY}.worker.Worker", *sizes, self.address)

    def kill_worker(self, host: str) -> None:
        """SIGKILL. Its executors end when they notice."""
        daemon = self._daemons.pop(host)
        daemon.kill()
        daemon.wait()

    def _start(self, host: str, daemon: str, *arguments: str) -> None:
        command = [
            *self._within(host),
            str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
            daemon,
            "--host",
            host,
        ]
        with (self._scratch / f"{host}.log").open("wb") as log:
            self._daemons[host] = subprocess.Popen([*command, "--webui-port", "0", *arguments], stdout=log, stderr=log)

    def stop(self) -> None:
        for host in list(self._daemons):
            self.kill_worker(host)


@contextlib.contextmanager
def standalone_cluster(scratch: Path, *hosts: str) -> Iterator[StandaloneCluster]:
    """A cluster with workers at these addresses, as long as the block runs."""
    cluster = StandaloneCluster(scratch)
    try:
        for host in hosts:
            cluster.add_worker(host)
        yield cluster
    finally:
        cluster.stop()
