"""Topics that are chosen for an archive of these alone: which records are theirs, and what ``config/`` says of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

from commitlog_store.config_files.json_file import LARGEST_CONFIG, JsonConfigFile, encode_config
from commitlog_store.errors import CorruptConfig, InvalidValue
from commitlog_store.files import disk
from commitlog_store.format.message_rules import SCHEDULE_TOPIC
from commitlog_store.paths import (
    BATCH_TOPIC,
    CONFIG,
    CONSUMER_OFFSET_CONFIG,
    DELAY_OFFSET_CONFIG,
    DELETED_TOPICS,
    KV_CONFIG,
    SUBSCRIPTION_GROUP_CONFIG,
    TOPICS_CONFIG,
)
from commitlog_store.queue.catalog import is_chosen

# Files that say nothing of a topic, or of a place in the log.
_AS_THEY_ARE = (SUBSCRIPTION_GROUP_CONFIG, KV_CONFIG)
# Files with a table whose rows are named by a topic, alone or before an @.
_TABLES = {
    TOPICS_CONFIG: ("The list of topics", "topicConfigTable"),
    CONSUMER_OFFSET_CONFIG: ("The list of consumer offsets", "offsetTable"),
}
# The files that ``config/`` of an archive of topics may have.
CONFIG_NAMES = (*_AS_THEY_ARE, DELAY_OFFSET_CONFIG, DELETED_TOPICS, *_TABLES)
_VERSION = "dataVersion"


class SelectedTopics:
    """Topics by name or shell pattern, as a command's ``--topic`` has them: a pattern matches no system topic.

    The topic of batch frames is never one of them: a frame counts and checks all records of its batch, of every topic.
    """

    def __init__(self, patterns: object) -> None:
        """``InvalidValue`` for none, or what cannot be a pattern."""
        names = [patterns] if isinstance(patterns, str) else list(patterns) if isinstance(patterns, Sequence) else []
        if not names or not all(isinstance(name, str) and name for name in names):
            raise InvalidValue(f"topics is a name, a pattern, or a list of them, not {patterns!r}.")
        self.patterns: tuple[str, ...] = tuple(sorted(set(names)))
        self._known: dict[str, bool] = {}

    def __contains__(self, topic: str) -> bool:
        found = self._known.get(topic)
        if found is None:
            found = self._known[topic] = topic != BATCH_TOPIC and is_chosen(topic, self.patterns)
        return found

    def unmatched(self, topics: Iterable[str]) -> tuple[str, ...]:
        """The names and patterns that match none of the topics, nor of those that were found among these so far."""
        known = {*topics, *(topic for topic, is_one in self._known.items() if is_one)}
        return tuple(one for one in self.patterns if not any(is_chosen(topic, (one,)) for topic in known))

    def config_files(self, store_path: str) -> dict[str, bytes]:
        """The files of a store's ``config/`` by name, with the topics and positions of these topics alone.

        What names places in the log is left out: the ledger of batches, and the list of deleted topics
        (``MovedDeletions``). So are files that cannot be read.
        """
        found = {}
        delays = (DELAY_OFFSET_CONFIG,) if SCHEDULE_TOPIC in self else ()
        for name in (*_AS_THEY_ARE, *delays):
            with contextlib.suppress(FileNotFoundError):
                found[name] = disk.read_file(os.path.join(store_path, CONFIG, name), LARGEST_CONFIG)
        for name, (subject, table) in _TABLES.items():
            path = os.path.join(store_path, CONFIG, name)
            with contextlib.suppress(CorruptConfig):
                root = JsonConfigFile(path, subject).read()
                if root:
                    is_offsets = name == CONSUMER_OFFSET_CONFIG
                    found[name] = encode_config(self._rows(root, table), path, subject, integer_names=is_offsets)
        return found

    def _rows(self, root: dict[str, Any], table: str) -> dict[str, Any]:
        """The version of a file, and the rows of its table that are of these topics."""
        rows = root.get(table)
        chosen = (
            {key: row for key, row in rows.items() if key.partition("@")[0] in self} if isinstance(rows, dict) else {}
        )
        return {name: root[name] for name in (_VERSION,) if name in root} | {table: chosen}
