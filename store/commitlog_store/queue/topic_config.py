"""Topic configuration ``topics.json``: the number of queues of each topic.

``<store>/config/topics.json`` is RocketMQ's. This package adds topics to it: those that are created, and each other one
before its first message (``list_queues``), since a broker offers its clients only what is listed. It changes a listed
topic only by raising readQueueNums, when a message is for a higher queue, which consumers would never read. (A broker
refuses such a message: "request queueId[9] is illegal".) ::

    {"dataVersion": {...}, "topicConfigTable": {"orders": {"topicName": "orders", "writeQueueNums": 4, ...}, ...}}

The number decides which queue a sharding key goes to, so it is determined once, listed, and kept: it does not change
with the existing queues, nor with the default.

The topics of RocketMQ and of the store itself are not listed: a broker lists its own when it starts, and loads the
queues of the others without offering them to clients.

``perm`` has a bit for writing (2) and one for reading (4). Producers put nothing into a topic without the first;
a topic without the second gets no consumer.

``topicSysFlag`` has a bit for a topic that a producer in unit mode created (1), and one for the retry topic of
consumers in that mode (2). Clients see these bits; nothing in the store depends on them.

Source: RocketMQ ``broker/topic/TopicConfigManager.java``, ``common/TopicConfig.java``, ``common/TopicAttributes.java``,
``common/constant/PermName.java``, ``common/sysflag/TopicSysFlag.java``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec

from commitlog_store.batch_id import TopicUse
from commitlog_store.config_files.json_file import JsonConfigFile, decode_config, next_version
from commitlog_store.errors import CommitLogError, CorruptConfig, DiskFull, InvalidValue, PutRefused, ReadFailed
from commitlog_store.files import disk
from commitlog_store.format.message_rules import no_producers_fault
from commitlog_store.java_numbers import MAX_INT
from commitlog_store.log.store_directory import has_other_kinds, other_topic_kind
from commitlog_store.message import PutMessageStatus
from commitlog_store.paths import (
    BACKUP_SUFFIX,
    CONFIG,
    DLQ_TOPIC_PREFIX,
    LIGHT_QUEUE_PREFIX,
    MOST_QUEUES,
    RETRY_TOPIC_PREFIX,
    TOPICS_CONFIG,
    is_system_topic,
    validate_new_topic,
)

# RocketMQ's defaults for a topic without these numbers: queues to write to and to read.
_DEFAULT_QUEUE_NUMS = 16
# Topics of RocketMQ's own that a broker lists only with their first message, or if it is set to.
_LISTED_SYSTEM_TOPICS = ("TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_TRACE_TOPIC")
# A topic with this bit is a model for topics that a first message creates.
PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
READ_AND_WRITE = PERM_READ | PERM_WRITE
_HIGHEST_PERM = READ_AND_WRITE | PERM_INHERIT
# Bits of topicSysFlag.
FLAG_UNIT = 1
FLAG_UNIT_SUB = 2
# The attributes of topics whose messages are not in plain consume queues.
_OTHER_KINDS = (
    ("queue.type", "BatchCQ", "is kept in batch consume queues"),
    ("cleanup.policy", "COMPACTION", "is a compaction topic"),
)
_QueueNums = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]
_LOG = logging.getLogger(__name__)
_SUBJECT = "The list of topics"
_Written = TypeVar("_Written")


# What this package uses of the file; members that are not named here stay as they are.
class _TopicList(msgspec.Struct):
    topicConfigTable: dict[str, Any] = {}


class _TopicEntry(msgspec.Struct):
    writeQueueNums: _QueueNums = _DEFAULT_QUEUE_NUMS
    readQueueNums: _QueueNums = _DEFAULT_QUEUE_NUMS
    perm: _QueueNums = READ_AND_WRITE
    topicSysFlag: Any = 0

    def settings(self) -> TopicSettings:
        """Nothing in the store depends on topicSysFlag, so what is no int refuses nothing, and counts as 0."""
        return TopicSettings(self.writeQueueNums, self.readQueueNums, self.perm, sys_flag_in(self.topicSysFlag))


# What counts for a topic that is not listed: its perm.
_OPEN = _TopicEntry()


def sys_flag_in(value: object) -> int:
    """A topicSysFlag as the list of topics has it; 0 for what is no Java int."""
    return value if type(value) is int and -MAX_INT - 1 <= value <= MAX_INT else 0


def spread_over(present: int, default: int) -> int:
    """The number of queues to spread messages over, for a topic that is not listed and has ``present`` queues.

    All of them, and at least the default. When a message named a queue above the limit of a topic, ``present`` means
    nothing, and the default counts.
    """
    return default if present > MOST_QUEUES else max(default, present)


def _none(topics: Sequence[str]) -> list[int]:
    return [-1] * len(topics)


class TopicConfig:
    """The number of queues of every topic of one store, for its owner. Safe for several threads.

    ``highest_ids`` returns the highest queue id that each of many topics has on disk, -1 for none; by default
    no topic has any.
    """

    def __init__(
        self, store_path: str, default_queue_nums: int, highest_ids: Callable[[Sequence[str]], list[int]] = _none
    ) -> None:
        self._file = _file_of(store_path)
        self.path = self._file.path
        self._store_path = store_path
        self._default = default_queue_nums
        self._highest_ids = highest_ids
        self._lock = threading.Lock()
        self._signature: _Signature | None = None
        self._listed: dict[str, _TopicEntry] = {}
        # Listed topics whose messages are not kept in plain consume queues; topics whose messages certainly are.
        self._other_kinds: dict[str, str] = {}
        self._plain: set[str] = set()
        self._kept: dict[str, int] = {}
        # The dataVersion that was written last.
        self._version: dict[str, Any] | None = None
        # Whether a write of the list has failed since the last that did not, other than for want of space: its content
        # may not be on the device.
        self._may_be_lost = False

    def queue_count(self, topic: str) -> int:
        """The number of queues that messages of the topic are spread over. ``CorruptConfig``, ``StoreIOError``.

        A topic that is not listed, or listed with no queue to write to, keeps the number of the first call: see
        ``spread_over``.
        """
        with self._lock:
            self._refresh()
            entry = self._listed.get(topic)
            return (entry is not None and entry.writeQueueNums) or self._unlisted_counts({topic: 0})[topic]

    def settings(self, topic: str) -> TopicSettings | None:
        """What the list says of a topic, from memory; None for one that is not listed.

        The file is read once, and after the owner itself has changed it in a way that memory does not know:
        ``CorruptConfig``, ``ReadFailed``.
        """
        with self._lock:
            if self._signature is None:
                self._refresh()
            entry = self._listed.get(topic)
            return None if entry is None else entry.settings()

    def listed(self) -> list[str]:
        """The names of all listed topics, from memory, as ``settings``."""
        with self._lock:
            if self._signature is None:
                self._refresh()
            return list(self._listed)

    def _unlisted_counts(self, topics: Mapping[str, int]) -> dict[str, int]:
        """The counts of topics, each with the number of queues that it is going to have, at least."""
        new = [topic for topic in topics if topic not in self._kept]
        for topic, highest in zip(new, self._highest_ids(new), strict=True):
            has_one = topic.startswith((RETRY_TOPIC_PREFIX, DLQ_TOPIC_PREFIX)) or topic in _LISTED_SYSTEM_TOPICS
            present = max(highest + 1, topics[topic])
            self._kept[topic] = spread_over(present, 1 if has_one else self._default)
        return {topic: self._kept[topic] for topic in topics}

    def list_queues(self, queues: Iterable[tuple[str, int]], *, sys_flag: int = 0) -> None:
        """Have all these queues, each a topic and a queue id, read by the consumers of a broker. One write, or none.

        Before their first messages: a topic without messages harms nothing, and no consumer would find the messages of
        one that is not listed. A new topic has the number of queues that its messages are spread over (``queue_count``)
        if that is known, else enough for ``queues``, and ``sys_flag``; a listed one becomes readable up to the highest
        of them.

        ``PutRefused`` if the list cannot be read or written: nothing may be put then.
        """
        with self._lock:
            # Only the owner writes the list, so what is known to be listed needs no look at it.
            new = [queue for queue in queues if not self._is_readable(*queue)]
            if not new and not self._may_be_lost:
                return
            try:
                self._refresh()
                uses: dict[str, TopicUse] = {}
                for topic, queue_id in new:
                    if not self._is_readable(topic, queue_id):
                        use = TopicUse(topic, 0, queue_id + 1, is_new=False)
                        uses[topic] = use.joined(uses.get(topic, use))
                if uses or self._may_be_lost:
                    counts = self._unlisted_counts({use.topic: use.named_queues for use in uses.values()})
                    self._enter(uses.values(), counts, sys_flag=sys_flag)
            except CommitLogError as error:
                raise PutRefused(
                    PutMessageStatus.SERVICE_NOT_AVAILABLE,
                    f"Nothing was put, since a new topic or queue cannot be listed for consumers: {error}",
                ) from error

    def _is_readable(self, topic: str, queue_id: int) -> bool:
        """Whether the list needs no change for a message in the queue, as far as it is known."""
        entry = self._listed.get(topic)
        if entry is not None:
            return queue_id < entry.readQueueNums or queue_id >= MOST_QUEUES
        is_own = topic not in _LISTED_SYSTEM_TOPICS and is_system_topic(topic)
        return is_own or topic.startswith(LIGHT_QUEUE_PREFIX)

    def kind_fault(self, topic: str) -> str | None:
        """Why no message can be put into a topic that is not kept in plain queues, as the end of a sentence.

        None for a plain topic, which remains one: RocketMQ does not change a topic's kind. A list that cannot be read
        says nothing here; ``queue_count`` raises the error.
        """
        with self._lock:
            if topic in self._plain:
                return None
            self._refresh_if_readable()
            return self._kind_fault(topic)

    def _kind_fault(self, topic: str, *, others: bool = True) -> str | None:
        """``others``: whether the store may have directories of other kinds."""
        kind = self._other_kinds.get(topic) or (other_topic_kind(self._store_path, topic) if others else None)
        if kind is None:
            self._plain.add(topic)
            return None
        return f"topic {topic!r} {kind}, which this store does not keep: no consumer would find the message"

    def put_fault(self, topic: str) -> str | None:
        """Why a producer may put no message into the topic, as the end of a sentence; None if it may.

        It is of another kind (``kind_fault``), or its ``perm`` has no bit for writing. A broker's clients obey that;
        the broker itself delivers delayed and committed messages all the same, and so does this package.
        """
        return self.put_faults()(topic)

    def put_faults(self) -> Callable[[str], str | None]:
        """``put_fault`` for many topics, after one look at the list."""
        with self._lock:
            self._refresh_if_readable()
        others = has_other_kinds(self._store_path)

        def fault(topic: str) -> str | None:
            with self._lock:
                found = None if topic in self._plain else self._kind_fault(topic, others=others)
                perm = self._listed.get(topic, _OPEN).perm
            return found if found is not None or perm & PERM_WRITE else self._closed(topic, perm)

        return fault

    def _closed(self, topic: str, perm: int) -> str:
        return (
            f"topic {topic!r} is closed for producers: its perm is {perm} in {self.path}, without the {PERM_WRITE} "
            "for writing"
        )

    def producers_fault(self, topic: str) -> str | None:
        """``put_fault``, and whether the topic is one of those that only a broker or the store itself puts into."""
        return self.producers_faults()(topic)

    def producers_faults(self) -> Callable[[str], str | None]:
        """``producers_fault`` for many topics, after one look at the list."""
        fault = self.put_faults()
        return lambda topic: no_producers_fault(topic) or fault(topic)

    def refuse_consumers(self, topic: str) -> None:
        """``InvalidValue`` if the topic's ``perm`` has no bit for reading: a broker refuses its consumers' pulls."""
        with self._lock:
            self._refresh_if_readable()
            perm = self._listed.get(topic, _OPEN).perm
        if not perm & PERM_READ:
            raise InvalidValue(
                f"Topic {topic!r} is closed for consumers: its perm is {perm} in {self.path}, without the {PERM_READ} "
                "for reading."
            )

    def create_topic(
        self, topic: str, queue_nums: int, *, read_queue_nums: int = 0, perm: int | None = None, sys_flag: int = 0
    ) -> None:
        """Add the topic to the list with so many queues, to read and to write; a listed one keeps its number.

        ``read_queue_nums``, when it is more, is for queues that messages name themselves: nothing is spread over them.
        ``perm`` is that of the topic, 6 for a new one. Of a listed topic only these two are changed; ``sys_flag`` is
        that of a new one.
        ``InvalidValue`` for a topic that RocketMQ would not create and for a number that is not 1 to 65,536;
        ``CorruptConfig``, ``NotAStore`` for a symbolic link where the list should be (invariant 10),
        ``StoreAccessDenied``; ``StoreIOError``, and then the list is unchanged, or whole with the topic in it.
        """
        _check_new_topic(topic, queue_nums)
        with self._lock:
            self._enter([TopicUse(topic, 0, read_queue_nums, is_new=True)], {topic: queue_nums}, perm, sys_flag)

    def create_by_name(self, topic: str, queue_nums: int, *, read_queue_nums: int = 0, perm: int | None = None) -> None:
        """``create_topic`` for an operator or a program, which name the topic.

        ``InvalidValue`` also for one of RocketMQ's own, as a broker refuses these, and for a perm that is not 0 to 7.
        """
        validate_new_topic(topic)
        if is_system_topic(topic):
            raise InvalidValue(
                f"Topic {topic!r} holds records of RocketMQ or of the store itself, which list it when they need it: "
                "give another name."
            )
        if perm is not None and not 0 <= perm <= _HIGHEST_PERM:
            raise InvalidValue(
                f"The perm of a topic is 6 to write and read, 4 to read only, 2 to write only, not {perm}: {topic!r}."
            )
        self.create_topic(topic, queue_nums, read_queue_nums=read_queue_nums, perm=perm)

    def lists(self, topic: str, queue_id: int) -> bool:
        """Whether the list is known to have this queue for consumers to read. It waits for nothing and reads nothing,
        so False may also mean that the list was not read yet."""
        entry = self._listed.get(topic)
        return entry is not None and 0 <= queue_id < entry.readQueueNums

    def content(self) -> dict[str, Any]:
        """The whole file, with the members that are not known here; when it is gone, the topics that were read last.
        ``CorruptConfig``, ``ReadFailed``."""
        with self._lock:
            self._refresh()
            return self._content()

    def set_topic(self, topic: str, members: Mapping[str, Any]) -> None:
        """Create a topic with these members of its entry (``writeQueueNums``, ``perm``, ...), or change them.

        The others of a listed topic stay as they are. ``InvalidValue`` for a topic that RocketMQ would not create, and
        for numbers that cannot be; ``CorruptConfig``, ``NotAStore``, ``StoreAccessDenied``, ``StoreIOError``.
        """
        counts = {name: members[name] for name in ("writeQueueNums", "readQueueNums") if name in members}
        for count in counts.values() or (_DEFAULT_QUEUE_NUMS,):
            _check_new_topic(topic, count)
        if not 0 <= members.get("perm", 0) <= MAX_INT:
            raise InvalidValue(f"perm of topic {topic!r} is 0 to {MAX_INT}, not {members['perm']}.")
        with self._lock:
            root = self._content_to_change()
            table = root.get("topicConfigTable", {})
            old = table.get(topic) or _new_entry(topic, _DEFAULT_QUEUE_NUMS, _DEFAULT_QUEUE_NUMS, READ_AND_WRITE)
            entry = {**old, **members, "topicName": topic}
            _entry(topic, entry, self._file)
            if table.get(topic) == entry:
                return
            version = next_version(root.get("dataVersion", {}), self._file)
            self._signature = None
            self._kept.pop(topic, None)
            self._file.write({**root, "dataVersion": version, "topicConfigTable": {**table, topic: entry}})
            self._refresh()

    def remove_topic(self, topic: str) -> bool:
        """Remove a topic from the list; False if it is not listed. ``CorruptConfig``, ``StoreIOError``."""
        with self._lock:
            root = self._content_to_change()
            self._kept.pop(topic, None)
            self._listed.pop(topic, None)
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
            counts = self._unlisted_counts({use.topic: 0 for use in uses if not use.spread_over})
            counts |= {use.topic: use.spread_over for use in uses if use.spread_over}
            self._enter(uses, {use.topic: queue_nums if use.is_new else counts[use.topic] for use in uses})

    def _enter(
        self, uses: Iterable[TopicUse], queue_nums: Mapping[str, int], perm: int | None = None, sys_flag: int = 0
    ) -> None:
        """Change the list in one write, or in none when it needs no change.

        Topics that are not listed are added with ``queue_nums`` and ``sys_flag``.
        """
        uses = list(uses)
        is_known = self._signature == topic_list_signature(self.path)
        if is_known and not self._may_be_lost and all(use.topic not in self._listed for use in uses):
            changed = {use.topic: _entry_of_new(use, queue_nums, perm, sys_flag) for use in uses}
            if not changed or self._add(changed):
                return
        root = self._content_to_change()
        listed = self._listed if is_known else _entries(self._file, root)
        table = root.get("topicConfigTable", {})
        changed = {}
        for use in uses:
            entry = listed.get(use.topic)
            if entry is None:
                changed[use.topic] = _entry_of_new(use, queue_nums, perm, sys_flag)
                continue
            _refuse_fewer_queues(use, entry.writeQueueNums, self.path)
            if _readable(use) > entry.readQueueNums:
                changed[use.topic] = {**table[use.topic], "readQueueNums": _readable(use)}
            if perm not in (None, entry.perm):
                changed[use.topic] = {**changed.get(use.topic, table[use.topic]), "perm": perm}
        if not changed and not self._may_be_lost:
            return
        version = next_version(root.get("dataVersion", {}), self._file)
        whole = {**root, "dataVersion": version, "topicConfigTable": {**table, **changed}}
        self._write(lambda: self._file.write(whole))
        # Other members, or another order: then rows cannot be added to the content as it is.
        self._version = version if list(whole) == ["dataVersion", "topicConfigTable"] else None
        if is_known:  # else the list is read again
            self._note(changed)
            self._signature = topic_list_signature(self.path)

    def _add(self, new: Mapping[str, Any]) -> bool:
        """Add entries of topics that the list, which is known, does not have; False if it has to be read for that."""
        if self._version is None:
            return False
        before, version = {"dataVersion": self._version}, next_version(self._version, self._file)
        known = self._signature
        if not self._write(lambda: self._file.add_rows("topicConfigTable", new, before, {"dataVersion": version})):
            self._signature = known
            return False
        self._version = version
        self._note(new)
        self._signature = topic_list_signature(self.path)
        return True

    def _write(self, write: Callable[[], _Written]) -> _Written:
        """Write the list, and note whether it may be lost."""
        self._signature = None
        try:
            written = write()
        except DiskFull:
            raise  # the list is as it was, and what is listed needs no space: deliveries may free some
        except BaseException:
            self._may_be_lost = True
            raise
        self._may_be_lost = False
        return written

    def _content_to_change(self) -> dict[str, Any]:
        """``_content``, for a caller that writes it."""
        root = self._content()
        if root and self._is_gone():
            _LOG.warning("%s is gone. The topics that were read from it are listed again.", self.path)
        return root

    def _is_gone(self) -> bool:
        """Whether the list is missing though it was read or written. Its ``.bak`` may be older than what is known."""
        return bool(self._listed) and topic_list_signature(self.path)[0] is None

    def _content(self) -> dict[str, Any]:
        """The whole file; or, when it is gone, the topics with the queues, perms and flags that were read last."""
        root = self._file.read()  # of the .bak, where the file is missing
        if not self._is_gone():
            return root
        before = root.get("topicConfigTable", {})
        entries = {topic: before[topic] for topic in self._other_kinds if topic in before}
        for topic in self._listed.keys() - self._other_kinds.keys():
            known = self._listed[topic]
            numbers = {**msgspec.to_builtins(known), "topicSysFlag": sys_flag_in(known.topicSysFlag)}
            entries[topic] = {**_new_entry(topic, 0, 0, 0), **before.get(topic, {}), **numbers}
        version = next_version(self._version or root.get("dataVersion", {}), self._file)
        return {**root, "dataVersion": version, "topicConfigTable": entries}

    def _note(self, changed: Mapping[str, Any]) -> None:
        """Note changed entries, without reading the whole list again."""
        for topic, entry in changed.items():
            self._listed[topic] = _entry(topic, entry, self._file)

    def _refresh_if_readable(self) -> None:
        with contextlib.suppress(CorruptConfig, ReadFailed):
            self._refresh()

    def _refresh(self) -> None:
        """Read the list if it changed since the last reading."""
        signature = topic_list_signature(self.path)
        if signature == self._signature or self._is_gone():
            return
        root = self._file.read()
        self._listed = _entries(self._file, root)
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


def unused_topics(listed: Iterable[str], known: Iterable[str], retain: Iterable[str]) -> list[str]:
    """The ``known`` topics that are neither in ``retain`` nor ``listed``, by ``config/topics.json``.

    Without RocketMQ's own and light queues, as RocketMQ's ``cleanUnusedTopic``, which a broker calls with its list.
    """
    used = {*retain, *listed}
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
    topic_sys_flag: int = 0


def read_topic_settings(store_path: str) -> dict[str, TopicSettings]:
    """The settings of all listed topics; the errors of ``read_topic_config``."""
    file = _file_of(store_path)
    return {topic: entry.settings() for topic, entry in _entries(file, file.read()).items()}


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
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(table, dict[str, _TopicEntry])
    return {topic: _entry(topic, entry, file) for topic, entry in table.items()}  # one by one names the faulty one


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
    return file.checked(entry, _TopicEntry, f"an object with 0 to {MAX_INT} queues for topic {topic!r}")


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


def _readable(use: TopicUse) -> int:
    """The queues that must be readable: an id above the limit of a topic does not raise them."""
    return use.named_queues if use.named_queues <= MOST_QUEUES else 0


def _entry_of_new(use: TopicUse, queue_nums: Mapping[str, int], perm: int | None, sys_flag: int) -> dict[str, Any]:
    count = queue_nums[use.topic]
    return _new_entry(use.topic, count, max(count, _readable(use)), READ_AND_WRITE if perm is None else perm, sys_flag)


def _new_entry(topic: str, queue_nums: int, read_queue_nums: int, perm: int, sys_flag: int = 0) -> dict[str, Any]:
    """A broker's entry for a topic that was created with only a name and a number."""
    return {
        "attributes": {},
        "order": False,
        "perm": perm,
        "readQueueNums": read_queue_nums,
        "topicFilterType": "SINGLE_TAG",
        "topicName": topic,
        "topicSysFlag": sys_flag,
        "writeQueueNums": queue_nums,
    }
