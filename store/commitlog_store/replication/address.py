"""MasterAddress: HOST:PORT of a master, as text and as the system takes it."""

from __future__ import annotations

from typing import NamedTuple

from commitlog_store.errors import InvalidValue

__all__ = ["MasterAddress", "parse_address"]

_DEFAULT_PORT = 10_912


class MasterAddress(NamedTuple):
    """Host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, default_port: int = _DEFAULT_PORT) -> MasterAddress:
    """``HOST:PORT``, ``HOST``, ``[IPv6]:PORT``. ``InvalidValue``."""
    wrong = InvalidValue(f"An address is HOST:PORT, such as 10.0.0.5:{default_port}, not {text!r}.")
    host, separator, port = (text, "", "") if text.endswith("]") else text.rpartition(":")
    if not separator:
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise wrong
    return MasterAddress(host, int(port))
