"""Servers for tests: one within this process, and the command as a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.flight as flight

from commitlog_store import MessageStore, StoreReader
from commitlog_store.reader import OnDamage
from commitlog_store.remote import consumer as remote_consumer
from commitlog_store.remote import session
from commitlog_store.remote.wire import WIRE_HEADER, WIRE_VERSION
from commitlog_store.serve.call_limits import CallLimits
from commitlog_store.serve.flight_server import StoreServer
from commitlog_store.serve.listen import ListenSettings, TlsFiles
from tests.support import quick_programs
from tests.support.programs import child_environment
from tests.support.waiting import WAIT_LIMIT_S

if TYPE_CHECKING:
    import pytest


def _open(path: str, on_damage: OnDamage) -> StoreReader:
    return StoreReader.open(path, on_damage=on_damage)


# What a client that is not of this package says, so that the server answers it.
SPOKEN_HEADERS = [(WIRE_HEADER.encode(), str(WIRE_VERSION).encode())]
SPOKEN = flight.FlightCallOptions(headers=SPOKEN_HEADERS)


@contextlib.contextmanager
def served(
    *paths: Path | str,
    tls: TlsFiles | None = None,
    tokens: str | None = None,
    limits: CallLimits | None = None,
    owned: MessageStore | None = None,
    **named: Path,
) -> Iterator[str]:
    """The address of a server of a store, or of several by name. It takes writes to the ``owned`` one."""
    stores = {"": paths[0]} if paths else named if owned is None else {"": owned.path}
    openers = {name: partial(_open, str(path)) for name, path in stores.items()}
    listen = ListenSettings.parse("127.0.0.1:0", tls=tls, tokens=tokens)
    server = StoreServer(openers, listen, owned=owned, limits=limits)
    try:
        yield listen.location.replace(":0", f":{server.port}")
    finally:
        server.shutdown()
        server.close()


def shorten_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that writes asks a server again that does not answer, or leaves it, after a part of a second."""
    monkeypatch.setattr(session, "_FIRST_ATTEMPT_SECONDS", 0.5)
    monkeypatch.setattr(session, "CLOSE_SECONDS", 0.2)
    monkeypatch.setattr(remote_consumer, "CLOSE_SECONDS", 0.2)


class ServeProcess:
    """``commitlog serve`` with these arguments, until ``stop`` or the end of the test. An owner creates its store.

    It is a fork of a process that has imported all, or a new interpreter. ``clock`` is the file that sets its clock,
    for ``tests/support/jumping_clock.py``.
    """

    def __init__(
        self,
        *arguments: str | Path,
        listen: str = "127.0.0.1:0",
        new_interpreter: bool = False,
        clock: Path | None = None,
    ) -> None:
        create = [] if "--read-only" in arguments else ["--create"]
        program = [] if clock is None else ["tests.support.jumping_clock", str(clock)]
        program += ["commitlog_store", "serve", *map(str, arguments)]
        command = [sys.executable, "-m", *program, *create, "--listen", listen]
        popen = subprocess.Popen if new_interpreter or clock is not None else quick_programs.Popen
        self.process = popen(command, stderr=subprocess.PIPE, text=True, env=child_environment())
        assert self.process.stderr is not None
        self.first_line = self.process.stderr.readline()
        found = re.search(r"grpc\S*://\S+", self.first_line)
        self.url = found[0] if found else ""

    @property
    def broker(self) -> str:
        """The HOST:PORT for RocketMQ's clients."""
        found = re.search(r"at (\S+) to RocketMQ's clients", self.first_line)
        assert found, self.first_line
        return found[1]

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and what was printed after the first line."""
        os.kill(self.process.pid, number)
        _, errors = self.process.communicate(timeout=WAIT_LIMIT_S)
        return self.process.returncode, errors

    def __enter__(self) -> ServeProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
