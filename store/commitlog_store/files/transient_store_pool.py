"""Pool of buffers in locked memory, in which writes gather before they are committed to their files.

Source: RocketMQ ``store/TransientStorePool.java``.
"""

from __future__ import annotations

import mmap
import threading

from commitlog_store.files.memory import lock_memory


class PooledBuffer:
    """A buffer of one CommitLog file's size, locked against swapping where the system's limits allow that."""

    def __init__(self, size: int) -> None:
        self._memory = mmap.mmap(-1, size)
        self.view = memoryview(self._memory)
        lock_memory(self.view)


class TransientStorePool:
    """A fixed number of buffers, made when first needed, all of the size of the log's files."""

    def __init__(self, pool_size: int) -> None:
        self._unmade = pool_size
        self._free: list[PooledBuffer] = []
        self._lock = threading.Lock()

    def borrow(self, size: int) -> PooledBuffer | None:
        """A buffer for a file of that size; None when all are in use."""
        with self._lock:
            if self._free:
                return self._free.pop()
            if not self._unmade:
                return None
            self._unmade -= 1
        return PooledBuffer(size)

    def give_back(self, buffer: PooledBuffer) -> None:
        with self._lock:
            self._free.append(buffer)

    @property
    def available(self) -> int:
        """The number of buffers that could be borrowed now."""
        with self._lock:
            return len(self._free) + self._unmade
