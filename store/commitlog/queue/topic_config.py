"""Topic configuration ``topics.json``: the number of queues of each topic.

``<store>/config/topics.json`` is RocketMQ's. This package adds topics to it, and changes a listed topic only by raising
readQueueNums, when a message names a higher queue, which consumers would never read::

    {"dataVersion": {...}, "topicConfigTable": {"orders": {"topicName": "orders", "writeQueueNums": 4, ...}, ...}}

The number decides which queue a sharding key goes to, so for a topic that is not listed it is determined once and kept,
and does not change with the existing queues.

The list is written whole under another name, synced, and renamed: whenever the machine stops, it is the old one or the
new one. The old one is kept beside it as ``topics.json.bak``, as a broker does.

Source: RocketMQ ``broker/topic/TopicConfigManager.java``, ``common/TopicConfig.java``, ``common/ConfigManager.java``,
``remoting/protocol/DataVersion.java``, ``common/TopicAttributes.java``.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import Annotated, Any, TypeVar, cast

import msgspec

from commitlog.batch_id import TopicUse
from commitlog.errors import (
    CorruptConfig,
    InvalidValue,
    NotAStore,
    PutRefused,
    ReadFailed,
    StoreAccessDenied,
    StoreIOError,
)
from commitlog.files import disk
from commitlog.files.whole_file import replace_file
from commitlog.log.store_directory import other_topic_kind
from commitlog.message import PutMessageStatus
from commitlog.paths import BACKUP_SUFFIX, CONFIG, MOST_QUEUES, TOPICS_CONFIG, validate_new_topic

__all__ = ["LARGEST_CONFIG", "TopicConfig", "parse_topic_config", "spread_over"]

# Bytes of a list that is still read; far beyond what a broker ever writes.
LARGEST_CONFIG = 256 << 20
_MAX_INT = 2**31 - 1
# RocketMQ's defaults for a topic without these numbers: queues to write to and to read.
_DEFAULT_QUEUE_NUMS = 16
_READ_AND_WRITE = 6
_MAX_LONG = 2**63 - 1
# The attributes of topics whose messages are not in plain consume queues.
_OTHER_KINDS = (
    ("queue.type", "BatchCQ", "is kept in batch consume queues"),
    ("cleanup.policy", "COMPACTION", "is a compaction topic"),
)
# A text, or an integer that is the name of a member: fastjson leaves the quotes off.
_TEXT_OR_INTEGER_NAME = re.compile(r'"(?:[^"\\]|\\.)*"|([{,]\s*)(-?[0-9]+)(?=\s*:)', re.DOTALL)
_QueueNums = Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT)]
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


# What this package uses of the file; members that are not named here stay as they are.
class _TopicList(msgspec.Struct):
    topicConfigTable: dict[str, Any] = {}


class _TopicEntry(msgspec.Struct):
    writeQueueNums: _QueueNums = _DEFAULT_QUEUE_NUMS
    readQueueNums: _QueueNums = _DEFAULT_QUEUE_NUMS


class _Version(msgspec.Struct):
    counter: Annotated[int, msgspec.Meta(ge=0, le=_MAX_LONG - 1)] = 0


def spread_over(present: int, default: int) -> int:
    """The number of queues to spread messages over, for a topic that is not listed and has ``present`` queues.

    All of them, and at least the default. When a message named a queue above the limit of a topic, ``present`` means
    nothing, and the default counts.
    """
    return default if present > MOST_QUEUES else max(default, present)


class TopicConfig:
    """The number of queues of every topic of one store, for its owner. Safe for several threads.

    ``highest_id`` returns the highest queue id that a topic has on disk, -1 for none.
    """

    def __init__(self, store_path: str, default_queue_nums: int, highest_id: Callable[[str], int]) -> None:
        self.path = os.path.join(store_path, CONFIG, TOPICS_CONFIG)
        self._store_path = store_path
        self._default = default_queue_nums
        self._highest_id = highest_id
        self._lock = threading.Lock()
        self._signature: tuple[int, ...] | None = None
        self._listed: dict[str, int] = {}
        # Listed topics whose messages are not kept in plain consume queues; topics whose messages certainly are.
        self._other_kinds: dict[str, str] = {}
        self._plain: set[str] = set()
        self._kept: dict[str, int] = {}

    def queue_count(self, topic: str) -> int:
        """The number of queues that messages of the topic are spread over. ``CorruptConfig``, ``StoreIOError``.

        A topic that is not listed, or listed with no queue to write to, keeps the number of the first call: see
        ``spread_over``.
        """
        with self._lock:
            self._refresh()
            listed = self._listed.get(topic, 0)
            if listed:
                return listed
            if topic not in self._kept:
                self._kept[topic] = spread_over(self._highest_id(topic) + 1, self._default)
            return self._kept[topic]

    def kind_fault(self, topic: str) -> str | None:
        """Why no message can be put into a topic that is not kept in plain queues, as the end of a sentence.

        None for a plain topic, which remains one: RocketMQ does not change a topic's kind. A list that cannot be read
        says nothing here; ``queue_count`` raises the error.
        """
        with self._lock:
            if topic in self._plain:
                return None
            with contextlib.suppress(CorruptConfig, ReadFailed):
                self._refresh()
            kind = self._other_kinds.get(topic) or other_topic_kind(self._store_path, topic)
            if kind is None:
                self._plain.add(topic)
                return None
            return f"topic {topic!r} {kind}, which this store does not keep: no consumer would find the message"

    def create_topic(self, topic: str, queue_nums: int, *, read_queue_nums: int = 0) -> None:
        """Add the topic to the list with so many queues, to read and to write; a listed one keeps its number.

        ``read_queue_nums``, when it is more, is for queues that messages name themselves: nothing is spread over them.
        Of a listed topic only this number is raised.
        ``InvalidValue`` for a topic that RocketMQ would not create and for a number that is not 1 to 65,536;
        ``CorruptConfig``, ``NotAStore`` for a symbolic link where the list should be (invariant 10),
        ``StoreAccessDenied``; ``StoreIOError``, and then the list is unchanged, or whole with the topic in it.
        """
        _check_new_topic(topic, queue_nums)
        with self._lock:
            self._enter([TopicUse(topic, 0, read_queue_nums, is_new=True)], queue_nums)

    def admit(self, uses: Iterable[TopicUse], queue_nums: int) -> None:
        """List a batch's topics before the batch is written.

        New topics are listed with ``queue_nums`` queues, as by ``create_topic``, which documents the other errors.
        ``PutRefused`` when a topic has fewer queues to write to than the messages were spread over, since those of a
        sharding key would then lie in two queues, and for a topic of another kind (``kind_fault``); nothing is changed
        then.
        """
        uses = list(uses)
        for use in uses:
            if fault := self.kind_fault(use.topic):
                raise PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, f"Nothing was written: {fault}.")
            if use.is_new:
                _check_new_topic(use.topic, queue_nums)
        with self._lock:
            self._enter(uses, queue_nums)

    def _enter(self, uses: Iterable[TopicUse], queue_nums: int) -> None:
        """Change the list in one write, or in none when it needs no change."""
        try:
            old = self._read()
        except FileNotFoundError:
            old = None
        root = {} if old is None else _parse(old, self.path)
        listed = _queue_nums(root, self.path)
        table = root.get("topicConfigTable", {})
        changed = {}
        for use in uses:
            # An id above the limit of a topic does not raise the queues to read.
            readable = use.named_queues if use.named_queues <= MOST_QUEUES else 0
            if use.topic in listed:
                _refuse_fewer_queues(use, listed[use.topic], self.path)
                if readable > _entry(use.topic, table[use.topic], self.path).readQueueNums:
                    changed[use.topic] = {**table[use.topic], "readQueueNums": readable}
            elif use.is_new:
                changed[use.topic] = _new_entry(use.topic, queue_nums, max(queue_nums, readable))
        if not changed:
            return
        _refuse_links(self.path)
        version = _next_version(root.get("dataVersion", {}), self.path)
        data = _encode({**root, "dataVersion": version, "topicConfigTable": {**table, **changed}}, self.path)
        # The list is read again, whether the write succeeds or not.
        self._signature = None
        _write(self.path, data, old)

    def _read(self) -> bytes:
        """The file's bytes. ``FileNotFoundError``."""
        try:
            return disk.read_file(self.path, LARGEST_CONFIG)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno == errno.EFBIG:
                raise _corrupt(self.path, 0, f"at most {LARGEST_CONFIG} bytes", "more") from error
            raise ReadFailed("read", path=self.path, cause=error) from error

    def _refresh(self) -> None:
        """Read the file if it changed since the last reading."""
        try:
            signature = disk.file_signature(self.path)
            if signature == self._signature:
                return
            root = _parse(self._read(), self.path)
            self._listed, self._other_kinds = _queue_nums(root, self.path), _other_kinds(root)
        except FileNotFoundError:
            self._signature, self._listed, self._other_kinds = None, {}, {}
            return
        except OSError as error:
            raise ReadFailed("read", path=self.path, cause=error) from error
        # Taken before the reading: a change during that is read the next time.
        self._signature = signature


