"""What a store takes from applications: limits, whose property names are whose, and how a message is refused.

==================================  ====================================================================================
property                            who gives it
==================================  ====================================================================================
KEYS, __SHARDINGKEY, TAGS, DELAY    the application, as a column or field of its own, or by that name among the others
REAL_TOPIC, REAL_QID                the store, for a message that waits in ``SCHEDULE_TOPIC_XXXX``
TRAN_MSG, PGROUP, INNER_*,          the store or the broker; a message that brought them along would be taken for half a
__CRC32#                            transaction, for a batch, or for damaged
all others, UNIQ_KEY among them     the application or its client
==================================  ====================================================================================

In the record stand the application's others first, in the order given, then KEYS, __SHARDINGKEY, TAGS, DELAY,
REAL_TOPIC and REAL_QID. (In RocketMQ the order is that of a Java hash map.)

Source: RocketMQ ``common/message/MessageConst.java``, ``broker/util/HookUtils.java`` (``checkBeforePutMessage``,
``transformDelayLevelMessage``), ``store/MessageExtEncoder.java``.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from commitlog.config import LARGEST_BODY
from commitlog.errors import InvalidValue
from commitlog.format.properties import (
    CRC32,
    DELAY,
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    KEYS,
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    SHARDING_KEY,
    TAGS,
    TRAN_MSG,
)

__all__ = [
    "OWN_PROPERTIES",
    "SCHEDULE_TOPIC",
    "STORE_PROPERTIES",
    "MessageLimits",
    "Refusal",
    "RefusalKind",
    "name_fault",
    "parse_delay_level",
]

# Topic of the messages that wait for their delay to pass; a level has the queue before its own number.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

# Properties that have a column or field of their own, in the order in which they are stored, after all others.
OWN_PROPERTIES = (KEYS, SHARDING_KEY, TAGS, DELAY)

# Properties that only the store or the broker may give.
STORE_PROPERTIES = frozenset(
    {REAL_TOPIC, REAL_QID, TRAN_MSG, PGROUP, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, INNER_NUM, INNER_BASE}
    | {CRC32}
)

_MAX_INT = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class MessageLimits:
    """``max_message_size``: bytes of the largest body; ``max_delay_level``: higher levels are taken for this one."""

    max_message_size: int = 4 << 20
    max_delay_level: int = 18

    def __post_init__(self) -> None:
        if not 0 < self.max_message_size <= LARGEST_BODY:
            raise InvalidValue(f"max_message_size is 1 to {LARGEST_BODY}, not {self.max_message_size}.")
        if not 0 < self.max_delay_level <= _MAX_INT:
            raise InvalidValue(f"max_delay_level is 1 to {_MAX_INT}, not {self.max_delay_level}.")


class RefusalKind(enum.Enum):
    """RocketMQ's names (``PutMessageStatus``) of what is wrong with a message."""

    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"


class Refusal(NamedTuple):
    """A message that no store takes: its row in the input, what kind of fault, its topic and queue, and the fault."""

    row: int
    kind: RefusalKind
    context: str
    why: str

    @property
    def reason(self) -> str:
        """A sentence for people."""
        return self.told(f"row {self.row}")

    def told(self, place: str) -> str:
        """The sentence, for who knows the row by another number."""
        return (
            f"Message in {place} ({self.context}): {self.why}." if self.context else f"Message in {place}: {self.why}."
        )


def name_fault(name: str) -> str | None:
    """Why no application may give a property of this name, as the end of a sentence; None when it may."""
    if not name:
        return "a property without a name"
    if "\x01" in name or "\x02" in name:
        return f"a property named {name!r}, with a character that separates properties"
    if name in STORE_PROPERTIES:
        return f"the property {name!r}, which only the store gives: leave it out"
    return None


def parse_delay_level(text: str) -> int | None:
    """The level of a DELAY property, as Java reads an int; None for what is no number from 0 to 2**31 - 1."""
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        return None
    level = int(digits) if len(digits) <= 64 else _MAX_INT + 1
    return level if level <= _MAX_INT else None
