"""Signal handlers that use the store whose call they interrupt: nothing hangs, and nothing acknowledged is lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from commitlog_store import Message, MessageStore
from commitlog_store.columnar import message_table
from commitlog_store.columnar.message_table import CHUNK_ROWS
from commitlog_store.engine.flush import GroupCommitService
from commitlog_store.engine.put_message import PutMessageService
from commitlog_store.engine.stats import StoreStatsService
from commitlog_store.errors import NestedCall, PutRefused, StoreClosed, StoreIOError
from commitlog_store.files import disk
from commitlog_store.files.mapped_file_queue_writer import MappedFileQueueWriter
from commitlog_store.files.mapped_file_writer import MappedFileWriter
from commitlog_store.log.commit_log_writer import CommitLogWriter
from commitlog_store.queue.consume_queue_store import ConsumeQueueStore
from commitlog_store.testing import parts_of, waiting_calls
from commitlog_store.threads.jobs import Job, JobThread
from tests.store.owner.owned_store import SYNC, Gate, commit_log_path, open_store, put_ok
from tests.support import quick_programs
from tests.support.interrupter import signal_handler
from tests.support.stored_bodies import bodies
from tests.support.waiting import WAIT_LIMIT_S, wait_for

PROJECT = Path(__file__).resolve().parents[3]
TABLE = pa.table({"body": [b"a", b"b", b"c"], "queueId": [0, 0, 0]})

# Where a put may be when the signal comes: before the put lock, under it, half way, when all is written, and in the
# wait for the device.
PLACES: list[tuple[type, str]] = [
    (PutMessageService, "_plain_properties"),
    (CommitLogWriter, "_now"),
    (MappedFileWriter, "append"),
    (MappedFileQueueWriter, "appended"),
    (GroupCommitService, "flush_to"),
]
NAMES = [name for _, name in PLACES]


def _signalled_at(patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Let the signal come within the main thread's next call of a function, before what it does."""
    original = getattr(owner, name)
    raised: list[bool] = []

    def signalled(*arguments: Any, **named: Any) -> Any:
        if not raised and threading.current_thread() is threading.main_thread():
            raised.append(True)
            signal.raise_signal(signal.SIGUSR1)
        return original(*arguments, **named)

    patch.setattr(owner, name, signalled)


@pytest.mark.parametrize(("owner", "name"), PLACES, ids=NAMES)
def test_a_handler_that_closes_lets_the_put_end_and_nothing_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    with open_store(tmp_path, flush_disk_type=SYNC) as store:
        put_ok(store, body=b"old")
        with signal_handler(store.close), monkeypatch.context() as patch:
            _signalled_at(patch, owner, name)
            result = store.put_message(Message(queue_id=0, topic="orders", body=b"new"))
        with pytest.raises(StoreClosed):
            store.put_message(Message(queue_id=0, topic="orders", body=b"late"))
        with pytest.raises(StoreClosed):
            store.flush()
    with open_store(tmp_path) as store:
        assert store.recovered is None, "it was closed cleanly"
        assert result.ok, "the put was under way"
        assert bodies(store) == [b"old", b"new"]


@pytest.mark.parametrize("put", ["single", "table"])
@pytest.mark.parametrize(("owner", "name"), PLACES[1:], ids=NAMES[1:])
def test_a_handler_that_closes_and_leaves_the_put_by_an_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, put: str
) -> None:
    def leave(store: MessageStore) -> None:
        store.close()
        raise SystemExit

    def run() -> None:
        with open_store(tmp_path, flush_disk_type=SYNC) as store:
            put_ok(store, body=b"old")
            with signal_handler(lambda: leave(store)), monkeypatch.context() as patch:
                _signalled_at(patch, owner, name)
                if put == "single":
                    store.put_message(Message(queue_id=0, topic="orders", body=b"new"))
                else:
                    store.put_messages(TABLE, topic="orders")

    with pytest.raises(SystemExit):
        run()
    with open_store(tmp_path) as store:
        assert bodies(store)[0] == b"old"
        put_ok(store, body=b"behind")
        assert bodies(store)[-1] == b"behind"


def test_without_a_block_the_store_is_closed_when_the_put_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    with signal_handler(store.close), monkeypatch.context() as patch:
        _signalled_at(patch, CommitLogWriter, "_now")
        put_ok(store)
    store.close()  # returns when the close that the handler asked for is done
    with open_store(tmp_path) as again:
        assert again.recovered is None
        store.close()
        put_ok(again)
        assert bodies(again) == [b"body", b"body"]


def test_rows_that_were_not_begun_when_a_handler_closed_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"body": [b"a"] * (CHUNK_ROWS + 2), "queueId": [0] * (CHUNK_ROWS + 2)})
    with open_store(tmp_path, mapped_file_size_commit_log=4 << 20) as store:
        with signal_handler(store.close), monkeypatch.context() as patch:
            _signalled_at(patch, message_table, "encode_messages")
            result = store.put_messages(table, topic="orders")
        assert result.rows["status"].to_pylist() == [*["PUT_OK"] * CHUNK_ROWS, *["SERVICE_NOT_AVAILABLE"] * 2]
    assert bodies(tmp_path) == [b"a"] * CHUNK_ROWS


