"""Stores of many small files, whose messages have times that a test chooses."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, RemoteStore
from commitlog_store.log.commit_log_writer import CommitLogWriter
from commitlog_store.recovery import open as opened_log

SMALL = MessageStoreConfig(
    mapped_file_size_commit_log=16 << 10,
    mapped_file_size_consume_queue=20 * 10,
    max_hash_slot_num=50,
    max_index_num=60,
)
HOUR = 3600.0


class Clock:
    """The time, in seconds."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@contextlib.contextmanager
def store_clock(clock: Callable[[], float]) -> Iterator[None]:
    """Stores that are opened within take the store times of their messages from ``clock``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opened_log, "CommitLogWriter", functools.partial(CommitLogWriter, clock=clock))
        yield


def fill(
    store: MessageStore | RemoteStore, count: int, *, topic: str = "orders", size: int = 1000, **given: object
) -> None:
    """Put messages into queue 0 of a topic, about 14 to a file, and dispatch them."""
    for number in range(count):
        message = Message(topic=topic, body=f"{number:06d}".encode() * (size // 6), keys=[f"{number}"], queue_id=0)
        store.put_message(replace(message, **given)).raise_for_status()  # type: ignore[arg-type]
    store.dispatch()


def log_bases(path: Path) -> list[int]:
    """The first bytes of the log's files."""
    return sorted(int(one.name) for one in (path / "commitlog").iterdir() if one.name.isdigit())


def queue_bases(path: Path, topic: str) -> list[int]:
    """The first offsets of the files of a topic's queue 0."""
    return sorted(int(one.name) // 20 for one in (path / "consumequeue" / topic / "0").iterdir())
