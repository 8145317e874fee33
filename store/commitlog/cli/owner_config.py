"""Configuration with which a command opens a store as its owner."""

from __future__ import annotations

import os

from commitlog.config import MessageStoreConfig
from commitlog.index.service import has_index_files
from commitlog.log.store_checkpoint import StoreCheckpoint
from commitlog.log.store_directory import check_store_directory
from commitlog.paths import CHECKPOINT, INDEX

__all__ = ["owner_config"]


def owner_config(path: str) -> MessageStoreConfig:
    """The configuration. A store without an index stays so: opening it with one would build it from the whole log.

    Messages without keys make no index files; the checkpoint says that they were indexed. ``StoreOpenError`` for a path
    that is not a store, where opening would create one; ``StoreIOError``.
    """
    check_store_directory(path)
    looked_at = StoreCheckpoint.load(os.path.join(path, CHECKPOINT)).values.index_msg_timestamp > 0
    return MessageStoreConfig(
        message_index_enable=looked_at or has_index_files(os.path.join(path, INDEX)),
        schedule_enable=False,  # a command does what its name says
    )
