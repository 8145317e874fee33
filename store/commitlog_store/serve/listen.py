"""Where a server listens, and who may reach it: loopback, or TLS with tokens."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import ssl
from dataclasses import dataclass

from commitlog_store.addresses import IpAddress, address_text, parse_host_port
from commitlog_store.errors import InvalidValue
from commitlog_store.files import disk
from commitlog_store.remote.connection import DEFAULT_PORT

DEFAULT_LISTEN = "127.0.0.1:8815"
# A broker's port of RocketMQ.
ROCKETMQ_PORT = 10911
DEFAULT_HTTP = "127.0.0.1:8816"
HTTP_PORT = 8816


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """PEM files: the server's certificate and key, and the certificates that clients must have, if they must."""

    certificate: str
    key: str
    client_ca: str | None = None


@dataclass(frozen=True, kw_only=True)
class ListenSettings:
    """``host`` is an address or a name; port 0 takes a free one."""

    host: str
    port: int
    tls: TlsFiles | None = None
    tokens: str | None = None

    @classmethod
    def parse(
        cls,
        text: str,
        *,
        tls: TlsFiles | None = None,
        tokens: str | None = None,
        default_port: int = DEFAULT_PORT,
    ) -> ListenSettings:
        """``HOST:PORT``, ``HOST``, ``[IPv6]:PORT``. ``InvalidValue``."""
        found = None if text.isdigit() else parse_host_port(text, default_port)  # no host has a number as its name
        if found is None:
            raise InvalidValue(f"A server listens on HOST:PORT, such as 127.0.0.1:{default_port}, not on {text!r}.")
        return cls(host=found[0], port=found[1], tls=tls, tokens=tokens)

    def __str__(self) -> str:
        return address_text(self.host, self.port)

    @property
    def location(self) -> str:
        """As Arrow Flight has it."""
        return f"grpc{'' if self.tls is None else '+tls'}://{self}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host == "localhost" or (self.address is not None and self.address.is_loopback)

    @property
    def is_unspecified(self) -> bool:
        """Whether it is 0.0.0.0 or ::, which is not an address to connect to."""
        return self.address is not None and self.address.is_unspecified

    @property
    def address(self) -> IpAddress | None:
        """None: ``host`` is a name."""
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(self.host)
        return None

    def refuse_open(self, *, instead: str = DEFAULT_LISTEN) -> None:
        """``InvalidValue`` for an address that others reach, without TLS and tokens."""
        needed = {"--tls-cert and --tls-key": self.tls, "--tokens": self.tokens}
        missing = [what for what, given in needed.items() if given is None]
        if missing and not self.is_loopback:
            raise InvalidValue(
                f"Other hosts reach {self}: give {' and '.join(missing)} too, or listen on {instead}. "
                "`commitlog token new` makes tokens."
            )


def bound_socket(host: str, port: int, backlog: int) -> socket.socket:
    """A socket that listens, whose connections send at once; port 0 takes a free one. ``OSError``.

    An answer that is sent in two parts, such as head and body, would wait for the client's delayed ACK else, 40 ms.
    asyncio says so of a connection by itself, but only where the socket names its protocol, which this one does not.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        host.encode("idna")  # else the resolver raises a TypeError, and leaves a socket open
    except UnicodeError as error:
        raise OSError(errno.EINVAL, f"{host} is no name of a host: {error}") from error
    made = socket.create_server((host, port), family=family, backlog=backlog)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # those that it accepts have it, too
    return made


def tls_context(files: TlsFiles) -> ssl.SSLContext:
    """The server's side of TLS. ``InvalidValue`` for files that cannot be used."""
    for path in (files.certificate, files.key, files.client_ca):
        if path is not None and (disk.is_directory(path) or not disk.exists(path)):
            raise InvalidValue(f"TLS takes files in the format PEM, and {path} is not a file.")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # With a password that is empty, a key that needs one is an error: OpenSSL would ask the terminal.
        context.load_cert_chain(files.certificate, files.key, password="")
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:  # an ssl.SSLError is one
        raise InvalidValue(f"TLS cannot use {files.certificate} and {files.key}: {error}.") from error
    return context
