"""LogFollower: mirrors the log of a RocketMQ broker, or of a ``MessageStore``, in a store of its own.

It speaks the slave's side of RocketMQ's replication protocol, so the master needs no change. The mirror is a store in
the role SLAVE: readers and Spark use it while it follows. Decision 0025 has the reasons.

Source: RocketMQ ``store/ha/DefaultHAClient.java``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import time
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

from commitlog_store.config import BrokerRole, FlushDiskType, MessageStoreConfig
from commitlog_store.errors import CommitLogError, DiskFull, InvalidValue, LogDiverged, PeerRefused, RemotingFailed
from commitlog_store.files import disk
from commitlog_store.follower.access_keys import AccessKeys
from commitlog_store.follower.broker_settings import (
    BrokerAnswer,
    ask_broker,
    refuse_other_sizes,
    with_settings_of_broker,
)
from commitlog_store.follower.link import MasterLink
from commitlog_store.follower.mirror_start import OnWait, Start, check_start, has_log, prepare_mirror, until_answered
from commitlog_store.follower.remoting_config import SlaveSynchronize
from commitlog_store.follower.whole_records import WholeRecords, whole_records
from commitlog_store.owned_store.opening import StoreOpening
from commitlog_store.owned_store.owned_store import OwnedStore
from commitlog_store.queue.queue_counts import queue_file_size_of
from commitlog_store.recovery.start import OpenWishes
from commitlog_store.replication.handshake import Security, security_of
from commitlog_store.replication.peer import Hangup, MasterAddress, parse_address
from commitlog_store.replication.replica_log import ReplicaLog
from commitlog_store.replication.replica_mark import ReplicaMark, read_mark, write_mark
from commitlog_store.threads.wakeup import Waiters, Wakeup
from commitlog_store.threads.worker import Worker

_LOG = logging.getLogger(__name__)
_MS = 1000.0

Ack = Literal["none", "received", "synced"]

# How long a connection may take to come about, with its hello.
_CONNECT_S = 5.0
# How long one step waits for the master: the follower is closed between two steps.
_STEP_S = 0.1
# The pauses after failed attempts double up to this. RocketMQ waits 5 seconds; a sink's store is open for moments.
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
# What the master sends is believed to be wrong when so many connections in a row brought nothing else.
_ATTEMPTS = 3
_STOPPED_S = 3_600.0
# While more is there to be taken, another thread syncs. With so much that is not on the device, it is waited for.
_MOST_UNFLUSHED = 64 << 20
_REMOTING_PORT = 10_911
_MASTER_ENDS = "the master's log ends"
# A record without its body: header, a topic and properties of at most 32,767 bytes each.
_RECORD_HEAD = 128 << 10


class FollowerStatus(NamedTuple):
    """Where a follower stands. Offsets are physical.

    ``end`` is the mirror's end, ``master_end`` the highest offset known of the master's log (-1: none yet);
    ``caught_up`` whether everything that has come is stored. ``last_store_timestamp`` is that of the newest message in
    ms, 0 without one. ``error`` says why the follower is not connected; empty while it is.
    """

    master: str
    connected: bool
    end: int
    acknowledged: int
    master_end: int
    caught_up: bool
    last_store_timestamp: int
    error: str

    @property
    def lag_bytes(self) -> int:
        """Bytes of the master's log that are known and not stored yet."""
        return max(self.master_end - self.end, 0)


