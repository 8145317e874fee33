"""What a mirror takes from its broker's configuration (GET_BROKER_CONFIG): what a broker needs of the mirror's files.

===========================  ==========================================================================================
setting                      why
===========================  ==========================================================================================
mappedFileSizeCommitLog      the mirror's files have the master's bytes, and begin and end where the master's do
mappedFileSizeConsumeQueue   a broker does not start with queue files of another size than its own
maxHashSlotNum, maxIndexNum  a broker finds nothing in an index file of another size
messageDelayLevel            a unit of a delayed message has the time of its delivery
maxMessageSize               a longer record is refused
===========================  ==========================================================================================

A setting that is not its default in the mirror's own configuration stays as it is.

Source: RocketMQ ``broker/processor/AdminBrokerProcessor.java``, ``store/MappedFileQueue.java`` (``doLoad``),
``store/index/IndexFile.java``, ``store/CommitLog.java`` (``checkMessageAndReturnSize``).
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from commitlog_store.config import BrokerProperties, MessageStoreConfig
from commitlog_store.errors import InvalidValue, PeerRefused, RemotingFailed
from commitlog_store.files.store_paths import StorePaths
from commitlog_store.follower.access_keys import AccessKeys
from commitlog_store.follower.remoting import GET_BROKER_CONFIG, RemotingClient
from commitlog_store.format.consume_queue_unit import UNIT_SIZE
from commitlog_store.format.index_file import file_size
from commitlog_store.index.service import index_file_size_of
from commitlog_store.paths import CONSUME_QUEUE, INDEX
from commitlog_store.queue.queue_counts import file_size_of, queue_file_size_of
from commitlog_store.replication.peer import MasterAddress

_QUEUE_FILE_SIZE = "mappedFileSizeConsumeQueue"
_TAKEN = (
    "mappedFileSizeCommitLog",
    _QUEUE_FILE_SIZE,
    "maxHashSlotNum",
    "maxIndexNum",
    "messageDelayLevel",
    "maxMessageSize",
)


class BrokerAnswer(NamedTuple):
    """Where the broker's log begins (0 for an empty one), and its settings by the names of ``MessageStoreConfig``."""

    log_start: int
    settings: dict[str, int | str]


def ask_broker(broker: MasterAddress, keys: AccessKeys | None) -> BrokerAnswer:
    """Ask once. ``RemotingFailed``."""
    with RemotingClient(broker, keys=keys) as client:
        return BrokerAnswer(client.log_bounds()[0], settings_of(client.request(GET_BROKER_CONFIG), broker))


def settings_of(body: bytes, broker: MasterAddress) -> dict[str, int | str]:
    """The settings in an answer to GET_BROKER_CONFIG. ``RemotingFailed``."""
    lines = []
    for line in body.decode(errors="replace").splitlines():
        key, _, value = line.partition("=")
        if key in _TAKEN:
            # As brokers do, which answer with the number of their file.
            is_queue_size = key == _QUEUE_FILE_SIZE and value.isascii() and value.isdigit()
            lines.append(f"{key}={-(-int(value) // UNIT_SIZE) * UNIT_SIZE}" if is_queue_size else line)
    try:
        found = BrokerProperties.parse("\n".join(lines), f"the configuration of the broker at {broker}")
    except InvalidValue as error:
        raise RemotingFailed(f"No store can have these settings: {error}") from error
    if "mapped_file_size_consume_queue" not in found.given:
        raise RemotingFailed(
            f"The broker at {broker} answered request {GET_BROKER_CONFIG} with something else than its configuration."
        )
    return {name: getattr(found.config, name) for name in found.given}


def with_settings_of_broker(config: MessageStoreConfig, settings: Mapping[str, Any]) -> MessageStoreConfig:
    """The mirror's configuration, with the broker's settings in place of defaults."""
    defaults = {one.name: one.default for one in dataclasses.fields(config)}
    taken = {
        name: value for name, value in settings.items() if name in defaults and getattr(config, name) == defaults[name]
    }
    if taken.get("max_message_size", config.max_message_size) < config.max_message_size:
        del taken["max_message_size"]  # the log may have longer ones, of a time with another limit
    return dataclasses.replace(config, **taken)


def refuse_other_sizes(
    path: str, config: MessageStoreConfig, settings: Mapping[str, Any], broker: MasterAddress
) -> None:
    """Refuse a mirror that has files of other sizes than it would get now, or than its master's log has.

    ``PeerRefused``, ``OSError``.
    """
    log_size = file_size_of(StorePaths.of(path).commit_log) or config.mapped_file_size_commit_log
    expected = settings.get("mapped_file_size_commit_log", log_size)
    if log_size != expected:
        raise PeerRefused(
            f"The CommitLog files of the broker at {broker} have {expected} bytes, and those of the mirror {path} have "
            f"{log_size}. Leave mapped_file_size_commit_log to the broker, and begin the mirror in a new directory."
        )
    queue_size = config.mapped_file_size_consume_queue
    index_size = file_size(config.max_hash_slot_num, config.max_index_num)
    queues, index = os.path.join(path, CONSUME_QUEUE), os.path.join(path, INDEX)
    _refuse(queues, queue_file_size_of(path), queue_size, broker, "mapped_file_size_consume_queue")
    _refuse(index, index_file_size_of(index), index_size, broker, "max_hash_slot_num", "max_index_num")


def _refuse(directory: str, found: int, expected: int, broker: MasterAddress, *settings: str) -> None:
    """``PeerRefused`` for a directory with files of another size than expected; 0 is a directory without files."""
    if found in (0, expected):
        return
    raise PeerRefused(
        f"The files in {directory} have {found} bytes; expected {expected}, by {' and '.join(settings)} of the broker "
        f"at {broker} or of the mirror's own settings. A broker could not use them after a promotion. Remove "
        f"{directory}, which is built again from the log; or give the settings with which the files were made."
    )
