"""Parser of message tables for bulk puts: the allowed columns, their types, and the meaning of a row.

==================  ==============================  ===================================================================
column              type                            meaning; null or no column
==================  ==============================  ===================================================================
body (or value)     BINARY or STRING                required; a null is refused
topic               STRING                          the default topic
tags                STRING                          property TAGS; none
keys (or key)       STRING or LIST<STRING>          property KEYS, separated by spaces; none
queueId             an integer                      the store chooses a queue
shardingKey         STRING                          property __SHARDINGKEY; none
properties          MAP<STRING,STRING>              further properties; none
flag                an integer of 32 bits           0
bornTimestamp       TIMESTAMP, or int64 in ms       the time that the caller gives
delayLevel          an integer, STRING or DURATION  delivered at once (as with 0); else a level, or its time ("10s")
==================  ==============================  ===================================================================

What ``StoreReader.read`` gave is taken back. Its columns that only a store gives (``queueOffset``, ``physicalOffset``,
``storeTimestamp``, ``msgId``, ...: ``ASSIGNED_COLUMNS``) are ignored, and so are, in a table with one of them, the
properties that only a store gives (``REAL_TOPIC``, ``TRAN_MSG``, ...): the message is put as an ordinary one of its
topic. All others, ``UNIQ_KEY`` among them, stay as they are; ``uniqKey`` only shows the property. Bodies were unpacked,
so ``sysFlag`` is ignored too.

The columns are those of RocketMQ's ``Message``. An empty text means the same as null. A property of ``properties``
that has a column of its own counts where that column is null. STRING may be large, or a dictionary of strings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from commitlog_store.columnar.byte_parts import binary_parts, large_binary_of
from commitlog_store.columnar.columns import ASSIGNED_COLUMNS, PUT_COLUMNS, is_list, is_text, put_column
from commitlog_store.columnar.input_properties import (
    PropertyMap,
    blank_to_null,
    illegible_rows,
    join_keys,
    separator_rows,
)
from commitlog_store.delay_level import delay_or_level, parse_delay_levels, shown_delay_levels
from commitlog_store.errors import InvalidValue, PutRefused
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.arrays import BoolArray, Int64Array
from commitlog_store.format.message_rules import STORE_PROPERTIES, MessageLimits, no_producers_fault, parse_delay_level
from commitlog_store.format.properties import DELAY, KEYS, SHARDING_KEY, TAGS, UNIQ_KEY, WAIT, is_waiting
from commitlog_store.format.timestamps import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS, is_timestamp
from commitlog_store.java_numbers import MAX_INT
from commitlog_store.paths import validate_new_topic
from commitlog_store.put_status import PutMessageStatus

Rows: TypeAlias = "pa.RecordBatch | pa.Table"

_NO_BODY = (
    "its {0} is null, as that of a tombstone in Kafka, and RocketMQ has no message without a body: leave such rows "
    "out, or give them an empty {0}"
)
# The text properties that have a column.
_COLUMN_OF = {KEYS: "keys", SHARDING_KEY: "shardingKey", TAGS: "tags"}
# Milliseconds in a unit, or units in a millisecond when that is negative.
_MS_OF_UNIT = {"s": 1000, "ms": 1, "us": -1000, "ns": -1_000_000}


class Refusals:
    """Collects the refused rows of one chunk on its way from columns to records; of several faults the first counts.

    ``kept`` says which rows are not refused. ``first_row`` is the number of the chunk's first row in what the caller
    gave; ``row_name`` makes a text of such a number.
    """

    def __init__(self, count: int, *, first_row: int = 0, row_name: Callable[[int], str] = "row {}".format) -> None:
        self.kept: BoolArray = np.ones(count, np.bool_)
        self.first_row = first_row
        self._row_name = row_name
        self._found: dict[int, PutRefused] = {}
        self._topics: Sequence[str] = ()
        self._topic_codes: npt.NDArray[np.int32] = np.full(count, -1, np.int32)
        self._queue_of: Callable[[int], int | None] = _no_queue

    def __bool__(self) -> bool:
        return bool(self._found)

    def name_places(
        self, topics: Sequence[str], topic_codes: npt.NDArray[np.int32], queue_of: Callable[[int], int | None]
    ) -> None:
        """Name each row's topic (code -1: none), and the queue that it gives itself, in the texts."""
        self._topics, self._topic_codes, self._queue_of = topics, topic_codes, queue_of

    def add(
        self,
        wrong: BoolArray,
        fault: Callable[[int], str],
        status: PutMessageStatus = PutMessageStatus.MESSAGE_ILLEGAL,
        queue_ids: npt.NDArray[np.int32] | None = None,
    ) -> None:
        """Refuse the rows where ``wrong`` is set; ``fault`` gives the end of a sentence for a row.

        ``queue_ids`` are the chosen queues, to be named where the row itself gives none.
        """
        if not wrong.any():
            return
        for row in np.flatnonzero(wrong & self.kept).tolist():
            number = self.first_row + row
            reason = f"Message in {self._row_name(number)} ({self._place(row, queue_ids)}): {fault(row)}."
            self._found[row] = PutRefused(status, reason, row=number)
        self.kept &= ~wrong

    def in_order(self) -> list[PutRefused]:
        """All of them, in the order of their rows."""
        return [self._found[row] for row in sorted(self._found)]

    def _place(self, row: int, chosen: npt.NDArray[np.int32] | None) -> str:
        code = self._topic_codes[row]
        topic = "no topic" if code < 0 else f"topic {self._topics[code]!r}"
        queue = self._queue_of(row)
        if queue is None and chosen is not None and chosen[row] >= 0:
            queue = int(chosen[row])
        return f"{topic}, no queue given" if queue is None else f"{topic}, queue {queue}"