class LogFollower:
    """A mirror at ``path`` of the store at ``master`` (HOST:PORT, port 10912 by default), followed on a thread.

    ``ack`` is what the follower acknowledges: messages that are on the device ("synced"), in the kernel ("received"),
    or none ("none": a SYNC_MASTER waits in vain). A new mirror begins at ``start``:
    "earliest", "latest" (the master's last file), or the physical offset at which one of its files begins.

    ``config_from``, HOST:PORT of a broker's remoting port (10911), also copies what a slave copies, every 10 seconds:
    topics, positions of groups, offsets of delay levels, subscription groups. It says where the log begins, too, and
    has the sizes of files and the other settings that ``config`` leaves at their defaults
    (``follower/broker_settings.py``). A new mirror waits for it while it is down or starting: ``on_wait`` is called
    with the reason, ten times a second, and what it raises ends the wait. ``access_keys`` is a file with the keys for
    a broker with access control, such as RocketMQ's ``conf/tools.yml``.

    Without ``config_from``, ``mapped_file_size_commit_log`` of ``config`` must be the master's. With
    ``ha_token_file`` or ``ha_tls_ca`` in it the master is one of this package, which proves itself. Use it as a
    context manager::

        with MessageStore.open("/data/store", MessageStoreConfig(ha_listen_address="127.0.0.1:0")) as store:
            with LogFollower(store.ha_address, "/data/store-mirror", ack="synced") as follower:
                follower.wait_for(store.physical_bounds()[1], timeout_s=60)
                print(StoreReader.open(follower.path).topics())

    ``InvalidValue``, and the errors of ``MessageStore.open``. A master that cannot be reached is tried again.
    """

    def __init__(
        self,
        master: str,
        path: str | os.PathLike[str],
        ack: Ack = "synced",
        *,
        start: Start = "earliest",
        config: MessageStoreConfig | None = None,
        config_from: str | None = None,
        access_keys: str | os.PathLike[str] | None = None,
        on_wait: OnWait | None = None,
        lock_timeout_s: float = 0.0,
    ) -> None:
        _check_options(ack, access_keys=access_keys is not None, config_from=config_from is not None)
        check_start(start)
        _refuse_log_elsewhere(config)
        self.master = parse_address(master)
        self.path = disk.absolute_path(path)
        settings = _settings_of_mirror(config, ack)
        asks_for_hello = settings.ha_token_file or settings.ha_tls_ca
        security = security_of(settings) if asks_for_hello else None
        remoting = None if config_from is None else parse_address(config_from, _REMOTING_PORT)
        keys = None if access_keys is None else AccessKeys.read(access_keys)
        answer = None if remoting is None else self._ask_broker(remoting, keys, on_wait)
        # What is taken of the broker's settings, for the mark.
        self._taken: dict[str, int | str] = {}
        settings = self._with_settings_of_broker(settings, remoting, answer)
        log_start = 0 if answer is None else answer.log_start
        prepare_mirror(self.path, self.master, start, log_start, settings, security, on_wait)
        opening = StoreOpening(self.path, settings, lock_timeout_s=lock_timeout_s, wishes=OpenWishes(), progress=None)
        try:
            self._owned = opening.run()
            on_compared = self._mark()
            self._following = _Following(self.master, self._owned, settings, ack, security, on_compared)
        except BaseException:
            opening.undo()
            raise
        self._workers = [Worker("LogFollower", self._following, self._following.stop_because)]
        self._synchronize: SlaveSynchronize | None = None
        if remoting is not None:
            self._synchronize = SlaveSynchronize(self.path, remoting, keys, self._following.hear_end)
            self._workers.append(Worker("SlaveSynchronize", self._synchronize, self._following.fail))
        for worker in self._workers:
            worker.start()

    def _ask_broker(
        self, broker: MasterAddress, keys: AccessKeys | None, on_wait: OnWait | None
    ) -> BrokerAnswer | None:
        """Its answer. A mirror that has its files follows without one. ``RemotingFailed``."""
        ask = partial(ask_broker, broker, keys)
        try:
            is_new = not (has_log(self.path) and queue_file_size_of(self.path))
            return until_answered(self.path, ask, on_wait) if is_new else ask()
        except RemotingFailed as error:
            if not error.may_pass:
                raise
            return None

    def _with_settings_of_broker(
        self, settings: MessageStoreConfig, broker: MasterAddress | None, answer: BrokerAnswer | None
    ) -> MessageStoreConfig:
        """The settings of the broker, or those that it had when it answered last, in place of defaults.

        ``PeerRefused``, ``InvalidValue``; ``CorruptConfig``, ``ReadFailed``.
        """
        if answer is not None:
            self._taken = answer.settings
        elif (mark := read_mark(self.path)) is not None:
            self._taken = mark.settings
        settings = with_settings_of_broker(settings, self._taken)
        if broker is not None and answer is not None:
            refuse_other_sizes(self.path, settings, answer.settings, broker)
        return settings

    def _mark(self) -> Callable[[], None] | None:
        """Mark the store as a mirror at once, if it has no log or is one. Else it may be the wrong directory.

        Returns what marks it later, when the master's log has turned out to be its own. ``InvalidValue`` for a store
        that was promoted or superseded.
        """
        mark, log = read_mark(self.path), self._owned.replica_log
        if mark is not None and mark.state != "mirror":
            raise InvalidValue(
                f"{self.path} was {mark.state}, and does not follow a master. Begin a mirror in a new directory."
            )
        note = partial(write_mark, self.path, ReplicaMark("mirror", str(self.master), settings=self._taken))
        if mark is None and log.end > log.start:
            return note
        note()
        return None

    @property
    def status(self) -> FollowerStatus:
        """Where the mirror stands."""
        return self._following.status

    @property
    def failure(self) -> BaseException | None:
        """What stopped the follower; None while it follows, or tries to."""
        return self._following.failure

    @property
    def config_error(self) -> CommitLogError | None:
        """What failed when the configuration was last copied; None without. It is tried again."""
        return None if self._synchronize is None else self._synchronize.error

    @property
    def config_rounds(self) -> int:
        """How often the configuration was asked for."""
        return 0 if self._synchronize is None else self._synchronize.rounds

    def wait_for(self, offset: int, *, timeout_s: float) -> bool:
        """Return when the mirror has everything before ``offset``, and readers see it; False after ``timeout_s``.

        What stopped the follower is raised: ``LogDiverged``, another ``PeerRefused``, ``StoreIOError``.
        """
        if not self._following.wait_for(offset, timeout_s):
            return False
        self._owned.engine.run(self._show)
        return True

    def _show(self) -> None:
        """Let readers see what is here: with "synced", only what is on the device."""
        self._owned.engine.store_flush.flush_log()
        self._owned.engine.store_flush.dispatch()

    def close(self) -> None:
        """End the connection and close the store; no peer is waited for. It may be called again."""
        if self._owned.engine.state.forked:
            return  # the connection, the files and the batch that is being received are the parent's
        self._following.hang_up()
        if self._synchronize is not None:
            self._synchronize.hang_up()
        for worker in self._workers:
            worker.stop()
        self._following.close()
        self._owned.close()

    def __enter__(self) -> LogFollower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<LogFollower of {self.master} at {self.path!r}>"


