"""``read_object``: the bytes of one small object, for callers that would rather do without it than wait."""

from __future__ import annotations

from commitlog_store.errors import ArchiveFailed
from commitlog_store.object_storage.address import StorageAddress, load_obstore, said

__all__ = ["read_object"]


def read_object(prefix: str, name: str, *, timeout_s: float = 5.0) -> bytes | None:
    """The object ``name`` below a prefix such as ``s3://bucket/checkpoints/q1``; None without it.

    Credentials come from the environment. ``timeout_s`` is for all attempts. ``ArchiveFailed``, without secrets;
    ``InvalidValue`` for an address that is none, and without obstore; ``StoreForked``.
    """
    address = StorageAddress.parse(prefix, timeout_s=timeout_s)
    obstore = load_obstore()
    try:
        return bytes(obstore.get(address.connect(), name).bytes())
    except FileNotFoundError:
        return None
    except (obstore.exceptions.BaseError, OSError) as error:
        # Not `from error`: its own text may have a signed URL.
        raise ArchiveFailed(f"Failed to read {address}/{name}: {said(error)}.", name=name) from None
