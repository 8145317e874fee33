"""Marks of the program that delivers a store's delayed messages: a broker, or ``MessageStore`` if it created the store.

A new store gets a note, ``config/createdBy.json``::

    {"createdBy":"commitlog"}

A broker that takes the store over notes in ``config/`` what only brokers note: topics and groups that it makes for
itself when it starts, and files of its timer and its consumers. Then the broker delivers.
"""

from __future__ import annotations

import os
from typing import Any

from commitlog_store.config_files.json_file import JsonConfigFile
from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.paths import CONFIG, CREATED_BY, SUBSCRIPTION_GROUP_CONFIG, TIMER_WHEEL, TOPICS_CONFIG

_NOTE = {"createdBy": "commitlog"}
# Every broker lists these when it starts (``TopicConfigManager``, ``SubscriptionGroupManager``).
_TOPICS = ("TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT")
# Not TOOLS_CONSUMER: mqadmin consumes as it, which makes it a group of a store that `commitlog serve` owns.
_GROUPS = ("FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL")
# Files of the config directory that only brokers write (``BrokerPathConfigHelper``).
_FILES = ("consumerOrderInfo.json", "topicQueueMapping.json", "timermetrics")


def note_creation(store_path: str) -> None:
    """Note that this package creates the store; before its first message. ``StoreIOError``, ``StoreAccessDenied``."""
    note = _note(store_path)
    if not disk.exists(note.path):
        note.write(_NOTE)


def _note(store_path: str) -> JsonConfigFile:
    return JsonConfigFile(os.path.join(store_path, CONFIG, CREATED_BY), "The note of the store's creation")


def broker_mark(store_path: str) -> str | None:
    """The mark by which a broker delivers, as a noun; None where the owner delivers."""
    if _read(_note(store_path)).get("createdBy") != _NOTE["createdBy"]:
        return f"the missing {CREATED_BY}: another program created the store"
    config = os.path.join(store_path, CONFIG)
    for name, table, own in (
        (TOPICS_CONFIG, "topicConfigTable", _TOPICS),
        (SUBSCRIPTION_GROUP_CONFIG, "subscriptionGroupTable", _GROUPS),
    ):
        listed: Any = _read(JsonConfigFile(os.path.join(config, name), "A list of the store")).get(table)
        found = next((one for one in own if isinstance(listed, dict) and one in listed), None)
        if found is not None:
            return f"{found} in {name}"
    for name in _FILES:
        if disk.exists(os.path.join(config, name)):
            return f"the file {name}"
    return f"the timer wheel of RocketMQ 5 ({TIMER_WHEEL})" if has_timer_wheel(store_path) else None


def _read(file: JsonConfigFile) -> dict[str, Any]:
    """The content; empty where it cannot be read: it shows nothing then."""
    try:
        return file.read()
    except CommitLogError:
        return {}


def has_timer_wheel(store_path: str) -> bool:
    """Whether a broker of RocketMQ 5 delivered timer messages there last: ``MessageStore`` keeps no such file."""
    return disk.exists(os.path.join(store_path, TIMER_WHEEL))
