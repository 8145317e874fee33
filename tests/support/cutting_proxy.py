"""A proxy between a slave and its master that treats the stream badly: cuts, delays, doubles bytes, flips a byte.

What the master sends is treated so; of what the slave sends, cut and delayed. One connection at a time.

The protocol has no checksum, and a record's CRC is that of its body: a changed property is stored, and nobody can tell.
So bytes change within bodies and in headers of frames only. The bodies must have nothing but bytes from 0x80 on, so
that the proxy knows them. TLS finds every change: ``sealed`` streams are changed anywhere.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import threading
import time
from types import TracebackType

from commitlog_store.format.ha_transfer import TRANSFER_HEADER_SIZE
from commitlog_store.replication.peer import parse_address

_AROUND = 16
_RECEIVED_SIZE = 16 << 10
_STEP_MS = 20


def body_of_high_bytes(chance: random.Random, size: int) -> bytes:
    """A body that the proxy knows for one."""
    return bytes(byte | 0x80 for byte in chance.randbytes(size))


class CuttingProxy:
    """Listens on ``address`` and connects to ``master``. A context manager.

    ``done`` counts what was done to streams. With ``honest`` set, nothing is any more.
    """

    def __init__(self, master: str, seed: int, *, sealed: bool = False) -> None:
        self._sealed = sealed
        self._master = parse_address(master)
        self._chance = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_STEP_MS / 1000)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        # Headers of frames are not to be seen in a sealed stream.
        self._changes = ["double", "flip"] if sealed else ["double", "flip", "header"]
        self.done = dict.fromkeys(["cut", "delay", *self._changes], 0)
        self.honest = False
        # What is done to the next piece that the master sends, if not by chance.
        self.next = ""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="CuttingProxy")
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            with contextlib.suppress(OSError):  # nobody connects, or an end of a connection is gone
                slave, _ = self._listener.accept()
                with slave, socket.create_connection(self._master) as master:
                    self._carry(slave, master)

    def _carry(self, slave: socket.socket, master: socket.socket) -> None:
        """Carry bytes until an end closes, or the stream is cut."""
        poll = select.poll()
        poll.register(slave, select.POLLIN)
        poll.register(master, select.POLLIN)
        is_first = True
        while not self._stopping:
            for descriptor, _ in poll.poll(_STEP_MS):
                is_down = descriptor == master.fileno()
                source, target = (master, slave) if is_down else (slave, master)
                data = source.recv(_RECEIVED_SIZE)
                if not data:
                    return
                is_honest = self.honest and not (is_down and self.next)
                data, goes_on = (data, True) if is_honest else self._treat(data, is_down, is_first and is_down)
                is_first &= not is_down
                target.sendall(data)
                if not goes_on:
                    return

    def _treat(self, data: bytes, is_down: bool, is_first: bool) -> tuple[bytes, bool]:
        """The bytes to send on, and whether the connection lives after that."""
        # Sealed, each change ends the connection: most pieces have to come through, or nothing ever does.
        nothing = [""] * (24 if self._sealed else 3)
        kind = self._chance.choice([*nothing, "cut", "delay", *self._changes * is_down])
        if is_down and self.next:
            kind, self.next = self.next, ""
        place = self._chance.randrange(len(data))
        if kind == "header":
            if not is_first or len(data) < TRANSFER_HEADER_SIZE:
                return data, True
            place %= TRANSFER_HEADER_SIZE
        elif kind in ("double", "flip") and self._sealed:
            if len(data) < 2:
                return data, True
            place = max(place, 1)  # a byte before it is doubled
        elif kind in ("double", "flip") and not _is_in_body(data, place):
            return data, True
        if kind:
            self.done[kind] += 1
        if kind == "cut":
            return data[:place], False
        if kind == "delay":
            time.sleep(self._chance.random() * 0.03)
        elif kind == "double":
            return data[:place] + data[self._chance.randrange(place) :], True
        elif kind in ("flip", "header"):
            return data[:place] + bytes([data[place] ^ 1 << self._chance.randrange(8)]) + data[place + 1 :], True
        return data, True

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        self._thread.join()
        self._listener.close()


def _is_in_body(data: bytes, place: int) -> bool:
    around = data[place - _AROUND : place + _AROUND] if place >= _AROUND else b""
    return len(around) == 2 * _AROUND and min(around) >= 0x80
