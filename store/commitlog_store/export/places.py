"""Places of exports: the directory or file that one is written to; ``object_target`` has those in object storage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Protocol

from commitlog_store.errors import TargetFailed
from commitlog_store.export.state import ExportState, load_state, lock_target, refuse_used_target, save_state
from commitlog_store.export.targets import ExportTarget, RowWriter, make_directory_of
from commitlog_store.export.writers import new_writer


class ExportPlace(Protocol):
    """Where an export is written, and how far it has come there."""

    def locked(self, *, resume: bool) -> contextlib.AbstractContextManager[None]: ...
    def load(self, *, resume: bool) -> ExportState | None: ...
    def save(self, state: ExportState) -> None: ...
    def writer(self, columns: Sequence[str], committed: int, *, file_size: int, compression: str) -> RowWriter: ...


def place_of(target: ExportTarget) -> ExportPlace:
    """The place of a target, unused or not. The errors of ``ObjectStore.open``."""
    if not target.in_objects:
        return _LocalPlace(target)
    from commitlog_store.export.object_target import ObjectPlace  # exports into files do not import it

    return ObjectPlace(target)


class _LocalPlace:
    """A directory, or a file."""

    def __init__(self, target: ExportTarget) -> None:
        self._target = target

    @contextlib.contextmanager
    def locked(self, *, resume: bool) -> Iterator[None]:
        """Hold the lock of a target that can be used. ``InvalidValue``; ``TargetFailed`` if it cannot be written."""
        target = self._target
        try:
            self.load(resume=resume)
            make_directory_of(target)
            lock = lock_target(target)
            try:
                yield
            finally:
                lock.release()
        except OSError as error:
            raise TargetFailed("write", path=str(error.filename or target.path), cause=error) from error

    def load(self, *, resume: bool) -> ExportState | None:
        """The state to continue from; None for a target in which nothing is. ``InvalidValue`` for any other."""
        began = load_state(self._target) if resume else None
        if began is None:
            refuse_used_target(self._target)
        return began

    def save(self, state: ExportState) -> None:
        save_state(self._target, state)

    def writer(self, columns: Sequence[str], committed: int, *, file_size: int, compression: str) -> RowWriter:
        return new_writer(self._target, columns, committed, file_size=file_size, compression=compression)
