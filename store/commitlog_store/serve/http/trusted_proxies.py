"""Trusted proxies: what a browser asked for, where one of them passed its request on (``X-Forwarded-...``)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import Scope

from commitlog_store.addresses import IpAddress, ip_address
from commitlog_store.errors import InvalidValue

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# A name or an IPv4 address, or an IPv6 address in brackets, with a port.
_HOST = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
# The same of a client, which some proxies send with its port.
_WITH_PORT = re.compile(r"(?:([0-9.]+)|\[([0-9A-Fa-f:.]+)\])(?::[0-9]{1,5})?")
# The IPv4 addresses, as a socket for both families names them.
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")


@dataclass(frozen=True)
class TrustedProxies:
    """The addresses whose ``X-Forwarded-Host``, ``-Proto`` and ``-For`` count; by default those of no address.

    Of several values the last one counts, which the proxy itself added: a client can send any before it.
    """

    networks: tuple[_Network, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> TrustedProxies:
        """Addresses and networks (``10.0.0.0/8``) with commas between. ``InvalidValue``."""
        parts = [] if text is None else [part.strip() for part in text.split(",")]
        networks = tuple(map(_network, parts))
        together: tuple[_Network, ...] = (
            *ipaddress.collapse_addresses(one for one in networks if isinstance(one, ipaddress.IPv4Network)),
            *ipaddress.collapse_addresses(one for one in networks if isinstance(one, ipaddress.IPv6Network)),
        )
        if any(network.prefixlen == 0 for network in together):
            raise InvalidValue(
                f"With the trusted proxy {text}, which is every address of a kind, everyone could say which host was "
                "asked for: name yours."
            )
        return cls(networks)

    def as_asked(self, scope: Scope) -> Scope:
        """The request as it came to the trusted proxy: host, scheme and client; else as it is."""
        client: tuple[str, int] | None = scope.get("client")
        peer = None if client is None else _address(client[0])
        if client is None or peer is None or not self._has(peer):
            return scope
        asked, headers = dict(scope), MutableHeaders(raw=list(scope["headers"]))
        scheme, host = _last(headers, "x-forwarded-proto").lower(), _last(headers, "x-forwarded-host")
        if scheme in ("http", "https"):
            asked["scheme"] = scheme
        if _HOST.fullmatch(host):
            headers["host"] = host
        asked["headers"] = headers.raw
        asked["client"] = self._client(headers, client)
        return asked

    def _client(self, headers: Headers, client: tuple[str, int]) -> tuple[str, int]:
        """The last address of ``X-Forwarded-For`` that is not a trusted proxy: each adds its client at the end."""
        found = client
        for part in reversed(",".join(headers.getlist("x-forwarded-for")).split(",")):
            address = _address(_without_port(part.strip()))
            if address is None:
                break
            found = str(address), 0
            if not self._has(address):
                break
        return found

    def _has(self, address: IpAddress) -> bool:
        return any(address in network for network in self.networks)


def _network(text: str) -> _Network:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise InvalidValue(
            f"A trusted proxy is an address or a network, such as 127.0.0.1 or 10.0.0.0/8, not {text!r}: {error}."
        ) from None
    if isinstance(network, ipaddress.IPv6Network) and network.subnet_of(_MAPPED):
        bits = int(network.network_address) & 0xFFFFFFFF
        return ipaddress.IPv4Network((bits, network.prefixlen - _MAPPED.prefixlen))
    return network


def _without_port(text: str) -> str:
    """``203.0.113.7:51234`` and ``[2001:db8::1]:51234`` without the port and the brackets; anything else as it is."""
    found = _WITH_PORT.fullmatch(text)
    return text if found is None else found[1] or found[2]


def _address(text: str) -> IpAddress | None:
    try:
        return ip_address(text)
    except ValueError:
        return None


def _last(headers: Headers, name: str) -> str:
    """The last of a header's values, which may be several headers, or one with commas; empty without any."""
    return ",".join(headers.getlist(name)).rpartition(",")[2].strip()
