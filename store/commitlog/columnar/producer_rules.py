"""What a broker takes from no producer, though its store has room for it, and so neither from a Spark job.

====================================  ==================================================================================
a message                             because
====================================  ==================================================================================
of ``NO_PRODUCERS_TOPICS``            the broker acts on what is there, and wrote all of it
in a queue from ``MOST_QUEUES`` on    no topic has so many, so no consumer looks there
that a timer is to deliver            timers are not supported: it would be delivered at once. ``delayLevel`` is
====================================  ==================================================================================

Source: RocketMQ ``broker/processor/AbstractSendMessageProcessor.java`` (``msgCheck``), ``broker/util/HookUtils.java``
(``checkIfTimerMessage``; a broker without timers answers WHEEL_TIMER_NOT_ENABLE).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow.compute as pc

from commitlog.columnar.encode import EncodedMessages
from commitlog.columnar.input import QueueColumns, Rows
from commitlog.format.message_rules import Refusal, RefusalKind, no_producers_fault
from commitlog.format.properties import DELAY, decode_properties
from commitlog.paths import MOST_QUEUES

__all__ = ["producer_refusals"]

# One of these makes a message a timer's, unless it has a delay level or ``TIMER_OUT_MS``, which the timer adds itself.
_TIMER_PROPERTIES = frozenset({"TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"})
_TIMED = "TIMER_OUT_MS"
_BEGIN_OF_ALL = "TIMER_DEL"


def producer_refusals(rows: Rows, columns: QueueColumns, encoded: EncodedMessages) -> Iterator[Refusal]:
    """The first row of each kind, and of each topic. ``columns`` and ``encoded`` are made of the rows."""
    for code, name in enumerate(columns.topics):
        fault = no_producers_fault(name)
        if fault is not None:
            for row in np.flatnonzero(columns.topic_codes == code)[:1].tolist():
                yield Refusal(row, RefusalKind.MESSAGE_ILLEGAL, f"topic {name!r}", fault)
    for row in np.flatnonzero(columns.queue_ids >= MOST_QUEUES)[:1].tolist():
        why = f"its queueId is {columns.queue_ids[row]}; 0 to {MOST_QUEUES - 1} may be, since no topic has more queues"
        yield Refusal(row, RefusalKind.MESSAGE_ILLEGAL, _topic_of(columns, row), why)
    if "properties" in rows.schema.names:
        yield from _timer_refusals(columns, encoded)


def _timer_refusals(columns: QueueColumns, encoded: EncodedMessages) -> Iterator[Refusal]:
    named, timed = (pc.match_substring(encoded.properties, text) for text in (_BEGIN_OF_ALL, _TIMED))
    perhaps = pc.and_not(named, timed).to_numpy(zero_copy_only=False)
    for record in np.flatnonzero(perhaps).tolist():
        properties = decode_properties(encoded.properties[record].as_py())
        found = sorted(_TIMER_PROPERTIES & properties.keys())
        if found and DELAY not in properties:
            row = int(encoded.rows[record])
            why = f"its property {found[0]!r} asks for a timer, and there is none: leave it out, or give a delayLevel"
            yield Refusal(row, RefusalKind.MESSAGE_ILLEGAL, _topic_of(columns, row), why)
            return


def _topic_of(columns: QueueColumns, row: int) -> str:
    return f"topic {columns.topics[columns.topic_codes[row]]!r}"
