"""Where a new mirror begins: at the master's first file, at its last one, or at a file that the caller names.

A new mirror waits for its master, as one does that exists.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Literal, TypeVar

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import InvalidValue, PeerRefused, RemotingFailed
from commitlog_store.files import disk
from commitlog_store.files.mapped_file_writer import make_file
from commitlog_store.follower.link import MasterLink
from commitlog_store.log.owner_directory import OwnerDirectory
from commitlog_store.paths import COMMIT_LOG, file_name_for_offset, parse_file_name
from commitlog_store.replication.handshake import Security
from commitlog_store.replication.peer import MasterAddress

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
Start = Literal["earliest", "latest"] | int
OnWait = Callable[[str], object]

_CONNECT_S = 5.0
_MS = 1000.0
# The pauses between two tries double up to this, as those of a follower. ``OnWait`` is called more often.
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_CALL_S = 0.1


def check_start(start: Start) -> None:
    """``InvalidValue``."""
    if isinstance(start, bool) or not (start in ("earliest", "latest") or isinstance(start, int)):
        raise InvalidValue(f"start is 'earliest', 'latest' or a physical offset, not {start!r}.")


def until_answered(path: str, ask: Callable[[], _T], on_wait: OnWait | None) -> _T:
    """The answer of ``ask``, which is tried again while the master is down, starting or busy.

    Each new reason is logged once. ``on_wait`` is called with it, ten times a second; what it raises ends the wait.
    """
    reason, pause = "", _FIRST_PAUSE_S
    while True:
        try:
            answer = ask()
        except (RemotingFailed, OSError) as error:
            if isinstance(error, RemotingFailed) and not error.may_pass:
                raise
            if str(error) != reason:
                _LOG.warning("%s waits for its master: %s", path, error)
            reason = str(error)
        else:
            if reason:
                _LOG.info("%s: its master answers", path)
            return answer
        until = time.monotonic() + pause
        while True:
            if on_wait is not None:
                on_wait(reason)
            left = until - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(left, _CALL_S))
        pause = min(2 * pause, _LONGEST_PAUSE_S)


def prepare_mirror(
    path: str,
    master: MasterAddress,
    start: Start,
    log_start: int,
    config: MessageStoreConfig,
    security: Security | None,
    on_wait: OnWait | None,
) -> None:
    """Make the first log file of a new mirror whose log does not begin at 0. A mirror with a log stays as it is.

    ``log_start`` is "earliest": where the broker's log begins, as it says, or 0.

    ``InvalidValue``, ``PeerRefused``; the errors of making a file.
    """
    if has_log(path):
        return
    file_size = config.mapped_file_size_commit_log
    if isinstance(start, int):
        begin = start
        if begin < 0 or begin % file_size:
            raise InvalidValue(
                f"start is the physical offset at which a log file begins, a multiple of {file_size} "
                f"(mapped_file_size_commit_log), not {start}."
            )
    else:
        begin = log_start
        if start == "latest":
            begin = until_answered(path, lambda: _last_file(master, config, security), on_wait)
        if begin % file_size:
            raise PeerRefused(
                f"A log file of the master at {master} begins at physical offset {begin}, where no file of {file_size} "
                "bytes does. Set mapped_file_size_commit_log to the master's mappedFileSizeCommitLog."
            )
    if begin:
        directory = OwnerDirectory.open(path)
        try:
            directory.prepare()
            make_file(os.path.join(path, COMMIT_LOG, file_name_for_offset(begin)), file_size)
        finally:
            directory.close(clean=False)


def has_log(path: str) -> bool:
    log = os.path.join(path, COMMIT_LOG)
    return disk.exists(log) and any(parse_file_name(name) is not None for name in disk.list_names(log))


def _last_file(master: MasterAddress, config: MessageStoreConfig, security: Security | None) -> int:
    """The physical offset at which the master's last file begins: a request of 0 is answered from there."""
    longest_s = config.ha_housekeeping_interval / _MS
    deadline = time.monotonic() + longest_s
    with MasterLink.connect(master, None, timeout_s=_CONNECT_S, security=security, epoch=0) as link:
        while link.frames.start is None:
            if time.monotonic() >= deadline or not link.receive(deadline - time.monotonic()):
                raise TimeoutError(
                    f"The master at {master} sent nothing for {longest_s:g} s (ha_housekeeping_interval)."
                )
    return link.frames.start
