"""ConnectionGuard: cuts connections whose clients do not read on, send too much before a call, or are too many.

gRPC keeps what a client sends until a request is whole, and asks for a token only then; it lets a call last as long as
its client likes. Both are bounded here, from outside. A cut connection ends its calls; a reader continues after the
last block it got, over another connection. Connections on which nothing is said, gRPC itself ends after a minute or
two.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from commitlog_store.files.limits import most_open_files
from commitlog_store.files.memory import return_free_memory
from commitlog_store.files.own_sockets import PeerConnection, cut_connections, peer_connections
from commitlog_store.serve.call_limits import CallLimits
from commitlog_store.serve.connection_counts import ConnectionCount

_LOG = logging.getLogger(__name__)

# What a connection may send for each of its calls, and beside them: several times the largest request.
_MOST_BYTES = 64 << 20
# What all connections that have not made a call yet may have sent.
_MOST_BYTES_OF_STRANGERS = 256 << 20
_MOST_CONNECTIONS = 16_384
_PAUSE_SECONDS = 0.2
_LONGEST_PAUSE_SECONDS = 1.0
# A round takes longer the more connections there are; this part of a core is for it.
_PART_OF_A_CORE = 0.05


class ConnectionGuard:
    """A service: see ``threads.worker``. ``port`` is what clients connect to."""

    def __init__(self, port: int, limits: CallLimits) -> None:
        self._port = port
        self._limits = limits
        self._max_connections = min(most_open_files() // 2, _MOST_CONNECTIONS)
        # By peer: what it had sent when it made its last call; None before its first one.
        self._sent_at_call: dict[str, int | None] = {}
        self._has_cut = False
        # As the last look found it.
        self.count = ConnectionCount(0, 0, 0, 0)

    def run_once(self) -> float:
        """Cut what must be cut. Returns the seconds until the next look."""
        begun = time.thread_time()
        found = peer_connections(self._port)
        calls = self._limits.calls_of_peers()
        sent: dict[str, int | None] = {}
        for peer, received in found:
            sent[peer] = received if peer in calls else self._sent_at_call.get(peer)
        self._sent_at_call = sent
        unwanted = dict.fromkeys(self._limits.overdue(), "did not read on in time")
        unwanted |= dict.fromkeys(self._flooding(found, calls), "sent more than any request has")
        too_many = self._too_many(found, calls)
        self.count = self._counted(found, calls, self.count.refused + len(too_many))
        unwanted |= dict.fromkeys(too_many, "was one of too many")
        if self._has_cut and not unwanted:
            return_free_memory()  # what cut connections had sent
        self._has_cut = bool(unwanted)
        if unwanted:
            cut_connections(self._port, unwanted.__contains__)
            reasons = sorted(set(unwanted.values()))
            some = ", ".join(sorted(unwanted)[:5])
            _LOG.warning("Cut %d connections (%s): the client %s.", len(unwanted), some, ", or ".join(reasons))
        taken = time.thread_time() - begun
        return min(max(_PAUSE_SECONDS, taken / _PART_OF_A_CORE), _LONGEST_PAUSE_SECONDS)

    def _flooding(self, found: list[PeerConnection], calls: Mapping[str, int]) -> list[str]:
        cut = []
        strangers = []
        for one in found:
            before = self._sent_at_call[one.peer]
            if one.received - (before or 0) > _MOST_BYTES * (1 + calls.get(one.peer, 0)):
                cut.append(one.peer)
            elif before is None:
                strangers.append(one)
        in_all = sum(one.received for one in strangers)
        for one in sorted(strangers, key=lambda one: -one.received):
            if in_all <= _MOST_BYTES_OF_STRANGERS:
                break
            cut.append(one.peer)
            in_all -= one.received
        return cut

    def _counted(self, found: list[PeerConnection], calls: Mapping[str, int], refused: int) -> ConnectionCount:
        active = sum(one.peer in calls for one in found)
        beginning = sum(self._sent_at_call[one.peer] is None for one in found)
        return ConnectionCount(beginning, active, len(found) - active - beginning, refused)

    def _too_many(self, found: list[PeerConnection], calls: Mapping[str, int]) -> list[str]:
        surplus = len(found) - self._max_connections
        if surplus <= 0:
            return []
        strangers = [one.peer for one in found if self._sent_at_call[one.peer] is None]
        idle = [one.peer for one in found if self._sent_at_call[one.peer] is not None and one.peer not in calls]
        return (strangers + idle)[:surplus]
