"""ConsumerOffsets: the positions of consumer groups, ``<store>/config/consumerOffset.json``.

A position is the queue offset of the next message that a group consumes. A broker writes all of them every 5 seconds::

    {
        "dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},    from 5.0 on
        "groupTopicMap":{"billing":["orders"]},                                    from 5.0 on, derived from the rest
        "offsetTable":{"orders@billing":{0:12,1:9},"%RETRY%billing@billing":{0:3}}
    }

A negative position is what a broker answers for none, so it counts as none here. Names that are no topic and group,
and members that are not named above, stay as they are. One member is this package's own, and brokers drop it:
"commitlogSetPositions", the queues whose positions were set after a crash, while the store was not open. For them,
older positions in the log do not count.

Only the owner of a store changes positions: a live broker overwrites the file from its memory.

Source: RocketMQ ``broker/offset/ConsumerOffsetManager.java``.
"""

from __future__ import annotations

import operator
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import msgspec

from commitlog_store.config_files.json_file import JsonConfigFile, next_version
from commitlog_store.errors import InvalidValue
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.paths import CONFIG, CONSUMER_OFFSET_CONFIG, MAX_QUEUE_ID, validate_group, validate_topic
from commitlog_store.queue.get_message import checked_int

_SUBJECT = "The list of consumer offsets"
_QUEUE_ID = re.compile(r"0|[1-9][0-9]{0,9}")
_SEPARATOR = "@"
_SET_POSITIONS = "commitlogSetPositions"


# What this package uses of the file; members that are not named here stay as they are.
class _OffsetTable(msgspec.Struct):
    offsetTable: dict[str, dict[str, Annotated[int, msgspec.Meta(ge=-MAX_LONG - 1, le=MAX_LONG)]]] = {}
    commitlogSetPositions: dict[str, list[Annotated[int, msgspec.Meta(ge=0, le=MAX_QUEUE_ID)]]] = {}


def check_positions(group: str, offsets: Mapping[Any, int | None]) -> None:
    """``InvalidValue`` for what cannot be positions of a group; None is that of a queue without one."""
    validate_group(group)
    if not isinstance(offsets, Mapping):
        raise InvalidValue(f"Positions are {{(topic, queue_id): offset}}, not {offsets!r}.")
    for queue, offset in offsets.items():
        if not isinstance(queue, tuple) or len(queue) != 2:
            raise InvalidValue(f"Positions are {{(topic, queue_id): offset}}; a queue is not {queue!r}.")
        topic, queue_id = queue
        validate_topic(topic)
        _position(checked_int("queue_id", queue_id), 0 if offset is None else checked_int("offset", offset))


