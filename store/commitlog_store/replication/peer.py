"""Connections between stores: the address of a master, and a connection that another thread can end.

Connecting, TLS and the hello block their thread for seconds with a peer that is silent. Closing a socket does not wake
the thread that waits on it; shutting its connection down does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import weakref
from typing import NamedTuple

from commitlog_store.addresses import address_text, parse_host_port
from commitlog_store.errors import InvalidValue

_DEFAULT_PORT = 10_912

# All of this process: a forked child has none of their threads.
_ALL: weakref.WeakSet[Hangup] = weakref.WeakSet()


class MasterAddress(NamedTuple):
    """Host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return address_text(self.host, self.port)


def parse_address(text: str, default_port: int = _DEFAULT_PORT) -> MasterAddress:
    """``HOST:PORT``, ``HOST``, ``[IPv6]:PORT``. ``InvalidValue``."""
    found = parse_host_port(text, default_port)
    if found is None or "/" in found[0] or not found[1]:
        raise InvalidValue(f"An address is HOST:PORT, such as 10.0.0.5:{default_port}, not {text!r}.")
    return MasterAddress(*found)


class Hangup:
    """Knows the connection of one thread, one connection after another. Once hung up, none can be begun."""

    def __init__(self) -> None:
        self._connection: socket.socket | None = None
        # A number of a closed socket may soon be another file's: so no socket is closed while it is shut down.
        self._changing = threading.Lock()
        self.is_hung_up = False
        _ALL.add(self)

    def hang_up(self) -> None:
        """End the connection; the thread's call on it fails at once, and so does every later one."""
        with self._changing:
            self.is_hung_up = True
            if self._connection is not None:
                with contextlib.suppress(OSError):  # it has ended
                    # Not that of an SSLSocket, which the thread uses.
                    socket.socket.shutdown(self._connection, socket.SHUT_RDWR)

    def watch(self, connection: socket.socket) -> None:
        """From now on this is the thread's connection. ``ConnectionAbortedError`` after ``hang_up``."""
        with self._changing:
            self._connection = connection
        if self.is_hung_up:
            raise ConnectionAbortedError("This side has closed the connection.")

    def connect(self, address: MasterAddress, timeout_s: float) -> socket.socket:
        """Connect to the first address of the host that answers; each has ``timeout_s``. ``OSError``."""
        failure: OSError | None = None
        for family, kind, protocol, _, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(timeout_s)
                self.watch(connection)
                connection.connect(place)
                return connection
            except OSError as error:
                failure = error
                self.close()
        assert failure is not None, "an unknown host is an error of its own"
        raise failure

    def begin_tls(
        self, connection: socket.socket, context: ssl.SSLContext, server_hostname: str | None = None
    ) -> ssl.SSLSocket:
        """TLS over a connection, as the client of ``server_hostname``, or as a server without. ``OSError``."""
        secured = context.wrap_socket(
            connection,
            server_side=server_hostname is None,
            server_hostname=server_hostname,
            do_handshake_on_connect=False,
        )
        self.watch(secured)
        secured.do_handshake()
        return secured

    def close(self) -> None:
        """Close the thread's connection. It may be called again."""
        with self._changing:
            if self._connection is not None:
                self._connection.close()

    def forget(self) -> None:
        """In a forked child: close this process's descriptor, with which the peer would not see the parent's end.

        The connection is the parent's. Another thread of the parent may have held the lock.
        """
        self._changing = threading.Lock()
        self.is_hung_up = True
        self.close()
        self._connection = None


def _forget_all() -> None:
    for one in _ALL:
        one.forget()


os.register_at_fork(after_in_child=_forget_all)
