"""ReaderPool: the open readers of one store, each lent to one call at a time, and kept for the next call.

It has no lock. A signal handler may read, too, and would block indefinitely on a lock that the thread which it
interrupts holds. Two rules replace it, with any number of threads and a handler between any two steps:

- A reader is idle, which means in a deque, or it has one user: the call that it is lent to, or the thread that closes
  it or lets it release files. ``append``, ``pop`` and ``popleft`` of a deque are atomic, so no reader has two users.
- ``close`` and ``release_removed_files`` set a field first (``_kept``, ``_removal``), and then visit the idle readers.
  A thread that gives a reader back appends it first, and then reads the fields. So either the visit finds the reader,
  or the thread that gave it back sees the new value, and visits the idle readers itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import get_args

from commitlog_store.errors import CommitLogError, InvalidValue, NotFoundError, OffsetOutOfRange
from commitlog_store.reader import OnDamage, StoreReader

# An idle reader, and the value of ``_removal`` when it last looked for the log's files.
_Idle = tuple[StoreReader, object]
_WRONG_QUESTIONS = (InvalidValue, NotFoundError, OffsetOutOfRange)
_Opener = Callable[[OnDamage], StoreReader]
# How long the space of a removed file may be kept.
_PAUSE_SECONDS = 1.0


class ReaderPool:
    """Any number of threads. ``kept`` readers of each ``on_damage`` stay open when no call uses them."""

    def __init__(self, open_reader: _Opener, *, kept: int = 16, before_call: Callable[[], None] | None = None) -> None:
        """``before_call`` is given to ``StoreReader.interrupt_with``."""
        self._open, self._before_call = open_reader, before_call
        self._kept = kept  # 0 once the pool is closed
        # Another object after each removal of log files.
        self._removal = object()
        self._idle: dict[OnDamage, deque[_Idle]] = {how: deque() for how in get_args(OnDamage)}

    @contextmanager
    def lent(self, on_damage: OnDamage) -> Iterator[StoreReader]:
        """A reader for one call. It is closed if the call fails by more than a wrong question."""
        idle, removal = self._idle[on_damage], self._removal
        # The one that was used last: it has seen most of what is asked next.
        if (taken := _taken(idle.pop)) is not None:
            reader, removal = taken
        else:
            reader = self._open(on_damage)
            if self._before_call is not None:
                reader.interrupt_with(self._before_call)
        try:
            yield reader
        except _WRONG_QUESTIONS:
            self._give_back(idle, reader, removal)
            raise
        except BaseException:
            reader.close()
            raise
        self._give_back(idle, reader, removal)

    def _give_back(self, idle: deque[_Idle], reader: StoreReader, removal: object) -> None:
        idle.append((reader, removal))
        self._close_surplus(idle)
        if removal is not self._removal:
            self._release(idle)

    def release_removed_files(self) -> None:
        """Let the readers close the log files that were removed: these keep their space until then.

        Readers that calls use do so when they are given back. One that fails at that is closed.
        """
        self._removal = object()
        for idle in self._idle.values():
            self._release(idle)

    def _release(self, idle: deque[_Idle]) -> None:
        """Calls take readers from the right end and append there, so that those at the left were idle before."""
        for _ in range(len(idle)):
            removal = self._removal  # before the reader looks for its files
            if (taken := _taken(idle.popleft)) is None:
                return
            reader, before = taken
            try:
                if before is not removal:
                    reader.log_start()  # which looks for the log's files, and closes those of an earlier list
            except (CommitLogError, OSError):
                reader.close()
            except BaseException:
                reader.close()
                raise
            else:
                self._give_back(idle, reader, removal)

    def close(self) -> None:
        """Close the readers that no call uses, and each of the others when it is given back."""
        self._kept = 0
        for idle in self._idle.values():
            self._close_surplus(idle)

    def _close_surplus(self, idle: deque[_Idle]) -> None:
        while len(idle) > self._kept and (oldest := _taken(idle.popleft)) is not None:
            oldest[0].close()


def _taken(take: Callable[[], _Idle]) -> _Idle | None:
    """What ``take`` takes from a deque; None if that is empty."""
    try:
        return take()
    except IndexError:
        return None


class IdleReaders:
    """A service: the readers that wait for a call in these pools hold no removed file."""

    def __init__(self, pools: Collection[ReaderPool]) -> None:
        self._pools = pools

    def run_once(self) -> float:
        for pool in self._pools:
            pool.release_removed_files()
        return _PAUSE_SECONDS
