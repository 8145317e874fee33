"""One owner at a time: a second owner is refused with an error that names the first."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from commitlog_store import MessageStore, StoreReader
from commitlog_store.errors import StoreClosed, StoreLocked
from tests.store.owner.owned_store import open_store, put_ok
from tests.support import quick_programs
from tests.support.stored_bodies import bodies
from tests.support.waiting import WAIT_LIMIT_S, wait_for

PROJECT = Path(__file__).resolve().parents[3]


@contextmanager
def _holder(kind: str, path: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.store.owner.lock_holder", kind, str(path)]
    with quick_programs.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


def test_a_second_owner_in_this_process_is_refused(tmp_path: Path) -> None:
    """The operating system would grant the lock twice, and take it away when either is closed."""
    with open_store(tmp_path) as store:
        for _ in range(2):
            with pytest.raises(StoreLocked, match=rf"{tmp_path}.*this process \({os.getpid()}\)") as refused:
                open_store(tmp_path)
            assert refused.value.holder == os.getpid()
        put_ok(store)
        assert not _lock_is_free(tmp_path), "the refused attempts have released the lock"


def test_a_second_owner_under_another_name_of_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with open_store(tmp_path / "store"), pytest.raises(StoreLocked):
        open_store(tmp_path / "link")


def test_a_second_owner_in_another_process_is_refused_by_its_number(tmp_path: Path) -> None:
    with _holder("store", tmp_path) as process:
        with pytest.raises(StoreLocked, match=rf"process {process.pid} \(python") as refused:
            open_store(tmp_path)
        assert refused.value.holder == process.pid
        assert "StoreReader" in str(refused.value)
        assert bodies(tmp_path) == [b"theirs"], "reading is free"
    with open_store(tmp_path) as store:
        assert store.recovered is None
        assert put_ok(store).queue_offset == 1


def test_a_broker_that_holds_byte_0_of_the_lock_keeps_other_owners_out(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store)
    before = sorted(path.name for path in tmp_path.iterdir())
    with _holder("lock", tmp_path / "lock") as process:
        with pytest.raises(StoreLocked, match=f"process {process.pid}"):
            open_store(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == before, "nothing was touched"
    open_store(tmp_path).close()


def test_this_store_keeps_a_broker_out(tmp_path: Path) -> None:
    with open_store(tmp_path):
        assert not _lock_is_free(tmp_path)
    assert _lock_is_free(tmp_path)
    assert (tmp_path / "lock").read_bytes() == b"lock", "as RocketMQ writes it"


def _lock_is_free(store: Path) -> bool:
    """Whether another process could take the lock as RocketMQ does."""
    code = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'ab'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
    command = [sys.executable, "-c", code, str(store / "lock")]
    return quick_programs.run(command, check=False, capture_output=True).returncode == 0


def test_a_killed_owner_holds_nothing(tmp_path: Path) -> None:
    with _holder("store", tmp_path) as process:
        process.kill()
        process.wait(WAIT_LIMIT_S)
        with open_store(tmp_path) as store:
            assert store.recovered is not None
            assert bodies(store) == [b"theirs"]


def test_an_owner_that_waits_gets_the_store_after_the_first(tmp_path: Path) -> None:
    with _holder("store", tmp_path) as process:
        with pytest.raises(StoreLocked, match=r"Waited 0.05 s for it\.$"):
            MessageStore.open(tmp_path, lock_timeout_s=0.05)
        assert process.stdin is not None
        process.stdin.close()
        with MessageStore.open(tmp_path, lock_timeout_s=20) as store:
            assert store.recovered is None


def test_readers_beside_the_owner_leave_its_lock_alone(tmp_path: Path) -> None:
    """A POSIX lock drops when any descriptor of its file is closed in the process: no reader may open it."""
    with open_store(tmp_path) as store:
        put_ok(store, keys=["k"])
        store.dispatch()
        with StoreReader.open(tmp_path) as reader:
            reader.query("orders", "k")
            reader.checkpoint()
            reader.physical_bounds()
        assert not _lock_is_free(tmp_path)


def test_a_forked_child_can_neither_use_nor_disturb_its_parents_store(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, body=b"before")
        child = os.fork()
        if not child:
            os._exit(_behave_as_a_forked_child(store))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert not _lock_is_free(tmp_path)
        put_ok(store, body=b"behind")
        wait_for(lambda: store.wait_for_messages("orders", 0, 1, timeout_s=0.1))
        assert bodies(store) == [b"before", b"behind"]
    with open_store(tmp_path) as store:
        assert store.recovered is None


def _behave_as_a_forked_child(store: MessageStore) -> int:
    """The exit code: 0 when everything is refused, and closing does nothing."""
    uses: list[Callable[[], object]] = [
        lambda: put_ok(store),
        lambda: store.put_message_batch([]),
        store.flush,
        store.dispatch,
        lambda: store.wait_for_messages("orders", 0, 0),
    ]
    for number, use in enumerate(uses, 1):
        try:
            use()
        except StoreClosed:
            continue
        return number
    try:
        open_store(Path(store.path))
    except StoreLocked as refused:
        if refused.holder != os.getppid():
            return 20
    else:
        return 21
    store.close()
    return 0 if (Path(store.path) / "abort").exists() else 22
