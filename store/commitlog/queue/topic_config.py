"""Topic configuration ``topics.json``: the number of queues of each topic.

``<store>/config/topics.json`` is RocketMQ's. This package adds topics to it: those that are created, those of staged
batches (Spark's sink), and those that get a message with a sharding key. It changes a listed topic only by raising
readQueueNums, when a message names a higher queue, which consumers would never read::

    {"dataVersion": {...}, "topicConfigTable": {"orders": {"topicName": "orders", "writeQueueNums": 4, ...}, ...}}

The number decides which queue a sharding key goes to, so it is determined once, listed, and kept: it does not change
with the existing queues, nor with the default.

``perm`` has a bit for writing (2) and one for reading (4). Producers put nothing into a topic without the first;
a topic without the second gets no consumer.

Source: RocketMQ ``broker/topic/TopicConfigManager.java``, ``common/TopicConfig.java``, ``common/TopicAttributes.java``,
``common/constant/PermName.java``.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from commitlog.batch_id import TopicUse
from commitlog.config_files.json_file import JsonConfigFile, decode_config, next_version
from commitlog.errors import CorruptConfig, InvalidValue, OutcomeUnknown, PutRefused, ReadFailed, Refused
from commitlog.files import disk
from commitlog.log.store_directory import other_topic_kind
from commitlog.message import PutMessageStatus
from commitlog.paths import (
    BACKUP_SUFFIX,
    CONFIG,
    LIGHT_QUEUE_PREFIX,
    MOST_QUEUES,
    TOPICS_CONFIG,
    is_system_topic,
    validate_new_topic,
)

__all__ = [
    "TopicConfig",
    "TopicSettings",
    "parse_topic_config",
    "read_topic_config",
    "read_topic_settings",
    "replace_topics",
    "spread_over",
    "topic_list_signature",
    "unused_topics",
]

_MAX_INT = 2**31 - 1
# RocketMQ's defaults for a topic without these numbers: queues to write to and to read.
_DEFAULT_QUEUE_NUMS = 16
_PERM_WRITE = 2
_PERM_READ = 4
_READ_AND_WRITE = 6
# The attributes of topics whose messages are not in plain consume queues.
_OTHER_KINDS = (
    ("queue.type", "BatchCQ", "is kept in batch consume queues"),
    ("cleanup.policy", "COMPACTION", "is a compaction topic"),
)
_QueueNums = Annotated[int, msgspec.Meta(ge=0, le=_MAX_INT)]
_SUBJECT = "The list of topics"


# What this package uses of the file; members that are not named here stay as they are.
class _TopicList(msgspec.Struct):
    topicConfigTable: dict[str, Any] = {}


class _TopicEntry(msgspec.Struct):
    writeQueueNums: _QueueNums = _DEFAULT_QUEUE_NUMS
    readQueueNums: _QueueNums = _DEFAULT_QUEUE_NUMS
    perm: _QueueNums = _READ_AND_WRITE


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
        self._file = _file_of(store_path)
        self.path = self._file.path
        self._store_path = store_path
        self._default = default_queue_nums
        self._highest_id = highest_id
        self._lock = threading.Lock()
        self._signature: _Signature | None = None
        self._listed: dict[str, int] = {}
        self._perms: dict[str, int] = {}
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

    def keep_queue_counts(self, topics: Iterable[str]) -> None:
        """List topics that get messages with sharding keys, each with the queues that its messages are spread over.

        Or the same key would go to another queue when the store is opened with another default. A topic that is listed
        stays as it is. ``PutRefused`` if the list cannot be written; ``CorruptConfig``, ``ReadFailed``.
        """
        counts = {topic: self.queue_count(topic) for topic in topics}
        with self._lock:
            new = {topic: count for topic, count in counts.items() if topic not in self._perms}
            if not new:
                return
            uses = [TopicUse(topic, 0, self._highest_id(topic) + 1, is_new=True) for topic in new]
            try:
                self._enter(uses, new)
            except (Refused, OutcomeUnknown) as error:
                raise PutRefused(
                    PutMessageStatus.SERVICE_NOT_AVAILABLE,
                    f"A topic of a message with a sharding key cannot be listed with its number of queues: {error}",
                ) from error

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

    def put_fault(self, topic: str) -> str | None:
        """Why a producer may put no message into the topic, as the end of a sentence; None if it may.

        It is of another kind (``kind_fault``), or its ``perm`` has no bit for writing. A broker's clients obey that;
        the broker itself delivers delayed and committed messages all the same, and so does this package.
        """
        if fault := self.kind_fault(topic):
            return fault
        perm = self._perm(topic)
        if perm & _PERM_WRITE:
            return None
        return (
            f"topic {topic!r} is closed for producers: its perm is {perm} in {self.path}, without the {_PERM_WRITE} "
            "for writing"
        )

    def refuse_consumers(self, topic: str) -> None:
        """``InvalidValue`` if the topic's ``perm`` has no bit for reading: a broker refuses its consumers' pulls."""
        perm = self._perm(topic)
        if not perm & _PERM_READ:
            raise InvalidValue(
                f"Topic {topic!r} is closed for consumers: its perm is {perm} in {self.path}, without the {_PERM_READ} "
                "for reading."
            )

    def _perm(self, topic: str) -> int:
        with self._lock:
            with contextlib.suppress(CorruptConfig, ReadFailed):
                self._refresh()
            return self._perms.get(topic, _READ_AND_WRITE)

    def create_topic(self, topic: str, queue_nums: int, *, read_queue_nums: int = 0, perm: int | None = None) -> None:
        """Add the topic to the list with so many queues, to read and to write; a listed one keeps its number.

        ``read_queue_nums``, when it is more, is for queues that messages name themselves: nothing is spread over them.
        ``perm`` is that of the topic, 6 for a new one. Of a listed topic only these two are changed.
        ``InvalidValue`` for a topic that RocketMQ would not create and for a number that is not 1 to 65,536;
        ``CorruptConfig``, ``NotAStore`` for a symbolic link where the list should be (invariant 10),
        ``StoreAccessDenied``; ``StoreIOError``, and then the list is unchanged, or whole with the topic in it.
        """
        _check_new_topic(topic, queue_nums)
        with self._lock:
            self._enter([TopicUse(topic, 0, read_queue_nums, is_new=True)], {topic: queue_nums}, perm)

    def remove_topic(self, topic: str) -> bool:
        """Remove a topic from the list; False if it is not listed. ``CorruptConfig``, ``StoreIOError``."""
        with self._lock:
            self._kept.pop(topic, None)
            root = self._file.read()
            table = root.get("topicConfigTable", {})
            if topic not in table:
                return False
            left = {name: entry for name, entry in table.items() if name != topic}
            version = next_version(root.get("dataVersion", {}), self._file)
            self._signature = None
            self._file.write({**root, "dataVersion": version, "topicConfigTable": left})
            return True

    def admit(self, uses: Iterable[TopicUse], queue_nums: int) -> None:
        """List a batch's topics before the batch is written.

        New topics are listed with ``queue_nums`` queues, as by ``create_topic``, which documents the other errors.
        Topics that exist and are not listed get the number that the messages were spread over.
        ``PutRefused`` when a topic has fewer queues to write to than the messages were spread over, since those of a
        sharding key would then lie in two queues, and for a topic that producers may not put into (``put_fault``);
        nothing is changed then.
        """
        uses = list(uses)
        for use in uses:
            if fault := self.put_fault(use.topic):
                raise PutRefused(PutMessageStatus.MESSAGE_ILLEGAL, f"Nothing was written: {fault}.")
            if use.is_new:
                _check_new_topic(use.topic, queue_nums)
        with self._lock:
            self._enter(uses, {use.topic: queue_nums if use.is_new else use.spread_over for use in uses})

    def _enter(self, uses: Iterable[TopicUse], queue_nums: Mapping[str, int], perm: int | None = None) -> None:
        """Change the list in one write, or in none when it needs no change.

        Topics that are not listed are added with ``queue_nums``, unless that is 0.
        """
        root = self._file.read()
        listed = _queue_nums(self._file, root)
        table = root.get("topicConfigTable", {})
        changed = {}
        for use in uses:
            # An id above the limit of a topic does not raise the queues to read.
            readable = use.named_queues if use.named_queues <= MOST_QUEUES else 0
            if use.topic in listed:
                _refuse_fewer_queues(use, listed[use.topic], self.path)
                entry = _entry(use.topic, table[use.topic], self._file)
                if readable > entry.readQueueNums:
                    changed[use.topic] = {**table[use.topic], "readQueueNums": readable}
                if perm not in (None, entry.perm):
                    changed[use.topic] = {**changed.get(use.topic, table[use.topic]), "perm": perm}
            elif count := queue_nums[use.topic]:
                entry_perm = _READ_AND_WRITE if perm is None else perm
                changed[use.topic] = _new_entry(use.topic, count, max(count, readable), entry_perm)
        if not changed:
            return
        version = next_version(root.get("dataVersion", {}), self._file)
        # The list is read again, whether the write succeeds or not.
        self._signature = None
        self._file.write({**root, "dataVersion": version, "topicConfigTable": {**table, **changed}})

    def _refresh(self) -> None:
        """Read the list if it changed since the last reading."""
        signature = topic_list_signature(self.path)
        if signature == self._signature:
            return
        root = self._file.read()
        entries = _entries(self._file, root)
        self._listed = {topic: entry.writeQueueNums for topic, entry in entries.items()}
        self._perms = {topic: entry.perm for topic, entry in entries.items()}
        self._other_kinds = _other_kinds(root)
        # Taken before the reading: a change during that is read the next time.
        self._signature = signature


_Signature = tuple[tuple[int, ...] | None, ...]


def topic_list_signature(path: str) -> _Signature:
    """Differs after the list of topics, or its ``.bak``, has changed. ``ReadFailed``."""
    return _signature_of(path), _signature_of(path + BACKUP_SUFFIX)


def _signature_of(path: str) -> tuple[int, ...] | None:
    try:
        return disk.file_signature(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ReadFailed("read", path=path, cause=error) from error


def read_topic_config(store_path: str) -> dict[str, int]:
    """Each listed topic's writeQueueNums; none without a list. From ``.bak`` where a broker would read that.

    ``CorruptConfig`` if neither file is what a broker writes; ``ReadFailed``.
    """
    file = _file_of(store_path)
    return _queue_nums(file, file.read())


def unused_topics(store_path: str, known: Iterable[str], retain: Iterable[str]) -> list[str]:
    """The ``known`` topics that are neither in ``retain`` nor in the list of topics. ``CorruptConfig``, ``ReadFailed``.

    Without RocketMQ's own and light queues, as RocketMQ's ``cleanUnusedTopic``, which a broker calls with its list.
    """
    used = {*retain, *read_topic_config(store_path)}
    return [
        topic
        for topic in known
        if topic not in used and not is_system_topic(topic) and not topic.startswith(LIGHT_QUEUE_PREFIX)
    ]


@dataclass(frozen=True)
class TopicSettings:
    """What the list says of a topic."""

    write_queue_nums: int
    read_queue_nums: int
    perm: int


def read_topic_settings(store_path: str) -> dict[str, TopicSettings]:
    """The settings of all listed topics; the errors of ``read_topic_config``."""
    file = _file_of(store_path)
    return {
        topic: TopicSettings(entry.writeQueueNums, entry.readQueueNums, entry.perm)
        for topic, entry in _entries(file, file.read()).items()
    }


def parse_topic_config(data: bytes, path: str) -> dict[str, int]:
    """Each topic's writeQueueNums. ``CorruptConfig`` for anything that a broker would not write."""
    file = JsonConfigFile(path, _SUBJECT)
    return _queue_nums(file, decode_config(data, path, _SUBJECT))


