"""Addresses as text: ``HOST:PORT``, with brackets around an IPv6 address, and addresses of clients."""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

IpAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def address_text(host: str, port: int) -> str:
    """``HOST:PORT``, ``[IPv6]:PORT``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_host_port(text: str, default_port: int) -> tuple[str, int] | None:
    """``HOST:PORT``, ``HOST``, ``[IPv6]:PORT``; None for anything else."""
    host, separator, port = (text, "", "") if text.endswith("]") else text.rpartition(":")
    if not separator:
        host, port = text, str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    # Python refuses to read numbers of thousands of digits.
    if not host or not (port.isascii() and port.isdigit()) or len(port) > 5 or int(port) >= 65_536:
        return None
    return host, int(port)


def ip_address(text: str) -> IpAddress:
    """An address; of a client of IPv4 at a socket of IPv6, the IPv4 address. ``ValueError``."""
    found = ipaddress.ip_address(text)
    return getattr(found, "ipv4_mapped", None) or found