def _check_options(ack: Ack, *, access_keys: bool, config_from: bool) -> None:
    """``InvalidValue``. Whether ``access_keys`` and ``config_from`` are given."""
    if ack not in ("none", "received", "synced"):
        raise InvalidValue(f"ack is 'none', 'received' or 'synced', not {ack!r}.", expected="none, received or synced")
    if access_keys and not config_from:
        raise InvalidValue(
            "access_keys (--access-keys) are for a broker's remoting port: give config_from (--config-from), too."
        )


def _settings_of_mirror(config: MessageStoreConfig | None, ack: Ack) -> MessageStoreConfig:
    return dataclasses.replace(
        config or MessageStoreConfig(),
        broker_role=BrokerRole.SLAVE,
        flush_disk_type=FlushDiskType.SYNC_FLUSH if ack == "synced" else FlushDiskType.ASYNC_FLUSH,
        # As in RocketMQ, not for slaves: what is received would be in this process alone.
        transient_store_pool_enable=False,
    )


def _refuse_log_elsewhere(config: MessageStoreConfig | None) -> None:
    """``InvalidValue``: a mirror is moved aside, promoted and begun again as one directory."""
    if config is not None and config.store_path_commit_log is not None:
        expected = "not set for a mirror: its log is in its directory, where another disk can be mounted at commitlog"
        raise InvalidValue(
            f"store_path_commit_log is {expected}.", settings=("store_path_commit_log",), expected=expected
        )


