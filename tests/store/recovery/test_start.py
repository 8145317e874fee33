"""How a store is opened: every decision with each of its reasons, and what is looked at before it."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from commitlog_store import StoreReader
from commitlog_store.errors import LogLost
from commitlog_store.files.mapped_file_queue_writer import AllocateNow
from commitlog_store.format.checkpoint import Checkpoint, CheckpointMark
from commitlog_store.format.index_file import HEADER_SIZE
from commitlog_store.log.owner_directory import OwnerDirectory
from commitlog_store.queue.queue_survey import QueueFiles
from commitlog_store.recovery.parts import StoreParts
from commitlog_store.recovery.start import Evidence, OpenWishes, StartKind, StartParts, decide, gather
from commitlog_store.testing import kill, start_of
from tests.store.owner.owned_store import open_store, put_ok, rows, small

_CLOSED = CheckpointMark(
    closed=True,
    flushed_offset=900,
    end_offset=900,
    last_record=800,
    queue_file_count=4,
    index_file_count=1,
)
_LEFT_OPEN = replace(_CLOSED, closed=False, end_offset=0, last_record=-1)
_GOOD = Evidence(
    path="/store",
    log_path="/store/commitlog",
    abort_file=False,
    mark=_CLOSED,
    times=Checkpoint(50, 50, 50),
    log_file_count=1,
    log_start=0,
    log_end=1000,
    queue_files=QueueFiles(4, None),
    topic_without_log=None,
    index_file_count=1,
)
_NEW = replace(
    _GOOD,
    mark=None,
    times=Checkpoint(0, 0, 0),
    log_file_count=0,
    log_end=0,
    queue_files=QueueFiles(0, None),
    index_file_count=0,
)
_LOG_LOST = replace(_GOOD, log_file_count=0, log_end=0, topic_without_log="orders")


def _with(**seen: object) -> Evidence:
    return replace(_GOOD, **seen)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("evidence", "kind", "reason"),
    [
        (_LOG_LOST, StartKind.REFUSE, "/store/commitlog holds no file, but consume queues exist (orders, ...)"),
        (replace(_LOG_LOST, mark=None), StartKind.REFUSE, "holds no file"),
        (replace(_LOG_LOST, abort_file=True), StartKind.REFUSE, "holds no file"),
        (_with(queue_files=QueueFiles(3, None)), StartKind.REBUILD, "Of at least 4 consume-queue files, 3 exist"),
        (
            _with(mark=_LEFT_OPEN, queue_files=QueueFiles(3, None)),
            StartKind.REBUILD,
            "Of at least 4 consume-queue files",
        ),
        (
            _with(
                mark=replace(_LEFT_OPEN, queue_file_count=0),
                queue_files=QueueFiles(0, None),
                log_file_count=2,
            ),
            StartKind.REBUILD,
            "Of at least 1 consume-queue files, 0 exist",
        ),
        (  # Its owner died between the first message and its dispatch.
            _with(mark=replace(_LEFT_OPEN, queue_file_count=0), queue_files=QueueFiles(0, None)),
            StartKind.SCAN,
            "the checkpoint says that it is open",
        ),
        (
            _with(mark=None, queue_files=QueueFiles(0, None)),
            StartKind.REBUILD,
            "Of at least 1 consume-queue files, 0 exist",
        ),
        (_with(abort_file=True, queue_files=QueueFiles(0, None)), StartKind.REBUILD, "consume-queue files, 0 exist"),
        (_with(index_file_count=0), StartKind.REBUILD, "Of the index files that the checkpoint counts, 0 exist"),
        (
            _with(queue_files=QueueFiles(4, "/store/consumequeue/orders/0")),
            StartKind.REBUILD,
            "/store/consumequeue/orders/0 have several sizes",
        ),
        (_with(queues_end_at_mark=False), StartKind.REBUILD, "do not end where they ended"),
        (_with(log_start=500, queue_files=QueueFiles(0, None)), StartKind.REBUILD, "consume-queue files, 0 exist"),
        (_with(log_start=500, index_file_count=0), StartKind.REBUILD, "Of the index files"),
        (
            _with(log_file_count=0, log_end=0, queue_files=QueueFiles(0, None)),
            StartKind.REFUSE,
            "flushed up to physical offset 900",
        ),
        (_with(times=Checkpoint(50, 50, 40)), StartKind.REBUILD, "The last owner kept no index"),
        (_with(mark=None, index_has_holes=True), StartKind.REBUILD, "The index lacks messages"),
        (_with(index_looks_right=False), StartKind.REBUILD, "An index file is damaged"),
        (_with(mark=None, index_looks_right=False), StartKind.REBUILD, "An index file is damaged"),
        (_with(abort_file=True), StartKind.SCAN, "the file 'abort' exists"),
        (_with(mark=_LEFT_OPEN), StartKind.SCAN, "the checkpoint says that it is open"),
        (_with(mark=None), StartKind.SCAN, "The checkpoint does not say where the log ends"),
        (_NEW, StartKind.SCAN, "the store is new"),
        (_with(log_ends_at_mark=False), StartKind.SCAN, "The log does not end where the checkpoint says"),
        (_GOOD, StartKind.CLEAN, "The last owner closed the store"),
    ],
)
def test_each_reason_leads_to_its_decision(evidence: Evidence, kind: StartKind, reason: str) -> None:
    found = decide(evidence, OpenWishes())
    assert found.kind is kind
    assert reason in found.reason
    assert isinstance(found.refusal("/data/store"), LogLost) is (kind is StartKind.REFUSE)


@pytest.mark.parametrize("evidence", [_GOOD, _NEW, _with(abort_file=True), _with(index_looks_right=False)])
def test_a_rebuild_that_was_asked_for_needs_no_other_reason(evidence: Evidence) -> None:
    found = decide(evidence, OpenWishes(rebuild=True))
    assert (found.kind, found.reason) == (StartKind.REBUILD, "The caller asked for it.")


def test_a_rebuild_does_not_take_the_place_of_a_lost_log() -> None:
    assert decide(_LOG_LOST, OpenWishes(rebuild=True)).kind is StartKind.REFUSE
    assert decide(_LOG_LOST, OpenWishes(accept_lost_log=True, rebuild=True)).kind is StartKind.REBUILD


def test_a_lost_log_that_is_accepted_begins_an_empty_store() -> None:
    """Nothing can be rebuilt from an empty log, so missing queues and index files are not a reason."""
    gone = replace(_LOG_LOST, queue_files=QueueFiles(0, None), index_file_count=0, log_ends_at_mark=False)
    assert decide(gone, OpenWishes(accept_lost_log=True)).kind is StartKind.SCAN
    assert decide(replace(gone, abort_file=True), OpenWishes(accept_lost_log=True)).kind is StartKind.SCAN


@pytest.mark.parametrize(
    "evidence",
    [
        _with(index_file_count=None),
        _with(index_file_count=None, times=Checkpoint(50, 50, 0)),
        _with(queue_files=QueueFiles(5, None), index_file_count=2),
        _with(
            mark=replace(_CLOSED, queue_file_count=0, index_file_count=0),
            queue_files=QueueFiles(0, None),
            index_file_count=0,
        ),
        _with(
            log_start=500,
            mark=replace(_CLOSED, queue_file_count=9, index_file_count=3, last_record=100, end_offset=500),
        ),
    ],
    ids=[
        "no index",
        "put without an index before",
        "more files than were counted",
        "no message yet",
        "the head has expired",
    ],
)
def test_a_store_in_order_needs_no_scan(evidence: Evidence) -> None:
    assert decide(evidence, OpenWishes()).kind is StartKind.CLEAN


def test_after_a_crash_the_index_is_recovered_and_not_judged() -> None:
    found = decide(_with(abort_file=True, index_looks_right=False), OpenWishes())
    assert found.kind is StartKind.SCAN


def _closed(path: Path) -> None:
    with open_store(path) as store:
        put_ok(store, keys=("key-0",))


def test_an_owner_that_dies_before_its_first_dispatch_leaves_no_fault(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    for body in (b"a", b"b"):
        put_ok(store, body=body)
    kill(store)
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    with open_store(tmp_path / "store") as store:
        start = start_of(store)
        assert (start.kind, start.is_fault) == (StartKind.SCAN, False)
        assert [row["body"] for row in rows(store)] == [b"a", b"b"]


def _with_abort_file(path: Path) -> None:
    (path / "abort").touch()


def _without_mark(path: Path) -> None:
    (path / "checkpoint").unlink()


def _without_queues(path: Path) -> None:
    for file in (path / "consumequeue").rglob("0" * 20):
        file.unlink()


def _without_log(path: Path) -> None:
    for file in (path / "commitlog").iterdir():
        file.unlink()


def _index_file(path: Path) -> Path:
    (file,) = (path / "index").iterdir()
    return file


def _damage_index(path: Path) -> None:
    """More entries than the file has room for."""
    with open(_index_file(path), "r+b") as file:
        file.seek(HEADER_SIZE - 4)
        file.write((2**31 - 1).to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda _: None, StartKind.CLEAN),
        (_with_abort_file, StartKind.SCAN),
        (_without_mark, StartKind.SCAN),
        (_without_queues, StartKind.REBUILD),
        (lambda path: _index_file(path).unlink(), StartKind.REBUILD),
        (_damage_index, StartKind.REBUILD),
    ],
    ids=["closed", "abort", "no mark", "no queues", "no index", "damaged index"],
)
def test_a_store_is_opened_as_decided_and_the_log_says_why(
    change: Callable[[Path], None], kind: StartKind, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _closed(tmp_path / "store")
    change(tmp_path / "store")
    with caplog.at_level(logging.INFO, "commitlog_store"), open_store(tmp_path / "store") as store:
        assert (store.recovered is None) == (kind is StartKind.CLEAN)
        assert start_of(store).kind is kind
        assert f"{tmp_path / 'store'}: {kind.value}. {start_of(store).reason}" in caplog.messages
    with StoreReader.open(tmp_path / "store") as reader:
        assert len(list(reader.query("orders", "key-0"))) == 1


def _states(path: Path) -> dict[str, tuple[int, int]]:
    return {str(file): (file.stat().st_mtime_ns, file.stat().st_size) for file in path.rglob("*") if file.is_file()}


def test_a_refused_store_is_left_as_it_was(tmp_path: Path) -> None:
    _closed(tmp_path / "store")
    _without_log(tmp_path / "store")
    (tmp_path / "store" / "commitlog" / f"{0:020d}.tmp").write_bytes(b"half made")
    before = _states(tmp_path / "store")
    with pytest.raises(LogLost, match="accept_lost_log=True"):
        open_store(tmp_path / "store")
    assert _states(tmp_path / "store") == before


def _look(path: Path, is_decided: Callable[[Evidence], bool]) -> Evidence:
    with OwnerDirectory.open(str(path)) as directory:
        parts = StoreParts.of(directory, small(), AllocateNow())
        try:
            looked_at = StartParts(directory.paths, directory.aborted, parts.queues, parts.index, parts.checkpoint)
            return gather(looked_at, is_decided=is_decided)
        finally:
            parts.close()


@pytest.mark.parametrize(
    ("change", "looks"),
    [(lambda _: None, 3), (_with_abort_file, 0), (_without_mark, 2)],
    ids=["closed", "abort", "no mark"],
)
def test_looking_changes_nothing(change: Callable[[Path], None], looks: int, tmp_path: Path) -> None:
    store = tmp_path / "store"
    _closed(store)
    change(store)
    (store / "commitlog" / f"{16 << 10:020d}.tmp").write_bytes(b"half made")
    _index_file(store).with_suffix(".tmp").write_bytes(b"half made")
    before = _states(store)
    seen: list[Evidence] = []

    def is_decided(evidence: Evidence) -> bool:
        seen.append(evidence)
        return False

    _look(store, is_decided)
    assert len(seen) == looks
    assert _states(store) == before


def test_nothing_is_looked_at_after_the_decision(tmp_path: Path) -> None:
    _closed(tmp_path)
    _damage_index(tmp_path)
    assert not _look(tmp_path, lambda _: False).index_looks_right
    assert _look(tmp_path, lambda _: True).index_looks_right, "not looked at"
