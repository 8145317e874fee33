"""The address of this machine, as a broker finds its own: the store host of messages, and so a part of their ids.

The first IPv4 address that is neither a loopback address nor of 192.168.0.0/16; else the last one of 192.168.0.0/16;
without any the first IPv6 address that other machines reach; else 127.0.0.1. Interfaces that are down, bridges and
point-to-point links do not count. No name is looked up. On systems other than Linux it is 127.0.0.1.

A server that listens on ``::`` is reached by IPv6 alone (``bound_socket``), so its address is the IPv6 one, or ::1.

Source: RocketMQ ``remoting/common/RemotingUtil.java`` (4.9.8) and ``common/utils/NetworkUtil.java`` (5.3.3), both
``getLocalAddress``; netdevice(7).
"""

from __future__ import annotations

import functools
import ipaddress
import socket
import sys
from collections.abc import Sequence

from commitlog_store.errors import StoreAccessDenied
from commitlog_store.files import disk

_LOOPBACK, _LOOPBACK_V6 = "127.0.0.1", "::1"
# Requests of netdevice(7), and the flags of an interface.
_GET_FLAGS = 0x8913
_GET_ADDRESS = 0x8915
_UP, _IS_LOOPBACK, _POINT_TO_POINT = 0x1, 0x8, 0x10
_IPV6_ADDRESSES = "/proc/net/if_inet6"
_LARGEST_TABLE = 1 << 20


@functools.cache
def local_address() -> str:
    """This machine's address, taken once for the process: IPv4, or IPv6 without a zone. ``TooManyOpenFiles``."""
    if not sys.platform.startswith("linux"):
        return _LOOPBACK
    try:
        return choose_address(*_addresses())
    except OSError:  # a system that does not tell
        return _LOOPBACK


def address_to_reach(listens_on: str) -> str:
    """The address at which other machines reach a server of this one that listens on ``0.0.0.0`` or ``::``."""
    if ":" not in listens_on:
        return local_address()
    try:
        ipv6 = _addresses()[1] if sys.platform.startswith("linux") else []
    except OSError:
        ipv6 = []
    return _first_reachable(ipv6) or _LOOPBACK_V6


def choose_address(ipv4: Sequence[str], ipv6: Sequence[str]) -> str:
    """The address of a machine with these ones, in the order of its interfaces."""
    usable = [one for one in ipv4 if not ipaddress.ip_address(one).is_loopback]
    if usable:
        return next((one for one in usable if not one.startswith("192.168.")), usable[-1])
    return _first_reachable(ipv6) or _LOOPBACK


def _first_reachable(ipv6: Sequence[str]) -> str | None:
    return next((one for one in ipv6 if _is_reachable(ipaddress.ip_address(one))), None)


def _is_reachable(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Not one that has a meaning on a single link or machine only."""
    return not (address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast)


def _addresses() -> tuple[list[str], list[str]]:
    """The IPv4 and the IPv6 addresses of the interfaces that count. ``OSError``."""
    # Not there on every system.
    import fcntl

    ipv4: list[str] = []
    names: set[str] = set()
    with disk.taking_descriptor("a socket"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            request = name.encode().ljust(40, b"\0")
            try:
                flags = int.from_bytes(fcntl.ioctl(asked, _GET_FLAGS, request)[16:18], sys.byteorder)
            except OSError:  # the interface, as that of a container, has gone since
                continue
            is_bridge = disk.exists(f"/sys/class/net/{name}/bridge")
            if not flags & _UP or flags & (_IS_LOOPBACK | _POINT_TO_POINT) or is_bridge:
                continue
            names.add(name)
            try:
                found = fcntl.ioctl(asked, _GET_ADDRESS, request)[20:24]
            except OSError:  # the interface has none
                continue
            ipv4.append(str(ipaddress.IPv4Address(found)))
    try:
        lines = disk.read_file(_IPV6_ADDRESSES, _LARGEST_TABLE).decode("ascii", "replace").splitlines()
    except (FileNotFoundError, StoreAccessDenied):
        lines = []
    fields = [line.split() for line in lines]
    ipv6 = [str(ipaddress.IPv6Address(bytes.fromhex(one[0]))) for one in fields if one[-1] in names]
    return ipv4, ipv6