def test_a_batch_that_is_being_committed_when_a_handler_closes_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(tmp_path) as store:
        with signal_handler(store.close), monkeypatch.context() as patch, store.transaction("loader", 1) as batch:
            batch.put_messages(TABLE, topic="orders")
            _signalled_at(patch, CommitLogWriter, "_now")
        assert batch.result is not None
    with open_store(tmp_path) as store:
        assert store.recovered is None
        assert store.batches() == [batch.result]
        assert bodies(store) == [b"a", b"b", b"c"]


def test_a_closed_store_stages_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    batch = store.transaction("loader", 1)
    store.close()
    with pytest.raises(StoreClosed):
        batch.put_messages(TABLE, topic="orders")
    assert not (tmp_path / "staging").exists()


def test_a_handler_that_closes_ends_the_wait_that_it_interrupts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    with signal_handler(store.close), monkeypatch.context() as patch:
        _signalled_at(patch, ConsumeQueueStore, "place_from")
        with pytest.raises(StoreClosed):
            store.wait_for_messages("orders", 0, 1)
    store.close()
    with open_store(tmp_path) as again:
        assert again.recovered is None


def test_a_handler_that_closes_ends_a_wait_that_sleeps(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    main = threading.get_ident()
    handled = threading.Event()

    def react() -> None:
        handled.set()
        store.close()

    def interrupt() -> None:
        wait_for(lambda: waiting_calls(store) > 0)
        # A signal that comes right before the thread blocks is handled only after that, so it is sent until it is.
        while not handled.wait(0.01):
            signal.pthread_kill(main, signal.SIGUSR1)

    with signal_handler(react), ThreadPoolExecutor() as threads:
        interrupting = threads.submit(interrupt)
        with pytest.raises(StoreClosed):
            store.wait_for_messages("orders", 0, 0)
        interrupting.result(WAIT_LIMIT_S)


def test_a_handler_within_close_leaves_the_closing_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    put_ok(store)

    def react() -> None:
        store.close()
        with pytest.raises(StoreClosed):
            store.put_message(Message(queue_id=0, topic="orders", body=b"late"))

    with signal_handler(react), monkeypatch.context() as patch:
        _signalled_at(patch, Job, "wait")
        store.close()
    with open_store(tmp_path) as again:
        assert again.recovered is None
        assert bodies(again) == [b"body"]


def test_a_put_of_another_thread_is_waited_for_when_a_handler_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_gate: Gate
) -> None:
    """Neither of the two closes waits for the other one's call."""
    store = open_store(tmp_path)
    put_ok(store)
    with ThreadPoolExecutor() as threads, signal_handler(store.close), monkeypatch.context() as patch:
        write_gate.shut()
        putting = threads.submit(put_ok, store, body=b"theirs")
        assert write_gate.reached.wait(WAIT_LIMIT_S)
        closing = threads.submit(store.close)
        wait_for(lambda: not store.writable)
        _signalled_at(patch, JobThread, "run")
        with pytest.raises(StoreClosed):
            store.batches()
        assert not closing.done()
        write_gate.open()
        assert putting.result(WAIT_LIMIT_S).queue_offset == 1
        closing.result(WAIT_LIMIT_S)
    with open_store(tmp_path) as again:
        assert again.recovered is None
        assert bodies(again) == [b"body", b"theirs"]


def test_an_error_of_closing_after_a_put_is_reported_by_the_next_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync_gate: Gate
) -> None:
    store = open_store(tmp_path)
    with signal_handler(store.close), monkeypatch.context() as patch:
        _signalled_at(patch, CommitLogWriter, "_now")
        sync_gate.fail()
        put_ok(store)
    with pytest.raises(StoreIOError, match="sync"):
        store.close()
    store.close()
    sync_gate.failure = None
    with open_store(tmp_path) as again:
        assert again.recovered is not None
        assert bodies(again) == [b"body"]


def _commit(store: MessageStore) -> None:
    with store.transaction("loader", 1):
        pass


PUTS: dict[str, Callable[[MessageStore], Any]] = {
    "put": lambda store: store.put_message(Message(queue_id=0, topic="orders", body=b"tick")),
    "batch": lambda store: store.put_message_batch([Message(queue_id=0, topic="orders", body=b"tick")]),
    "table": lambda store: store.put_messages(TABLE, topic="orders"),
}
OTHERS: dict[str, Callable[[MessageStore], Any]] = {
    "transaction": _commit,
    "flush": lambda store: store.flush(),
    "dispatch": lambda store: store.dispatch(),
    "wait": lambda store: store.wait_for_messages("orders", 0, 0),
}


