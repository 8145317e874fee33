"""How a command opens a store that it is to own for a moment."""

from __future__ import annotations

import os

from commitlog.config import MessageStoreConfig
from commitlog.log.index_service import has_index_files
from commitlog.paths import INDEX

__all__ = ["owner_config"]


def owner_config(path: str) -> MessageStoreConfig:
    """A store that is kept without an index stays so: opening it with one would build it from the whole log."""
    return MessageStoreConfig(message_index_enable=has_index_files(os.path.join(path, INDEX)))
