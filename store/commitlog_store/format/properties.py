r"""A record's properties: names and values as text.

Bytes, UTF-8::

    name \x01 value \x02 name \x01 value \x02 ...

The ``\x02`` after the last entry is written by RocketMQ up to 4.9.1 and by 5.x, and left out by 4.9.2 to 4.9.8. The
record's PROPERTIESLENGTH is a signed 16-bit number: at most 32,767 bytes.

An entry counts when its name and its value are not empty; the name ends at the entry's first ``\x01``, so a value may
hold more of them. Of equal names the last one wins.

Source: RocketMQ ``common/message/MessageDecoder.java`` (``string2messageProperties``, ``messageProperties2String``),
``common/message/MessageConst.java``; for ill-formed UTF-8, Java's ``new String(bytes, UTF_8)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from commitlog_store.errors import InvalidValue

MAX_PROPERTIES_SIZE = 32_767

# Names that RocketMQ gives a meaning to.
KEYS = "KEYS"
TAGS = "TAGS"
UNIQ_KEY = "UNIQ_KEY"
DELAY = "DELAY"
WAIT = "WAIT"
RETRY_TOPIC = "RETRY_TOPIC"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"
TRAN_MSG = "TRAN_MSG"
PGROUP = "PGROUP"
MIN_OFFSET = "MIN_OFFSET"
MAX_OFFSET = "MAX_OFFSET"
BUYER_ID = "BUYER_ID"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
INNER_NUM = "INNER_NUM"
INNER_BASE = "INNER_BASE"
CRC32 = "__CRC32#"
SHARDING_KEY = "__SHARDINGKEY"
TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
TIMER_DELAY_MS = "TIMER_DELAY_MS"
TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
TIMER_OUT_MS = "TIMER_OUT_MS"
TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY = "TIMER_DEL_UNIQKEY"

# Between the keys within the value of KEYS.
KEY_SEPARATOR = " "

_NAME_END = "\x01"
_ENTRY_END = "\x02"

# The UTF-8 form of a surrogate, whole or cut before its last byte. Java puts one U+FFFD for it, Python one a byte.
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()


class PropertiesTooLarge(InvalidValue):
    """Properties that take more bytes than a record has room for; the store answers with a status of its own."""


def decode_utf8(data: bytes) -> str:
    """``data`` as text, with U+FFFD for bytes that are not UTF-8, where and as often as Java puts it."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")


def decode_properties(data: bytes) -> dict[str, str]:
    """The properties of a record. Never fails: bytes that are not an entry are skipped, as in RocketMQ."""
    properties: dict[str, str] = {}
    for entry in decode_utf8(data).split(_ENTRY_END):
        name, _, value = entry.partition(_NAME_END)
        if name and value:
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str], trailing_separator: bool = True) -> bytes:
    r"""The bytes of a record's properties, in the mapping's order, with or without the last ``\x02``.

    ``InvalidValue`` for properties that ``decode_properties`` would not give back: an empty name or value, one with a
    separator or a lone surrogate. ``PropertiesTooLarge`` for more than ``MAX_PROPERTIES_SIZE`` bytes.
    """
    for name, value in properties.items():
        for what, text in (("Name", name), ("Value", value)):
            _check(what, text, name)
    text = _ENTRY_END.join(f"{name}{_NAME_END}{value}" for name, value in properties.items())
    data = text.encode("utf-8")
    if data and trailing_separator:
        data += _ENTRY_END.encode()
    if len(data) > MAX_PROPERTIES_SIZE:
        raise PropertiesTooLarge(f"Properties take {len(data)} bytes; at most {MAX_PROPERTIES_SIZE} fit a record.")
    return data


def _check(what: str, text: str, name: str) -> None:
    if not text:
        raise InvalidValue(f"{what} of property {name!r} is empty; RocketMQ would skip it when reading.")
    for separator in (_NAME_END, _ENTRY_END):
        if separator in text:
            raise InvalidValue(f"{what} of property {name!r} holds {separator!r}, which separates properties.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidValue(f"{what} of property {name!r} has no UTF-8 form: {error.reason}.") from error


def is_waiting(text: str | None) -> bool:
    """Whether a synchronous put with this property WAIT waits for the device.

    RocketMQ's isWaitStoreMsgOK, with Java's parseBoolean.
    """
    return text is None or text.lower() == "true"