def _no_queue(row: int) -> int | None:
    del row
    return None


@dataclass(frozen=True)
class MessageSchema:
    """The checked schema of a table of messages: the table's name of each column, and the default topic.

    Columns that can only be null are left out: they mean nothing. ``was_read``: the table has columns that only a store
    gives, and so properties of that kind. ``shown`` has names for the reasons of refusals, where columns were renamed.
    """

    spelling: dict[str, str]
    topic: str | None
    was_read: bool = False
    shown: Mapping[str, str] = field(default_factory=dict)

    def called(self, column: str) -> str:
        """A column as the caller named it."""
        return self.shown.get(column) or self.spelling.get(column, column)

    @property
    def entry(self) -> str:
        """What an entry of the column properties is called: a property, unless the column was renamed."""
        renamed = self.called("properties")
        return "property" if renamed.lower() == "properties" else renamed.removesuffix("s")


def message_schema(rows: Rows, *, topic: str | None, shown: Mapping[str, str] | None = None) -> MessageSchema:
    """The table's columns; ``topic`` is that of rows without one. No row is read. ``shown`` names columns in refusals.

    ``InvalidValue`` for anything but a table, and for unknown columns, repeated ones, one beside its alias, wrong
    types, and a missing body or topic.
    """
    if not isinstance(rows, pa.Table | pa.RecordBatch):
        raise InvalidValue(f"Messages are the rows of a pyarrow Table or RecordBatch, not of a {type(rows).__name__}.")
    if topic is not None:
        validate_new_topic(topic)
    found: dict[str, str] = {}
    only_null: set[str] = set()
    for column in rows.schema:
        if column.name in ASSIGNED_COLUMNS:
            continue
        name = put_column(column.name)
        if name in found:
            both = f"both {found[name]!r} and {column.name!r}, which mean the same; keep one"
            raise InvalidValue(f"The column {name!r} is given twice: {both}.")
        found[name] = column.name
        if name != "body" and pa.types.is_null(column.type):
            only_null.add(name)
        elif not PUT_COLUMNS[name].takes(column.type):
            raise InvalidValue(
                f"The column {column.name!r} has the type {column.type}; it is {PUT_COLUMNS[name].types}."
            )
    if "body" not in found:
        raise InvalidValue("The column 'body' (or 'value') is missing: it holds the content of the messages.")
    if "topic" not in found and topic is None:
        raise InvalidValue("The messages have no topic: add a column 'topic', or give one topic for all.")
    was_read = not ASSIGNED_COLUMNS.isdisjoint(rows.schema.names)
    spelling = {name: column for name, column in found.items() if name not in only_null}
    return MessageSchema(spelling, topic, was_read, shown or {})


