"""Settings of consumer groups, ``<store>/config/subscriptionGroup.json``, and filters, ``config/consumerFilter.json``.

A broker writes the settings when a group is created or changed::

    {
        "dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},
        "forbiddenTable":{},                                                        from 5.0 on
        "subscriptionGroupTable":{"billing":{"groupName":"billing","retryMaxTimes":16, ...}}
    }

It writes filters every 10 seconds, for groups that subscribe with SQL92, and drops them 24 hours after their end::

    {
        "filterDataByTopic":{"orders":{"topic":"orders","groupFilterData":{"billing":{
            "consumerGroup":"billing","topic":"orders","expression":"a > 5","expressionType":"SQL92",
            "bornTime":1700000000000,"deadTime":0,"clientVersion":1700000000000,
            "bloomFilterData":{"bitNum":100,"bitPos":[1,7]}}}}}
    }

Source: RocketMQ ``broker/subscription/SubscriptionGroupManager.java``,
``remoting/protocol/subscription/SubscriptionGroupConfig.java``, ``broker/filter/ConsumerFilterManager.java``,
``broker/filter/ConsumerFilterData.java``.
"""

from __future__ import annotations

import os
import threading
from typing import Annotated, Any

import msgspec

from commitlog_store.config_files.json_file import JsonConfigFile, next_version
from commitlog_store.java_numbers import MAX_INT, MAX_LONG
from commitlog_store.paths import CONFIG, CONSUMER_FILTER_CONFIG, SUBSCRIPTION_GROUP_CONFIG, validate_group

_SUBJECT = "The list of subscription groups"
_Int = Annotated[int, msgspec.Meta(ge=-MAX_INT - 1, le=MAX_INT)]
_Long = Annotated[int, msgspec.Meta(ge=-MAX_LONG - 1, le=MAX_LONG)]


class SubscriptionGroupConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings of one group, with a broker's defaults. Brokers and consumers obey them.

    ::

        with MessageStore.open("/data/store") as store:
            store.set_group_settings(SubscriptionGroupConfig(group_name="billing", retry_max_times=3))
    """

    group_name: str
    consume_enable: bool = True
    """Whether the group may consume."""
    consume_from_min_enable: bool = True
    """Whether a group without a position may begin at the oldest message."""
    consume_broadcast_enable: bool = True
    """Whether each consumer of the group may get all messages."""
    consume_message_orderly: bool = False
    """Whether POP consumers of 5.x get each queue's messages in order."""
    retry_queue_nums: _Int = 1
    """The number of queues of the group's retry topic; 0: failed messages are not consumed again."""
    retry_max_times: _Int = 16
    """How many times a message is consumed again before it is a dead letter."""
    broker_id: _Long = 0
    which_broker_when_consume_slowly: _Long = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: _Int = 0
    consume_timeout_minute: _Int = 15
    """Minutes that a push consumer has for a message."""


class _GroupTable(msgspec.Struct):
    subscriptionGroupTable: dict[str, Any] = {}


