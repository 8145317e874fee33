"""Every call while the process may open few files: ``... DIR PART COUNTS``.

``COUNTS`` is ``some`` or ``all``. For each call it lowers its limit to what is open and 0, 1, 2, ... 40 more, and
raises it again. The call succeeds then, or raises a named error that says which limit it met; and it succeeds
afterwards. No file stays open. It prints one line, ``fine``, or what is not.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import resource
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from commitlog_store import Message, MessageStore, StoreReader, store_metadata, verify_store
from commitlog_store.cli.app import app
from commitlog_store.config import FlushDiskType
from commitlog_store.errors import CommitLogError, PutRefused, TooManyOpenFiles
from commitlog_store.export.export_store import export_store
from commitlog_store.testing import parts_of
from tests.store.owner.owned_store import open_store

# The numbers of files that may still be opened: each of the first ones meets another call of the system.
COUNTS = {"some": (0, 1, 2, 3, 5, 10, 40), "all": (*range(8), 10, 16, 40)}
_QUEUES = 6


def _make(path: Path) -> None:
    with open_store(path) as store:
        store.create_topic("orders", _QUEUES)
        _put_all(store)
        store.dispatch()
        _commit(store, 1)


def _commit(store: MessageStore, version: int) -> None:
    with store.transaction("loader", version) as batch:
        batch.put_messages([{"body": b"x", "queueId": 0}], topic="orders")


def _put_all(store: MessageStore, count: int = 60) -> None:
    for number in range(count):
        message = Message(topic="orders", body=bytes(3_000), queue_id=number % _QUEUES, keys=["key"])
        store.put_message(message).raise_for_status()


@contextlib.contextmanager
def _free(count: int) -> Iterator[None]:
    """At most ``count`` more files may be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open("/", os.O_RDONLY)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _fault(name: str, count: int, call: Callable[[], object]) -> str | None:
    """What is wrong with a call while so many files may be opened; None when nothing is."""
    try:
        with _free(count):
            call()
    except (TooManyOpenFiles, PutRefused) as error:  # a status has the reason of another error
        return None if "limit of open files of this process (ulimit -n)" in str(error) else f"{name} {count}: {error!r}"
    except CommitLogError as error:
        return f"{name} {count}: {error!r}"
    except BaseException:  # noqa: BLE001 - that no such error comes is what this program is for
        return f"{name} {count}: {traceback.format_exc()}"
    return None


def sweep(
    name: str, call: Callable[[], object], counts: Iterable[int] = COUNTS["all"], *, owned: bool = False
) -> Iterator[str]:
    """The first fault of a call with few descriptors, or with enough of them afterwards.

    ``owned``: the store stays open, and with it files that a call has opened.
    """
    call()
    before = _open_files()
    for count in counts:
        fault = _fault(name, count, call)
        if fault is None:
            try:
                call()
            except BaseException:  # noqa: BLE001
                fault = f"{name} after {count}: {traceback.format_exc()}"
        if fault is not None:
            yield fault
            return
    if not owned and _open_files() > before:
        yield f"{name}: {_open_files() - before} files stay open"


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _sweep_reads(base: Path, counts: Iterable[int]) -> Iterator[str]:
    path = base / "store"
    _make(path)
    calls: dict[str, Callable[[StoreReader], object]] = {
        "topics": lambda reader: reader.topics(),
        "queues": lambda reader: reader.queues("orders"),
        "read": lambda reader: [list(reader.read("orders", queue, 0)) for queue in range(_QUEUES)],
        "message_at": lambda reader: reader.message_at(0),
        "query": lambda reader: reader.query("orders", "key"),
        "query_keys": lambda reader: reader.query_keys("orders", ["key"]),
        "get_message": lambda reader: reader.get_message("orders", 0, 0),
        "offset_by_time": lambda reader: reader.offset_by_time("orders", 0, 0),
        "batches": lambda reader: reader.batches(),
        "scan": lambda reader: list(reader.scan(["orders"])),
    }
    for name, call in calls.items():
        for from_log in (False, True) if name in ("read", "query") else (False,):

            def read(call: Callable[[StoreReader], object] = call, *, from_log: bool = from_log) -> object:
                with StoreReader.open(path, from_log=from_log) as reader:
                    return call(reader)

            yield from sweep(f"{name}, from_log={from_log}", read, counts)
    yield from sweep("verify", lambda: verify_store(path), counts)
    yield from sweep("metadata", lambda: store_metadata(path, "queues"), counts)

    numbers = itertools.count()

    def export() -> None:
        export_store(path, f"parquet:{base}/out-{next(numbers)}", topics=["orders"])

    yield from sweep("export", export, counts)


def _sweep_commands(base: Path, counts: Iterable[int]) -> Iterator[str]:
    path = base / "store"
    _make(path)
    on_topic = ("cat {} orders --count 3", "query {} orders key")
    for command in ("info {}", "topics ls {}", "verify {}", "txn ls {}", "repair {}", *on_topic):
        words = command.format(path).split()

        def run(words: list[str] = words) -> None:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                app(words, standalone_mode=False)

        yield from sweep(f"commitlog {command}", run, counts)


def _sweep_owner(base: Path, counts: Iterable[int], flush: FlushDiskType) -> Iterator[str]:
    settings = {"flush_disk_type": flush, "mapped_file_size_commit_log": 16 << 10}
    path = base / "store"
    _make(path)
    yield from sweep("open", lambda: open_store(path, **settings).close(), counts)
    before = _open_files()
    yield from _sweep_calls(path, counts, settings)
    if _open_files() > before:
        yield f"{_open_files() - before} files stay open"
    yield from map(str, verify_store(path))


def _sweep_calls(path: Path, counts: Iterable[int], settings: dict[str, Any]) -> Iterator[str]:
    topics, versions = itertools.count(), itertools.count(2)
    with open_store(path, **settings) as store:
        calls: dict[str, Callable[[], object]] = {
            "put": lambda: _put_all(store, 12),
            "put_messages": lambda: store.put_messages([{"body": bytes(2_000)}] * 12, topic="orders"),
            "transaction": lambda: _commit(store, next(versions)),
            "dispatch": store.dispatch,
            "flush": store.flush,
            "batches": store.batches,
            "reader": lambda: store.reader().close(),
            "get_message": lambda: store.get_message("orders", 0, 0),
            "create_topic": lambda: store.create_topic(f"topic-{next(topics)}", 2),
            "clean": lambda: store.clean(max_bytes=64 << 10),
        }
        for name, call in calls.items():
            yield from sweep(name, call, counts, owned=True)
            if not store.writable:
                yield f"{name}: {parts_of(store).engine.state.refusal}"
                return
        _put_all(store)


PARTS: dict[str, Callable[[Path, Iterable[int]], Iterator[str]]] = {
    "reads": _sweep_reads,
    "commands": _sweep_commands,
    "async": lambda base, counts: _sweep_owner(base, counts, FlushDiskType.ASYNC_FLUSH),
    "sync": lambda base, counts: _sweep_owner(base, counts, FlushDiskType.SYNC_FLUSH),
}


def main(base: Path, part: str, counts: str) -> None:
    """One part, with a store of its own."""
    print("\n".join(PARTS[part](base, COUNTS[counts])) or "fine")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
