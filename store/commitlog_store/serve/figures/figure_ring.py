"""FigureRing: the file ``figures.ring``, two rings of records, one a minute and one for ten minutes.

::

    0                            737,280                                            4,866,048
    +----------------------------+--------------------------------------------------+
    | 360 records of a minute    | 2,016 records of ten minutes                     |
    | (six hours)                | (fourteen days)                                  |
    +----------------------------+--------------------------------------------------+

The record of a time has one place: the number of its minute, or of its ten minutes, since 1970, modulo the number of
places. A record at another place, an older one, a torn one and a hole are no records.
"""

from __future__ import annotations

import contextlib
import os

import numpy as np

from commitlog_store.errors import CommitLogError
from commitlog_store.files import disk
from commitlog_store.format.figures_record import (
    INTERVALS_S,
    RECORD,
    RECORD_SIZE,
    Figures,
    Records,
    encode_figures,
    figures_of,
    good_records,
    sum_of,
)
from commitlog_store.paths import FIGURES

_PLACES = dict(zip(INTERVALS_S, (360, 2016), strict=True))
_STARTS = {INTERVALS_S[0]: 0, INTERVALS_S[1]: _PLACES[INTERVALS_S[0]] * RECORD_SIZE}
RING_SIZE = sum(_PLACES.values()) * RECORD_SIZE


class FigureRing:
    """The ring of the store at ``path``. Any number of processes read it; one thread of one process adds to it."""

    def __init__(self, path: str) -> None:
        self.path = os.path.join(path, FIGURES)

    @property
    def is_kept(self) -> bool:
        """Whether the file exists."""
        return disk.is_file(self.path)

    def add(self, minute: Figures) -> None:
        """Write the figures of a minute, added to what the ring has of it, and its ten minutes again.

        ``OSError``, and the errors of ``disk.open_for_writing``.
        """
        short, long = INTERVALS_S
        begin = minute.begin // long * long
        descriptor = self._open()
        try:
            kept = [figures_of(one) for one in _read(descriptor, short, begin, begin + long)]
            same = [one for one in kept if one.begin == minute.begin]
            whole = sum_of([*same, minute], minute.begin, short)
            _write(descriptor, whole)
            parts = sorted([whole, *(one for one in kept if one.begin != minute.begin)], key=lambda one: one.begin)
            _write(descriptor, sum_of(parts, begin, long))
        finally:
            disk.close(descriptor)

    def _open(self) -> int:
        if disk.exists(self.path):
            return disk.open_for_writing(self.path)
        return disk.create_file(self.path)

    def read(self, seconds: int, begin: int, end: int) -> Records:
        """The records of an interval with times from ``begin`` to before ``end``, in the order of time.

        None without the file, and none of a file that cannot be read.
        """
        with contextlib.suppress(OSError, CommitLogError):
            descriptor = disk.open_file(self.path)
            try:
                return _read(descriptor, seconds, begin, end)
            finally:
                disk.close(descriptor)
        return np.zeros(0, RECORD)

    def newest_minute(self, now: int) -> int:
        """The begin of the newest record of the last two minutes, 0 without one."""
        minute = INTERVALS_S[0]
        found = self.read(minute, now // minute * minute - 2 * minute, now + 1)
        return int(found["begin"][-1]) if len(found) else 0


def _read(descriptor: int, seconds: int, begin: int, end: int) -> Records:
    places = _PLACES[seconds]
    first, stop = -(-begin // seconds), -(-end // seconds)
    first = max(first, stop - places, 0)
    data, at = b"", first
    while at < stop:  # at most two parts: before the ring's end, and after its begin
        place = at % places
        count = min(stop - at, places - place)
        part = disk.read_at(descriptor, count * RECORD_SIZE, _STARTS[seconds] + place * RECORD_SIZE)
        data += part.ljust(count * RECORD_SIZE, b"\0")
        at += count
    return good_records(data, first * seconds, seconds)


def _write(descriptor: int, figures: Figures) -> None:
    place = figures.begin // figures.seconds % _PLACES[figures.seconds]
    disk.write_at(descriptor, encode_figures(figures), _STARTS[figures.seconds] + place * RECORD_SIZE)