@dataclass(frozen=True, kw_only=True)
class MessageColumns:
    """The parsed rows of a chunk, for choosing queues and encoding.

    Texts are UTF-8 bytes with nulls for none, and None for a column in which no row has a value. One number stands for
    a column whose rows all have it. The values of refused rows mean nothing.
    """

    count: int
    bodies: pa.LargeBinaryArray
    # The legal topics, and each row's place among them; -1 for a row that is refused because of its topic.
    topics: list[str]
    topic_codes: npt.NDArray[np.int32]
    # The queues that the rows name: -1 for none; None where no row names one.
    queue_ids: npt.NDArray[np.int32] | None
    keys: pa.LargeBinaryArray | None
    sharding_keys: pa.LargeBinaryArray | None
    tags: pa.LargeBinaryArray | None
    # All properties without a column of their own, as stored, each with its separator; nothing null.
    others: pa.LargeBinaryArray | None
    # UNIQ_KEY of the others, and whether a row waits for the device, by WAIT of the others.
    unique_keys: pa.LargeBinaryArray | None
    waits: bool
    flags: npt.NDArray[np.signedinteger[Any]] | int
    born_timestamps: Int64Array | int
    # 0 for a row that is not delayed; None where no row is.
    delay_levels: npt.NDArray[np.int32] | None
    # TIMER_OUT_MS, -1 for a row that does not wait for a time; None where no row does.
    timer_outs: Int64Array | None
    refusals: Refusals


def parse_messages(
    chunk: pa.RecordBatch,
    schema: MessageSchema,
    *,
    born_timestamp_ms: int,
    limits: MessageLimits,
    first_row: int = 0,
    row_name: Callable[[int], str] = "row {}".format,
    topic_fault: Callable[[str], str | None] = no_producers_fault,
) -> MessageColumns:
    """The values of a chunk of the schema's table; rows that no store takes from a producer are noted in ``refusals``.

    ``born_timestamp_ms`` is that of rows without one; for ``first_row`` and ``row_name`` see ``Refusals``.
    ``topic_fault`` says why no message may be put into a topic with a legal name, as the end of a sentence, or None.
    """
    count = chunk.num_rows
    refusals = Refusals(count, first_row=first_row, row_name=row_name)
    topics, codes = _topics(_column(chunk, schema, "topic"), schema.topic, count)
    given = _numbers(chunk, schema, "queueId", -1)
    refusals.name_places(topics, codes, lambda row: int(given.values[row]) if given and given.given[row] else None)
    topics, codes = _legal_topics(topics, codes, topic_fault, refusals)
    bodies = large_binary_of(chunk.column(schema.spelling["body"]))
    _refuse_bodies(bodies, schema.called("body"), limits, refusals)
    _refuse_numbers(given, 0, limits.max_queue_id, refusals)
    flags = _numbers(chunk, schema, "flag", 0)
    _refuse_numbers(flags, -MAX_INT - 1, MAX_INT, refusals)
    ignored = STORE_PROPERTIES if schema.was_read else frozenset()
    properties = PropertyMap.of(_column(chunk, schema, "properties"), refusals.add, ignored, entry=schema.entry)
    levels = _given_levels(chunk, schema, limits, refusals)
    delay_levels = _delay_levels(levels, properties.own.get(DELAY), limits, refusals, count)
    timer_outs = properties.timers(delay_levels, born_timestamp_ms, limits.timer_max_delay_sec, refusals.add)
    texts = _property_texts(chunk, schema, refusals)
    own = {name: _first_given(text, properties.own.get(name)) for name, text in texts.items()}
    return MessageColumns(
        count=count,
        bodies=bodies,
        topics=topics,
        topic_codes=codes,
        queue_ids=_legal_queue_ids(given),
        keys=own[KEYS],
        sharding_keys=own[SHARDING_KEY],
        tags=own[TAGS],
        others=properties.others,
        unique_keys=properties.asked_for.get(UNIQ_KEY),
        waits=_any_waits(properties.asked_for.get(WAIT)),
        flags=0 if flags is None else flags.values,
        born_timestamps=_born_timestamps(chunk, schema, born_timestamp_ms, refusals),
        delay_levels=delay_levels,
        timer_outs=timer_outs,
        refusals=refusals,
    )


def _property_texts(chunk: pa.RecordBatch, schema: MessageSchema, refusals: Refusals) -> dict[str, pa.Array | None]:
    """The columns that become properties, by the property's name; what no property can hold is noted."""
    texts = {
        KEYS: _keys(_column(chunk, schema, "keys"), refusals),
        SHARDING_KEY: _text(chunk, schema, "shardingKey"),
        TAGS: _text(chunk, schema, "tags"),
    }
    for name, text in texts.items():
        if text is not None:
            column = f"its column {schema.called(_COLUMN_OF[name])}"
            refusals.add(separator_rows(text), f"{column} holds '\\x01' or '\\x02', which separate properties".format)
            refusals.add(illegible_rows(text), f"{column} is not UTF-8 text".format)
    return texts


