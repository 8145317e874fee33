"""How a command opens a store that it is to own for a moment."""

from __future__ import annotations

import os

from commitlog.config import MessageStoreConfig
from commitlog.index.service import has_index_files
from commitlog.log.store_checkpoint import StoreCheckpoint
from commitlog.log.store_directory import check_store_directory
from commitlog.paths import CHECKPOINT, INDEX

__all__ = ["owner_config"]


def owner_config(path: str) -> MessageStoreConfig:
    """A store that is kept without an index stays so: opening it with one would build it from the whole log.

    Messages without keys make no index files; that they have been looked at is in the checkpoint. ``StoreOpenError``
    for what is no store, where opening would make one; ``StoreIOError``.
    """
    check_store_directory(path)
    looked_at = StoreCheckpoint.load(os.path.join(path, CHECKPOINT)).values.index_msg_timestamp > 0
    return MessageStoreConfig(message_index_enable=looked_at or has_index_files(os.path.join(path, INDEX)))
