"""How a command opens a store that it is to own for a moment."""

from __future__ import annotations

from commitlog.config import MessageStoreConfig
from commitlog.reader import StoreReader

__all__ = ["owner_config"]


def owner_config(path: str) -> MessageStoreConfig:
    """A store that is kept without an index stays so: opening it with one would build it from the whole log.

    What ``StoreReader.open`` raises.
    """
    with StoreReader.open(path) as reader:
        return MessageStoreConfig(message_index_enable=bool(reader.index_files()))
