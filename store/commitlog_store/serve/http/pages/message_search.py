"""Search of messages: by id, key, queue offset, time, tags and SQL92, the newest first unless an offset is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from commitlog_store.decoders.decoder_process import Decoded
from commitlog_store.decoders.topic_decoders import TopicDecoders
from commitlog_store.errors import CommitLogError, InvalidValue, MessageNotFound
from commitlog_store.filter.message_filter import MessageFilter
from commitlog_store.java_numbers import MAX_INT, MAX_LONG
from commitlog_store.message import MessageExt
from commitlog_store.queries import scan
from commitlog_store.queries.body_pattern import BodyPattern
from commitlog_store.queries.chosen_topics import chosen_topics
from commitlog_store.queries.find_message import find_by_key, find_message
from commitlog_store.queries.scan_back import newest_matching
from commitlog_store.reader import StoreReader
from commitlog_store.timestamps import parse_time

# So many messages are looked at for one page.
_MOST_LOOKED_AT = 200_000
# Of a key's messages and of a download, together.
MOST_BODY_BYTES = 64 << 20
# No body is read where the messages are only to be found.
COLUMNS = (
    "topic", "queueId", "queueOffset", "physicalOffset", "msgId", "uniqKey", "storeTimestamp", "tags", "keys",
    "storeSize",
)  # fmt: skip
# Of larger messages no beginning of the body is shown in a list.
_MOST_FOR_PREVIEW = 64 << 10
_PREVIEW_BYTES = 160
# All previews of a page are decoded within this time.
_PREVIEWS_S = 3.0
FIELDS = ("id", "key", "topic", "queue", "offset", "since", "until", "tags", "filter")

Row = dict[str, Any]


@dataclass(frozen=True)
class Found:
    """Rows without bodies, and what is to be said of the search."""

    rows: list[Row]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class MessageSearch:
    """A search as a visitor wrote it; an empty text stands for nothing. Times are milliseconds, None for no limit."""

    id: str = ""
    key: str = ""
    topic: str = ""
    tags: str = ""
    filter: str = ""
    queue: int | None = None
    offset: int | None = None
    begin: int | None = None
    end: int | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> MessageSearch:
        """``InvalidValue``, ``FilterError`` for what cannot be searched for."""
        texts = {name: given.get(name, "").strip() for name in FIELDS}
        made = cls(
            id=texts["id"],
            key=texts["key"],
            topic=texts["topic"],
            tags=texts["tags"],
            filter=texts["filter"],
            queue=_number("queue", texts["queue"], MAX_INT),
            offset=_number("offset", texts["offset"], MAX_LONG),
            begin=parse_time(texts["since"], name="since") if texts["since"] else None,
            end=parse_time(texts["until"], name="until") if texts["until"] else None,
        )
        made._refuse_nonsense()
        return made

    def _refuse_nonsense(self) -> None:
        if self.offset is not None and self.begin is not None:
            raise InvalidValue("Give a queue offset or a time to begin with, not both.")
        if self.offset is not None and (self.queue is None or not self.topic):
            raise InvalidValue("A queue offset is one of a queue: give the topic and the queue, too.")
        if not (self.topic or self.id or self.key or self.is_empty):
            raise InvalidValue("Give a topic: tags, filters, times and queues are looked for in one topic at a time.")
        self._condition  # noqa: B018 - its errors are those of the search

    @property
    def is_empty(self) -> bool:
        return self == MessageSearch()

    @property
    def _condition(self) -> MessageFilter:
        return MessageFilter.parse_quietly(self.tags or None, self.filter or None, [self.key] if self.key else None)

    def find(self, reader: StoreReader, count: int) -> Found:
        """At most ``count`` messages, in the order of the log. The errors of reading."""
        if self.id:
            return Found([row_of(find_message(reader, self.id, self.topic or None, verify_crc=False))])
        if self.key and not (self.tags or self.filter or self.queue is not None):
            return self._by_key(reader, count)
        if not self.topic:
            raise InvalidValue("Give a topic: tags, filters and queues are looked for in one topic at a time.")
        if self.offset is not None:
            return self._from_offset(reader, count)
        topics = chosen_topics(reader, [self.topic])
        whole = scan.ranges(reader, topics, self.queue, begin=self.begin, end=self.end)
        found = newest_matching(
            reader, whole, count, COLUMNS, self._condition, BodyPattern(), verify_crc=False, most=_MOST_LOOKED_AT
        )
        rows = [row for table in found.tables for row in rows_of(table)]
        note = ""
        if len(rows) < count and found.left:
            note = (
                f"These are all of the newest {found.looked_at:,} messages that match; {found.left:,} older ones were "
                "not looked at. Give an earlier end of the time."
            )
        elif found.left:
            note = f"The newest {len(rows)} messages; there may be older ones."
        return Found(rows, note)

    def _by_key(self, reader: StoreReader, count: int) -> Found:
        end = MAX_LONG if self.end is None else self.end
        topics = [self.topic] if self.topic else []
        try:
            found = find_by_key(
                reader, self.key, topics, begin=self.begin or 0, end=end, limit=count, verify_crc=False,
                most_bytes=MOST_BODY_BYTES,
            )  # fmt: skip
        except MessageNotFound as error:
            return Found([], str(error))
        size, note = sum(len(one.body) for one in found), ""
        if size > MOST_BODY_BYTES:
            note = f"The newest {len(found)} messages, with bodies of {size >> 20} MiB; there may be older ones."
        return Found([row_of(one) for one in found], note)

    def _from_offset(self, reader: StoreReader, count: int) -> Found:
        topics = chosen_topics(reader, [self.topic])
        whole = scan.ranges(reader, topics, self.queue, offset=self.offset, end=self.end)
        wanted = [(topic, queue, start, min(stop, start + _MOST_LOOKED_AT)) for topic, queue, start, stop in whole]
        left = scan.count_of(whole) - scan.count_of(wanted)
        rows: list[Row] = []
        for table in scan.merged(reader, wanted, COLUMNS, self._condition, verify_crc=False):
            rows += rows_of(table)
            if len(rows) >= count:
                break
        if len(rows) < count and left:
            note = (
                f"These are all of the {scan.count_of(wanted):,} messages from there on that match; {left:,} later "
                "ones were not looked at. Give a later offset."
            )
            return Found(rows, note)
        return Found(rows[:count])


def _number(name: str, text: str, most: int) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) > most:
        raise InvalidValue(f"The {name} is a number from 0 to {most}, not {text!r}.")
    return int(text)


def rows_of(table: pa.Table, names: Sequence[str] = COLUMNS) -> list[Row]:
    columns = {name: scan.column_values(table.column(name)) for name in names}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def row_of(message: MessageExt) -> Row:
    row = scan.as_row(message)
    return {name: row[name] for name in COLUMNS}


def with_previews(reader: StoreReader, rows: Sequence[Row], decoders: TopicDecoders) -> list[Row]:
    """The rows with the beginning of each body, if that is short and can be read; decoded, if its topic is.

    ``sent_to`` of a row is the topic that its message was sent to, if another one has it.
    """
    bodies = [_small_body(reader, row) for row in rows]
    topics = [row.get("sent_to") or row["topic"] for row in rows]
    messages = ((topic, body) for topic, body in zip(topics, bodies, strict=True) if isinstance(body, bytes))
    decoded = decoders.decode_each(messages, seconds=_PREVIEWS_S)
    return [
        row | {"preview": body if isinstance(body, str) else _preview(body, next(decoded))}
        for row, body in zip(rows, bodies, strict=True)
    ]


def _small_body(reader: StoreReader, row: Row) -> bytes | str:
    """The body, or words instead of it."""
    if row["storeSize"] > _MOST_FOR_PREVIEW:
        return "(large)"
    try:
        return reader.message_at(row["physicalOffset"], verify_crc=False).body
    except CommitLogError:
        return "(cannot be read)"


def _preview(body: bytes, decoded: Decoded | None) -> str:
    if decoded is not None and decoded.json is not None:
        return decoded.json[:_PREVIEW_BYTES]
    part = body[:_PREVIEW_BYTES]
    for cut in range(4 if len(body) > len(part) else 1):  # the last character may be cut in its middle
        try:
            return part[: len(part) - cut].decode()
        except UnicodeDecodeError:
            continue
    return "hex: " + body[: _PREVIEW_BYTES // 4].hex(" ")
