"""The transient pool: writes gather in memory, and are seen when they were committed to the files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from commitlog_store import MessageStoreConfig, verify_store
from commitlog_store.errors import InvalidValue
from commitlog_store.files.transient_store_pool import TransientStorePool
from commitlog_store.testing import kill
from tests.store.owner.owned_store import SYNC, open_store, put_ok
from tests.support.stored_bodies import bodies
from tests.support.waiting import WAIT_LIMIT_S

SLOW = {"transient_store_pool_enable": True, "commit_interval_commit_log": 3_600_000}


def test_gathered_messages_are_seen_only_after_their_commit(tmp_path: Path) -> None:
    with open_store(tmp_path, **SLOW) as store:
        assert put_ok(store, body=b"a").queue_offset == 0
        store.dispatch()
        with store.reader() as reader:
            assert reader.topics() == []
        assert not (tmp_path / "commitlog" / f"{0:020d}").read_bytes().strip(b"\0"), "the file holds nothing yet"
        store.flush()
        assert bodies(store) == [b"a"]
        assert store.flushed_where() == store.physical_bounds()[1]


def test_gathered_messages_are_committed_without_a_call(tmp_path: Path) -> None:
    with open_store(tmp_path, transient_store_pool_enable=True, commit_interval_commit_log=1) as store:
        put_ok(store)
        assert store.wait_for_messages("orders", 0, 0, timeout_s=WAIT_LIMIT_S)


@pytest.mark.parametrize("pool_size", [0, 1, 3])
def test_few_buffers_serve_messages_over_many_files(tmp_path: Path, pool_size: int) -> None:
    """Buffers serve one file after another; without a pool's buffers the files are written at once."""
    wanted = [b"%d " % number * 30 for number in range(900)]
    settings = SLOW | {"commit_interval_commit_log": 1, "transient_store_pool_size": pool_size}
    with open_store(tmp_path, **settings) as store:
        for body in wanted[:400]:
            put_ok(store, body=body)
        store.put_messages(pa.table({"body": wanted[400:], "queueId": [0] * 500}), topic="orders").raise_for_status()
        store.flush()
        assert bodies(store) == wanted
    assert bodies(tmp_path) == wanted


def test_a_killed_process_leaves_no_hole_where_all_buffers_were_in_use(tmp_path: Path) -> None:
    """A file without a buffer would be on disk before the ones that precede it: recovery would cut it off."""
    wanted = [b"%d " % number * 30 for number in range(900)]
    with open_store(tmp_path, **SLOW, transient_store_pool_size=2) as store:
        for body in wanted:
            put_ok(store, body=body)
        assert store.physical_bounds()[1] > 10 * store.config.mapped_file_size_commit_log
        kill(store)
    assert not [one for one in verify_store(tmp_path) if one.severity == "error"]
    with open_store(tmp_path) as store:
        kept = bodies(store)
        assert kept == wanted[: len(kept)]
        assert store.physical_bounds()[1] >= 8 * store.config.mapped_file_size_commit_log, "full files were written"
        assert store.recovered is not None
        assert store.recovered.cut is None


def test_closing_commits_the_gathered_messages(tmp_path: Path) -> None:
    with open_store(tmp_path, **SLOW) as store:
        for number in range(50):
            put_ok(store, body=b"%d" % number)
    with open_store(tmp_path) as store:
        assert store.recovered is None
        assert bodies(store) == [b"%d" % number for number in range(50)]


def test_an_owner_continues_in_a_file_that_was_begun_without_the_pool(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        put_ok(store, body=b"a")
    with open_store(tmp_path, **SLOW) as store:
        for _ in range(300):
            put_ok(store, body=b"b" * 100)
        store.flush()
        assert bodies(store) == [b"a"] + [b"b" * 100] * 300


def test_the_pool_works_with_the_asynchronous_flush_only() -> None:
    with pytest.raises(InvalidValue, match="ASYNC_FLUSH"):
        MessageStoreConfig(transient_store_pool_enable=True, flush_disk_type=SYNC)


def test_the_pool_lends_no_more_buffers_than_it_has() -> None:
    pool = TransientStorePool(2)
    first, second = pool.borrow(8192), pool.borrow(8192)
    assert first is not None
    assert second is not None
    assert (pool.available, pool.borrow(8192)) == (0, None)
    assert len(first.view) == 8192
    pool.give_back(first)
    assert (pool.available, pool.borrow(8192)) == (1, first)
