"""ServedStores: the stores that HTTP shows, their readers, and the few threads in which they are read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeVar

from commitlog_store.errors import NotServed, ServerBusy
from commitlog_store.reader import OnDamage, StoreReader
from commitlog_store.reader_pool import IdleReaders, ReaderPool
from commitlog_store.serve.call_limits import answering, refuse_unwanted
from commitlog_store.serve.connection_counts import ConnectionCounts
from commitlog_store.serve.verification import Verification
from commitlog_store.store import MessageStore
from commitlog_store.threads.worker import Worker

if TYPE_CHECKING:
    from commitlog_store.serve.archive_service import ArchiveState

_T = TypeVar("_T")
# Reading is mostly Python: more threads would only take turns.
_THREADS = 4
# As many questions may wait for a thread; more are asked to come again.
_MOST_WAITING = 64
_QUESTION_S = 60.0


class ServedStores:
    """Reads stores for pages and metrics, for one event loop. ``close`` ends it.

    ``owned`` is the store that this process owns, if it owns one; it stays the caller's to close. ``node`` and
    ``cluster`` are the broker's names, as RocketMQ has them.
    """

    def __init__(
        self,
        openers: Mapping[str, Callable[[OnDamage], StoreReader]],
        *,
        owned: MessageStore | None = None,
        node: str = "",
        cluster: str = "",
        archive: Callable[[], ArchiveState] | None = None,
        verifications: Mapping[str, Verification] | None = None,
        connections: ConnectionCounts | None = None,
    ) -> None:
        """``openers`` has a function for each store's name that opens a reader; the name of a single one is empty.

        ``verifications`` are those of the stores, which clients of the server may begin too; ``connections`` those of
        all listeners of the server.
        """
        self.connections = connections or ConnectionCounts()
        self.owned = owned
        self.archive = archive
        self.node, self.cluster = node, cluster
        self._pools = {
            name: ReaderPool(opener, kept=_THREADS, before_call=refuse_unwanted) for name, opener in openers.items()
        }
        self._idle = Worker("commitlog-http-idle-readers", IdleReaders(self._pools.values()), lambda _: None)
        self._idle.start()
        self._verifications = verifications or {name: Verification() for name in openers}
        self._turns = asyncio.Semaphore(_THREADS)
        self._under_way = 0
        self._stopping = False

    @property
    def names(self) -> list[str]:
        return list(self._pools)

    @property
    def is_owner(self) -> bool:
        return self.owned is not None

    def lent(self, name: str = "", on_damage: OnDamage = "raise") -> AbstractContextManager[StoreReader]:
        """A reader of the store of this name for one thread; an empty name is that of the first one. ``NotServed``."""
        return self._pools[self.known(name)].lent(on_damage)

    def verification(self, name: str = "") -> Verification:
        """That of the store of this name; an empty name is that of the first one. ``NotServed``."""
        return self._verifications[self.known(name)]

    def known(self, name: str) -> str:
        """The name of a store that is served; an empty name is that of the first one. ``NotServed``."""
        if not name:
            return self.names[0]
        if name not in self._pools:
            raise NotServed(f"This server has no store {name!r}. Its stores are {', '.join(self._pools)}.")
        return name

    async def in_thread(self, work: Callable[[], _T], *, seconds: float = _QUESTION_S) -> _T:
        """What ``work`` returns, called in one of the threads for reading.

        ``ServerBusy`` when too many wait for a thread. A reader's next call raises ``RemoteFailed`` once the time is
        over, or the server stops.
        """
        if self._stopping:
            raise ServerBusy("The server stops.")
        if self._under_way >= _THREADS + _MOST_WAITING:
            raise ServerBusy(f"{_MOST_WAITING} questions wait for a thread, as many as the server lets wait.")
        self._under_way += 1
        ends = time.monotonic() + seconds
        is_over = False

        def is_wanted() -> bool:
            return not (self._stopping or is_over) and time.monotonic() < ends

        def answer() -> _T:
            with answering(is_wanted):
                return work()

        try:
            async with self._turns:
                return await asyncio.get_running_loop().run_in_executor(None, answer)
        finally:
            is_over = True  # who asked may have gone
            self._under_way -= 1

    def stop(self) -> None:
        """Questions under way end at their reader's next call, and new ones are refused."""
        self._stopping = True

    def close(self) -> None:
        """Close the readers, after the loop that asked has ended."""
        self.stop()
        self._idle.stop()
        for verification in self._verifications.values():
            verification.close()
        for pool in self._pools.values():
            pool.close()
