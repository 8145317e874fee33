"""Helpers for tests of programs that use a store: end a store as a kill does, see how it was opened, and who waits.

::

    from commitlog_store import MessageStore, testing

    store = MessageStore.open("/data/store")
    store.put("orders", b"a")
    testing.kill(store)
    with MessageStore.open("/data/store") as store:
        print(testing.start_of(store).reason)

Programs have no use for them.
"""

from __future__ import annotations

from commitlog_store.owned_store.owned_store import OwnedStore
from commitlog_store.recovery.start import Start
from commitlog_store.store import MessageStore, owned_by

__all__ = ["kill", "parts_of", "start_of", "waiting_calls"]


def kill(store: MessageStore) -> None:
    """End a store as ``kill -9`` does: what it wrote stays in the kernel, nothing is flushed or marked.

    Calls under way end first. Its directory can be opened again when this returns.
    """
    store._owned.leave()


def start_of(store: MessageStore) -> Start:
    """How the store was opened: ``kind`` and ``reason``. (``MessageStore.recovered`` is the report.)"""
    return store._owned.engine.log.start


def waiting_calls(store: MessageStore) -> int:
    """The number of threads and tasks that wait for messages: in ``wait_for_messages``, ``get_message``, ``poll``."""
    return len(store._owned.engine.waiters)


def parts_of(store: MessageStore) -> OwnedStore:
    """The parts of an open store, for tests of this package: they change with any release."""
    return owned_by(store)
