"""ConsumerFilters: the filter expressions of consumer groups, ``<store>/config/consumerFilter.json``.

A broker writes them every 10 seconds, for groups that subscribe with SQL92, and drops them 24 hours after their end::

    {
        "filterDataByTopic":{"orders":{"topic":"orders","groupFilterData":{"billing":{
            "consumerGroup":"billing","topic":"orders","expression":"a > 5","expressionType":"SQL92",
            "bornTime":1700000000000,"deadTime":0,"clientVersion":1700000000000,
            "bloomFilterData":{"bitNum":100,"bitPos":[1,7]}}}}}
    }

Source: RocketMQ ``broker/filter/ConsumerFilterManager.java``, ``broker/filter/ConsumerFilterData.java``.
"""

from __future__ import annotations

import os
import threading
from typing import Annotated, Any

import msgspec

from commitlog_store.config_files.json_file import JsonConfigFile
from commitlog_store.paths import CONFIG, CONSUMER_FILTER_CONFIG

__all__ = ["ConsumerFilter", "ConsumerFilters"]

_SUBJECT = "The list of consumer filters"
_Long = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class ConsumerFilter(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The expression with which a group subscribes to a topic. Times are milliseconds since 1970."""

    consumer_group: str
    topic: str
    expression: str
    expression_type: str
    born_time: _Long = 0
    """When the subscription began."""
    dead_time: _Long = 0
    """When the last consumer of the group left."""
    client_version: _Long = 0
    """The version of the subscription, a time."""

    @property
    def is_dead(self) -> bool:
        """Whether no consumer has subscribed with it since the last one left."""
        return self.dead_time >= self.born_time


class _FiltersOfTopic(msgspec.Struct):
    groupFilterData: dict[str, Any] = {}


class _FilterTable(msgspec.Struct):
    filterDataByTopic: dict[str, _FiltersOfTopic] = {}


class ConsumerFilters:
    """The filters of one store, read once; safe for several threads. Only the store's owner removes one.

    ``CorruptConfig`` if neither the file nor its ``.bak`` can be used; ``ReadFailed``.
    """

    def __init__(self, store_path: str) -> None:
        self._file = JsonConfigFile(os.path.join(store_path, CONFIG, CONSUMER_FILTER_CONFIG), _SUBJECT, _filters)
        self.path = self._file.path
        self._root = self._file.read()
        self._lock = threading.Lock()

    def filters(self) -> list[ConsumerFilter]:
        """All filters, by topic and group."""
        with self._lock:
            found = _filters(self._file, self._root)
        return [found[place] for place in sorted(found)]

    def get(self, group: str, topic: str) -> ConsumerFilter | None:
        """The filter of a group for a topic; None if it subscribes without one."""
        with self._lock:
            return _filters(self._file, self._root).get((topic, group))

    def remove(self, group: str, topic: str | None = None) -> list[str]:
        """Remove a group's filters, of one topic or of all; the file is written. Returns the topics of those removed.

        ``StoreIOError`` and the other errors of ``JsonConfigFile.write``.
        """
        with self._lock:
            table = self._root.get("filterDataByTopic", {})
            kept, removed = dict(table), []
            for name, entry in table.items():
                if group in entry.get("groupFilterData", {}) and topic in (None, name):
                    others = {other: data for other, data in entry["groupFilterData"].items() if other != group}
                    kept[name] = {**entry, "groupFilterData": others}
                    removed.append(name)
            if removed:
                root = {**self._root, "filterDataByTopic": kept}
                self._file.write(root)
                self._root = root
            return sorted(removed)


def _filters(file: JsonConfigFile, root: dict[str, Any]) -> dict[tuple[str, str], ConsumerFilter]:
    """The filters by topic and group. ``CorruptConfig``."""
    table = file.checked(root, _FilterTable, "an object with the object 'filterDataByTopic'").filterDataByTopic
    return {
        (topic, group): file.checked(data, ConsumerFilter, f"the filter of group {group!r} for topic {topic!r}")
        for topic, entry in table.items()
        for group, data in entry.groupFilterData.items()
    }
