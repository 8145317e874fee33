"""StoreWriter: the store that a server owns, and the sessions of the clients that write to it."""

from __future__ import annotations

from commitlog_store.serve.sessions import Sessions
from commitlog_store.store import MessageStore


class StoreWriter:
    """What calls that write work with."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.sessions = Sessions()
