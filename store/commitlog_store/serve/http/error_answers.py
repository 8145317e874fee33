"""Errors as HTTP answers: which status an error has, and its text for programs."""

from __future__ import annotations

from commitlog_store.errors import (
    CommitLogError,
    FileChanged,
    HalfMessageEnded,
    InvalidValue,
    NotFoundError,
    NotServed,
    OffsetOutOfRange,
    PutRefused,
    RemoteAccessRefused,
    RemoteFailed,
    ServerBusy,
    StoreBusy,
    StoreClosed,
)

_STATUS: tuple[tuple[type[CommitLogError], int], ...] = (
    (RemoteAccessRefused, 401),
    (ServerBusy, 503),
    (StoreBusy, 503),
    (StoreClosed, 503),
    (RemoteFailed, 503),
    (NotServed, 404),
    (InvalidValue, 400),
    (NotFoundError, 404),
    (OffsetOutOfRange, 404),
    (FileChanged, 503),
    (HalfMessageEnded, 409),
    (PutRefused, 409),
)


def status_of(error: CommitLogError) -> int:
    """500 for what no request has brought about, such as damage of the store."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
