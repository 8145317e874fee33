"""AsyncPuts: puts of asyncio tasks through a server. What waits goes in one call: many tasks share a round trip."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from commitlog_store.engine.async_puts import AsyncPutService
from commitlog_store.engine.put_message import PutMessageResult
from commitlog_store.errors import CommitLogError, StoreClosed
from commitlog_store.message import Message, PutMessageStatus
from commitlog_store.remote.connection import Connection, RemoteAddress
from commitlog_store.threads.wakeup import Wakeup
from commitlog_store.threads.worker import Worker

_LOG = logging.getLogger(__name__)


class AsyncPuts:
    """The thread that puts for tasks, from the first put on."""

    def __init__(
        self, address: RemoteAddress, put: Callable[[Sequence[Message]], list[PutMessageResult | Exception]]
    ) -> None:
        """``put`` is ``RemoteStore.put_together``."""
        self._address = address
        self._put = put
        self._wakeup = Wakeup()
        self._service = AsyncPutService(self, self._wakeup)
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._closed = False

    async def put(self, message: Message) -> PutMessageResult:
        """``StoreClosed``, ``StoreForked``, ``RemoteFailed``, ``InvalidValue``."""
        import asyncio  # programs without it do not import it

        Connection.refuse_forked(self._address)
        with self._lock:
            if self._closed:
                raise StoreClosed(f"This connection to {self._address} is closed; connect again.")
            if self._worker is None:
                self._worker = Worker("AsyncPuts", self._service, self._report, self._wakeup)
                self._worker.start()
            future = self._service.put(message, asyncio.get_running_loop())
        return await future

    def close(self) -> None:
        """End the thread after its round; what still waits was not put."""
        with self._lock:
            self._closed = True
            worker = self._worker
        if worker is not None:
            worker.stop()
        self._service.refuse_rest(str(self._address))

    def put_together(self, messages: Sequence[Message]) -> list[PutMessageResult | Exception]:
        """See ``PutsTogether``."""
        try:
            return self._put(messages)
        except CommitLogError as error:  # before the first of them was sent
            return [error.again() for _ in messages]

    def status_of(self, error: Exception) -> tuple[PutMessageStatus, str]:
        """See ``PutsTogether``."""
        return PutMessageStatus.UNKNOWN_ERROR, f"The put failed with {error!r}."

    @staticmethod
    def _report(error: BaseException) -> None:
        _LOG.error("Puts of tasks end: %r", error)