class ConsumerOffsets:
    """The positions of all groups of one store, read once; safe for several threads.

    For readers it is a snapshot. The store's owner has one object, changes positions in memory, and
    calls ``flush`` at intervals: any number of commits is one write. Positions that were not flushed are lost in a
    crash, and their messages are then consumed again, as with a broker.

    ``CorruptConfig`` if neither the file nor its ``.bak`` can be used; ``ReadFailed``. A store without the file has no
    groups.
    """

    def __init__(self, store_path: str, before_write: Callable[[], None] | None = None) -> None:
        """``before_write`` is called before the file is written, after the positions to be written are fixed."""
        self._before_write = before_write
        self._file = JsonConfigFile(os.path.join(store_path, CONFIG, CONSUMER_OFFSET_CONFIG), _SUBJECT, _offset_table)
        self.path = self._file.path
        self._root = self._file.read()
        self._table = _offset_table(self._file, self._root)
        # Queues whose positions count more than those in the log.
        self._set_queues = {key: set(ids) for key, ids in self._root.get(_SET_POSITIONS, {}).items()}
        # The names in the table of topics and groups that are known to be possible.
        self._keys: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()
        # One thread writes at a time; commits continue concurrently.
        self._flushing = threading.Lock()
        # Changes since the file was read, and those of them that are in the file.
        self._changes = 0
        self._flushed_changes = 0

    def get(self, group: str, topic: str) -> dict[int, int]:
        """The group's position in each queue of the topic that it has one in: ``{queue id: next queue offset}``."""
        with self._lock:
            offsets = self._table.get(_key(topic, group), {})
            return {queue_id: offset for queue_id, offset in offsets.items() if offset >= 0}

    def all(self) -> dict[tuple[str, str], dict[int, int]]:
        """All positions: ``{(group, topic): {queue id: next queue offset}}``, sorted by group and topic."""
        with self._lock:
            found = {
                (group, topic): {queue_id: offset for queue_id, offset in offsets.items() if offset >= 0}
                for key, offsets in self._table.items()
                for topic, group in filter(None, [_topic_and_group(key)])
            }
        return {key: found[key] for key in sorted(found) if found[key]}

    def groups(self) -> list[str]:
        """The names of all groups with a position, sorted."""
        return sorted({group for group, _ in self.all()})

    def topics(self, group: str) -> list[str]:
        """The topics that the group has a position in, sorted; its retry topic is one of them."""
        return [topic for name, topic in self.all() if name == group]

    def commit(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Set positions of a group, ``{(topic, queue id): next queue offset}``: all of them, or none.

        A smaller one than before is set too: the group consumes again from there. ``InvalidValue`` for what cannot be
        a group, a topic, a queue id or a queue offset.
        """
        with self._lock:
            checked = []
            for (topic, queue_id), offset in offsets.items():
                key = self._keys.get((topic, group)) or self._checked_key(topic, group)
                checked.append((key, *_position(queue_id, offset)))
            for key, queue_id, offset in checked:
                self._table.setdefault(key, {})[queue_id] = offset
            self._changes += bool(checked)

    def _checked_key(self, topic: str, group: str) -> str:
        """The name in the table. ``InvalidValue``, also for a name that the table has, from another program."""
        validate_group(group)
        validate_topic(topic)
        return self._keys.setdefault((topic, group), _key(topic, group))

    def set_over_log(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """``commit``, and positions that the log has already do not count for these queues. ``InvalidValue``."""
        self.commit(group, offsets)
        with self._lock:
            for topic, queue_id in offsets:
                self._set_queues.setdefault(_key(topic, group), set()).add(int(operator.index(queue_id)))

    def is_set_over_log(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether this position was set by ``set_over_log`` since the store was last open."""
        with self._lock:
            return queue_id in self._set_queues.get(_key(topic, group), ())

    def note_log_applied(self) -> None:
        """Note that no position in the log is left to apply."""
        with self._lock:
            self._changes += bool(self._set_queues)
            self._set_queues = {}

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Let these be the group's only positions in the topic, ``{queue id: next queue offset}``. ``InvalidValue``."""
        validate_group(group)
        validate_topic(topic)
        checked = dict(_position(queue_id, offset) for queue_id, offset in offsets.items())
        with self._lock:
            self._table[_key(topic, group)] = checked
            self._changes += 1

    def remove(self, group: str, topics: Iterable[str] | None = None) -> list[str]:
        """Remove the group's positions in these topics, or in all. Returns the topics that it had positions in."""
        wanted = None if topics is None else set(topics)
        with self._lock:
            keys = [
                (key, found[0])
                for key in self._table
                if (found := _topic_and_group(key)) and found[1] == group and (wanted is None or found[0] in wanted)
            ]
            for key, _ in keys:
                del self._table[key]
            self._changes += bool(keys)
            return sorted(topic for _, topic in keys)

    def flush(self) -> bool:
        """Write the file, if a position has changed since the last time. Returns whether it was written.

        ``StoreIOError``, ``StoreAccessDenied``, ``NotAStore`` for a symbolic link in place of the file: the file is the
        old or the new one, and the next call writes again.
        """
        with self._flushing:
            with self._lock:
                changes = self._changes
                if changes == self._flushed_changes:
                    return False
                table = {key: dict(offsets) for key, offsets in self._table.items()}
                set_queues = {key: sorted(ids) for key, ids in self._set_queues.items()}
            if self._before_write is not None:
                self._before_write()
            root = self._next_root(table, set_queues)
            self._file.write(root, integer_names=True)
            self._root, self._flushed_changes = root, changes
            return True

    def _next_root(self, table: dict[str, dict[int, int]], set_queues: dict[str, list[int]]) -> dict[str, Any]:
        """The whole content with this table. A dataVersion and a groupTopicMap are those of 5.x, where they exist."""
        root = {**self._root, "offsetTable": table, _SET_POSITIONS: set_queues}
        if not set_queues:
            del root[_SET_POSITIONS]
        if "dataVersion" in root:
            root["dataVersion"] = next_version(root["dataVersion"], self._file)
        if "groupTopicMap" in root:
            topics: dict[str, list[str]] = {}
            for topic, group in sorted(filter(None, map(_topic_and_group, table))):
                topics.setdefault(group, []).append(topic)
            root["groupTopicMap"] = topics
        return root


def merge_consumer_offsets(store_path: str, root: dict[str, Any], source: str) -> bool:
    """Write a master's positions over those of the same groups and topics, as a slave does; False if all are there.

    ``source`` is the list in an error: ``CorruptConfig`` for an object that no broker writes.
    """
    table = _offset_table(JsonConfigFile(source, _SUBJECT), root)
    file = JsonConfigFile(os.path.join(store_path, CONFIG, CONSUMER_OFFSET_CONFIG), _SUBJECT, _offset_table)
    old = file.read()
    merged = {**_offset_table(file, old), **table}
    if old and merged == _offset_table(file, old):
        return False
    versions = {name: root[name] for name in ("dataVersion",) if name in root}
    file.write({**old, **versions, "offsetTable": merged}, integer_names=True)
    return True


def _key(topic: str, group: str) -> str:
    return f"{topic}{_SEPARATOR}{group}"


def _topic_and_group(key: str) -> tuple[str, str] | None:
    """The two halves of a name in the table; None for one that a broker skips, too."""
    topic, _, group = key.partition(_SEPARATOR)
    return (topic, group) if topic and group and _SEPARATOR not in group else None


def _position(queue_id: int, offset: int) -> tuple[int, int]:
    """Both as plain integers, which numpy's are not. ``InvalidValue``."""
    queue_id, offset = checked_int("queue_id", queue_id), checked_int("offset", offset)
    if not 0 <= queue_id <= MAX_QUEUE_ID:
        raise InvalidValue(f"A queue id is 0 to {MAX_QUEUE_ID}, not {queue_id}.")
    if not 0 <= offset <= MAX_LONG:
        raise InvalidValue(f"A position is a queue offset of 0 to {MAX_LONG}, not {offset}.")
    return queue_id, offset


def _offset_table(file: JsonConfigFile, root: dict[str, Any]) -> dict[str, dict[int, int]]:
    """The table with numbers for queue ids. ``CorruptConfig``."""
    expected = "an object with the object 'offsetTable', in it an object for each topic@group, in it queue offsets"
    return {
        key: {_queue_id(name, key, file): offset for name, offset in offsets.items()}
        for key, offsets in file.checked(root, _OffsetTable, expected).offsetTable.items()
    }


def _queue_id(name: str, key: str, file: JsonConfigFile) -> int:
    if not _QUEUE_ID.fullmatch(name) or int(name) > MAX_QUEUE_ID:
        raise file.corrupt(0, f"queue ids of 0 to {MAX_QUEUE_ID} for {key!r}", repr(name))
    return int(name)