class _Following:
    """The follower's service: connects, compares, appends, acknowledges; a step at a time."""

    def __init__(
        self,
        master: MasterAddress,
        owned: OwnedStore,
        config: MessageStoreConfig,
        ack: Ack,
        security: Security | None,
        on_compared: Callable[[], None] | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._master = master
        self._owned = owned
        self._log: ReplicaLog = owned.replica_log
        self._ack = ack
        self._security = security
        self._on_compared = on_compared
        self._clock = clock
        self._largest_record = config.max_message_size + _RECORD_HEAD
        self._heartbeat_s = config.ha_send_heartbeat_interval / _MS
        self._housekeeping_s = config.ha_housekeeping_interval / _MS
        self._hangup = Hangup()
        self._link: MasterLink | None = None
        self._acknowledged = 0
        self._master_end = -1
        # The end of the master's log as its remoting port said last, if that was before ours.
        self._shorter_end: int | None = None
        self._caught_up = False
        self._error = "Not connected yet."
        self.failure: BaseException | None = None
        # Connections in a row that failed, and those of them in which the master sent what cannot be.
        self._failed = self._refused = 0
        self._waiters = Waiters()

    @property
    def status(self) -> FollowerStatus:
        end = self._log.end
        return FollowerStatus(
            str(self._master), self._link is not None, end, self._acknowledged, self._master_end,
            self._caught_up, self._log.last_store_timestamp, self._error,
        )  # fmt: skip

    def wait_for(self, offset: int, timeout_s: float) -> bool:
        deadline = self._clock() + timeout_s
        with self._waiters.waiting(Wakeup()) as wakeup:
            while self._log.end < offset:
                if self.failure is not None:
                    raise self.failure
                left = deadline - self._clock()
                if left <= 0:
                    return False
                wakeup.wait(left)
        return True

    def hear_end(self, offset: int) -> None:
        """The master's log ends there, as its remoting port says."""
        self._master_end = max(self._master_end, offset)
        self._shorter_end = offset if offset < self._log.end else None

    def fail(self, error: BaseException) -> None:
        """Follow no further, from any thread; ``wait_for`` raises the error."""
        self.failure, self._error = error, str(error) or type(error).__name__
        _LOG.error("%s does not follow %s any more: %s", self._owned.path, self._master, self._error)
        self._waiters.wake_all()

    def hang_up(self) -> None:
        """End the connection, from any thread, also while it is being made; connect no more."""
        self._hangup.hang_up()

    def stop_because(self, error: BaseException) -> None:
        """``fail`` on the follower's own thread, which has the connection."""
        self.fail(error)
        self.close()

    def close(self) -> None:
        """End the connection. A batch or filler that has not come whole is removed."""
        link, self._link = self._link, None
        if link is not None:
            link.close()
        self._caught_up = False
        # If that fails, the store is halted, and the next opening removes it.
        with contextlib.suppress(CommitLogError):
            self._log.drop_unfinished()

    def run_once(self) -> float:
        if self.failure is not None:
            self.close()
            return _STOPPED_S
        try:
            self._step()
            return 0.0
        except PeerRefused as error:
            self._refused += 1
            if self._refused < _ATTEMPTS or self._hangup.is_hung_up:
                return self._pause(error)
            self.stop_because(error)
            return _STOPPED_S
        except (DiskFull, OSError) as error:
            return self._pause(error)

    def _pause(self, error: Exception) -> float:
        """The connection has failed: how long to wait before the next one."""
        self.close()
        if self._hangup.is_hung_up:
            return _STOPPED_S
        if str(error) != self._error:
            _LOG.warning("%s is not connected to its master %s: %s", self._owned.path, self._master, error)
        self._error = str(error) or type(error).__name__
        pause = min(_FIRST_PAUSE_S * 2.0 ** min(self._failed, 16), _LONGEST_PAUSE_S)
        self._failed += 1
        return pause

    def _step(self) -> None:
        link = self._link
        if link is None:
            link = self._link = self._connect()
        if link.receive(_STEP_S):
            self._take(link)
            # Nothing of a long batch or filler is acknowledged before its end, and a master drops a silent slave.
            self._heartbeat(link)
            return
        is_compared = link.frames.start == self._log.received_end
        has_heard = link.frames.heartbeat_at is not None
        self._caught_up = is_compared and (has_heard or not link.frames.log)
        if self._caught_up:
            self._refused = 0
            self._error = self._no_data() if has_heard and self._log.end == self._log.start else ""
        silent_s = self._clock() - link.received_at
        if silent_s >= self._housekeeping_s:
            raise TimeoutError(f"The master sent nothing for {silent_s:.0f} s (ha_housekeeping_interval).")
        self._heartbeat(link)

    def _heartbeat(self, link: MasterLink) -> None:
        """Say again what was said last, when that is long ago: it promises nothing new.

        Not before the master's first word. A broker of 4.x closes the connection when the second number lies after its
        log's end, and the first one, for which it has nothing, is answered by a heartbeat alone.
        """
        if link.has_answered and self._clock() - link.sent_at >= self._heartbeat_s:
            link.acknowledge(self._acknowledged or link.request_offset)

    def _no_data(self) -> str:
        return (
            f"The master sends nothing from physical offset {self._log.start} on: its log is empty, or begins later. "
            "Then begin a mirror where it does (commitLogMinOffset of the broker), or with its last file."
        )

    def _connect(self) -> MasterLink:
        """Ask from the start of the last record on: what comes first is compared with what is here."""
        # A request counts as an acknowledgement, and an earlier connection may have ended between append and flush.
        self._log.flush()
        # Only a hello says it, and RocketMQ's masters have none.
        epoch = 0 if self._security is None else self._owned.engine.run(self._owned.engine.batches.epoch)
        place = self._log.last_record if self._log.last_record >= 0 else self._log.start
        link = MasterLink.connect(
            self._master, place, timeout_s=_CONNECT_S, security=self._security, epoch=epoch, hangup=self._hangup
        )
        if link.master_epoch is not None and link.master_epoch < epoch:
            link.close()
            raise PeerRefused(
                f"The master at {self._master} has epoch {link.master_epoch}, and this mirror {epoch}: that master was "
                "superseded. Follow the new one."
            )
        _LOG.info("%s follows %s from physical offset %d on", self._owned.path, self._master, self._log.end)
        self._acknowledged = 0
        return link

    def _take(self, link: MasterLink) -> None:
        """Store what has come, as far as it is whole."""
        before = self._log.end
        if link.frames.master_end is not None:
            raise self._diverged(link.frames.master_end, _MASTER_ENDS)
        # Of an empty log, the byte that was not sent does not count.
        self._master_end = max(self._master_end, link.frames.end if link.frames.end > 1 else 0)
        if not self._compare(link):
            if link.frames.heartbeat_at is not None:
                raise self._no_continuation(link.frames.heartbeat_at)
            return
        while (found := self._next(link)).size:
            data = bytes(memoryview(link.frames.log)[: found.size])
            if found.filler_end:
                self._log.append_filler(data, found.filler_end)
            else:
                self._log.append(
                    data,
                    last_record=found.last_record,
                    last_store_timestamp=found.last_store_timestamp,
                    frame_end=found.frame_end,
                )
            link.frames.take(found.size)
        if self._log.end > before:
            self._failed = self._refused = 0
            self._error = ""
            self._waiters.wake_all()
        self._acknowledge(link)
        if link.frames.fault is not None:
            raise link.frames.fault

    def _acknowledge(self, link: MasterLink) -> None:
        """Tell the master what is here, if that is more than it knows.

        A sync takes as long as many pieces: while more has come, the store's GroupCommitService syncs what was
        appended, and this thread takes the next ones.
        """
        end = self._log.end
        if self._ack == "none" or end <= self._acknowledged:
            return
        if self._ack == "synced":
            if not link.has_more() or end - self._log.flushed_end >= _MOST_UNFLUSHED:
                self._log.flush()
            end = self._log.flushed_end
        if end > self._acknowledged:
            link.acknowledge(end)
            self._acknowledged = end

    def _next(self, link: MasterLink) -> WholeRecords:
        frames = link.frames
        if not frames.log:
            return WholeRecords(0)
        assert frames.start is not None
        filler_end = self._log.filler_end
        if filler_end:
            return WholeRecords(min(len(frames.log), filler_end - frames.start), filler_end=filler_end)
        return whole_records(
            frames.log,
            frames.start,
            stop=self._log.frame_end,
            file_size=self._log.file_size,
            largest_record=self._largest_record,
        )

    def _compare(self, link: MasterLink) -> bool:
        """Compare what the master has before our end; whether all of that has come. ``LogDiverged``."""
        frames = link.frames
        assert frames.start is not None
        size = min(len(frames.log), self._log.received_end - frames.start)
        if size > 0:
            ours = self._log.read(frames.start, frames.start + size)
            theirs = frames.log[:size]
            if ours != theirs:
                at = next(place for place in range(size) if ours[place] != theirs[place])
                raise self._diverged(frames.start + at, "the master has other bytes there")
            frames.take(size)
        if frames.start != self._log.received_end:
            return False
        if self._on_compared is not None:
            self._on_compared()
            self._on_compared = None
        return True

    def _no_continuation(self, offset: int) -> LogDiverged:
        """The master has sent nothing but a heartbeat for the bytes from ``offset`` on, which the mirror has."""
        if self._shorter_end is not None:
            return self._diverged(self._shorter_end, _MASTER_ENDS)
        how = "the master sends nothing from there on: its retention has removed that part, or its log ends before"
        return self._diverged(offset, how)

    def _diverged(self, offset: int, how: str) -> LogDiverged:
        if self._on_compared is None:
            message = (
                f"The log of the master at {self._master} does not continue the mirror {self._owned.path}, which ends "
                f"at physical offset {self._log.end}: at {offset}, {how}. Nothing was taken over. Is it another "
                "master, has it lost its log's end, or was it restored from an older copy? To mirror it, begin in a "
                "new directory (commitlog follow --reset)."
            )
        else:
            message = (
                f"{self._owned.path} is a store with messages of its own, and not a mirror of the master at "
                f"{self._master}: at physical offset {offset}, {how}. Nothing was taken over. To mirror that master, "
                "give a new directory."
            )
        return LogDiverged(message, path=self._owned.path, offset=offset)
