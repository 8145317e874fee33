"""ServiceGroup: the service threads of an open store, and the order in which they start and stop."""

from __future__ import annotations

from collections.abc import Sequence

from commitlog_store.threads.worker import Worker

__all__ = ["ServiceGroup"]


class ServiceGroup:
    """The workers of one store, started and stopped by its job thread."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._workers = list(workers)

    def start(self) -> None:
        for worker in self._workers:
            worker.start()

    def add(self, worker: Worker) -> None:
        """Start one more."""
        self._workers.append(worker)
        worker.start()

    def is_within(self) -> bool:
        """Whether this thread is one of theirs: a callback of the program runs there, say."""
        return any(worker.is_current for worker in self._workers)

    def stop(self) -> None:
        """End all threads that have begun. Nothing is lost: a clean close repeats their steps."""
        for worker in self._workers:
            worker.stop()
