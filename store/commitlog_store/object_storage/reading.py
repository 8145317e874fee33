"""``read_object``: the bytes of one small object, for callers that would rather do without it than wait."""

from __future__ import annotations

from commitlog_store.object_storage.address import StorageAddress
from commitlog_store.object_storage.object_store import ObjectStore


def read_object(prefix: str, name: str, *, timeout_s: float = 5.0) -> bytes | None:
    """The object ``name`` below a prefix such as ``s3://bucket/checkpoints/q1``; None without it.

    Credentials come from the environment. No attempt begins after ``timeout_s``, and ``obstore`` may repeat the last
    one for as long again: see ``StorageAddress.timeout_s``.
    ``ArchiveFailed``, without secrets; ``InvalidValue`` for an address that is none, and without obstore;
    ``StoreForked``.
    """
    return ObjectStore.at(StorageAddress.parse(prefix, timeout_s=timeout_s)).get(name)
