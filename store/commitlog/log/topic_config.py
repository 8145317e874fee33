"""How many queues a topic has: what the broker's list of topics says, else what is seen once and kept.

``<store>/config/topics.json`` is RocketMQ's; this package never writes it::

    {"dataVersion": {...}, "topicConfigTable": {"orders": {"topicName": "orders", "writeQueueNums": 4, ...}, ...}}

The number decides which queue a sharding key goes to, so it must not move with the queues that happen to be there.

Source: RocketMQ ``broker/topic/TopicConfigManager.java``, ``common/TopicConfig.java``.
"""

from __future__ import annotations

import errno
import json
import os
import re
import threading
from collections.abc import Callable
from typing import Any

from commitlog.errors import CorruptConfig, StoreIOError
from commitlog.files import disk
from commitlog.paths import CONFIG, TOPICS_CONFIG

__all__ = ["TopicConfig", "parse_topic_config"]

_LARGEST_CONFIG = 256 << 20
_MAX_INT = 2**31 - 1
# What RocketMQ gives a topic that does not say.
_DEFAULT_WRITE_QUEUE_NUMS = 16
# A text, or an integer that is the name of a member: fastjson leaves the quotes off.
_TEXT_OR_INTEGER_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?[0-9]+)(?=\s*:)', re.DOTALL)


class TopicConfig:
    """The number of queues of every topic of one store, as its owner needs it. Any number of threads may ask.

    ``highest_id`` tells the highest queue id that a topic has on disk, -1 for none.
    """

    def __init__(self, store_path: str, default_queue_nums: int, highest_id: Callable[[str], int]) -> None:
        self.path = os.path.join(store_path, CONFIG, TOPICS_CONFIG)
        self._default = default_queue_nums
        self._highest_id = highest_id
        self._lock = threading.Lock()
        self._signature: tuple[int, ...] | None = None
        self._listed: dict[str, int] = {}
        self._kept: dict[str, int] = {}

    def queue_count(self, topic: str) -> int:
        """Over how many queues messages of the topic are spread. ``CorruptConfig``, ``StoreIOError``.

        A topic that is not listed, or listed with no queue to write to, has as many as were there when it was asked
        for first, and at least the default.
        """
        with self._lock:
            self._refresh()
            listed = self._listed.get(topic, 0)
            if listed:
                return listed
            if topic not in self._kept:
                self._kept[topic] = max(self._default, self._highest_id(topic) + 1)
            return self._kept[topic]

    def _refresh(self) -> None:
        """Read the file when it changed since it was read last."""
        try:
            signature = disk.file_signature(self.path)
            if signature == self._signature:
                return
            self._listed = parse_topic_config(disk.read_file(self.path, _LARGEST_CONFIG), self.path)
        except FileNotFoundError:
            self._signature, self._listed = None, {}
            return
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise _corrupt(self.path, 0, f"at most {_LARGEST_CONFIG} bytes", "more") from error
            raise StoreIOError("read", path=self.path, cause=error) from error
        # Of before the reading: what changed meanwhile is read the next time.
        self._signature = signature


def parse_topic_config(data: bytes, path: str) -> dict[str, int]:
    """Each topic's writeQueueNums. ``CorruptConfig`` for anything but what a broker writes."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _corrupt(path, error.start, "UTF-8 text", f"the byte {data[error.start]:#04x}") from error
    quoted = _TEXT_OR_INTEGER_NAME.sub(lambda found: f'{found[1]}"{found[2]}"' if found[2] else found[0], text)
    try:
        root = json.loads(quoted)
    except (ValueError, RecursionError) as error:
        place = error.pos if isinstance(error, json.JSONDecodeError) else 0
        raise _corrupt(path, place, "JSON", str(error)) from error
    table = root.get("topicConfigTable", {}) if isinstance(root, dict) else None
    if not isinstance(table, dict):
        raise _corrupt(path, 0, "an object with the object 'topicConfigTable'", "another value")
    return {topic: _write_queue_nums(topic, entry, path) for topic, entry in table.items()}


def _write_queue_nums(topic: str, entry: Any, path: str) -> int:
    if not isinstance(entry, dict):
        raise _corrupt(path, 0, f"an object for topic {topic!r}", json.dumps(entry)[:40])
    number = entry.get("writeQueueNums", _DEFAULT_WRITE_QUEUE_NUMS)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= _MAX_INT:
        raise _corrupt(path, 0, f"0 to {_MAX_INT} as writeQueueNums of topic {topic!r}", json.dumps(number)[:40])
    return number


def _corrupt(path: str, offset: int, expected: object, found: object) -> CorruptConfig:
    return CorruptConfig(
        "The list of topics",
        path=path,
        offset=offset,
        expected=expected,
        found=found,
        advice="Restore it (a broker keeps a copy beside it, with .bak), or remove it.",
    )
