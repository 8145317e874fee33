"""Timer messages: messages with any time of delivery, which wait in queue 0 of ``rmq_sys_wheel_timer``.

An application asks with one of the first three properties; DELAY, a level, wins over them, and of several the upper one
counts:

====================  ==================================================================================================
property              meaning
====================  ==================================================================================================
TIMER_DELAY_SEC       seconds from the put on
TIMER_DELAY_MS        milliseconds from the put on
TIMER_DELIVER_MS      milliseconds since 1970
TIMER_OUT_MS          given by the store: the time of delivery rounded down to a second, the second before it for a
                      whole one. RocketMQ delivers when that second has passed. A message that has it is never delayed
REAL_TOPIC, REAL_QID  given by the store: where the message goes
====================  ==================================================================================================

A time that is not in the future stores the message at once, in its own topic.

Source: RocketMQ ``broker/util/HookUtils.java`` (``checkIfTimerMessage``, ``transformTimerMessage``),
``store/timer/TimerMessageStore.java``.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import SupportsIndex

from commitlog_store.errors import InvalidValue, PutRefused
from commitlog_store.format.properties import (
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)
from commitlog_store.java_numbers import MAX_LONG
from commitlog_store.message import Message
from commitlog_store.put_status import PutMessageStatus
from commitlog_store.timestamps import milliseconds_of

TIMER_TOPIC = "rmq_sys_wheel_timer"
TIMER_QUEUE_ID = 0

# One of these makes a message a timer's, unless it has a delay level or TIMER_OUT_MS.
TIMER_PROPERTIES = frozenset({TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC})
# Milliseconds that one slot of RocketMQ's timer has (timerPrecisionMs).
PRECISION_MS = 1_000

# RocketMQ's timer wheel has room for 14 days. What waits longer it would put back in between; here nothing does.
_LONGEST_DELAY_SEC = 7 * 86_400
# As Java's parseLong reads it.
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def given_properties(message: Message) -> Mapping[str, str]:
    """The properties of a message, its ``deliver_at`` among them. ``InvalidValue`` for no time, and beside a level."""
    when = message.deliver_at
    if when is None:
        return message.properties
    if message.delay_level:
        raise InvalidValue("The message has a delay_level and a deliver_at: give one of them.")
    if fault := deliver_at_fault(when):
        raise InvalidValue(fault)
    ms = milliseconds_of(when, "deliver_at")
    others = {name: value for name, value in message.properties.items() if name not in TIMER_PROPERTIES}
    return others | {TIMER_DELIVER_MS: str(ms)}


def deliver_at_fault(when: object) -> str | None:
    """Why this is not a time of delivery, as a sentence: strings and timedeltas of a look-up are before now."""
    if when is None or (isinstance(when, datetime | SupportsIndex) and not isinstance(when, bool)):
        return None
    return f"The field deliver_at is a datetime with a time zone, or an int of milliseconds, not {reprlib.repr(when)}."


def asks_for_timer(properties: Collection[str]) -> bool:
    """Whether a message without a delay level, with properties of these names, is a timer's."""
    return not TIMER_PROPERTIES.isdisjoint(properties) and TIMER_OUT_MS not in properties


def timer_properties(
    topic: str, queue_id: int, properties: Mapping[str, str], now_ms: int, max_delay_sec: int
) -> dict[str, str] | None:
    """The properties with which a message that ``asks_for_timer`` waits; None where its time has come.

    ``PutRefused`` (WHEEL_TIMER_MSG_ILLEGAL) for a time that is no number, or lies too far ahead.
    """
    deliver_ms = timer_deliver_ms(properties, now_ms, max_delay_sec)
    if deliver_ms is None:
        return None
    place = {REAL_TOPIC: topic, REAL_QID: str(queue_id)}
    return {**properties, TIMER_OUT_MS: str(out_ms(deliver_ms)), **place}


def timer_deliver_ms(properties: Mapping[str, str], now_ms: int, max_delay_sec: int) -> int | None:
    """The time of delivery, in milliseconds, that properties ask for; None where it has come. Errors: see above."""
    deliver_ms, max_delay_sec = _deliver_ms(properties, now_ms), min(max_delay_sec, _LONGEST_DELAY_SEC)
    if deliver_ms <= now_ms:
        return None
    if deliver_ms - now_ms > max_delay_sec * 1000:
        raise _illegal(
            f"its time of delivery is {(deliver_ms - now_ms) / 1000:,.0f} s ahead, and the most is {max_delay_sec:,} s "
            "(timerMaxDelaySec)"
        )
    return deliver_ms


def out_ms(deliver_ms: int) -> int:
    """The TIMER_OUT_MS of a time of delivery: ``out_ms < deliver_ms <= out_ms + 1000``."""
    return (deliver_ms - 1) // PRECISION_MS * PRECISION_MS


def _deliver_ms(properties: Mapping[str, str], now_ms: int) -> int:
    if TIMER_DELAY_SEC in properties:
        return now_ms + _number(TIMER_DELAY_SEC, properties[TIMER_DELAY_SEC]) * 1000
    if TIMER_DELAY_MS in properties:
        return now_ms + _number(TIMER_DELAY_MS, properties[TIMER_DELAY_MS])
    return _number(TIMER_DELIVER_MS, properties[TIMER_DELIVER_MS])


def _number(name: str, text: str) -> int:
    number = int(text) if _NUMBER.fullmatch(text) else MAX_LONG + 1
    if not -MAX_LONG <= number <= MAX_LONG:
        raise _illegal(f"its property {name} is {text[:40]!r}, which is not a number of milliseconds or seconds")
    return number


def _illegal(why: str) -> PutRefused:
    return PutRefused(PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL, f"It cannot be delayed: {why}.")