def parse_topic_config(data: bytes, path: str) -> dict[str, int]:
    """Each topic's writeQueueNums. ``CorruptConfig`` for anything that a broker would not write."""
    return _queue_nums(_parse(data, path), path)


def _parse(data: bytes, path: str) -> dict[str, Any]:
    """The whole list; its table of topics, if present, is an object. ``CorruptConfig``."""
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
    _checked(root, _TopicList, "an object with the object 'topicConfigTable'", path)
    return cast("dict[str, Any]", root)


def _queue_nums(root: dict[str, Any], path: str) -> dict[str, int]:
    table = root.get("topicConfigTable", {})
    return {topic: _entry(topic, entry, path).writeQueueNums for topic, entry in table.items()}


def _other_kinds(root: dict[str, Any]) -> dict[str, str]:
    """What kind of topic those are whose messages are not in plain consume queues, after the name in a sentence."""
    kinds = {}
    for topic, entry in root.get("topicConfigTable", {}).items():
        attributes = entry.get("attributes") if isinstance(entry, dict) else None
        if not isinstance(attributes, dict):
            continue
        for name, value, what in _OTHER_KINDS:
            # With a plus, as the tools send attributes to a broker, which takes it off when it changes a topic.
            if value in (attributes.get(name), attributes.get(f"+{name}")):
                kinds[topic] = f"{what} ({name}={value} in {TOPICS_CONFIG})"
    return kinds


