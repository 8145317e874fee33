"""Series of figures for charts and tables: each a value for each part of a time, None where it is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from commitlog_store.format.figures_record import (
    GROUPS_LEFT_OUT,
    INTERVALS_S,
    LAGS_UNKNOWN,
    TOPICS_LEFT_OUT,
    Records,
    name_hash,
)
from commitlog_store.serve.figures.figure_ring import FigureRing

Value: TypeAlias = float | int | None

# What charts show: the whole time, its parts, and the interval of the records that they are made of, in seconds.
SPANS_S: Mapping[str, tuple[int, int, int]] = {
    "1h": (3600, 60, INTERVALS_S[0]),
    "24h": (86_400, 600, INTERVALS_S[1]),
    "7d": (604_800, 3600, INTERVALS_S[1]),
}
_MOST_GROUPS = 8


@dataclass(frozen=True)
class Series:
    """``name`` for programs, ``label`` and ``unit`` for people; one value for each time of ``PastFigures``."""

    name: str
    label: str
    unit: Literal["per_second", "bytes_per_second", "bytes", "messages"]
    values: list[Value]


@dataclass(frozen=True)
class PastFigures:
    """``times`` are the begins of the parts, in seconds since 1970; each part has ``step`` seconds."""

    span: str
    step: int
    times: list[int]
    series: list[Series] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return all(value is None for one in self.series for value in one.values)


def of_store(ring: FigureRing, span: str, now: float, groups: Iterable[str] = ()) -> PastFigures:
    """What a store did: rates, disk and log, and the lags of those of ``groups`` that lagged most."""
    parts = _Parts.read(ring, span, now)
    found = [
        Series("stored", "Messages stored a second", "per_second", parts.rate("stored")),
        Series("storedBytes", "Bytes stored a second", "bytes_per_second", parts.rate("stored_bytes")),
        Series("read", "Messages read a second", "per_second", parts.rate("read")),
        Series("failedPuts", "Failed puts a second", "per_second", parts.rate("failed_puts")),
        Series("logBegin", "Log begins at", "bytes", parts.last("log_begin")),
        Series("logEnd", "Log ends at", "bytes", parts.last("log_end")),
        Series("diskUsed", "Disk used", "bytes", parts.last("disk_used")),
        Series("diskSize", "Disk size", "bytes", parts.last("disk_size")),
        *_lags(parts, groups),
    ]
    return PastFigures(span, parts.step, parts.times, found)


def of_topic(ring: FigureRing, span: str, now: float, topic: str) -> PastFigures:
    """What was stored in a topic, and read from it; nothing is known of it in times at which others did more."""
    parts = _Parts.read(ring, span, now)
    found = [
        Series("stored", "Messages stored a second", "per_second", parts.rate_of_topic(topic, "messages")),
        Series("storedBytes", "Bytes stored a second", "bytes_per_second", parts.rate_of_topic(topic, "bytes")),
        Series("read", "Messages read a second", "per_second", parts.rate_of_topic(topic, "read")),
    ]
    return PastFigures(span, parts.step, parts.times, found)


def _lags(parts: _Parts, groups: Iterable[str]) -> list[Series]:
    """The lags of the groups that lagged most within the time, those that lag most now first."""
    names = set(parts.records["groups"]["name"].ravel().tolist())
    of_groups = {group: parts.lag(group) for group in groups if name_hash(group) in names}
    lagging = {group: values for group, values in of_groups.items() if any(values)}

    def most(group: str) -> tuple[Any, ...]:
        known = [value or 0 for value in lagging[group]]
        return -known[-1], -max(known), group

    return [
        Series(f"lag:{group}", f"Lag of {group}", "messages", lagging[group])
        for group in sorted(lagging, key=most)[:_MOST_GROUPS]
    ]


@dataclass(frozen=True)
class _Parts:
    """Good records, and in which part of the time each of them is."""

    step: int
    times: list[int]
    records: Records
    part: npt.NDArray[np.int64]

    @classmethod
    def read(cls, ring: FigureRing, span: str, now: float) -> _Parts:
        """Parts up to the last whole minute; the newest part may be under way."""
        whole, step, interval = SPANS_S[span]
        minute = INTERVALS_S[0]
        end = -(-(int(now) // minute * minute) // step) * step
        begin = end - whole
        records = ring.read(interval, begin, end)
        part = (records["begin"].astype(np.int64) - begin) // step
        return cls(step, list(range(begin, end, step)), records, part)

    def rate(self, name: str) -> list[Value]:
        return self._rate(self.records[name].astype(np.float64), np.ones(len(self.records), bool))

    def rate_of_topic(self, topic: str, name: str) -> list[Value]:
        listed = self.records["topics"]
        is_it = listed["name"] == name_hash(topic)
        counts = np.where(is_it, listed[name].astype(np.float64), 0).sum(axis=1)
        is_known = is_it.any(axis=1) | (self.records["flags"] & TOPICS_LEFT_OUT == 0)
        return self._rate(counts, is_known)

    def _rate(self, counts: npt.NDArray[np.float64], is_known: npt.NDArray[np.bool_]) -> list[Value]:
        parts, measured = self.part[is_known], self.records["measured_ms"][is_known] / 1000
        sums = np.bincount(parts, counts[is_known], minlength=len(self.times))
        seconds = np.bincount(parts, measured, minlength=len(self.times))
        return [
            round(count / time, 3) if time > 0 else None
            for count, time in zip(sums.tolist(), seconds.tolist(), strict=True)
        ]

    def last(self, name: str) -> list[Value]:
        return self._last(self.records[name], np.ones(len(self.records), bool))

    def _last(self, found: npt.NDArray[Any], is_known: npt.NDArray[np.bool_]) -> list[Value]:
        """The last known value of each part."""
        values: list[Value] = [None] * len(self.times)
        for part, value in zip(self.part[is_known].tolist(), found[is_known].tolist(), strict=True):
            values[part] = value
        return values

    def lag(self, group: str) -> list[Value]:
        listed = self.records["groups"]
        is_it = listed["name"] == name_hash(group)
        lags = np.where(is_it, listed["lag"].astype(np.int64), 0).sum(axis=1)
        flags = self.records["flags"]
        is_known = (flags & LAGS_UNKNOWN == 0) & (is_it.any(axis=1) | (flags & GROUPS_LEFT_OUT == 0))
        return self._last(lags, is_known)