def _column(chunk: pa.RecordBatch, schema: MessageSchema, name: str) -> pa.Array | None:
    """The column; None when it is missing or can only be null."""
    if name not in schema.spelling:
        return None
    column = chunk.column(schema.spelling[name])
    return large_binary_of(column) if is_text(column.type) else column


def _topics(column: pa.Array | None, default: str | None, count: int) -> tuple[list[str], npt.NDArray[np.int32]]:
    """The distinct topics, and each row's place among them; -1 for none."""
    if column is None:
        # A column of nothing but nulls leaves the rows without a topic.
        return ([], np.full(count, -1, np.int32)) if default is None else ([default], np.zeros(count, np.int32))
    coded = column.dictionary_encode()
    # Bytes that are not UTF-8 become a name that no topic may have, and are refused by that.
    names = [name.decode("utf-8", "surrogateescape") for name in coded.dictionary.to_pylist()]
    if not column.null_count:
        return names, coded.indices.to_numpy()
    codes = coded.indices.fill_null(-1).to_numpy().copy()
    if default is not None:
        if default not in names:
            names.append(default)
        codes[codes < 0] = names.index(default)
    return names, codes


def _legal_topics(
    names: list[str], codes: npt.NDArray[np.int32], topic_fault: Callable[[str], str | None], refusals: Refusals
) -> tuple[list[str], npt.NDArray[np.int32]]:
    """The legal topic names, and each row's place among them; rows of other topics are refused."""
    refusals.add(codes < 0, lambda _: "its topic is null, and no topic is given for such rows")
    places = np.full(len(names) + 1, -1, np.int32)  # the last one is that of the code -1
    legal: list[str] = []
    for code, name in enumerate(names):
        try:
            validate_new_topic(name)
            fault = topic_fault(name)
        except InvalidValue as error:
            fault = str(error).removesuffix(".")
        if fault is not None:
            refusals.add(codes == code, lambda _, fault=fault: fault)  # type: ignore[misc]
        else:
            places[code] = len(legal)
            legal.append(name)
    return (names, codes) if len(legal) == len(names) else (legal, places[codes])


def _refuse_bodies(bodies: pa.LargeBinaryArray, name: str, limits: MessageLimits, refusals: Refusals) -> None:
    if bodies.null_count:
        refusals.add(bodies.is_null().to_numpy(zero_copy_only=False), lambda _: _NO_BODY.format(name))
    bounds, most = binary_parts(bodies)[0], limits.max_message_size
    if int(bounds[-1] - bounds[0]) > most:
        sizes = bounds[1:] - bounds[:-1]
        refusals.add(
            sizes > most, lambda row: f"its {name} has {int(sizes[row])} bytes, the limit (maxMessageSize) is {most}"
        )


class _Numbers(NamedTuple):
    """An integer column: its name, values of any width, and which rows have one."""

    name: str
    values: npt.NDArray[np.signedinteger[Any]]
    given: BoolArray


def _numbers(chunk: pa.RecordBatch, schema: MessageSchema, name: str, default: int) -> _Numbers | None:
    column = _column(chunk, schema, name)
    if column is None:
        return None
    if not column.null_count:
        return _Numbers(schema.called(name), column.to_numpy(), np.ones(len(column), np.bool_))
    values = column.cast(pa.int64()).fill_null(default).to_numpy()
    return _Numbers(schema.called(name), values, column.is_valid().to_numpy(zero_copy_only=False))


def _refuse_numbers(numbers: _Numbers | None, least: int, most: int, refusals: Refusals) -> None:
    if numbers is not None and len(numbers.values):
        values = numbers.values
        if int(values.min()) >= least and int(values.max()) <= most:
            return
        refusals.add(
            numbers.given & ((values < least) | (values > most)),
            lambda row: f"its {numbers.name} is {int(values[row])}; it must be {least} to {most}",
        )


def _legal_queue_ids(given: _Numbers | None) -> npt.NDArray[np.int32] | None:
    if given is None:
        return None
    values = given.values
    if len(values) and (int(values.min()) < -1 or int(values.max()) > MAX_INT):
        values = np.where((values >= 0) & (values <= MAX_INT), values, -1)
    return values.astype(np.int32)


def _given_levels(
    chunk: pa.RecordBatch, schema: MessageSchema, limits: MessageLimits, refusals: Refusals
) -> _Numbers | None:
    """The levels that a column gives; rows with a delay that no level has are refused."""
    column, name = _column(chunk, schema, "delayLevel"), schema.called("delayLevel")
    if column is None:
        return None
    if pa.types.is_large_binary(column.type):
        column = blank_to_null(column)
    coded = column.dictionary_encode()
    shown = [_shown_delay(delay) for delay in coded.dictionary]
    levels = np.array([*(_level_of(delay, limits) for delay in shown), 0], np.int64)
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    known = shown_delay_levels(limits.message_delay_level)
    refusals.add(levels[codes] < 0, lambda row: f"its {name} is {shown[codes[row]]}; it must be one of {known}")
    return _Numbers(name, levels[codes], codes >= 0)


