"""Brokers for tests, each of a store in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from commitlog_store import MessageStore, MessageStoreConfig
from commitlog_store.serve.listen import ListenSettings, TlsFiles
from commitlog_store.serve.rocketmq.broker import RocketMQBroker, RocketMQSettings
from commitlog_store.serve.rocketmq.connection import ConnectionLimits


@dataclass(frozen=True)
class Served:
    """A store and the address of its broker."""

    store: MessageStore
    address: str


@contextlib.contextmanager
def broker(
    path: Path,
    config: MessageStoreConfig | None = None,
    *,
    limits: ConnectionLimits | None = None,
    tls: TlsFiles | None = None,
    acl: Path | None = None,
) -> Iterator[Served]:
    """A broker of the store at ``path``."""
    with MessageStore.open(path, config) as store:
        listen = ListenSettings.parse("127.0.0.1:0", tls=tls)
        served = RocketMQBroker(
            store, RocketMQSettings(listen=listen, limits=limits, acl=None if acl is None else str(acl))
        )
        served.start()
        try:
            yield Served(store, served.address)
        finally:
            served.stop(5.0)


def creation_fields(**fields: object) -> dict[str, object]:
    """The header of a request that creates a topic, with these fields in place of the usual ones."""
    given = {"topic": "paid", "defaultTopic": "TBW102", "readQueueNums": 8, "writeQueueNums": 4, "perm": 6}
    return {**given, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false", **fields}
