"""Parsers of option values: from the text of an option to its value, or an ``OptionError`` with the expected value."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NoReturn, TypeGuard, TypeVar
from urllib.parse import unquote

from commitlog_store import MessageFilter
from commitlog_store.columnar.columns import nearest_name
from commitlog_store.errors import FilterError, InvalidValue
from commitlog_store.paths import path_fault, validate_group, validate_topic, without_secrets
from commitlog_store.sizes import parse_size
from commitlog_store.timestamps import checked_timestamp_ms, length_of_time_ms
from pyspark_commitlog.errors import OptionError
from pyspark_commitlog.options.kafka_options import hint_for
from pyspark_commitlog.options.subscription import QueueKey, Subscription

T = TypeVar("T")

LATEST = -1
EARLIEST = -2
# Offsets, versions and sizes are longs of Java.
MAX_LONG = 2**63 - 1

# Options that CREATE TABLE adds when it asks for the columns.
OF_A_CATALOG = frozenset({"location", "provider"})

# Advice in errors that a table made by CREATE TABLE may cause.
CATALOG_TABLES = (
    "Spark gives a Python data source none of the options of a table that CREATE TABLE made. Give them to each query, "
    "as in SELECT ... FROM name WITH (path '...', subscribe '...') and INSERT INTO name WITH (path '...', topic '...') "
    "..., or use CREATE TEMPORARY VIEW name USING commitlog OPTIONS (path '...', ...) instead."
)

# A day and a time, with a zone: the process that parses options does not know Spark's.
_ISO_TIME = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ](?P<minute>[0-9]{2}:[0-9]{2})"
    r"(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?(?P<zone>[Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)


@dataclass(frozen=True, kw_only=True)
class OffsetRule:
    """Start or end of reading: ``default`` (EARLIEST or LATEST), except for named queues, or by store time.

    ``named`` has offsets and ``times`` has store times in milliseconds, of some queues; ``timestamp_ms`` is the time of
    all queues, and ``group`` is a consumer group at whose positions they start. At most one of the four is set. With
    several stores, ``stores`` has the rules of those that JSON names.
    """

    default: int
    named: Mapping[QueueKey, int] = field(default_factory=dict)
    times: Mapping[QueueKey, int] = field(default_factory=dict)
    timestamp_ms: int | None = None
    group: str = ""
    stores: Mapping[str, OffsetRule] = field(default_factory=dict)

    def of_store(self, name: str) -> OffsetRule:
        """The rule of one of several stores: its own, or the default of all."""
        rule = OffsetRule(default=self.default, timestamp_ms=self.timestamp_ms, group=self.group)
        return self.stores.get(name, rule)

    def time_of(self, queue: QueueKey) -> int | None:
        """The store time by which the queue's offset is found; None if it is not found by time."""
        return self.times.get(queue, self.timestamp_ms)

    def is_open(self, queue: QueueKey) -> bool:
        """Whether the rule names no message of a queue to begin with: the first one of all, or of those since a time.

        Such a start loses nothing when the queue begins later by the time of the first batch.
        """
        by_time = self.time_of(queue) is not None
        return not self.group and (by_time or self.named.get(queue, self.default) == EARLIEST)


def did_you_mean(name: str, known: Mapping[str, str]) -> str:
    """`` Did you mean ...?`` with the known name nearest to ``name``, or nothing if none is near.

    ``known`` maps the names in lower case to their documented spelling.
    """
    near = nearest_name(name, known.values())
    return f" Did you mean {near}?" if near else ""


def option_text(option: str, value: object) -> str:
    """The text of an option, also if Python code gives a number or a boolean. ``OptionError`` for None."""
    if value is None:
        raise OptionError(f"Option {option} is None; expected a value. For its default, leave it out.", option=option)
    return str(value)


def refuse(option: str, value: str, expected: str) -> NoReturn:
    """Raise the ``OptionError`` for a bad value."""
    raise OptionError(f"Option {option} is {value!r}; expected {expected}.", option=option, value=value)


def canonical(
    options: Mapping[str, str],
    spelling: Mapping[str, str],
    sparks: frozenset[str],
    hints: Mapping[str, str],
    names_are: str,
) -> dict[str, str]:
    """The options by their documented names, which ``spelling`` has by those in lower case, as Spark gives them.

    ``sparks`` are Spark's own options, which it gives along with the user's. ``OptionError`` for all others, with the
    advice in ``hints`` or with all names, which ``names_are`` begins.
    """
    given: dict[str, str] = {}
    for key, value in options.items():
        lower = key.lower()
        if lower in spelling:
            given[spelling[lower]] = option_text(spelling[lower], value)
        elif lower not in sparks:
            hint = hint_for(key, hints)
            if hint is None:
                hint = f"{did_you_mean(key, spelling)} {names_are}: {', '.join(spelling.values())}.".lstrip()
            raise OptionError(f"Unknown option {key!r}. {hint}", option=key, value=str(value))
    return given


