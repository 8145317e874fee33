"""Search of messages: one by any of its ids (physical offset, offset message id, unique key), and all of a key."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from commitlog_store.errors import InvalidValue, MessageNotFound
from commitlog_store.message import MessageExt
from commitlog_store.queries.chosen_topics import chosen_topics, is_pattern
from commitlog_store.reader import StoreReader, query_within

# Message ids have 32 or 56 digits; no physical offset has more than 19.
_LONGEST_OFFSET = 19


def find_message(reader: StoreReader, text: str, topic: str | None, *, verify_crc: bool) -> MessageExt:
    """The message of an id. Without a topic, unique keys are looked for in the index of every topic.

    ``MessageNotFound`` says why it is none of the three. A unique key may look like a message id: both have 32
    hexadecimal digits.
    """
    if topic is not None:
        chosen_topics(reader, [topic])  # names the topic that was meant
    elif text.isascii() and text.isdigit() and len(text) <= _LONGEST_OFFSET:
        return reader.message_at(int(text), verify_crc=verify_crc)
    try:
        if topic is None:
            return reader.message_by_id(text, verify_crc=verify_crc)
        reason = ""
    except (InvalidValue, MessageNotFound) as error:
        reason = f"{error} "
    topics = reader.topics() if topic is None else [topic]
    for one in topics if text and " " not in text else []:
        for found in reversed(reader.query(one, text, verify_crc=verify_crc)):
            if topic is not None or found.unique_key == text:
                return found
    where = f"topic {topic!r}" if topic is not None else f"any of the {len(topics)} topics"
    indexed = "" if reader.index_files() else ", which has no index files"
    raise MessageNotFound(
        f"{reason}As a unique key, {text!r} is not in the index of {where} of {reader.path}{indexed}."
    )


def find_by_key(
    reader: StoreReader,
    key: str,
    topics: Sequence[str],
    *,
    begin: int,
    end: int,
    limit: int,
    verify_crc: bool,
    most_bytes: int | None = None,
) -> list[MessageExt]:
    """The newest messages with a key, stored at ``begin`` or later and before ``end``, in the order of the log.

    Topics are names or shell patterns; without one, all topics are searched. A name needs no consume queue: the
    messages of a deleted topic are found. ``most_bytes``, for the reader of a directory: the message whose body makes
    them more is the oldest one. ``MessageNotFound``, ``TopicNotFound`` with the topic that was meant.
    """
    names = reader.topics() if not topics else []
    for one in topics:
        names += chosen_topics(reader, [one]) if is_pattern(one) else [one]
    found: list[MessageExt] = []
    for name in dict.fromkeys(names):
        last = max(end - 1, 0)
        if most_bytes is None:
            found += reader.query(name, key, begin=begin, end=last, limit=limit, verify_crc=verify_crc)
        else:
            bounds = {"begin": begin, "end": last, "limit": limit, "most_bytes": most_bytes}
            found += query_within(reader, name, key, **bounds, verify_crc=verify_crc)
        # No more than those of two topics are in memory, however many topics have the key.
        found = sorted(found, key=lambda message: message.physical_offset)[-limit:]
        if most_bytes is not None:
            found = _newest_within(found, most_bytes)
    if not found and not reader.skipped:
        chosen_topics(reader, topics)  # names the topic that was meant
        where = f"topic {names[0]!r}" if len(names) == 1 else f"any of {len(names)} topics"
        raise MessageNotFound(f"No message of {where} with key {key!r} in the index of {reader.path}.")
    return found


def _newest_within(messages: Sequence[MessageExt], most_bytes: int) -> list[MessageExt]:
    """The newest ones, down to that whose body makes them more than ``most_bytes``."""
    sizes = itertools.accumulate(len(message.body) for message in reversed(messages))
    count = sum(size <= most_bytes for size in sizes) + 1
    return list(messages[-count:])
