"""HAService: listens for slaves, and serves each of them on a thread of its own.

Threads, not an event loop: decision 0025. Their number is bounded, and a peer that may not connect is closed at once.

Source: RocketMQ ``store/ha/HAService.java``, ``store/ha/DefaultHAService.java``.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
import threading
from collections.abc import Sequence
from functools import partial

from commitlog_store.addresses import address_text, ip_address
from commitlog_store.config import BrokerRole, MessageStoreConfig
from commitlog_store.engine.commit_batch import epoch_of
from commitlog_store.engine.group_transfer import GroupTransferService
from commitlog_store.engine.running_state import RunningState
from commitlog_store.engine.stats import SlaveState
from commitlog_store.engine.subject import Subject
from commitlog_store.errors import CommitLogError, ListenFailed, ReplicaStore, TooManyOpenFiles
from commitlog_store.files import disk
from commitlog_store.recovery.open import OpenedLog
from commitlog_store.replication.connection import HAConnection, MasterIdentity
from commitlog_store.replication.epoch_reporter import EpochReporter
from commitlog_store.replication.handshake import security_of
from commitlog_store.replication.peer import parse_address
from commitlog_store.replication.replica_mark import ReplicaMark, read_mark, remove_mark, write_mark
from commitlog_store.threads.worker import Worker

_LOG = logging.getLogger(__name__)
# So many slaves are served; RocketMQ's masters have one to three.
_MOST_SLAVES = 16
# Connections that the system keeps until they are accepted.
_BACKLOG = 16
# The pause after an accept that failed: without descriptors, the next one fails too.
_FAILED_S = 1.0


class HAService(Subject):
    """The slaves of a master. Without an address to listen on (``ha_listen_address``) it has none, and does nothing."""

    def __init__(self, path: str, config: MessageStoreConfig, log: OpenedLog, state: RunningState) -> None:
        """Listens from here on; ``start`` begins to accept. ``ListenFailed``, ``InvalidValue``, ``ReadFailed``."""
        self._config = config
        self._log = log.files
        security = security_of(config)
        # Only peers ask for it, and it is read from the ledger.
        epoch = 0 if config.ha_address is None else epoch_of(path, log)
        self._identity = MasterIdentity(security, epoch, partial(_halt, path, state))
        mark = None if config.broker_role is BrokerRole.SLAVE else read_mark(path)
        # Reports to the old master of a promoted store.
        self._reporter: EpochReporter | None = None
        self._reporting: Worker | None = None
        if mark is not None and mark.state == "promoted":
            on_confirmed = partial(remove_mark, path)
            self._reporter = EpochReporter(parse_address(mark.peer), mark.epoch, security, on_confirmed)
            self._reporting = Worker(type(self._reporter).__name__, self._reporter, state.halt)
        self._allowed = config.ha_allowed
        # Replaced, not changed: threads that put iterate over it.
        self.connections: tuple[HAConnection, ...] = ()
        self.transfer = GroupTransferService(config, lambda: self.connections)
        self._workers: dict[HAConnection, Worker] = {}
        self._changing = threading.Lock()
        address = config.ha_address
        self._listener = None if address is None else _listen(*address)
        try:
            with disk.taking_descriptor("a pair of sockets"):
                self._wake_reader, self._wake_writer = socket.socketpair()
        except TooManyOpenFiles:
            if self._listener is not None:
                self._listener.close()
            raise
        self._wake_writer.setblocking(False)
        self._accepting = Worker("HAService", self, state.halt)
        self._stopping = False

    @property
    def address(self) -> str | None:
        """HOST:PORT on which slaves are served; None without."""
        return None if self._listener is None else address_text(*self._listener.getsockname()[:2])

    def slaves(self) -> tuple[SlaveState, ...]:
        """The connected slaves, in the order in which they came."""
        return tuple(connection.state for connection in self.connections)

    def notify(self) -> None:
        """The log has grown: wake the slaves' threads that wait for that. Called after each append."""
        for connection in self.connections:
            connection.offer(at_once=False)

    def workers(self) -> Sequence[HAService]:
        """The service itself: slaves come and leave, and their threads with them."""
        return (self,)

    @property
    def is_current(self) -> bool:
        """False: no callback of the program runs on these threads."""
        return False

    def start(self) -> None:
        if self._listener is not None:
            self._accepting.start()
        if self._reporting is not None:
            self._reporting.start()

    def stop(self) -> None:
        """End all connections and threads, and listen no more. It may be called again, and without ``start``.

        It waits for no peer, whatever a thread does with it at the time.
        """
        self._stopping = True
        # Before the accepting thread is waited for: it may be ending the thread of a connection.
        for connection in self.connections:
            connection.stop()
        self._wake()
        self._accepting.stop()
        if self._reporter is not None and self._reporting is not None:
            self._reporter.hang_up()
            self._reporting.stop()
        self._end_workers()
        self.close()

    def close(self) -> None:
        """Close the sockets of a service without threads."""
        for one in (self._listener, self._wake_reader, self._wake_writer):
            if one is not None:
                one.close()

    def forget(self) -> None:
        """In a forked child: close this process's descriptors, which would keep the port; all is the parent's."""
        self.close()
        for connection in self.connections:
            connection.forget()

    def run_once(self) -> float:
        """Wait for a slave, or for one that has left, and serve or forget it."""
        if self._stopping or self._listener is None:
            return _FAILED_S
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._wake_reader, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll()}
        if self._wake_reader.fileno() in ready:
            self._wake_reader.recv(4096)
            self._end_workers()
        if self._listener.fileno() not in ready or self._stopping:
            return 0.0
        try:
            peer, place = self._listener.accept()
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ECONNABORTED, errno.EINTR):
                return 0.0  # it has left before it was accepted
            _LOG.warning("No slave can be accepted on %s: %s", self.address, error)
            return _FAILED_S
        self._serve(peer, place)
        return 0.0

    def _serve(self, peer: socket.socket, place: tuple[str, int]) -> None:
        address = address_text(*place[:2])
        if not self._allows(place[0]):
            _LOG.warning("%s is not allowed to connect as a slave (ha_allow): closed", address)
            peer.close()
            return
        if len(self.connections) >= _MOST_SLAVES:
            _LOG.warning("Slave %s is not served: %d are connected, the most that are", address, _MOST_SLAVES)
            peer.close()
            return
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = HAConnection(
            peer, address, self._log, self._config, self._identity, self.transfer.acknowledged, self._forget_connection
        )
        worker = Worker(f"HAConnection {address}", connection, lambda _: self._end_failed(connection))
        with self._changing:
            self._workers[connection] = worker
            self.connections += (connection,)
        _LOG.info("Slave %s has connected", address)
        worker.start()

    def _allows(self, host: str) -> bool:
        if not self._allowed:
            return True
        found = ip_address(host)
        return any(found in network for network in self._allowed)

    def _end_failed(self, connection: HAConnection) -> None:
        """After an error that no connection expects, on its thread; the log has it."""
        self._forget_connection(connection)
        connection.close()

    def _forget_connection(self, connection: HAConnection) -> None:
        """A connection has ended, on its own thread, which the accepting thread ends."""
        with self._changing:
            self.connections = tuple(one for one in self.connections if one is not connection)
        self._wake()

    def _end_workers(self) -> None:
        """End the threads of connections that have ended; when the service stops, of all."""
        with self._changing:
            ended = [one for one in self._workers if self._stopping or one not in self.connections]
            workers = [(one, self._workers.pop(one)) for one in ended]
        for connection, worker in workers:
            connection.stop()
            worker.stop()
            connection.close()

    def _wake(self) -> None:
        try:
            self._wake_writer.send(b"\0")
        except OSError:
            _LOG.debug("The service has been closed before")


def _halt(path: str, state: RunningState, epoch: int, peer: str) -> None:
    """A slave has a higher epoch: its store was promoted. This one takes no more messages, also when it is reopened."""
    state.halt(
        ReplicaStore(
            f"The store at {path} was superseded: {peer} has epoch {epoch}. Put to the new master. What this store has "
            "beyond it is in no other copy.",
            path=path,
        )
    )
    try:
        write_mark(path, ReplicaMark("superseded", peer, epoch))
    except CommitLogError as error:
        state.halt(error)
        raise


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ListenFailed(
            "listen for slaves on",
            path=address_text(host, port),
            cause=error,
            advice="Does another store or a broker use it? Choose another port (ha_listen_address; 0 is any free one).",
        ) from error
    return listener
