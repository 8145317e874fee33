"""SlaveSynchronize: copies a master's configuration into a mirror: topics, positions of groups, delay levels, groups.

Topics and groups are replaced when their ``dataVersion`` differs, positions are merged in, delay offsets are written as
they come. Each file is checked before it is written, and replaced whole.

Source: RocketMQ ``broker/slave/SlaveSynchronize.java``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from commitlog_store.config_files.json_file import decode_config
from commitlog_store.delayed.levels import replace_delay_offsets
from commitlog_store.errors import AccessRefused, CommitLogError, CorruptConfig, RemotingFailed, StoreClosed
from commitlog_store.follower.access_keys import AccessKeys
from commitlog_store.follower.remoting import (
    GET_ALL_CONSUMER_OFFSET,
    GET_ALL_DELAY_OFFSET,
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    GET_ALL_TOPIC_CONFIG,
    RemotingClient,
)
from commitlog_store.groups.consumer_offset import merge_consumer_offsets
from commitlog_store.groups.group_settings import replace_subscription_groups
from commitlog_store.queue.topic_config import replace_topics
from commitlog_store.replication.peer import Hangup, MasterAddress

_INTERVAL_S = 10.0
# Writes the broker's object, which an error calls by the second text, into the store.
_Copy = Callable[[str, dict[str, Any], str], object]
_COPIES: tuple[tuple[int, str, _Copy], ...] = (
    (GET_ALL_TOPIC_CONFIG, "topics", replace_topics),
    (GET_ALL_CONSUMER_OFFSET, "positions of groups", merge_consumer_offsets),
    (GET_ALL_DELAY_OFFSET, "offsets of delay levels", replace_delay_offsets),
    (GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "subscription groups", replace_subscription_groups),
)


class SlaveSynchronize:
    """One round each 10 seconds, as RocketMQ's. ``error`` is what failed in the last one, None without.

    ``AccessRefused`` in the first round is raised. Later, keys may be changed at the broker, and back.
    """

    def __init__(
        self, store_path: str, broker: MasterAddress, keys: AccessKeys | None, on_end: Callable[[int], None]
    ) -> None:
        """``on_end`` is called with the end of the master's log."""
        self.error: CommitLogError | None = None
        self.rounds = 0
        self._store_path = store_path
        self._broker = broker
        self._keys = keys
        self._on_end = on_end
        self._hangup = Hangup()

    def hang_up(self) -> None:
        """End the request that is being made, from another thread, and begin no other."""
        self._hangup.hang_up()

    def run_once(self) -> float:
        try:
            failure = self._round()
        except StoreClosed:
            return _INTERVAL_S
        except CommitLogError as error:
            failure = error
        if isinstance(failure, AccessRefused) and not self.rounds:
            raise failure
        if not self._hangup.is_hung_up:
            self.error = failure
        self.rounds += 1
        return _INTERVAL_S

    def _round(self) -> CommitLogError | None:
        """Copy everything; the first failure. What one request answers does not keep the others from being copied."""
        failure: CommitLogError | None = None
        with RemotingClient(self._broker, keys=self._keys, hangup=self._hangup) as client:
            self._on_end(client.log_bounds()[1])
            for code, what, copy in _COPIES:
                try:
                    self._copy(client.request(code), what, copy)
                except CommitLogError as error:
                    failure = failure or error
        return failure

    def _copy(self, body: bytes, what: str, copy: _Copy) -> None:
        source = f"the answer of {self._broker}"
        try:
            root = decode_config(body, source, f"The list of {what}")
            copy(self._store_path, root, source)
        except CorruptConfig as error:
            if error.path != source:
                raise
            text = f"The broker at {self._broker} answered with {what} that no broker writes: {error}"
            raise RemotingFailed(text) from error
