"""Where a new mirror begins: at the master's first file, at its last one, or at a file that the caller names."""

from __future__ import annotations

import os
import time
from typing import Literal

from commitlog.config import MessageStoreConfig
from commitlog.errors import InvalidValue, PeerRefused
from commitlog.files import disk
from commitlog.files.mapped_file_writer import make_file
from commitlog.follower.link import MasterLink
from commitlog.follower.remoting import RemotingClient
from commitlog.ha.address import MasterAddress
from commitlog.ha.security import Security
from commitlog.log.owner_directory import OwnerDirectory
from commitlog.paths import COMMIT_LOG, file_name_for_offset, parse_file_name

__all__ = ["Start", "prepare_mirror"]

Start = Literal["earliest", "latest"] | int

_CONNECT_S = 5.0
_MS = 1000.0


def prepare_mirror(
    path: str,
    master: MasterAddress,
    start: Start,
    config: MessageStoreConfig,
    security: Security | None,
    remoting: MasterAddress | None,
) -> None:
    """Make the first log file of a new mirror whose log does not begin at 0. A mirror with a log stays as it is.

    A broker's ``remoting`` port says where its log begins; without it "earliest" is 0.

    ``InvalidValue``, ``PeerRefused``, ``RemotingFailed``, ``OSError``; the errors of making a file.
    """
    if isinstance(start, bool) or not (start in ("earliest", "latest") or isinstance(start, int)):
        raise InvalidValue(f"start is 'earliest', 'latest' or a physical offset, not {start!r}.")
    log = os.path.join(path, COMMIT_LOG)
    if disk.exists(log) and any(parse_file_name(name) is not None for name in disk.list_names(log)):
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
        begin = _first_file(remoting) if start == "earliest" else _last_file(master, config, security)
        if begin % file_size:
            raise PeerRefused(
                f"A log file of the master at {master} begins at physical offset {begin}, where no file of {file_size} "
                "bytes does. Set mapped_file_size_commit_log to the master's mappedFileSizeCommitLog."
            )
    if begin:
        directory = OwnerDirectory.open(path)
        try:
            directory.prepare()
            make_file(os.path.join(log, file_name_for_offset(begin)), file_size)
        finally:
            directory.close(clean=False)


def _first_file(remoting: MasterAddress | None) -> int:
    if remoting is None:
        return 0
    with RemotingClient(remoting) as client:
        return client.log_bounds()[0]


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