def choice(words: Mapping[str, T]) -> Callable[[str, str], T]:
    """The parser of an option that is one of some words; each stands for a value."""
    expected = f"one of {', '.join(words)}" if len(words) > 2 else " or ".join(words)

    def parse(option: str, value: str) -> T:
        word = value.strip().lower()
        if word not in words:
            refuse(option, value, expected)
        return words[word]

    return parse


parse_boolean = choice({"true": True, "false": False})
# Whether rows have Kafka's columns.
parse_row_format = choice({"rocketmq": False, "kafka": True})
# Whether what cannot be read is left out.
parse_fail_or_skip = choice({"fail": False, "skip": True})


def parse_path(option: str, value: str) -> str:
    """A local path, perhaps as a ``file:`` URI (percent-decoded then; of hosts only ``localhost``), or after ``~/``.

    ``OptionError`` for what ``path_fault`` knows, and for paths with a comma between them.
    """
    expected = "the path of a RocketMQ store directory on a local or mounted file system"
    scheme, colon, rest = value.partition(":")
    if colon and scheme.lower() == "file":
        host = re.match(r"//([^/]*)", rest)
        if host is not None and host[1].lower() not in ("", "localhost"):
            refuse(
                option,
                value,
                f"{expected}, not of the host {host[1]!r}: file://{rest[host.end() :]}, or the path alone",
            )
        path = unquote(re.sub(r"^/+", "/", rest[host.end() :] if host is not None else rest))
    else:
        if (fault := path_fault(value)) is not None:
            refuse(option, without_secrets(value), f"{expected}. {fault.removesuffix('.')}")
        path = os.path.expanduser(value)
    if not path.strip() or "\0" in path:
        refuse(option, value, expected)
    return path


def parse_group(option: str, value: str) -> str:
    """The name of a consumer group."""
    try:
        validate_group(value.strip())
    except InvalidValue:
        refuse(option, value, "the name of a consumer group: letters, digits, '_', '-', '%' and '|'")
    return value.strip()


def parse_filter(option: str, value: str) -> MessageFilter:
    """The filter of one of the options ``tags``, ``filter`` and ``keys``. Planning warns of its doubts, once."""
    try:
        return MessageFilter.parse_quietly(**{option: value})
    except FilterError as error:
        raise OptionError(f"Option {error}", option=option, value=value) from error


def parse_positive(option: str, value: str) -> int:
    number = _integer(value)
    if number is None or number < 1:
        refuse(option, value, "a whole number of at least 1")
    return number


def parse_timestamp(option: str, value: str) -> int:
    """Milliseconds since 1970: given as such, or as a time in ISO 8601 with its zone."""
    number = _integer(value)
    found = _ISO_TIME.fullmatch(value.strip()) if number is None else None
    if found is not None:
        if found["zone"] is None:
            refuse(option, value, f"a time with its zone, such as {value.strip()}Z for UTC or {value.strip()}+02:00")
        number = _milliseconds(found)
    if number is None or number < 0:
        refuse(option, value, "a time since 1970, in milliseconds or as ISO 8601, such as 2026-01-31T12:00:00Z")
    try:
        return checked_timestamp_ms(number)
    except InvalidValue:
        refuse(option, value, f"a time in milliseconds, {number * 1000} if this one is in seconds")