def replace_topics(store_path: str, root: dict[str, Any], source: str) -> bool:
    """Replace the list by a master's, if its dataVersion differs; False if not. ``source`` is the list in an error.

    ``CorruptConfig`` for an object that no broker writes; the errors of ``JsonConfigFile.write``.
    """
    _entries(JsonConfigFile(source, _SUBJECT), root)
    file = _file_of(store_path)
    old = file.read()
    if old and old.get("dataVersion") == root.get("dataVersion"):
        return False
    file.write({name: root[name] for name in ("dataVersion", "topicConfigTable") if name in root})
    return True


def _file_of(store_path: str) -> JsonConfigFile:
    return JsonConfigFile(os.path.join(store_path, CONFIG, TOPICS_CONFIG), _SUBJECT, _entries)


def _entries(file: JsonConfigFile, root: dict[str, Any]) -> dict[str, _TopicEntry]:
    table = file.checked(root, _TopicList, "an object with the object 'topicConfigTable'").topicConfigTable
    return {topic: _entry(topic, entry, file) for topic, entry in table.items()}


def _queue_nums(file: JsonConfigFile, root: dict[str, Any]) -> dict[str, int]:
    return {topic: entry.writeQueueNums for topic, entry in _entries(file, root).items()}


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


def _entry(topic: str, entry: object, file: JsonConfigFile) -> _TopicEntry:
    return file.checked(entry, _TopicEntry, f"an object with 0 to {_MAX_INT} queues for topic {topic!r}")


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


def _new_entry(topic: str, queue_nums: int, read_queue_nums: int, perm: int) -> dict[str, Any]:
    """A broker's entry for a topic that was created with only a name and a number."""
    return {
        "attributes": {},
        "order": False,
        "perm": perm,
        "readQueueNums": read_queue_nums,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": 0,
        "writeQueueNums": queue_nums,
    }
