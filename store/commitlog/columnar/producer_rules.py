"""Rules for messages of producers, Spark jobs among them: a broker refuses these messages, though its store could
hold them.

====================================  ==================================================================================
a message                             because
====================================  ==================================================================================
of ``NO_PRODUCERS_TOPICS``            the broker acts on their messages, and wrote all of them
in a queue from ``MOST_QUEUES`` on    no topic has so many, so no consumer looks there
that a timer is to deliver            timers are not supported: it would be delivered at once. ``delayLevel`` is
====================================  ==================================================================================

Source: RocketMQ ``broker/processor/AbstractSendMessageProcessor.java`` (``msgCheck``), ``broker/util/HookUtils.java``
(``checkIfTimerMessage``; a broker without timers answers WHEEL_TIMER_NOT_ENABLE).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from commitlog.columnar.input import MessageColumns
from commitlog.format.message_rules import no_producers_fault
from commitlog.format.properties import decode_properties
from commitlog.paths import MOST_QUEUES

__all__ = ["refuse_for_producers"]

# One of these makes a message a timer's, unless it has a delay level or ``TIMER_OUT_MS``, which the timer adds itself.
_TIMER_PROPERTIES = frozenset({"TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"})
_TIMED = "TIMER_OUT_MS"
_BEGIN_OF_ALL = "TIMER_DEL"


def refuse_for_producers(columns: MessageColumns) -> None:
    """Add the rows that only a broker or a store may write to the columns' refusals."""
    for code, name in enumerate(columns.topics):
        fault = no_producers_fault(name)
        if fault is not None:
            columns.refusals.add(columns.topic_codes == code, lambda _, fault=fault: fault)  # type: ignore[misc]
    ids = columns.queue_ids
    if ids is not None:
        most = f"it must be 0 to {MOST_QUEUES - 1}, since no topic has more queues"
        columns.refusals.add(ids >= MOST_QUEUES, lambda row: f"its queueId is {ids[row]}; {most}")
    if columns.others is not None:
        _refuse_timers(columns, columns.others)


def _refuse_timers(columns: MessageColumns, others: pa.LargeBinaryArray) -> None:
    named, timed = (pc.match_substring(others, text) for text in (_BEGIN_OF_ALL, _TIMED))
    perhaps = pc.and_not(named, timed).to_numpy(zero_copy_only=False)
    if columns.delay_levels is not None:
        perhaps &= columns.delay_levels == 0
    wrong, names = np.zeros(columns.count, np.bool_), {}
    for row in np.flatnonzero(perhaps).tolist():
        found = sorted(_TIMER_PROPERTIES & decode_properties(others[row].as_py()).keys())
        if found:
            wrong[row], names[row] = True, found[0]
    columns.refusals.add(
        wrong,
        lambda row: (
            f"its property {names[row]!r} asks for a timer, which is not supported: leave it out, or give a delayLevel"
        ),
    )
