"""Closing and opening again: nothing is lost, nothing is scanned, sizes are those of the files."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from commitlog_store import Message, MessageStore, MessageStoreConfig, StoreReader
from commitlog_store.errors import InvalidValue, LogLost, NotAStore, StoreClosed, StoreIOError
from tests.store.owner.owned_store import SYNC, Gate, open_store, put_ok, small
from tests.support.stored_bodies import bodies
from tests.support.waiting import WAIT_LIMIT_S, wait_for


def test_offsets_continue_where_the_last_owner_ended(tmp_path: Path) -> None:
    for opened in range(5):
        with open_store(tmp_path) as store:
            for number in range(100):
                result = put_ok(store, body=b"%d" % (opened * 100 + number), queue_id=0, keys=[f"k{opened}-{number}"])
                assert result.queue_offset == opened * 100 + number
    assert bodies(tmp_path) == [b"%d" % number for number in range(500)]
    with StoreReader.open(tmp_path) as reader:
        for opened in range(5):
            assert [hit.body for hit in reader.query("orders", f"k{opened}-7")] == [b"%d" % (opened * 100 + 7)]


@pytest.mark.parametrize("count", [0, 1, 400])
def test_a_store_that_was_closed_is_opened_without_a_scan(tmp_path: Path, count: int) -> None:
    with open_store(tmp_path) as store:
        for _ in range(count):
            put_ok(store)
        assert (tmp_path / "abort").exists(), "while an owner runs"
    assert not (tmp_path / "abort").exists()
    with open_store(tmp_path) as store:
        assert store.recovered is None
        assert put_ok(store).queue_offset == count


def test_an_exception_in_the_owner_also_closes_the_store(tmp_path: Path) -> None:
    def fail() -> None:
        with open_store(tmp_path) as store:
            put_ok(store)
            raise KeyError("the application's own")

    with pytest.raises(KeyError):
        fail()
    with open_store(tmp_path) as store:
        assert store.recovered is None
        assert bodies(store) == [b"body"]


def test_file_sizes_are_those_that_the_store_has(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, keys=["k"])
    with MessageStore.open(tmp_path) as store:
        for number in range(400):
            put_ok(store, body=b"%d" % number * 30, keys=["k"])
    for directory, size in (("commitlog", 16 << 10), ("consumequeue/orders/0", 1000)):
        files = list((tmp_path / directory).iterdir())
        assert {file.stat().st_size for file in files if file.name.isdigit()} == {size}, directory


def test_all_threads_end_with_the_store(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    with open_store(tmp_path, transient_store_pool_enable=True) as store:
        put_ok(store)
        assert set(threading.enumerate()) > before
    assert set(threading.enumerate()) == before


def test_closing_twice_and_from_two_threads_closes_once(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put_ok(store)
    with ThreadPoolExecutor() as threads:
        for closing in [threads.submit(store.close) for _ in range(4)]:
            closing.result(WAIT_LIMIT_S)
    store.close()
    with open_store(tmp_path) as again:
        assert again.recovered is None


@pytest.mark.parametrize("use", ["flush", "dispatch"])
def test_every_call_on_a_closed_store_is_refused(tmp_path: Path, use: str) -> None:
    store = open_store(tmp_path)
    store.close()
    with open_store(tmp_path) as other:
        with pytest.raises(StoreClosed, match=str(tmp_path)):
            getattr(store, use)()
        put_ok(other)


def test_closing_waits_for_the_running_put(tmp_path: Path, write_gate: Gate) -> None:
    """Its bytes must not end up in whatever file is opened next."""
    store = open_store(tmp_path)
    put_ok(store)
    with ThreadPoolExecutor() as threads:
        write_gate.shut()
        putting = threads.submit(put_ok, store, body=b"last")
        assert write_gate.reached.wait(WAIT_LIMIT_S)
        closing = threads.submit(store.close)
        wait_for(lambda: not store.writable)
        with pytest.raises(StoreClosed):
            store.put_message(Message(queue_id=0, topic="orders", body=b"late"))
        assert not closing.done()
        write_gate.open()
        assert putting.result(WAIT_LIMIT_S).queue_offset == 1
        closing.result(WAIT_LIMIT_S)
    with open_store(tmp_path) as again:
        assert again.recovered is None
        assert bodies(again) == [b"body", b"last"]


@pytest.mark.parametrize("settings", [{}, {"flush_disk_type": SYNC}])
def test_every_put_that_was_taken_while_the_store_closed_is_in_it(tmp_path: Path, settings: dict[str, object]) -> None:
    for _ in range(5):
        with ThreadPoolExecutor() as threads:
            store = open_store(tmp_path, **settings)
            begun = threading.Barrier(5)

            def put_until_closed(store: MessageStore = store, begun: threading.Barrier = begun) -> list[bytes]:
                taken: list[bytes] = []
                begun.wait(WAIT_LIMIT_S)
                while True:
                    try:
                        result = store.put_message(Message(queue_id=0, topic="orders", body=b"%d" % len(taken)))
                    except StoreClosed:
                        return taken
                    assert result.ok
                    taken.append(result.message_id.encode())

            putting = [threads.submit(put_until_closed) for _ in range(4)]
            begun.wait(WAIT_LIMIT_S)
            store.close()
            taken = [one.decode() for put in putting for one in put.result(WAIT_LIMIT_S)]
        with StoreReader.open(tmp_path) as reader:
            for message_id in taken:
                reader.message_by_id(message_id)
        with open_store(tmp_path) as again:
            assert again.recovered is None


def test_a_failure_while_closing_leaves_the_store_for_recovery(tmp_path: Path, sync_gate: Gate) -> None:
    store = open_store(tmp_path)
    put_ok(store)
    sync_gate.fail()
    with pytest.raises(StoreIOError, match="sync"):
        store.close()
    sync_gate.failure = None
    assert (tmp_path / "abort").exists()
    with open_store(tmp_path) as again:
        assert again.recovered is not None
        assert bodies(again) == [b"body"]


def test_a_failed_open_releases_the_lock(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
    for file in (tmp_path / "commitlog").iterdir():
        file.unlink()
    with pytest.raises(LogLost):
        open_store(tmp_path)
    with MessageStore.open(tmp_path, small(), accept_lost_log=True) as store:
        assert put_ok(store).queue_offset == 0


def test_a_directory_with_foreign_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(NotAStore):
        open_store(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["holiday.jpg"]


@pytest.mark.parametrize(
    "settings",
    [
        {"broker_ip": "broker.example"},
        {"listen_port": 70_000},
        {"max_message_size": 0},
        {"mapped_file_size_commit_log": 100},
        {"mapped_file_size_commit_log": "1 mile"},
        {"mapped_file_size_consume_queue": 0},
        {"flush_interval_commit_log": 0},
        {"flush_disk_type": "SYNC"},
        {"message_delay_level": "1 s"},
        {"message_delay_level": ""},
        {"default_topic_queue_nums": 0},
        {"disk_space_warning_level_ratio": 0.0},
        {"transient_store_pool_enable": 1},
        {"sync_flush_timeout": -1},
    ],
    ids=str,
)
def test_impossible_settings_are_refused_by_name(settings: dict[str, object]) -> None:
    with pytest.raises(InvalidValue, match=next(iter(settings))):
        MessageStoreConfig.from_mapping(settings)


def test_unknown_settings_are_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(InvalidValue, match="flush_disk_type"):
        MessageStoreConfig.from_mapping({"flush_disk_typ": SYNC})


def test_settings_by_name_are_the_settings() -> None:
    assert MessageStoreConfig.from_mapping({"flush_disk_type": SYNC}) == MessageStoreConfig(flush_disk_type=SYNC)