def _entry(topic: str, entry: object, path: str) -> _TopicEntry:
    return _checked(entry, _TopicEntry, f"an object with 0 to {_MAX_INT} queues for topic {topic!r}", path)


def _checked(value: object, kind: type[_Struct], expected: str, path: str) -> _Struct:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _corrupt(path, 0, expected, str(error)) from error


def _check_new_topic(topic: str, queue_nums: int) -> None:
    validate_new_topic(topic)
    if not 1 <= queue_nums <= MOST_QUEUES:
        raise InvalidValue(f"A topic has 1 to {MOST_QUEUES} queues, not {queue_nums}: {topic!r}.")


def _refuse_fewer_queues(use: TopicUse, listed: int, path: str) -> None:
    # A topic with no queue to write to does not decide how messages are spread.
    if 0 < listed < use.spread_over:
        raise PutRefused(
            PutMessageStatus.SERVICE_NOT_AVAILABLE,
            f"Topic {use.topic!r} has {listed} queues by {path}, but its messages were spread over {use.spread_over}: "
            "it was created or changed while they were being staged. Nothing was written; run it again, and they are "
            f"spread over {listed}.",
        )


def _new_entry(topic: str, queue_nums: int, read_queue_nums: int) -> dict[str, Any]:
    """A broker's entry for a topic that was created with only a name and a number."""
    return {
        "attributes": {},
        "order": False,
        "perm": _READ_AND_WRITE,
        "readQueueNums": read_queue_nums,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": queue_nums,
    }


def _next_version(version: Any, path: str) -> dict[str, Any]:
    """The version after this one (``DataVersion.nextVersion``), by which copies of the list are compared.

    stateVersion is that of a broker's controller; it has precedence over the rest, and stays.
    """
    counter = _checked(
        version, _Version, f"an object with 0 to {_MAX_LONG - 1} as counter of dataVersion", path
    ).counter
    known = {"counter": 0, "stateVersion": 0, **version}
    return {**known, "counter": counter + 1, "timestamp": int(time.time() * 1000)}


def _encode(root: dict[str, Any], path: str) -> bytes:
    """The list as a broker's fastjson lays it out, but for integers as names, which are quoted here.

    ``CorruptConfig`` for values that cannot be written as JSON again: a number beyond all floats, too deep nesting.
    """
    try:
        return json.dumps(root, indent="\t", separators=(",", ":"), allow_nan=False).encode("ascii")
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, 0, "JSON that can be written again", str(error)) from error


def _refuse_links(path: str) -> None:
    for place in (os.path.dirname(path), path):
        if disk.is_symlink(place):
            raise NotAStore(
                f"{place} is a symbolic link; a store is written only where it lies. Put its target in its place.",
                path=place,
            )


def _write(path: str, data: bytes, old: bytes | None) -> None:
    """Replace the list by these bytes, and keep the old ones beside it. ``StoreAccessDenied``, ``StoreIOError``."""
    directory = os.path.dirname(path)
    try:
        if not disk.exists(directory):
            disk.make_directory(directory)
            disk.sync_directory(os.path.dirname(directory))
        if old is not None:
            # A copy, not the old file renamed: a list exists at every moment.
            # A broker reads it when the list itself is missing or damaged.
            replace_file(path + BACKUP_SUFFIX, old)
        replace_file(path, data)
        disk.sync_directory(directory)
    except PermissionError as error:
        raise StoreAccessDenied(
            f"No permission to write {path}: run as the store's user, or change the mode of {directory}.", path=path
        ) from error
    except OSError as error:
        raise StoreIOError("write", path=path, cause=error) from error


def _corrupt(path: str, offset: int, expected: object, found: object) -> CorruptConfig:
    return CorruptConfig(
        "The list of topics",
        path=path,
        offset=offset,
        expected=expected,
        found=found,
        advice="Restore it (a broker keeps a copy beside it, with .bak), or remove it.",
    )