def _milliseconds(found: re.Match[str]) -> int | None:
    """The first millisecond that does not lie before a time in ISO 8601; None for a day or an hour that no one has."""
    zone = "+00:00" if found["zone"] in ("Z", "z") else found["zone"]
    zone = zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    try:
        when = datetime.fromisoformat(f"{found['day']}T{found['minute']}:{found['second'] or '00'}{zone}")
    except ValueError:
        return None
    return int(when.timestamp()) * 1000 + -(-int((found["fraction"] or "").ljust(9, "0")) // 1_000_000)


def parse_times(option: str, value: str, default: int) -> OffsetRule:
    """JSON of topics, queue ids and times; ``default`` is for queues the JSON omits."""
    expected = 'JSON such as {"orders":{"0":1767225600000,"1":"2026-01-01T00:00:00Z"}}'
    times: dict[QueueKey, int] = {}
    for queue, when in _by_queue(option, value, expected):
        if not is_count(when) and not isinstance(when, str):
            refuse(option, value, f"{expected}; found {when!r} for queue {queue[1]} of {queue[0]!r}")
        times[queue] = parse_timestamp(option, str(when))
    if not times:
        refuse(option, value, expected)
    return OffsetRule(default=default, times=times)


def parse_bytes(option: str, value: str) -> int:
    """Bytes, with Spark's suffixes: ``134217728``, ``128m``, ``128MB``, ``1g``."""
    size = parse_size(value)
    if size is None or not 1 <= size <= MAX_LONG:
        refuse(option, value, "a size of at least 1 byte, such as 67108864, 64m or 1g")
    return size


def parse_duration(option: str, value: str) -> float:
    """Seconds, from a time such as ``500ms``, ``10s`` or ``1h30m``; a number alone is milliseconds, as in Spark."""
    number = _integer(value)
    length = length_of_time_ms(value) if number is None else number
    if length is None or length < 0:
        refuse(option, value, "a time such as 500ms, 10s, 2m, 1h or 1d")
    return length / 1000


def parse_subscribe(option: str, value: str) -> Subscription:
    topics = tuple(dict.fromkeys(name for part in value.split(",") if (name := part.strip())))
    if not topics:
        refuse(option, value, "one or more topics, separated by commas")
    for topic in topics:
        _check_topic(option, value, topic)
    return Subscription(topics=topics)


def parse_pattern(option: str, value: str) -> Subscription:
    pattern = value.strip()
    try:
        re.compile(pattern)
    except re.error as error:
        refuse(option, value, f"a regular expression that a topic's whole name matches ({error})")
    if not pattern:
        refuse(option, value, "a regular expression that a topic's whole name matches")
    return Subscription(pattern=pattern)


def parse_assign(option: str, value: str) -> Subscription:
    expected = 'JSON of topics and their queue ids, such as {"orders":[0,1],"audit":[0]}'
    queues: dict[str, tuple[int, ...]] = {}
    for topic, queue_ids in _json_object(option, value, expected).items():
        _check_topic(option, value, topic)
        if not isinstance(queue_ids, list) or not queue_ids or not all(map(is_count, queue_ids)):
            refuse(option, value, f"{expected}; {topic!r} has no list of queue ids")
        queues[topic] = tuple(sorted(set(queue_ids)))
    if not queues:
        refuse(option, value, expected)
    return Subscription(queues=queues)


def parse_offsets(option: str, value: str, default: int) -> OffsetRule:
    """``earliest``, ``latest``, or JSON of topics, queue ids and offsets; ``default`` is for queues the JSON omits."""
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return OffsetRule(default=EARLIEST if word == "earliest" else LATEST)
    expected = 'earliest, latest, or JSON such as {"orders":{"0":23,"1":-2}} (-2 earliest, -1 latest)'
    named: dict[QueueKey, int] = {}
    for queue, offset in _by_queue(option, value, expected):
        if not is_count(offset) and offset not in (EARLIEST, LATEST):
            refuse(option, value, f"{expected}; found {offset!r} for queue {queue[1]} of {queue[0]!r}")
        named[queue] = int(offset)
    return OffsetRule(default=default, named=named)


def _by_queue(option: str, value: str, expected: str) -> Iterator[tuple[QueueKey, Any]]:
    """What JSON says of each queue, by topic and queue id."""
    for topic, queues in _json_object(option, value, expected).items():
        _check_topic(option, value, topic)
        if not isinstance(queues, dict):
            refuse(option, value, f"{expected}; {topic!r} has no object of queue ids")
        for queue_text, said in queues.items():
            if not re.fullmatch("0|[1-9][0-9]{0,17}", queue_text):  # so that no queue is given twice, as "7" and "07"
                refuse(option, value, f"{expected}; found the queue id {queue_text!r} for {topic!r}")
            yield (topic, int(queue_text)), said


def _json_object(option: str, value: str, expected: str) -> dict[str, object]:
    parsed = parse_json(option, value)
    if not isinstance(parsed, dict):
        refuse(option, value, expected)
    return parsed


def parse_json(option: str, value: str) -> object:
    """The value of JSON; None for another text. ``OptionError`` for an object with a name twice: one would be lost."""
    repeated: list[str] = []

    def as_dict(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, said in pairs:
            if name in found:
                repeated.append(name)
            found[name] = said
        return found

    try:
        parsed: object = json.loads(value, object_pairs_hook=as_dict)
    except (ValueError, RecursionError):
        return None
    if repeated:
        refuse(option, value, f"JSON with each name once; {repeated[0]!r} is given twice")
    return parsed


def is_count(value: object) -> TypeGuard[int]:
    """Whether it is a whole number from 0 to ``MAX_LONG``."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_LONG


def _integer(text: str) -> int | None:
    text = text.strip()
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,18}", text) else None


def _check_topic(option: str, value: str, topic: str) -> None:
    try:
        validate_topic(topic)
    except InvalidValue as error:
        raise OptionError(
            f"Option {option} names {topic!r}, which cannot be a topic: {error}", option=option, value=value
        ) from error
