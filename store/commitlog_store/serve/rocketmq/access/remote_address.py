"""RemoteAddresses: patterns of client addresses in ``plain_acl.yml``.

===========================  =====================================================
``*``                        every address
``192.168.1.7``              one address
``10.0.0.1,10.0.0.2``        each of them
``192.168.1.{1,5}``          192.168.1.1 and 192.168.1.5
``192.168.*.*``              numbers from 0 to 255 in these places
``192.168.1.10-20``          numbers from 10 to 20
``2::ac5:78:1-200:*``        the same with IPv6, whose numbers are hexadecimal
===========================  =====================================================

RocketMQ looks at the first place with a range alone; here, all places count.

Source: RocketMQ 4.9.8 ``acl/plain/RemoteAddressStrategyFactory.java``, ``acl/common/AclUtils.java``.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from commitlog_store.addresses import ip_address
from commitlog_store.errors import InvalidValue

# Numbers of an address: 4 from 0 to 255, or 8 from 0 to 65,535.
_Parts: TypeAlias = tuple[int, ...]
_Matches: TypeAlias = Callable[[_Parts], bool]
_EVERY = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_LIST_AT_END = re.compile(r"(.*[.:])\{([^{}]+)\}")
_RANGE = re.compile(r"([0-9A-Fa-f]+)(?:-([0-9A-Fa-f]+))?")


class RemoteAddresses:
    """The addresses that any of some patterns allow."""

    def __init__(self, patterns: Sequence[str]) -> None:
        """``InvalidValue`` for text that is not a pattern."""
        self._matches = [_matcher(pattern.strip()) for pattern in patterns if pattern.strip()]

    def __contains__(self, address: str) -> bool:
        """Whether the address is one of them. What is no IP address is none of them."""
        if not self._matches:
            return False
        parts = _parts_of(address)
        return parts is not None and any(matches(parts) for matches in self._matches)


@functools.lru_cache(maxsize=4096)
def _parts_of(address: str) -> _Parts | None:
    try:
        found = ip_address(address)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv4Address):
        return tuple(found.packed)
    return tuple(int.from_bytes(found.packed[at : at + 2], "big") for at in range(0, 16, 2))


def _matcher(pattern: str) -> _Matches:
    if pattern in _EVERY:
        return lambda _: True
    if listed := _LIST_AT_END.fullmatch(pattern):
        return _one_of([listed[1] + last.strip() for last in listed[2].split(",")], pattern)
    if "," in pattern:
        return _one_of([one.strip() for one in pattern.split(",")], pattern)
    if "*" in pattern or "-" in pattern:
        return _in_ranges(pattern)
    return _one_of([pattern], pattern)


def _one_of(addresses: Sequence[str], pattern: str) -> _Matches:
    found = {_parts_of(address) for address in addresses}
    if None in found:
        raise _no_pattern(pattern)
    return found.__contains__


def _in_ranges(pattern: str) -> _Matches:
    is_v6 = ":" in pattern
    size, most, base = (8, 0xFFFF, 16) if is_v6 else (4, 255, 10)
    texts = _expanded(pattern) if is_v6 else pattern.split(".")
    if len(texts) != size:
        raise _no_pattern(pattern)
    ranges = []
    for text in (one.strip() for one in texts):
        given = _RANGE.fullmatch("0-" + format(most, "x" if is_v6 else "d") if text == "*" else text)
        if given is None:
            raise _no_pattern(pattern)
        try:
            low, high = int(given[1], base), int(given[2] or given[1], base)
        except ValueError:  # a letter in an address of IPv4
            raise _no_pattern(pattern) from None
        if not 0 <= low <= high <= most:
            raise _no_pattern(pattern)
        ranges.append((low, high))

    def matches(parts: _Parts) -> bool:
        return len(parts) == size and all(low <= part <= high for part, (low, high) in zip(parts, ranges, strict=True))

    return matches


def _expanded(pattern: str) -> list[str]:
    """The places of an address of IPv6, with zeros for ``::``."""
    if pattern.count("::") > 1:
        raise _no_pattern(pattern)
    head, separator, tail = pattern.partition("::")
    before, after = ([one for one in half.split(":") if half] for half in (head, tail))
    zeros = ["0"] * max(8 - len(before) - len(after), 0) if separator else []
    return [*before, *zeros, *after]


def _no_pattern(pattern: str) -> InvalidValue:
    return InvalidValue(
        f"{pattern!r} is no pattern of addresses. Such are 192.168.1.7, 192.168.1.*, 192.168.1.10-20, "
        "192.168.1.{1,5}, and * for all."
    )
