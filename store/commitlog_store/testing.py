"""Helpers for tests of programs that use a store: end a store as a kill does, see how it was opened, and who waits;
and a small RocketMQ for tests of programs that speak its protocol.

::

    from commitlog_store import MessageStore, testing

    store = MessageStore.open("/data/store")
    store.put("orders", b"a")
    testing.kill(store)
    with MessageStore.open("/data/store") as store:
        print(testing.start_of(store).reason)

    with testing.rocketmq_broker("/tmp/rocketmq") as broker:
        run_program_with(name_server=broker.address)
        broker.store.dispatch()
        print(broker.store.reader().topics())

Programs have no use for them. docs/rocketmq-for-tests.md has more about the broker.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator

from commitlog_store.config import MessageStoreConfig
from commitlog_store.errors import InvalidValue
from commitlog_store.owned_store.owned_store import OwnedStore
from commitlog_store.recovery.start import Start
from commitlog_store.store import MessageStore, owned_by

__all__ = ["BrokerForTests", "kill", "parts_of", "rocketmq_broker", "start_of", "waiting_calls"]

_HOST = "127.0.0.1"
# A store that is small, and takes puts however full the disk is.
_SMALL: dict[str, object] = {
    "mapped_file_size_commit_log": "64m",
    "mapped_file_size_consume_queue": 120_000,
    "max_hash_slot_num": 10_000,
    "max_index_num": 40_000,
    "disk_space_warning_level_ratio": 1.0,
}


def kill(store: MessageStore) -> None:
    """End a store as ``kill -9`` does: what it wrote stays in the kernel, nothing is flushed or marked.

    Calls under way end first. Its directory can be opened again when this returns.
    """
    owned_by(store).leave()


def start_of(store: MessageStore) -> Start:
    """How the store was opened: ``kind`` and ``reason``. (``MessageStore.recovered`` is the report.)"""
    return owned_by(store).engine.log.start


def waiting_calls(store: MessageStore) -> int:
    """The number of threads and tasks that wait for messages: in ``wait_for_messages``, ``get_message``, ``poll``."""
    return len(owned_by(store).engine.waiters)


def parts_of(store: MessageStore) -> OwnedStore:
    """The parts of an open store, for tests of this package: they change with any release."""
    return owned_by(store)


class BrokerForTests:
    """A broker and name server of RocketMQ's protocol in this process: ``rocketmq_broker`` starts it.

    ``address`` is the HOST:PORT that clients get as their name server's. ``store`` is the open store: programs in
    Python put, read and consume what clients of RocketMQ do.
    """

    def __init__(self, store: MessageStore, address: str, stop: Callable[[], None]) -> None:
        self.store = store
        self.address = address
        self._stop = stop

    @property
    def port(self) -> int:
        """The port of ``address``."""
        return int(self.address.rpartition(":")[2])

    def stop(self) -> None:
        """Close the connections of all clients, and the store. A second call does nothing.

        ``rocketmq_broker`` with the same directory and port starts it again, as a broker that comes back.
        """
        self._stop()


@contextlib.contextmanager
def rocketmq_broker(
    directory: str | os.PathLike[str], *, port: int = 0, **settings: object
) -> Iterator[BrokerForTests]:
    """A RocketMQ for a test, of the store in ``directory``, which is created unless it exists.

    It listens on 127.0.0.1, by default on a free port, and stops at the end of the ``with`` block. ``settings`` are
    those of ``MessageStoreConfig``; files are small by default, and puts do not wait for the disk. A topic is created
    by its first message, or by ``broker.store.create_topic``. ``InvalidValue``; the errors of ``MessageStore.open``.

    ::

        with rocketmq_broker(tmp_path, message_delay_level="1s 2s") as broker:
            broker.store.put("orders", b"order 17")
    """
    # Tests that need no broker do without these imports.
    from commitlog_store.serve.listen import ListenSettings
    from commitlog_store.serve.rocketmq.broker import RocketMQBroker, RocketMQSettings
    from commitlog_store.serve.rocketmq.listener import bind

    listen = ListenSettings.parse(f"{_HOST}:{port}")
    with contextlib.ExitStack() as stack:
        try:
            bound = stack.enter_context(bind(listen.host, listen.port))
        except OSError as error:
            raise InvalidValue(f"The broker cannot listen on {listen}: {error.strerror or error}.") from error
        # Ids of messages name the broker, where clients ask for messages by them.
        own = {"broker_ip": _HOST, "listen_port": bound.getsockname()[1], "schedule_enable": True}
        config = MessageStoreConfig.from_mapping(_SMALL | own | settings)
        store = stack.enter_context(MessageStore.open(directory, config))
        broker = RocketMQBroker(store, RocketMQSettings(listen=listen), bound=bound)
        stack.callback(broker.stop, 0.0)
        broker.start()
        yield BrokerForTests(store, broker.address, stack.close)
