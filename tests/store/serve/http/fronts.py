"""A front for tests: stores shown by HTTP within this process, and clients of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx

from commitlog_store import MessageStore, StoreReader
from commitlog_store.decoders.topic_decoders import TopicDecoders
from commitlog_store.reader import OnDamage
from commitlog_store.serve.http.front import HttpFront
from commitlog_store.serve.http.listener import HttpLimits
from commitlog_store.serve.listen import ListenSettings, TlsFiles

# A machine that does other work answers late.
_TIMEOUT_S = 60.0


def _open(path: str, on_damage: OnDamage) -> StoreReader:
    return StoreReader.open(path, on_damage=on_damage)


@contextlib.contextmanager
def shown(
    *paths: Path | str,
    tls: TlsFiles | None = None,
    tokens: str | None = None,
    owned: MessageStore | None = None,
    limits: HttpLimits | None = None,
    downloads: bool = True,
    decoders: TopicDecoders | None = None,
    trusted_proxies: str | None = None,
    **named: Path,
) -> Iterator[HttpFront]:
    """A front of a store, or of several by name."""
    stores = {"": paths[0]} if paths else named if owned is None else {"": owned.path}
    openers = {name: partial(_open, str(path)) for name, path in stores.items()}
    listen = ListenSettings.parse("127.0.0.1:0", tls=tls, tokens=tokens)
    front = HttpFront(
        *(openers, listen),
        owned=owned,
        limits=limits,
        downloads=downloads,
        decoders=decoders,
        trusted_proxies=trusted_proxies,
    )
    front.start()
    try:
        yield front
    finally:
        front.stop(10.0)


@contextlib.contextmanager
def browsing(*paths: Path | str, headers: dict[str, str] | None = None, **how: object) -> Iterator[httpx.Client]:
    """A client of such a front."""
    with shown(*paths, **how) as front, client_of(front, headers=headers) as client:  # type: ignore[arg-type]
        yield client


def client_of(front: HttpFront, **how: object) -> httpx.Client:
    return httpx.Client(base_url=front.url, timeout=_TIMEOUT_S, trust_env=False, **how)  # type: ignore[arg-type]
