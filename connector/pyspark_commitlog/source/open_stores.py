"""``OpenStores``: the stores of a query that are available now, and what happens when one is not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from commitlog_store import StoreReader
from commitlog_store.errors import (
    ArchiveAccessRefused,
    ArchiveFailed,
    RemoteAccessRefused,
    RemoteFailed,
    StoreOpenError,
    UnsupportedStore,
)
from pyspark_commitlog.options.read import SourceOptions
from pyspark_commitlog.options.remote import RemoteOptions, is_address
from pyspark_commitlog.source.units_of_ranges import QueueRange

_logger = logging.getLogger(__name__)

# What a store raises that is not available: it may be so again. And what is an error of the query in any case.
UNAVAILABLE = (StoreOpenError, RemoteFailed, ArchiveFailed)
REFUSED = (UnsupportedStore, RemoteAccessRefused, ArchiveAccessRefused)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 60.0, 3600.0
_WAYS_OUT = "To continue without it until it is available again, set the option onMissingStore to skip."


class OpenStores:
    """Opens the stores, and checks whether they are still available: those that are not are an error, or skipped.

    The only store of a plain path has an empty name; it is opened once.

    A warning names a store that is skipped at once, then after one, two, four minutes, and so on up to an hour.
    """

    def __init__(self, options: SourceOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        self._readers: dict[str, StoreReader] = {}
        # For each store that is unavailable: when the next warning is due, and the pause after it, in seconds.
        self._away: dict[str, tuple[float, float]] = {}
        # When a store that is unavailable is looked for again.
        self._not_before: dict[str, float] = {}

    def look(self) -> Mapping[str, StoreReader]:
        """The readers of the stores that are available, by name. A store that was unavailable has a new reader.

        ``StoreNotFound``, ``NotAStore``, ``StoreAccessDenied``, ``RemoteFailed`` with onMissingStore=fail;
        ``UnsupportedStore``, ``RemoteAccessRefused``.
        """
        available: dict[str, StoreReader] = {}
        for name in self._options.stores or ("",):
            reader = self._reader_of(name)
            if reader is not None:
                available[name] = reader
        return available

    def require(self, name: str, why: str) -> StoreReader:
        """The reader of a store without which nothing can be done, as ``why`` says, whatever onMissingStore is."""
        try:
            return self._open(name)
        except UNAVAILABLE as error:
            error.args = (f"Store {name!r} of the option path: {error} {why}",)
            raise

    def close(self) -> None:
        while self._readers:
            self._readers.popitem()[1].close()

    def _reader_of(self, name: str) -> StoreReader | None:
        if self._clock() < self._not_before.get(name, 0.0):
            return None
        begun = self._clock()
        try:
            reader = self._open(name)
        except REFUSED:
            raise
        except UNAVAILABLE as error:
            if not name:
                raise
            if not self._options.skips_missing_stores:
                error.args = (f"Store {name!r} of the option path: {error} {_WAYS_OUT}",)
                raise
            self._warn(name, error)
            # A server that does not answer takes all of rpcTimeout: half of the time at most.
            now = self._clock()
            self._not_before[name] = now + (now - begun)
            return None
        if self._away.pop(name, None) is not None:
            _logger.warning("Store %r is available again at %s.", name, reader.path)
        return reader

    def _open(self, name: str) -> StoreReader:
        """The reader. A named store is opened again even if it is open, since its directory may be gone by now; the
        server of one is asked whether it still answers."""
        options, known = self._options.of_store(name), self._readers.get(name)
        if not name and known is not None:
            return known
        try:
            if known is not None and is_address(options.path):
                known.log_start()
                return known
            if known is not None and options.remote.archives:
                # The archive stays open: only the directory may be gone.
                replace(options, remote=RemoteOptions()).open_store().close()
                return known
            fresh = options.open_store()
        except UNAVAILABLE:
            gone = self._readers.pop(name, None)
            if gone is not None:
                gone.close()
            raise
        if name in self._readers:
            fresh.close()
        return self._readers.setdefault(name, fresh)

    def _warn(self, name: str, error: StoreOpenError | RemoteFailed | ArchiveFailed) -> None:
        now = self._clock()
        due, pause = self._away.get(name, (now, _FIRST_PAUSE_S))
        if now >= due:
            _logger.warning("Store %r is unavailable and is skipped; its position is kept. %s", name, error)
            due, pause = now + pause, min(2 * pause, _LONGEST_PAUSE_S)
        self._away[name] = due, pause


def share_partitions(wanted: Mapping[str, Sequence[QueueRange]], least: int | None) -> dict[str, int | None]:
    """The ``minPartitions`` of each store: by its messages, rounded up, so that the sum is at least ``least``."""
    if least is None:
        return dict.fromkeys(wanted)
    rows = {name: sum(one.stop - one.start for one in ranges) for name, ranges in wanted.items()}
    total = max(1, sum(rows.values()))
    return {name: max(1, -(-least * count // total)) for name, count in rows.items()}