@pytest.mark.parametrize("use", [*PUTS.values(), *OTHERS.values()], ids=[*PUTS, *OTHERS])
@pytest.mark.parametrize(("owner", "name"), PLACES, ids=NAMES)
def test_a_call_within_a_put_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[MessageStore], Any], owner: type, name: str
) -> None:
    refused: list[bool] = []

    def react(store: MessageStore) -> None:
        with pytest.raises(NestedCall, match="in the middle of another call"):
            use(store)
        refused.append(True)

    with open_store(tmp_path, flush_disk_type=SYNC) as store:
        with signal_handler(lambda: react(store)), monkeypatch.context() as patch:
            _signalled_at(patch, owner, name)
            put_ok(store)
        assert refused == [True]
        store.dispatch()
        use(store)  # it works when the other call has ended
        assert bodies(store)[0] == b"body"


def test_a_refused_put_within_a_put_does_not_let_close_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_gate: Gate
) -> None:
    """The outer put is still writing: its bytes must not end up in whatever file is opened next."""
    store = open_store(tmp_path)
    closing: list[Any] = []
    with ThreadPoolExecutor() as threads, monkeypatch.context() as patch:

        def react() -> None:
            with pytest.raises(NestedCall):
                store.put_message(Message(queue_id=0, topic="orders", body=b"tick"))
            closing.append(threads.submit(store.close))
            wait_for(lambda: not store.writable)
            with pytest.raises(NestedCall):
                store.put_message(Message(queue_id=0, topic="orders", body=b"tick"))
            assert not closing[0].done()

        with signal_handler(react):
            _signalled_at(patch, CommitLogWriter, "_now")
            put_ok(store)
        closing[0].result(WAIT_LIMIT_S)
    assert bodies(tmp_path) == [b"body"]


def test_the_log_rejects_bytes_after_its_end(tmp_path: Path) -> None:
    """A write that gets past all the store's own checks: without its files it would begin at the front again."""
    store = open_store(tmp_path)
    put_ok(store)
    encoded = store._putter.encode(Message(queue_id=0, topic="orders", body=b"late"))
    store.close()
    before = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    with pytest.raises(PutRefused, match="closed"):
        parts_of(store).engine.log.writer.append(encoded.record, [len(encoded.record)], 0, "orders", 0, has_unit=True)
    with pytest.raises(StoreClosed, match="commitlog"):
        parts_of(store).engine.log.files.writable()
    assert (tmp_path / "commitlog" / f"{0:020d}").read_bytes() == before


def test_nothing_is_written_into_the_log_after_a_handler_closed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    store = open_store(tmp_path)
    put_ok(store)
    with signal_handler(store.close), monkeypatch.context() as patch:
        _signalled_at(patch, PutMessageService, "_plain_properties")
        put_ok(store)
    for name in ("write_at", "write_mapped"):
        original = getattr(disk, name)

        def noted(*arguments: Any, original: Any = original, **named: Any) -> None:
            written.append(commit_log_path(named.get("descriptor", arguments[0])) or "")
            original(*arguments, **named)

        monkeypatch.setattr(disk, name, noted)
    for use in PUTS.values():
        with pytest.raises(StoreClosed):
            use(store)
    assert written == []


@pytest.mark.parametrize("flush", ["sync", "async"])
@pytest.mark.parametrize("how", ["return", "exit"])
def test_a_process_that_a_signal_ends_keeps_what_it_acknowledged(tmp_path: Path, how: str, flush: str) -> None:
    """The signal comes at an arbitrary moment."""
    for turn in range(2):
        path = tmp_path / str(turn)
        command = [sys.executable, "-m", "tests.store.owner.closed_by_signal", how, flush, str(path)]
        with quick_programs.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            wait_for(lambda path=path: (path / "consumequeue" / "orders" / "0").exists())  # type: ignore[misc]
            process.terminate()
            output = process.communicate(timeout=WAIT_LIMIT_S)[0].splitlines()
            assert process.returncode == 0
        taken = [body.encode() for body in output[-1].split()]
        if how == "return":
            assert output[0] == "closed"
        with open_store(path, mapped_file_size_commit_log=8 << 20) as store:
            found = bodies(store)
            assert found[: len(taken)] == taken
            assert len(found) <= len(taken) + (how == "exit"), "only the put that was interrupted had no answer"


@pytest.mark.parametrize("name", ["run", "_give", "wait"])
def test_a_handler_that_closes_while_a_call_gives_its_job_lets_both_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    store = open_store(tmp_path)
    put_ok(store)
    with signal_handler(store.close), monkeypatch.context() as patch:
        _signalled_at(patch, Job if name == "wait" else JobThread, name)
        store.flush()
    store.close()
    with open_store(tmp_path) as again:
        assert again.recovered is None


def test_a_handler_that_closes_within_stats_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    with signal_handler(store.close), monkeypatch.context() as patch:
        _signalled_at(patch, StoreStatsService, "snapshot")
        store.stats()
    store.close()
