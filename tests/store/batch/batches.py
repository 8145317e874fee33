"""Batches of rows for three queues, committed, and the bodies that must be stored afterwards."""

from __future__ import annotations

import pyarrow as pa

from commitlog_store import MessageStore


def table(name: str, count: int = 30) -> pa.Table:
    """Rows for three queues; each body says which batch and row it is."""
    bodies = pa.array([f"{name}-{row}".encode() * 20 for row in range(count)], pa.binary())
    return pa.table({"body": bodies, "queueId": pa.array([row % 3 for row in range(count)], pa.int32())})


def commit(store: MessageStore, version: int, *, app: str = "loader", fingerprint: str = "", count: int = 30) -> bool:
    """Commit a batch; whether it was written now."""
    with store.transaction(app, version, fingerprint) as batch:
        batch.put_messages(table(f"{app}{version}{fingerprint}", count), topic="orders")
    assert batch.result is not None
    return not batch.result.already_there


def expected(*names: str, count: int = 30) -> list[bytes]:
    rows = [(row % 3, f"{name}-{row}".encode() * 20) for name in names for row in range(count)]
    return [body for queue in range(3) for at, body in rows if at == queue]
