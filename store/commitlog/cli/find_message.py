"""Search of one message by any of its ids: physical offset, offset message id, or unique key."""

from __future__ import annotations

from commitlog.cli.values import chosen_topics
from commitlog.errors import InvalidValue, MessageNotFound
from commitlog.message import MessageExt
from commitlog.reader import StoreReader

__all__ = ["find_message"]

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
