"""``ReaderPool``: no reader has two users or stays open, whatever threads and signal handlers do at the same time."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, StoreReader
from commitlog_store.consumers.lent_readers import LentReaders
from commitlog_store.errors import ReaderClosed, StoreBusy, TopicNotFound
from commitlog_store.reader import OnDamage
from commitlog_store.reader_pool import ReaderPool
from commitlog_store.store import owned_by
from tests.store.retention.small_stores import SMALL, fill
from tests.support.interrupter import Interrupter, signal_handler
from tests.support.open_files import removed_files_of
from tests.support.waiting import WAIT_LIMIT_S


class Readers:
    """A pool of a store's readers, all readers that it opened, and those that are in use."""

    def __init__(self, path: Path, *, kept: int = 2) -> None:
        self._path = path
        self.opened: list[StoreReader] = []
        self._used: set[StoreReader] = set()
        self.pool = ReaderPool(self._open, kept=kept)

    def _open(self, on_damage: OnDamage) -> StoreReader:
        reader = StoreReader.open(self._path, on_damage=on_damage)
        self.opened.append(reader)
        return reader

    @contextmanager
    def used(self, on_damage: OnDamage = "raise") -> Iterator[StoreReader]:
        with self.pool.lent(on_damage) as reader:
            assert reader not in self._used, "it has two users"
            self._used.add(reader)
            assert reader.topics() == ["orders"]
            yield reader
            self._used.remove(reader)

    @property
    def open(self) -> list[StoreReader]:
        return [reader for reader in self.opened if not _is_closed(reader)]


def _is_closed(reader: StoreReader) -> bool:
    try:
        reader.log_start()
    except ReaderClosed:
        return True
    return False


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path, SMALL) as store:
        store.put_message(Message(topic="orders", body=b"body", queue_id=0))
    return tmp_path


def test_a_reader_is_lent_again_and_the_one_that_was_used_last_first(path: Path) -> None:
    readers = Readers(path)
    with readers.used() as first, readers.used() as second:
        pass
    with readers.used() as one:
        assert one is first, "the one that was given back last"
    with readers.used("skip") as tolerant:
        assert tolerant not in (first, second)
    assert readers.open == [first, second, tolerant]
    readers.pool.close()
    assert not readers.open


def test_a_reader_that_was_asked_something_wrong_is_lent_again(path: Path) -> None:
    pool = Readers(path).pool
    with pytest.raises(TopicNotFound), pool.lent("raise") as first:
        first.queues("paid")
    with pytest.raises(StoreBusy), pool.lent("raise") as second:
        raise StoreBusy("The store changed.")
    assert second is first
    assert _is_closed(first)
    with pool.lent("raise") as third:
        assert third is not first
    pool.close()


def test_a_pool_keeps_so_many_readers_of_a_kind(path: Path) -> None:
    readers = Readers(path, kept=2)
    with readers.used(), readers.used(), readers.used(), readers.used("skip"):
        pass
    assert len(readers.opened) == 4
    assert len(readers.open) == 3
    readers.pool.close()


def test_a_reader_whose_call_fails_is_closed(path: Path) -> None:
    readers = Readers(path)
    with pytest.raises(LookupError), readers.pool.lent("raise"):
        raise LookupError
    assert not readers.open


def test_a_reader_that_is_lent_while_its_pool_closes_is_closed_when_it_is_given_back(path: Path) -> None:
    readers = Readers(path)
    with readers.used() as reader:
        readers.pool.close()
        assert reader.topics()
    with readers.used():
        pass
    assert len(readers.opened) == 2
    assert not readers.open


@pytest.mark.skipif(sys.platform != "linux", reason="open files are looked for in /proc")
def test_a_reader_that_is_lent_while_files_are_removed_releases_them_when_it_is_given_back(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        fill(store, 30)
        readers = LentReaders(owned_by(store).engine, store.reader)
        with readers.lent() as reader:
            reader.message_at(0)
            assert store.clean(max_bytes=1).deleted
            assert removed_files_of(os.getpid(), tmp_path)
        assert not removed_files_of(os.getpid(), tmp_path)
        readers.close()


def test_a_pool_that_is_closed_during_a_release_keeps_no_other_one_from_it(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        engine = owned_by(store).engine
        called: list[str] = []
        closing = LentReaders(engine, store.reader)
        engine.after_removal += [closing.close, lambda: called.append("next"), lambda: called.append("last")]
        fill(store, 30)
        assert store.clean(max_bytes=1).deleted
        assert called == ["next", "last"]


@pytest.mark.parametrize("event", ["read", "release", "close"])
def test_a_signal_handler_may_use_the_pool_at_any_line_of_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """A reader that was open at a release looks for its files afterwards; after a close none stays open."""
    log_start, looked = StoreReader.log_start, set()

    def noted(reader: StoreReader) -> int:
        looked.add(reader)
        return log_start(reader)

    def use(readers: Readers) -> None:
        with readers.used(), readers.used():
            pass
        readers.pool.release_removed_files()
        with readers.used():
            pass
        if event == "read":
            readers.pool.close()

    def interrupted(turn: int) -> str:
        """Where it was; empty after the last line."""
        readers, before = Readers(path), set[StoreReader]()

        def react() -> None:
            with readers.used():
                pass
            if event == "release":
                before.update(readers.open)
                looked.clear()
                readers.pool.release_removed_files()
            elif event == "close":
                readers.pool.close()

        line = Interrupter(turn, ("commitlog_store/reader_pool.py",), lambda: signal.raise_signal(signal.SIGUSR1))
        with signal_handler(react):
            line.run(lambda: use(readers))
        not_looked = before - looked
        assert not not_looked & set(readers.open), line.where
        if event == "release" or not line.where:
            readers.pool.close()
        assert not readers.open, line.where
        return line.where

    monkeypatch.setattr(StoreReader, "log_start", noted)
    turn = next(turn for turn in count(1) if not interrupted(turn))
    assert turn > 40


def test_threads_and_a_signal_handler_share_readers_until_the_pool_is_closed(path: Path) -> None:
    readers = Readers(path)
    main, ends, is_handled = threading.get_ident(), threading.Event(), threading.Event()
    handled = 0
    is_under_way = False

    def react() -> None:
        nonlocal handled, is_under_way
        if is_under_way:
            return  # handlers that interrupt each other would go as deep as the interpreter lets them
        is_under_way = True
        with readers.used():
            handled += 1
        is_under_way = False
        is_handled.set()

    def read() -> None:
        for number in range(150):
            with readers.used("skip" if number % 3 else "raise"):
                pass

    def release_and_signal() -> None:
        while not ends.is_set():
            readers.pool.release_removed_files()
            is_handled.clear()
            # A signal that comes right before the main thread blocks is handled only after that: it is sent until then.
            while not is_handled.wait(0.01):
                signal.pthread_kill(main, signal.SIGUSR1)

    with signal_handler(react), ThreadPoolExecutor() as threads:
        signalling = threads.submit(release_and_signal)
        try:
            reading = [threads.submit(read) for _ in range(3)]
            read()
            readers.pool.close()
            for one in reading:
                one.result(WAIT_LIMIT_S)
        finally:
            ends.set()
        signalling.result(WAIT_LIMIT_S)
    assert handled
    assert not readers.open