def _shown_delay(delay: pa.Scalar) -> int | str | timedelta:
    if pa.types.is_large_binary(delay.type):
        return delay.as_py().decode("utf-8", "replace")  # type: ignore[no-any-return]
    if not pa.types.is_duration(delay.type):
        return int(delay.as_py())
    # Python has neither nanoseconds nor times of more than 2.7 million years, and no level is one of these.
    units = delay.cast(pa.int64()).as_py()
    factor = _MS_OF_UNIT[delay.type.unit]
    try:
        return timedelta(milliseconds=units * factor if factor > 0 else units / -factor)
    except OverflowError:
        return f"{units} {delay.type.unit}"


def _level_of(delay: int | str | timedelta, limits: MessageLimits) -> int:
    """-1 for a delay that no level has; 0 for none, also as a time."""
    try:
        level, _ = delay_or_level(delay, limits.message_delay_level)
    except InvalidValue:
        return -1
    return -1 if level is None else level


def _delay_levels(
    numbers: _Numbers | None,
    texts: pa.LargeBinaryArray | None,
    limits: MessageLimits,
    refusals: Refusals,
    count: int,
) -> npt.NDArray[np.int32] | None:
    levels = np.zeros(count, np.int64) if numbers is None else numbers.values
    if texts is not None:
        coded = texts.dictionary_encode()
        words = [word.decode("utf-8", "surrogateescape") for word in coded.dictionary.to_pylist()]
        parsed = [parse_delay_level(word) for word in words]
        codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        used = (codes >= 0) if numbers is None else (codes >= 0) & ~numbers.given
        of_text = np.array([*(-1 if level is None else level for level in parsed), 0], np.int64)[codes]
        refusals.add(
            used & (of_text < 0),
            lambda row: f"its property {DELAY} is {words[codes[row]]!r}; it must be 0 to {MAX_INT}",
        )
        levels = np.where(used, of_text, levels)
    if not (levels > 0).any():
        return None
    # RocketMQ's rule for the property; no column has a level above the last.
    return np.clip(levels, 0, len(parse_delay_levels(limits.message_delay_level))).astype(np.int32)


def _born_timestamps(
    chunk: pa.RecordBatch, schema: MessageSchema, default: int, refusals: Refusals
) -> Int64Array | int:
    column = _column(chunk, schema, "bornTimestamp")
    if column is None:
        return default
    name = schema.called("bornTimestamp")
    factor = _MS_OF_UNIT[column.type.unit] if pa.types.is_timestamp(column.type) else 1
    values: Int64Array = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    if factor < 0:
        values = values // -factor
    elif factor > 1:
        # Seconds beyond these would wrap around to a legal number.
        values = np.clip(values, MIN_TIMESTAMP_MS, MAX_TIMESTAMP_MS) * factor
    refusals.add(
        ~is_timestamp(values),
        lambda row: (
            f"its {name} is {column[row].cast(pa.int64())} ({column.type}); it must be {MIN_TIMESTAMP_MS} to "
            f"{MAX_TIMESTAMP_MS} ms, the years 1 to 9999"
        ),
    )
    return np.where(column.is_null().to_numpy(zero_copy_only=False), default, values) if column.null_count else values


def _text(chunk: pa.RecordBatch, schema: MessageSchema, name: str) -> pa.LargeBinaryArray | None:
    column = _column(chunk, schema, name)
    return None if column is None else blank_to_null(column)


def _keys(column: pa.Array | None, refusals: Refusals) -> pa.LargeBinaryArray | None:
    if column is None:
        return None
    return join_keys(column, refusals.add) if is_list(column.type) else blank_to_null(column)


def _first_given(column: pa.LargeBinaryArray | None, other: pa.LargeBinaryArray | None) -> pa.LargeBinaryArray | None:
    if column is None or other is None:
        return other if column is None else column
    return pc.coalesce(column, other)


def _any_waits(texts: pa.LargeBinaryArray | None) -> bool:
    if texts is None:
        return True
    distinct = texts.unique().to_pylist()
    return any(is_waiting(None if text is None else text.decode("utf-8", "replace")) for text in distinct)
