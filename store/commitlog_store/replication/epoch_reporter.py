"""EpochReporter: reports to the old master that its mirror was promoted, until the old master has confirmed it.

The old master may come back at any time, and programs may put into it. It stops accepting messages when it learns of a
higher epoch. A RocketMQ broker does not understand the report; then a warning says that it is available again.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Callable

from commitlog_store.errors import PeerRefused
from commitlog_store.format.ha_hello import Purpose
from commitlog_store.format.ha_transfer import OFFSET_SIZE, decode_offset
from commitlog_store.replication.handshake import Security, receive_exactly, say_hello
from commitlog_store.replication.peer import Hangup, MasterAddress

_LOG = logging.getLogger(__name__)
_INTERVAL_S = 5.0
_TIMEOUT_S = 5.0
_CONFIRMED_S = 3_600.0


class EpochReporter:
    """Reports ``epoch`` to ``peer``. ``on_confirmed`` is called once, when the peer has confirmed it."""

    def __init__(self, peer: MasterAddress, epoch: int, security: Security, on_confirmed: Callable[[], None]) -> None:
        self._peer = peer
        self._epoch = epoch
        self._security = security
        self._on_confirmed = on_confirmed
        self._hangup = Hangup()
        self._is_confirmed = False
        self._warned = False

    def hang_up(self) -> None:
        """End the report that is being made, from another thread, and begin no other."""
        self._hangup.hang_up()

    def run_once(self) -> float:
        if self._is_confirmed:
            return _CONFIRMED_S
        try:
            self._report(self._hangup.connect(self._peer, _TIMEOUT_S))
        except (PeerRefused, TimeoutError, ConnectionResetError) as error:
            self._warn(error)
        except OSError:
            pass  # no program listens there: the old master is unavailable
        finally:
            self._hangup.close()
        return _INTERVAL_S

    def _report(self, connection: socket.socket) -> None:
        if self._security.as_slave is not None:
            connection = self._hangup.begin_tls(connection, self._security.as_slave, self._peer.host)
        epoch = say_hello(
            connection,
            token=self._security.token,
            epoch=self._epoch,
            timeout_s=_TIMEOUT_S,
            purpose=Purpose.REPORT_EPOCH,
        )
        if epoch >= self._epoch:
            return  # this store itself, at the address of the old master, or one that knows better
        # A connection that only ends may be that of a master that was killed before it took the epoch in.
        answer = receive_exactly(connection, OFFSET_SIZE, time.monotonic() + _TIMEOUT_S)
        if decode_offset(answer) != self._epoch:
            raise PeerRefused(f"It answered with epoch {decode_offset(answer)}.")
        self._is_confirmed = True
        _LOG.warning("The old master at %s is available again; epoch %d was reported to it", self._peer, self._epoch)
        self._on_confirmed()

    def _warn(self, error: Exception) -> None:
        if self._hangup.is_hung_up:
            return
        if not self._warned:
            _LOG.warning(
                "The old master at %s answers, and does not understand that epoch %d has superseded it (%s): stop it, "
                "or its messages and those of this store part ways",
                self._peer, self._epoch, error,
            )  # fmt: skip
        self._warned = True
