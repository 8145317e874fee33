"""``GroupCommits``: a query's positions as those of a consumer group of the store (``commitGroup``).

The checkpoint alone says where a query continues. The group's positions are for others: ``commitlog groups lag``, and a
program or a broker that continues there. So no failure here fails the query; the next batch commits newer positions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from commitlog_store import CommitLogError
from pyspark_commitlog.errors import ConnectorError
from pyspark_commitlog.options.remote import RemoteOptions, is_remote
from pyspark_commitlog.options.subscription import QueueKey
from pyspark_commitlog.source.stream_offset import StreamOffset

_logger = logging.getLogger(__name__)

# The pause after a failure; each further one doubles it.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
# The next batch waits for it.
_LONGEST_CALL_S = 5.0


class GroupCommits:
    """Commits the ends of batches. ``remote``: for the address of a server as path. ``clock`` gives seconds."""

    def __init__(
        self,
        path: str,
        group: str,
        *,
        remote: RemoteOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._group = group
        self._remote = remote or RemoteOptions()
        self._clock = clock
        self._committed: Mapping[QueueKey, int] = {}
        self._pause_s = 0.0
        self._not_before_s = 0.0

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the offset that a batch ended at; nothing while the pause after a failure lasts, or before a batch."""
        if self._pause_s and self._clock() < self._not_before_s:
            return
        try:
            offset = StreamOffset.from_json(end)
            offsets = offset.offsets
            if offset.initial or offsets == self._committed:
                return
            self._write(offsets)
        except (CommitLogError, ConnectorError, OSError, ImportError) as error:
            self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
            self._not_before_s = self._clock() + self._pause_s
            _logger.warning(
                "The positions of this query were not committed as those of group %r; the query continues, and "
                "tries it again after %g s or more: %s",
                self._group,
                self._pause_s,
                error,
            )
        else:
            self._committed, self._pause_s = offsets, 0.0

    def _write(self, offsets: Mapping[QueueKey, int]) -> None:
        if is_remote(self._path):
            from commitlog_store import connect  # here: Arrow Flight is for addresses only

            client = self._remote.of_client()
            client["rpc_timeout_s"] = min(client["rpc_timeout_s"], _LONGEST_CALL_S)
            with connect(self._path, **client) as store:
                store.commit_group_offsets(self._group, offsets)
        else:
            # Here, since it needs POSIX record locks, which programs that only read do without.
            from commitlog_store import commit_group_offsets

            commit_group_offsets(self._path, self._group, offsets)
