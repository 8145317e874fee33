"""Times of delivery of timer messages, from the properties of their records (``format/timer_messages.py``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from commitlog_store.columnar.delivery import Undeliverable, WaitingRecords, whole_blocks
from commitlog_store.columnar.locate import RecordBlock
from commitlog_store.format import arrow_compute as pc
from commitlog_store.format.arrays import Int64Array
from commitlog_store.format.java_hash import string_hash_code
from commitlog_store.format.properties import (
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)
from commitlog_store.format.timer_messages import PRECISION_MS, TIMER_QUEUE_ID, TIMER_TOPIC

TIMER_QUEUE = (TIMER_TOPIC, TIMER_QUEUE_ID)
# Milliseconds up to the year 33,658.
_NUMBER = "^[0-9]{1,15}$"
_NO_TIME = -1


class TimerTimes(NamedTuple):
    """Messages that wait, one value each: time of delivery in ms, physical offset, size, hash code of the topic, and
    the time of birth in ms."""

    dues: Int64Array
    physical_offsets: Int64Array
    sizes: Int64Array
    topic_hashes: Int64Array
    born: Int64Array

    @property
    def messages(self) -> int:
        """How many there are."""
        return len(self.dues)

    def rows(self, which: object) -> TimerTimes:
        """Some of them: a mask, a slice or places."""
        return TimerTimes(*(values[which] for values in self))  # type: ignore[call-overload]

    @classmethod
    def joined(cls, parts: list[TimerTimes]) -> TimerTimes:
        nothing = np.zeros(0, np.int64)
        return cls(*(np.concatenate([nothing, *values]) for values in zip(*parts, strict=True))) if parts else _none()


def _none() -> TimerTimes:
    return TimerTimes(*(np.zeros(0, np.int64) for _ in TimerTimes._fields))


def timer_times(
    waiting: WaitingRecords, skipped: list[Undeliverable], topics: dict[int, str] | None = None
) -> TimerTimes:
    """The times of waiting records, in their order; ``skipped`` gets those that have none, or are damaged.

    ``topics`` gets the topic of each hash code that it lacks.

    A message is delivered at the millisecond that it asked for, within the second of its TIMER_OUT_MS.
    """
    parts = []
    for block, physical in whole_blocks(waiting, TIMER_QUEUE, skipped):
        dues = delivery_times(block.properties.text, block.field("store_timestamp").astype(np.int64))
        cancels = block.properties.text(TIMER_DEL_UNIQKEY).is_valid().to_numpy(zero_copy_only=False)
        for row in np.flatnonzero((dues == _NO_TIME) | cancels).tolist():
            reason = f"it has no {TIMER_OUT_MS}, or one that is no time"
            if cancels[row]:
                reason = f"it cancels another one ({TIMER_DEL_UNIQKEY}), which brokers alone do"
            skipped.append(Undeliverable(int(block.place.queue_offsets[row]), int(physical[row]), reason))
        whole = (dues != _NO_TIME) & ~cancels
        hashes, sizes = _topic_hashes(block, {} if topics is None else topics), block.sizes.astype(np.int64)
        parts.append(TimerTimes(dues, physical, sizes, hashes, _born(block)).rows(whole))
    return TimerTimes.joined(parts)


def delivery_times(property_of: Callable[[str], pa.StringArray], stored: Int64Array) -> Int64Array:
    """The time of delivery of each message in ms; -1 for none.

    ``property_of`` returns the values of a property, ``stored`` has the store times in ms.
    """
    out = _numbers(property_of(TIMER_OUT_MS))
    deliver, last = _numbers(property_of(TIMER_DELIVER_MS)), out + PRECISION_MS
    found = np.where((deliver > out) & (deliver <= last), deliver, last)
    for name, unit_ms in ((TIMER_DELAY_MS, 1), (TIMER_DELAY_SEC, 1000)):
        delay = _numbers(property_of(name))
        found = np.where(delay != _NO_TIME, np.clip(stored + delay * unit_ms, out + 1, last), found)
    return np.where(out == _NO_TIME, _NO_TIME, found)


def _numbers(texts: pa.StringArray) -> Int64Array:
    if texts.null_count == len(texts):
        return np.full(len(texts), _NO_TIME, np.int64)
    is_number = pc.fill_null(pc.match_substring_regex(texts, _NUMBER), False)
    numbers = pc.if_else(is_number, texts, pa.scalar(None, texts.type)).cast(pa.int64())
    return np.asarray(numbers.fill_null(_NO_TIME).to_numpy(zero_copy_only=False), np.int64)


def _born(block: RecordBlock) -> Int64Array:
    return block.field("born_timestamp").astype(np.int64)


def _topic_hashes(block: RecordBlock, topics: dict[int, str]) -> Int64Array:
    coded = block.properties.text(REAL_TOPIC).dictionary_encode()
    names = coded.dictionary.to_pylist()
    hashes = np.array([*(string_hash_code(topic) for topic in names), 0], np.int64)
    for code, topic in zip(hashes.tolist(), names, strict=False):
        topics.setdefault(code, topic)
    return np.asarray(hashes[coded.indices.fill_null(len(hashes) - 1).to_numpy(zero_copy_only=False)], np.int64)