class SubscriptionGroups:
    """The settings of all groups of one store, read once; safe for several threads. Only the owner changes them.

    ``CorruptConfig`` if neither the file nor its ``.bak`` can be used; ``ReadFailed``.
    """

    def __init__(self, store_path: str) -> None:
        self._file = JsonConfigFile(os.path.join(store_path, CONFIG, SUBSCRIPTION_GROUP_CONFIG), _SUBJECT, _configs)
        self.path = self._file.path
        self._root = self._file.read()
        self._configs = _configs(self._file, self._root)
        self._lock = threading.Lock()

    def all(self) -> list[SubscriptionGroupConfig]:
        """The settings of all groups, by name. A broker has some groups of its own."""
        with self._lock:
            return [self._configs[group] for group in sorted(self._configs)]

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """The settings of a group; None for one that was never created."""
        with self._lock:
            return self._configs.get(group)

    def content(self) -> dict[str, Any]:
        """The whole file, with the members that are not known here: to be read only."""
        with self._lock:
            return self._root

    def put(self, config: SubscriptionGroupConfig) -> None:
        """Create the group, or change its settings; the file is written. Members that are not known here stay.

        ``InvalidValue`` for an impossible name or number; ``StoreIOError`` and the errors of ``JsonConfigFile.write``.
        """
        group = config.group_name
        validate_group(group)
        with self._lock:
            entry = {**self._table().get(group, {}), **msgspec.to_builtins(config)}
            self._write({**self._table(), group: entry})

    def remove(self, group: str) -> bool:
        """Remove a group's settings; returns whether it had any. Its positions are in another file."""
        with self._lock:
            table = {name: entry for name, entry in self._table().items() if name != group}
            if len(table) == len(self._table()):
                return False
            self._write(table)
            return True

    def _table(self) -> dict[str, Any]:
        table: dict[str, Any] = self._root.get("subscriptionGroupTable", {})
        return table

    def _write(self, table: dict[str, Any]) -> None:
        version = next_version(self._root.get("dataVersion", {}), self._file)
        root = {**self._root, "dataVersion": version, "subscriptionGroupTable": table}
        configs = _configs(self._file, root)
        self._file.write(root)
        self._root, self._configs = root, configs


def replace_subscription_groups(store_path: str, root: dict[str, Any], source: str) -> bool:
    """Replace the groups by a master's, if their dataVersion differs, as a slave does; False if not.

    ``source`` is the list in an error: ``CorruptConfig`` for an object that no broker writes.
    """
    _configs(JsonConfigFile(source, _SUBJECT), root)
    file = JsonConfigFile(os.path.join(store_path, CONFIG, SUBSCRIPTION_GROUP_CONFIG), _SUBJECT, _configs)
    old = file.read()
    if old and old.get("dataVersion") == root.get("dataVersion"):
        return False
    file.write(root)
    return True


def _configs(file: JsonConfigFile, root: dict[str, Any]) -> dict[str, SubscriptionGroupConfig]:
    """The settings by group. ``CorruptConfig``."""
    table = file.checked(root, _GroupTable, "an object with the object 'subscriptionGroupTable'").subscriptionGroupTable
    return {group: _config(file, group, entry) for group, entry in table.items()}


def _config(file: JsonConfigFile, group: str, entry: object) -> SubscriptionGroupConfig:
    # The name in the table decides; brokers look nothing up by the other one.
    named = {**entry, "groupName": group} if isinstance(entry, dict) else entry
    return file.checked(named, SubscriptionGroupConfig, f"an object with the settings of group {group!r}")


class ConsumerFilter(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The expression with which a group subscribes to a topic. Times are milliseconds since 1970.

    ::

        with StoreReader.open("/data/store") as reader:
            for one in reader.group_filters():
                print(one.consumer_group, one.topic, one.expression)
    """

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


def consumer_filters(store_path: str) -> list[ConsumerFilter]:
    """The filters of a store, by topic and group.

    ``CorruptConfig`` if neither the file nor its ``.bak`` can be used; ``ReadFailed``.
    """
    path = os.path.join(store_path, CONFIG, CONSUMER_FILTER_CONFIG)
    file = JsonConfigFile(path, "The list of consumer filters", _filters)
    found = _filters(file, file.read())
    return [found[place] for place in sorted(found)]


def _filters(file: JsonConfigFile, root: dict[str, Any]) -> dict[tuple[str, str], ConsumerFilter]:
    """The filters by topic and group. ``CorruptConfig``."""
    table = file.checked(root, _FilterTable, "an object with the object 'filterDataByTopic'").filterDataByTopic
    return {
        (topic, group): file.checked(data, ConsumerFilter, f"the filter of group {group!r} for topic {topic!r}")
        for topic, entry in table.items()
        for group, data in entry.groupFilterData.items()
    }
